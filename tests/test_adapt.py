"""`adapt`: a sane start, whatever the data are like."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import digits_flow, normal

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl


def test_the_output_has_a_density_of_its_own():
    """A network whose output is far from standard normal, as that of a classifier is."""
    flow, x = FlowModel([keras.Input([3]), fl.Rescaling(50.0, 20.0)]), normal(2000, 3)
    flow.adapt(x)
    exact = -1.5 * np.log(2 * np.pi) - 0.5 * np.sum(x**2, axis=1)
    np.testing.assert_allclose(flow.log_prob(x), exact, atol=0.5)
    assert abs(np.std(flow.sample(2000, seed=1, temperature=0.5)) - 0.5) < 0.05
    standard = FlowModel([keras.Input([3]), fl.Rescaling(50.0, 20.0)], base="standard")
    assert not standard.densities.weights
    assert np.mean(standard.log_prob(x)) < -1000
    with pytest.raises(ValueError, match="base='cauchy'"):
        FlowModel([keras.Input([3]), fl.Dense(3)], base="cauchy")


def test_adapt_gives_a_sane_start(images):
    keras.utils.set_random_seed(0)
    stack = [fl.Dequantize(17), fl.Normalization(), fl.Conv2D(6, 3, 2, "same"), fl.ReLU(), fl.MaxPooling2D()]
    flow = FlowModel([keras.Input((8, 8, 1)), *stack, fl.Flatten(), fl.Dense(5, transform="affine+spline")])
    before = float(np.mean(flow.bits_per_dim(images[1], seed=1)))
    flow.adapt(images[0][:500], seed=1)
    assert float(np.mean(flow.bits_per_dim(images[1], seed=1))) < before - 1
    normalized = flow.network.layers[1](flow.network.layers[0](images[0][:500].astype("float32")))
    np.testing.assert_allclose([np.mean(normalized), np.std(normalized)], [0, 1], atol=0.02)
    parts = flow.encode(images[0], seed=2)
    np.testing.assert_allclose(np.mean(parts[0], 0), 0, atol=0.2)
    np.testing.assert_allclose([np.mean(parts[-1]), np.std(parts[-1])], [0, 1], atol=0.15)
    weights = flow.network.get_weights()
    flow.adapt(5 * (images[0][:100] // 6), densities_only=True)
    for a, b in zip(weights, flow.network.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_adapt_leaves_a_density_of_ones_own_that_is_trained():
    own = keras.layers.Dense(2, bias_initializer=keras.initializers.Constant(5.0))
    flow = FlowModel([keras.Input([3]), fl.Dense(2, density=own)])
    flow.adapt(normal(100, 3))
    np.testing.assert_array_equal(own.bias, [5.0, 5.0])


def test_adapt_builds_under_a_strategy(two_devices):
    with two_devices.scope():
        flow = FlowModel([fl.Dense(4), fl.LeakyReLU(), fl.Dense(2)])
        flow.compile(keras.optimizers.Adam(1e-2))
    x = normal(64, 3)
    flow.adapt(x)
    assert np.isfinite(flow.fit(x, batch_size=32, verbose=0).history["loss"]).all()


def test_normalization_takes_datasets():
    x, layer = 3 * normal(40, 2) + 1, fl.Normalization()
    layer.adapt(tf.data.Dataset.from_tensor_slices(x).batch(16))
    np.testing.assert_allclose(np.mean(layer(x), axis=0), 0, atol=1e-5)


PLACES = np.zeros([200, 8, 8, 1], "float32")


PLACES[:, 1:7, 1:7] = normal(200, 6, 6, 1)  # The border is constant.


SLOPES = (
    normal(200, 8, 8, 1) + 5 * np.arange(8, dtype="float32")[:, None, None]
)  # Means that differ from place to place.


@pytest.mark.parametrize("data", [PLACES, SLOPES], ids=["constant border", "slope"])
@pytest.mark.parametrize(
    "stack",
    [
        lambda: [fl.AveragePooling2D()],
        lambda: [fl.MaxPooling2D(3, padding="same")],
        lambda: [fl.Conv2D(4, 2, 2), fl.Split(2)],
        lambda: [fl.Conv2D(2, 1, 2)],  # Three of four pixels are not seen.
        lambda: [fl.FourierConv2D(1)],
        lambda: [fl.Flatten(), fl.Dense(10, transform="affine+spline")],
    ],
    ids=["average", "max", "split", "gaps", "fourier", "dense"],
)
def test_adapt_never_makes_it_worse(stack, data):
    flow = FlowModel([keras.Input((8, 8, 1)), *stack()])
    before, scaled = float(np.mean(flow.log_prob(data, seed=1))), FlowModel([keras.Input((8, 8, 1)), *stack()])
    flow.adapt(data)
    after = float(np.mean(flow.log_prob(data, seed=1)))
    assert after > before - 1
    scaled.adapt(100 * data)  # Up to the unit of measure it is the same, but for noise of a fixed scale.
    change = float(np.mean(scaled.log_prob(100 * data, seed=1))) - after
    assert abs(change + 64 * np.log(100)) < 64


def test_adapt_leaves_what_is_frozen(images):
    flow = digits_flow()
    flow.network.trainable = flow.densities.trainable = False
    before = flow.get_weights()
    flow.adapt(images[0][:50])
    for a, b in zip(before, flow.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_adapt_leaves_single_layers_that_are_frozen():
    """`Normalization` is never trained, but may be frozen."""
    stack = [fl.Normalization(), fl.Dense(3), fl.LeakyReLU(), fl.Dense(2)]
    flow = FlowModel([keras.Input([4]), *stack])
    flow.adapt(3 * normal(200, 4) + 1)
    stack[0].trainable = stack[1].trainable = False
    before = stack[0].get_weights() + stack[1].get_weights()
    free = [np.array(w) for w in stack[3].weights]
    flow.adapt(50 * normal(300, 4) - 7)
    for a, b in zip(before, stack[0].get_weights() + stack[1].get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in zip(free, stack[3].weights, strict=True))


@pytest.mark.parametrize("features", [6, 200], ids=["exponential", "reflections"])
def test_dense_layers_drop_the_directions_of_least_variance(features):
    keras.utils.set_random_seed(0)
    scales = np.geomspace(10, 0.01, features)
    x = (normal(1000, features) * scales) @ np.linalg.qr(normal(features, features))[0]
    flow = FlowModel([keras.Input([features]), fl.Dense(3)])
    flow.adapt(x)
    kept = np.linalg.svd(flow.network.layers[0].kernel, full_matrices=False)[0]
    variances = np.linalg.eigvalsh(np.cov(x.T))[::-1]
    np.testing.assert_allclose(np.trace(kept.T @ np.cov(x.T) @ kept), variances[:3].sum(), rtol=1e-3)


def test_few_examples_of_many_dimensions_do_not_mislead():
    """As many examples as dimensions leave directions in which they do not vary at all: other data do."""
    keras.utils.set_random_seed(0)
    scales = np.geomspace(1, 0.1, 200)
    flow, few, others = FlowModel([keras.Input([200]), fl.Dense(20)]), normal(150, 200) * scales, normal(999, 200)
    flow.adapt(few)
    exact = -100 * np.log(2 * np.pi) - np.log(scales).sum() - 100
    assert exact - 100 < np.mean(flow.log_prob((others * scales).astype("float32"))) < exact


def test_noise_of_a_network_that_stays_is_as_large_as_its_signals_and_does_not_grow():
    keras.utils.set_random_seed(0)
    x = normal(200, 6)
    stack = [layer for _ in range(8) for layer in (fl.Dense(24, gain=1.7), fl.ReLU(), fl.Dense(6, gain=1.7))]
    flow = FlowModel([keras.Input([6]), *stack], pretrained=True)
    flow.adapt(10 * x, seed=0)
    without, z = (float(np.std(values)) for values in (flow(10 * x), flow.encode(10 * x, seed=0)[0]))
    assert 1 < without < 100 and z < 20 * without, (without, z)
    assert np.isfinite(flow.log_prob(10 * x, seed=0)).all()
