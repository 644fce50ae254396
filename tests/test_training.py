"""Training: fit, XLA, several devices, datasets, callbacks, freezing, joint losses."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import digits_flow, normal, small_flow

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.data import batches


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


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [True, False, "auto"])
def test_trains_with_and_without_xla(jit_compile):
    keras.utils.set_random_seed(0)
    flow, x = small_flow(), normal(256, 3)
    flow.compile(keras.optimizers.Adam(1e-2), jit_compile=jit_compile)
    losses = flow.fit(x, batch_size=64, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert flow.evaluate(x, verbose=0, return_dict=True)["nll"] < losses[0]


def test_two_devices_give_the_loss_of_one(two_devices):
    """A flow without noise, so that the loss does not depend on draws; the same weights follow too."""

    def train(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            flow = FlowModel([keras.Input([4]), fl.Dense(4), fl.LeakyReLU(), fl.Dense(2)])
            flow.compile(keras.optimizers.SGD(1e-2))
        losses = flow.fit(batches(x, 32), steps_per_epoch=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        return losses, flow.get_weights()

    x = normal(128, 4)
    one, weights = train(tf.distribute.get_strategy())
    two, weights_of_two = train(two_devices)
    np.testing.assert_allclose(two, one, rtol=1e-5)
    for a, b in zip(weights, weights_of_two, strict=True):
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_two_devices_have_the_regularizer_of_one(two_devices):
    def train(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            flow = FlowModel([keras.Input([3]), fl.Dense(3, bias_initializer="ones", bias_regularizer="l2")])
            flow.compile(keras.optimizers.SGD(0.1))
        return flow.fit(x, batch_size=32, epochs=2, shuffle=False, verbose=0).history["loss"]

    x = normal(64, 3)
    np.testing.assert_allclose(train(two_devices), train(tf.distribute.get_strategy()), rtol=1e-5)


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
    seeds = two_devices.experimental_local_results(two_devices.run(flow._next_seed, args=(True,)))
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


def test_callbacks_of_keras_work(tmp_path):
    flow, x = small_flow(), normal(64, 3)
    flow.compile("adam", run_eagerly=True)
    best = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="val_loss", save_best_only=True)
    stop = keras.callbacks.EarlyStopping("val_bits_per_dim", patience=1, min_delta=1e6, mode="min")
    history = flow.fit(x, epochs=5, callbacks=[best, stop], validation_data=(x,), verbose=0).history
    assert len(history["loss"]) == 2  # Nothing falls by a million: stopped.
    assert isinstance(keras.models.load_model(tmp_path / "best.keras"), FlowModel)


def test_freezing_one_side_trains_the_other(flow):
    flow, x = small_flow(), normal(32, 3)
    for frozen, trained in ((flow.network, flow.densities), (flow.densities, flow.network)):
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
    flow, x = FlowModel([keras.Input([3]), fl.Dense(2, density=dropout)]), normal(50, 3)
    assert len(flow.densities.conditioners) == 0
    assert len(flow.densities.parts[0].trainable_variables) == 2
    losses = [float(flow.compute_loss(x, training=training)) for training in (True, True, False, False)]
    assert losses[0] != losses[1]
    assert losses[2] == losses[3]

    class Other(keras.Model):
        def call(self, x, training=None):
            return flow.log_prob(x)

    inside = Other()(x, training=True)  # Who asks for a likelihood gets it without dropout, wherever he is.
    np.testing.assert_allclose(inside, flow.log_prob(x), rtol=1e-5)
    np.testing.assert_allclose(np.mean(inside), -losses[2], rtol=1e-5)


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
