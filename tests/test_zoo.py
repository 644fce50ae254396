"""The networks of the paper by name."""

import keras
import numpy as np
import pytest

from tfp_flowify import layers, zoo
from tfp_flowify.zoo import paper


def kinds(flow, kind):
    return [layer for layer in flow.network.layers if isinstance(layer, kind)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("fmlp", "fconv2") else pytest.mark.slow) for name in zoo.IMAGE_MODELS],
)
def test_networks_for_small_images_train(name):
    keras.utils.set_random_seed(0)
    flow = zoo.build(name, (6, 5, 1), levels=4, transform="affine")
    x = np.random.default_rng(0).integers(0, 4, [16, 6, 5, 1], np.uint8)
    flow.adapt(x, seed=0)
    flow.compile("adam", jit_compile=False)
    flow.fit(x, epochs=1, verbose=0)
    assert np.isfinite(flow.log_prob(x, seed=0)).all()
    assert flow.sample(3, seed=0).shape == (3, 6, 5, 1)
    without_noise = [conv for conv in kinds(flow, layers.Conv2D) if conv.filters <= conv.right.size]
    assert len(kinds(flow, layers.SplineCoupling)) == (len(without_noise) if "nsf" in name else 0)


@pytest.mark.parametrize(
    "shape, filters, sides, units",
    [
        ((28, 28, 1), [16, 24, 32, 48, 64], [14, 7, 3, 2, 1], [64] * 6 + [32] * 7 + [8]),
        ((32, 32, 3), [27, 64, 100, 112, 128], [16, 8, 4, 2, 1], [128] * 10),
    ],
)
def test_fconv1_has_the_sizes_of_the_appendix(shape, filters, sides, units):
    convolutions, dense = paper.fconv1_sizes(shape)
    assert [c[0] for c in convolutions] == filters and dense == units
    size, seen = (1, *shape), []
    for count, kernel_size, strides, padding in convolutions:
        size = layers.Conv2D(count, kernel_size, strides, padding).compute_output_shape(size)
        seen.append(size[1])
    assert seen == sides


def test_fmlp_has_the_sizes_of_the_appendix():
    assert paper.fmlp_units((28, 28, 1)) == [512, 256, 128, 64, 32, 8]
    assert paper.fmlp_units((32, 32, 3)) == [1024, 512, 512, 256, 128]


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (8, 8, 1), (7, 5, 2), (64, 48, 3), (1, 1, 1)])
def test_fconv2_never_overlaps_and_ends_in_one_pixel(shape):
    convolutions, units = paper.fconv2_sizes(shape)
    sides = np.array(shape[:2])
    for _, kernel_size, strides, _ in convolutions:
        assert kernel_size == strides
        sides = -(-sides // 2)
    assert tuple(sides) == (1, 1)
    assert units == sorted(units, reverse=True)


@pytest.mark.parametrize("name", ["fmlp", *zoo.TABULAR_MODELS])
def test_names_of_networks_for_tables(name):
    widths = paper.tabular_widths(name, 6)
    assert 3 <= len(widths) <= 21 and min(widths) >= (1 if name == "fmlp" else 6)


@pytest.mark.parametrize("features", [2, 6, 13, 43])
def test_fmlp_of_tables_narrows_to_one_without_noise(features):
    widths = [features, *paper.tabular_widths("fmlp", features)]
    assert widths == sorted(set(widths), reverse=True) and widths[-1] == 1 and len(widths) <= 13
    assert zoo.build("fmlp", (features,)).noise_shapes == []


def test_columns_of_any_scale_are_standardized():
    x = np.random.default_rng(0).normal([0, 5e4], [1, 1e5], [500, 2]).astype("float32")
    flow = zoo.build("fmlp", (2,))
    flow.adapt(x)
    normalization = kinds(flow, layers.Normalization)[0]
    np.testing.assert_allclose(np.std(normalization(x), axis=0), 1, rtol=1e-3)


@pytest.mark.parametrize("shape", [(256, 256, 3), (128, 96, 1)])
def test_large_images_need_no_large_rotation(shape):
    for sizes in (paper.fconv1_sizes, paper.fconv2_sizes):
        convolutions, units = sizes(shape)
        channels = shape[-1]
        for filters, kernel_size, *_ in convolutions:
            assert np.prod(kernel_size) * (1 if isinstance(kernel_size, tuple) else kernel_size) * channels <= 1152
            channels = filters
        assert max(units) <= 128


def test_networks_for_tables_train():
    x = np.random.default_rng(0).normal(5, 3, [64, 4]).astype("float32")
    flow = zoo.build("fmlp_8_4", (4,))
    flow.adapt(x)
    slopes = [layer.negative_slope for layer in kinds(flow, layers.LeakyReLU)]
    assert slopes == [0.5, 0.5]
    assert [layer.units for layer in kinds(flow, layers.Dense)] == [8, 4]
    flow.compile("adam", jit_compile=False)
    flow.fit(x, verbose=0)
    assert np.isfinite(flow.log_prob(x, seed=0)).all()


@pytest.mark.parametrize(
    "name, shape, message",
    [
        ("resnet", (8, 8, 1), r"Networks for images are fmlp, fconv1.*'resnet' for data of \(8, 8, 1\)"),
        ("fconv1", (6,), r"Networks for tables are fmlp.*'fconv1' for data of \(6,\)"),
        ("fmlp_0", (6,), "Networks for tables"),
        ("fmlp", (64, 64, 3), r"4096 of them at most.*\(64, 64, 3\), 12288 numbers"),
    ],
)
def test_what_cannot_be_built_is_named(name, shape, message):
    with pytest.raises(ValueError, match=message):
        zoo.build(name, shape)


@pytest.mark.parametrize("shape, levels", [((6, 5, 1), 4), ((4, 4, 3), 256), ((9, 1), 3)], ids=str)
def test_best_networks_for_whole_numbers(shape, levels):
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).integers(0, levels, [16, *shape], np.uint8)
    flow = zoo.build("best_small", shape, levels=levels, width=8, dropout=0.1)
    flow.adapt(x, seed=0)
    flow.compile("adam", jit_compile=False)
    flow.fit(x, epochs=1, verbose=0)
    assert np.isfinite(flow.log_prob(x, seed=0)).all()
    samples = np.asarray(flow.sample(3, seed=0))
    assert samples.shape == (3, *shape) and np.array_equal(samples, np.clip(np.round(samples), 0, levels - 1))
    assert flow.network.output_shape == (None, shape[-1])


