"""FlowModel as a Keras model: built from lists and graphs, fitted, frozen, scored, and told what is wrong."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import digits_flow, small_flow

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.data import digits


@pytest.fixture(scope="module")
def images():
    (x_train, _), (x_test, _) = digits()
    return x_train, x_test


@pytest.fixture(scope="module")
def flow():
    keras.utils.set_random_seed(0)
    return small_flow()


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_fit_lowers_bits_steadily_and_is_reproducible(images):
    def history():
        keras.utils.set_random_seed(3)
        flow = digits_flow()
        flow.compile(keras.optimizers.Adam(3e-3))
        return flow.fit(images[0], batch_size=100, epochs=5, validation_data=(images[1],), verbose=0).history

    first, second = history(), history()
    for name, values in first.items():  # Sums over threads may differ in the last bit.
        np.testing.assert_allclose(second[name], values, rtol=1e-5)
    bits = first["bits_per_dim"]
    assert all(later < sooner for sooner, later in itertools.pairwise(bits))
    assert first["val_bits_per_dim"][-1] < first["val_bits_per_dim"][0] - 0.2
    np.testing.assert_allclose(first["nll"], np.array(bits) * 64 * np.log(2), rtol=1e-5)
    assert first["loss"] == first["nll"]


@pytest.mark.parametrize("jit_compile", [True, False, "auto"])
def test_trains_with_and_without_xla(jit_compile):
    keras.utils.set_random_seed(0)
    flow, x = small_flow(), normal(256, 3)
    flow.compile(keras.optimizers.Adam(1e-2), jit_compile=jit_compile)
    losses = flow.fit(x, batch_size=64, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert flow.evaluate(x, verbose=0, return_dict=True)["nll"] < losses[0]


@pytest.fixture(scope="module")
def two_devices():
    """One strategy for all tests: TensorFlow remembers the shapes that devices exchanged."""
    devices = tf.config.list_logical_devices("CPU")
    assert len(devices) == 2  # conftest.py asks for two.
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def test_two_devices_give_the_loss_of_one(two_devices):
    """A flow without noise, so that the loss does not depend on draws; the same weights follow too."""

    def train(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            flow = FlowModel([keras.Input([4]), fl.Dense(4), fl.LeakyReLU(), fl.Dense(2)])
            flow.compile(keras.optimizers.SGD(1e-2))
        losses = flow.fit(x, batch_size=32, epochs=2, shuffle=False, verbose=0).history["loss"]
        return losses, flow.get_weights()

    x = normal(128, 4)
    one, weights = train(tf.distribute.get_strategy())
    two, weights_of_two = train(two_devices)
    np.testing.assert_allclose(two, one, rtol=1e-5)
    for a, b in zip(weights, weights_of_two, strict=True):
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_two_devices_with_an_optimizer_that_has_slots(two_devices):
    x = normal(64, 3)
    with two_devices.scope():
        flow = FlowModel([fl.Dense(5), fl.LeakyReLU(), fl.Dense(2)])  # Built by fit, in the same scope.
        flow.compile(keras.optimizers.Adam(1e-2))
    losses = flow.fit(x, batch_size=32, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_replicas_draw_different_noise(two_devices):
    with two_devices.scope():
        flow = small_flow()
    seeds = two_devices.experimental_local_results(two_devices.run(flow._next_seed))
    assert not np.array_equal(*seeds)


def test_datasets_and_labels(images):
    x = images[0][:200]
    flow = digits_flow()
    flow.compile("adam", run_eagerly=True)
    data = tf.data.Dataset.from_tensor_slices((x, np.zeros(200))).batch(100)
    assert np.isfinite(flow.fit(data, epochs=1, verbose=0).history["nll"][0])
    weighted = tf.data.Dataset.from_tensor_slices((x, np.zeros(200), np.zeros(200))).batch(100)
    assert flow.evaluate(weighted, verbose=0, return_dict=True)["loss"] == 0


def test_builds_from_the_data_of_fit():
    flow = FlowModel([fl.Dense(5), fl.LeakyReLU(), fl.Dense(2)])
    flow.compile("adam", run_eagerly=True)
    flow.fit(normal(8, 3), verbose=0)
    assert flow.sample(4).shape == [4, 3]


def test_builds_by_hand_and_saves(tmp_path):
    flow = FlowModel([fl.Dense(5), fl.LeakyReLU(), fl.Dense(2)])
    flow.build((None, 3))
    flow.save(tmp_path / "flow.keras")
    loaded, x = keras.models.load_model(tmp_path / "flow.keras"), normal(4, 3)
    np.testing.assert_array_equal(loaded.log_prob(x, seed=1), flow.log_prob(x, seed=1))


def test_callbacks_of_keras_work(tmp_path):
    flow, x = small_flow(), normal(64, 3)
    flow.compile("adam", run_eagerly=True)
    best = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="val_loss", save_best_only=True)
    stop = keras.callbacks.EarlyStopping("val_bits_per_dim", patience=1, min_delta=1e6, mode="min")
    history = flow.fit(x, epochs=5, callbacks=[best, stop], validation_data=(x,), verbose=0).history
    assert len(history["loss"]) == 2  # Nothing falls by a million: stopped.
    assert isinstance(keras.models.load_model(tmp_path / "best.keras"), FlowModel)


def test_functional_graph_with_fan_out_and_several_outputs():
    x = keras.Input([4])
    h = fl.Dense(6)(x)
    a, b = fl.LeakyReLU()(h), fl.Dense(6)(h)
    total = fl.Add()([a, b, h])
    inner = keras.Sequential([keras.Input([6]), fl.Dense(3), fl.Spline()])
    network = keras.Model(x, [inner(total), fl.Concatenate()([fl.Dense(1)(a), fl.Split(1)(total)])])
    flow, data = FlowModel(network), normal(5, 4)
    for ours, plain in zip(flow.distribution.network(data), network(data), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-5)
    parts = flow.encode(data, seed=1)
    assert [tuple(part.shape) for part in parts[:2]] == [(5, 3), (5, 2)]
    np.testing.assert_allclose(flow.decode(parts), data, atol=1e-5)
    assert np.isfinite(flow.log_prob(data)).all()


def test_a_layer_may_be_used_twice():
    shared = fl.Dense(4)
    flow = FlowModel([keras.Input([4]), shared, fl.LeakyReLU(), shared])
    assert len(flow.network.trainable_variables) == 4
    x = normal(5, 4)
    np.testing.assert_allclose(flow.decode(flow.encode(x)), x, atol=1e-5)


def test_samples_and_scores_before_any_fit(flow):
    x = flow.sample(700, seed=1, batch_size=256)
    assert x.shape == [700, 3]
    np.testing.assert_array_equal(flow.sample(700, seed=1, batch_size=256), x)
    assert not np.array_equal(flow.sample(5), flow.sample(5))
    np.testing.assert_allclose(flow.log_prob(x[:9], seed=2), flow.distribution.log_prob(x[:9], seed=2), rtol=1e-5)
    assert flow.log_prob(x, batch_size=200).shape == [700]
    bits = flow.bits_per_dim(x, num_draws=3, seed=4)
    np.testing.assert_allclose(bits, -flow.log_prob(x, 3, seed=4) / (3 * np.log(2)), rtol=1e-5)
    one, many = (float(np.mean(flow.log_prob(x, num_draws=k, seed=1))) for k in (1, 100))
    assert many > one
    compiled = tf.function(lambda x: flow.log_prob(x, seed=2))
    np.testing.assert_allclose(compiled(x[:9]), flow.log_prob(x[:9], seed=2), rtol=1e-5)


def test_the_output_has_a_density_of_its_own():
    """A network whose output is far from standard normal, as that of a classifier is."""
    flow, x = FlowModel([keras.Input([3]), fl.Rescaling(50.0, 20.0)]), normal(2000, 3)
    flow.adapt(x)
    exact = -1.5 * np.log(2 * np.pi) - 0.5 * np.sum(x**2, axis=1)
    np.testing.assert_allclose(flow.log_prob(x), exact, atol=0.5)
    assert abs(np.std(flow.sample(2000, seed=1, temperature=0.5)) - 0.5) < 0.05
    standard = FlowModel([keras.Input([3]), fl.Rescaling(50.0, 20.0)], base="standard")
    assert not standard.inverse.weights
    assert np.mean(standard.log_prob(x)) < -1000
    with pytest.raises(ValueError, match="base='cauchy'"):
        FlowModel([keras.Input([3]), fl.Dense(3)], base="cauchy")


def test_mean_samples_share_the_output_and_temperature_narrows(flow):
    exact = FlowModel([keras.Input([4]), fl.Dense(4), fl.LeakyReLU(), fl.Dense(2)])
    mean, drawn = exact.sample(50, mean=True, seed=1), exact.sample(50, seed=1)
    np.testing.assert_allclose(exact.network(mean), exact.network(drawn), atol=1e-5)
    assert not np.allclose(mean, drawn)
    assert np.std(flow.sample(500, seed=1, temperature=0.1)) < 0.2 * np.std(flow.sample(500, seed=1))


def test_reconstructions_keep_the_output():
    flow, x = FlowModel([keras.Input([4]), fl.Dense(4), fl.LeakyReLU(), fl.Dense(2)]), normal(6, 4)
    again = flow.reconstruct(x)
    np.testing.assert_allclose(flow.network(again), flow.network(x), atol=1e-5)
    assert np.abs(again - x).max() > 0.1


def test_freezing_one_side_trains_the_other(flow):
    flow, x = small_flow(), normal(32, 3)
    for frozen, trained in ((flow.network, flow.inverse), (flow.inverse, flow.network)):
        frozen.trainable, trained.trainable = False, True
        flow.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
        before = frozen.get_weights(), [np.array(w) for w in trained.trainable_variables]
        flow.fit(x, epochs=2, verbose=0)
        for a, b in zip(before[0], frozen.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
        assert all(not np.array_equal(a, b) for a, b in zip(before[1], trained.trainable_variables, strict=True))


def test_joint_training_has_both_losses():
    x, y = normal(64, 3), (normal(64, 3)[:, 0] > 0).astype("int32")
    flow = small_flow()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    flow.compile("adam", loss=loss, likelihood_weight=0.5, metrics=["accuracy"], run_eagerly=True)
    logs = flow.evaluate(x, y, batch_size=64, verbose=0, return_dict=True)
    expected = loss(y, flow.network(x)) + 0.5 * logs["nll"]
    np.testing.assert_allclose(logs["loss"], expected, rtol=1e-5)
    assert 0 <= logs["accuracy"] <= 1
    flow.fit(x, y, verbose=0)
    with pytest.raises(ValueError, match="need labels"):
        flow.fit(x, verbose=0)


def test_conditioners_know_whether_they_are_trained():
    dropout = keras.Sequential([keras.layers.Dropout(0.5), keras.layers.Dense(2)])  # Not built: the layer does that.
    flow, x = FlowModel([keras.Input([3]), fl.Dense(2, inverse=dropout)]), normal(50, 3)
    assert len(flow.inverse.networks) == 0
    assert len(flow.inverse.parts[0].trainable_variables) == 2
    losses = [float(flow.compute_loss(x, training=training)) for training in (True, True, False, False)]
    assert losses[0] != losses[1]
    assert losses[2] == losses[3]

    class Other(keras.Model):
        def call(self, x, training=None):
            return flow.log_prob(x)

    inside = Other()(x, training=True)  # Who asks for a likelihood gets it without dropout, wherever he is.
    np.testing.assert_allclose(inside, flow.log_prob(x), rtol=1e-5)
    np.testing.assert_allclose(np.mean(inside), -losses[2], rtol=1e-5)


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
    flow.adapt(5 * (images[0][:100] // 6), network=False)
    for a, b in zip(weights, flow.network.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


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
    flow.network.trainable = flow.inverse.trainable = False
    before = flow.get_weights()
    flow.adapt(images[0][:50])
    for a, b in zip(before, flow.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_functions_inside_functions(flow):
    x = normal(6, 3)
    parts = flow.encode(x, seed=1)
    np.testing.assert_allclose(tf.function(flow.decode)(parts), x, atol=1e-5)
    assert tf.function(lambda n: flow.sample(n, seed=tf.constant(3)))(tf.constant(4)).shape[1:] == [3]
    np.testing.assert_array_equal(flow.sample(4, seed=tf.constant(3)), flow.sample(4, seed=3))
    scores = flow.log_prob(tf.Variable(x), num_draws=40, seed=1)
    compiled = tf.function(lambda x: flow.log_prob(x, num_draws=40, seed=1))
    np.testing.assert_allclose(compiled(tf.constant(x)), scores, rtol=1e-5)
    assert flow.sample(0).shape == [0, 3]
    weights = len(flow.weights)
    flow.build((None, 3))  # Once is enough.
    assert len(flow.weights) == weights


def test_metrics_without_a_loss_are_those_of_the_output():
    flow, x, y = small_flow(), normal(32, 3), normal(32, 2)
    flow.compile("adam", metrics=["mae"], run_eagerly=True)
    logs = flow.evaluate(x, y, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["mae"], np.mean(np.abs(flow.network(x) - y)), rtol=1e-5)


@pytest.mark.parametrize("policy", ["float64", "mixed_bfloat16"])
def test_joint_training_in_other_precisions(policy):
    stack = [fl.Dequantize(256, dtype=policy), fl.Logit(dtype=policy), fl.Dense(5, dtype=policy), fl.ReLU(dtype=policy)]
    flow = FlowModel([keras.Input([4]), *stack, fl.Dense(1, dtype=policy)])
    x = np.array([[0, 1, 254, 255]] * 8, "uint8")
    assert np.isfinite(np.asarray(flow.network(x), "float64")).all()
    flow.compile("adam", loss="mse", run_eagerly=True)
    assert np.isfinite(flow.fit(x, np.zeros([8, 1]), verbose=0).history["loss"]).all()
    assert flow.log_prob(x).dtype == ("float64" if policy == "float64" else "float32")


def test_layers_of_ones_own_in_stochastic():
    class Block(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(2)])

        def call(self, x):
            return self.inner(x) ** 2

    flow, x = FlowModel([keras.Input([3]), fl.Stochastic(Block())]), normal(5, 3)
    assert len(flow.network.trainable_variables) == 4
    np.testing.assert_allclose(flow.decode(flow.encode(x)), x, atol=1e-5)


def test_sizes_may_be_unknown_in_ordinary_models():
    x = keras.Input([None, None, 3])
    h = fl.Cropping2D(((0, 1), (2, 0)))(fl.ZeroPadding2D(1)(fl.Conv2D(3, 3, padding="same")(x)))
    model = keras.Model(x, fl.Reshape((-1, 3))(fl.MaxPooling2D()(h)))
    assert model(normal(2, 6, 5, 3)).shape == [2, 6, 3]


def test_summary_shows_where_dimensions_come_and_go():
    lines = []
    digits_flow().summary(print_fn=lines.append)
    table = "\n".join(lines)
    row = next(line for line in table.splitlines() if line.startswith("dense"))
    assert "(48,)" in row  # 64 features become 16.
    assert "64 of data + 64 of noise = 10 of output + 118 dropped" in table


def test_clones_from_config():
    flow = digits_flow()
    again = FlowModel.from_config(flow.get_config())
    assert [w.shape for w in again.weights] == [w.shape for w in flow.weights]
    again.set_weights(flow.get_weights())
    x = digits()[0][0][:4]
    np.testing.assert_array_equal(again.log_prob(x, seed=1), flow.log_prob(x, seed=1))


def unbuilt():
    return FlowModel([fl.Dense(2)])


BAD = {
    "unbuilt log_prob": (lambda f: unbuilt().log_prob(normal(2, 3)), "not built.*keras.Input"),
    "unbuilt sample": (lambda f: unbuilt().sample(2), "not built.*keras.Input"),
    "unbuilt decode": (lambda f: unbuilt().decode([normal(2, 2)]), "not built.*keras.Input"),
    "unbuilt export": (lambda f: unbuilt().export("nowhere"), "not built.*keras.Input"),
    "unbuilt fit": (lambda f: unbuilt().fit([1, 2]), "not built.*do not tell their shape"),
    "shape": (lambda f: f.log_prob(normal(4, 5)), r"batches \(n, 3\).*shape=\(4, 5\)"),
    "no batch": (lambda f: f.log_prob(normal(3)), r"batches \(n, 3\).*shape=\(3,\)"),
    "empty": (lambda f: f.log_prob(normal(0, 3)), "one or more"),
    "nan": (lambda f: f.log_prob(np.float32([[0, np.nan, 0]])), r"1 of 3 entries.*nan at \(0, 1\)"),
    "fit shape": (lambda f: f.fit(normal(4, 5)), r"batches \(n, 3\).*shape=\(4, 5\)"),
    "fit nan": (lambda f: f.fit(np.full([2, 3], np.inf)), "finite numbers.*6 of 6 entries"),
    "validation": (lambda f: f.fit(normal(4, 3), validation_data=(normal(4, 5),)), r"shape=\(4, 5\)"),
    "evaluate": (lambda f: f.evaluate(normal(4, 5)), r"shape=\(4, 5\)"),
    "encode": (lambda f: f.encode(normal(4, 5)), r"shape=\(4, 5\)"),
    "reconstruct": (lambda f: f.reconstruct(np.float32([[np.nan] * 3])), "3 of 3 entries"),
    "draws": (lambda f: f.log_prob(normal(4, 3), num_draws=0), "num_draws=0"),
    "half a draw": (lambda f: f.log_prob(normal(4, 3), num_draws=2.5), "num_draws=2.5"),
    "count": (lambda f: f.sample(-1), "n=-1"),
    "counts": (lambda f: f.sample((2, 3)), r"n=\(2, 3\)"),
    "nothing": (lambda f: f.fit(), "Received: nothing"),
    "dict": (lambda f: f.fit({"x": normal(4, 3)}), "Received: dict"),
    "batches of a generator": (lambda f: f.fit((b for b in [(normal(4, 2, 3),)])), r"batches \(n, 3\).*4, 2, 3"),
    "temperature": (lambda f: f.sample(1, temperature=0.0), "temperature=0.0"),
    "parts": (lambda f: f.decode([normal(4, 2)]), r"parts of \(None, 2\), \(None, 3\).*\[\(4, 2\)\]"),
    "part shape": (lambda f: f.decode([normal(4, 2), normal(4, 2)]), r"\(4, 2\), \(4, 2\)"),
    "part batches": (lambda f: f.decode([normal(4, 2), normal(5, 3)]), r"\(4, 2\), \(5, 3\)"),
    "part nan": (lambda f: f.decode([normal(4, 2), np.full([4, 3], np.nan)]), "entries in residual_0"),
    "weight": (lambda f: f.compile("adam", likelihood_weight=-1.0), "likelihood_weight=-1.0"),
    "unbatched": (lambda f: f.fit(tf.data.Dataset.from_tensor_slices(normal(4, 3))), r"call .batch\(size\)"),
    "dataset shape": (lambda f: f.fit(tf.data.Dataset.from_tensors(normal(4, 5))), r"a dataset of \(4, 5\)"),
    "dataset of dicts": (lambda f: f.fit(tf.data.Dataset.from_tensors({"image": normal(4, 3)})), "dataset of x or"),
    "two inputs": (
        lambda f: FlowModel(keras.Model(*[[a := keras.Input([3]), b := keras.Input([3])], fl.Add()([a, b])])),
        "one input. Received: a network with 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_named(case, flow):
    action, message = BAD[case]
    flow.compile("adam", run_eagerly=True)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        action(flow)


def test_what_is_no_network_is_named(flow):
    x = keras.Input([3])
    h = fl.Dense(3)(x)
    for network, message in (
        (keras.Model(x, h + x), r"Received: add.*\(Add\). Use layers.Add"),
        (keras.Model(x, h[:, :2]), r"\(GetItem\). Use layers.Split"),
        (flow, "Received: FlowModel 'flow_model"),
        ([keras.Input([3]), flow], "Received: flow_model.*Stochastic"),
        (keras.layers.Dense(3), "Received: <Dense"),
        ([], r"Received: \[\]"),
    ):
        with pytest.raises(TypeError, match=message):
            FlowModel(network)
    with pytest.raises(ValueError, match="is used nowhere"):
        FlowModel(keras.Model(x, fl.Duplicate(2)(x)[0]))
    with pytest.raises(TypeError, match=r"layers of .* work in float32, the flow in float64"):
        FlowModel([keras.Input([3]), fl.Dense(3)], dtype="float64")


def test_layers_of_keras_are_named():
    with pytest.raises(TypeError, match=r"Received: <Dense.*Stochastic"):
        FlowModel([keras.Input([3]), keras.layers.Dense(3)])
    x = keras.Input([3])
    with pytest.raises(TypeError, match=r"Received: activation.*Stochastic"):
        FlowModel(keras.Model(x, keras.layers.Activation("relu")(fl.Dense(3)(x))))
    with pytest.raises(TypeError, match="Stochastic"):
        fl.Residual([keras.layers.Dense(3)])


@pytest.mark.parametrize("value", [17, -1, 0.5])
def test_numbers_out_of_range_for_dequantize(value, images):
    flow, x = digits_flow(), images[0][:3].astype("float32")
    flow.compile("adam", run_eagerly=True)
    x[1, 2, 3, 0] = value
    message = r"whole numbers 0 ... 16. Received: 1 of 192 entries that are not, the first .* at \(1, 2, 3, 0\)"
    for action in (flow.log_prob, flow.fit, flow.encode):
        with pytest.raises(ValueError, match=message):
            action(x)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"whole numbers 0 \.\.\. 16"):
        flow.fit(tf.data.Dataset.from_tensors(x), verbose=0)


LAYER_ERRORS = {
    "units": (lambda: fl.Dense(0), "units=0"),
    "inverse": (lambda: fl.Dense(2, inverse="funel"), "inverse='funel'"),
    "transform": (lambda: fl.Dense(2, transform="cubic"), "transform='cubic'"),
    "orthogonal": (lambda: fl.Dense(2, orthogonal="qr"), "orthogonal='qr'"),
    "noise": (lambda: fl.Dense(2, noise="cauchy"), "noise='cauchy'"),
    "noise scale": (lambda: fl.Dense(2, noise_scale=0.0), "noise_scale=0.0"),
    "kernel size": (lambda: fl.Conv2D(2, (1, 2, 3)), r"2 of them. Received: kernel_size=\(1, 2, 3\)"),
    "padding": (lambda: fl.Conv2D(2, 2, padding="full"), "padding='full'"),
    "image": (lambda: fl.Conv2D(2, 2)(keras.Input([4, 4])), r"\(batch, side, side, channels\).*\(None, 4, 4\)"),
    "window": (lambda: fl.Conv2D(2, 5)(keras.Input([4, 4, 1])), r"\(5, 5\) do not fit into \(4, 4\)"),
    "unknown size": (lambda: FlowModel([keras.Input([None, 4, 1]), fl.Conv2D(2, 2)]), "shapes that are known"),
    "kept": (lambda: fl.SplineCoupling(kept=5)(keras.Input([5])), "kept=5 of 5"),
    "split": (lambda: fl.Split(5)(keras.Input([3])), "3 -> 5. Use Widen"),
    "widen": (lambda: fl.Widen(2)(keras.Input([3])), "3 -> 2. Use Split"),
    "permute": (lambda: fl.Permute((2, 1))(keras.Input([2, 3, 4])), "permutes 2 axes"),
    "pool": (lambda: fl.MaxPooling2D()(keras.Input([4])), r"\(batch, side, side, channels\)"),
    "pool noise": (lambda: fl.MaxPooling2D(noise="cauchy"), "noise='cauchy'"),
    "fourier": (lambda: fl.FourierConv2D(2)(keras.Input([None, None, 2])), "known size"),
    "coupling": (lambda: fl.SplineCoupling()(keras.Input([None, None, 2])), "known size"),
    "reshape": (lambda: fl.Reshape((4, -1))(keras.Input([6])), r"\(4, -1\) of \(6,\)"),
    "dims": (lambda: fl.Permute((0, 1)), r"dims=\(0, 1\)"),
    "crop": (lambda: fl.Cropping2D((1, 2, 3)), r"cropping=\(1, 2, 3\)"),
    "scale": (lambda: fl.Rescaling(0.0), "scale=0.0"),
    "branches": (lambda: fl.Add()([keras.Input([3]), keras.Input([4])]), r"\(None, 3\), \(None, 4\)"),
    "one branch": (lambda: fl.Add()(keras.Input([3])), "list of two tensors"),
    "sides": (lambda: fl.Residual([fl.Dense(3)])(keras.Input([4])), r"\(None, 4\) -> \(None, 3\).*identity"),
    "conditioner": (
        lambda: FlowModel([keras.Input([4]), fl.Dense(2, inverse=keras.layers.Dense(3))]).log_prob(normal(2, 4)),
        "gives 3 numbers.*needs 2 for each: 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(LAYER_ERRORS))
def test_bad_arguments_of_layers_are_named(case):
    action, message = LAYER_ERRORS[case]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        action()