def test_best_networks_for_real_numbers():
    keras.utils.set_random_seed(0)
    generator = np.random.default_rng(0)
    for shape in ((4, 4, 1), (5,)):
        x = generator.normal(3, 2, size=(40, *shape)).astype("float32")
        flow = zoo.build("best_small", shape, width=8)
        flow.adapt(x, seed=0)
        flow.compile("adam", jit_compile=False)
        flow.fit(x, epochs=1, verbose=0)
        assert flow.is_exact and np.isfinite(flow.log_prob(x)).all()
    with pytest.raises(ValueError, match="chooses among levels, so it takes no stages, transform"):
        zoo.build("best", (8, 8, 1), levels=4, transform="affine", stages=2)


def test_best_network_given_a_condition():
    keras.utils.set_random_seed(0)
    x, y = np.random.default_rng(0).integers(0, 4, [30, 4, 4, 1], np.uint8), np.arange(30) % 3
    x[y == 2] = 0
    flow = zoo.build("best_small", (4, 4, 1), levels=4, condition=zoo.labels(3), width=8)
    flow.adapt(x, condition=y)
    flow.compile(keras.optimizers.Adam(0.02), jit_compile=False)
    flow.fit([x, y], epochs=30, verbose=0)
    assert np.mean(flow.sample(20, seed=0, condition=2)) < 0.5 < np.mean(flow.sample(20, seed=0, condition=1))


def test_noise_of_overlapping_convolutions_is_shaped_by_name():
    flow = zoo.build("fconv1", (6, 5, 1), levels=4, noise="shaped")
    assert [type(layer.layer) for layer in kinds(flow, layers.ShapedNoise)] == [layers.Conv2D] * 2
    with pytest.raises(ValueError, match="the dense layers of fmlp add no noise"):
        zoo.build("fmlp", (6, 5, 1), levels=4, noise="shaped")


@pytest.mark.parametrize("front, first", [("spread", [layers.Spread]), ("uniform", [layers.Dequantize, layers.Logit])])
def test_fronts_of_whole_numbers(front, first):
    flow = zoo.build("fmlp", (4, 4, 1), levels=4, front=front)
    assert [type(layer) for layer in flow.network.layers[: len(first)]] == first
    with pytest.raises(ValueError, match="front='none'"):
        zoo.build("fmlp", (4, 4, 1), levels=4, front="none")


def test_volumes_have_one_set_of_levels_for_a_channel():
    flow = zoo.build("fmlp_8_4", (3, 3, 3, 2), levels=4)
    assert flow.network.layers[0].loc.shape == (2, 4) and flow.network.layers[1].target_shape == (54,)
    x = np.random.default_rng(0).integers(0, 4, (5, 3, 3, 3, 2))
    np.testing.assert_array_equal(flow.decode(flow.encode(x, seed=0)), x)


def test_best_network_for_one_column():
    assert zoo.build("best_small", (1,)).is_exact


@pytest.mark.slow
def test_networks_given_a_condition():
    keras.utils.set_random_seed(0)
    images = np.random.default_rng(0).integers(0, 4, [16, 6, 5, 1], np.uint8)
    flow = zoo.build("fconv2_nsf", (6, 5, 1), levels=4, condition=zoo.labels(3))
    y = np.arange(16) % 3
    flow.adapt(images, condition=y, seed=0)
    flow.compile("adam", jit_compile=False)
    assert np.isfinite(flow.fit([images, y], epochs=1, verbose=0).history["nll"]).all()
    assert flow.sample(3, seed=0, condition=2).shape == (3, 6, 5, 1)
    table = zoo.build("fmlp", (3,), condition=(2,))
    assert table.base == "spline" and table.is_exact
    x = np.random.default_rng(0).normal(size=(20, 5)).astype("float32")
    assert table.log_prob(x[:, :3], condition=x[:, 3:]).shape == (20,)
