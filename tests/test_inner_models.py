"""Keras models inside a flow: their metrics stay their own, and they know whether they are being trained."""

import keras
import numpy as np
import pytest
from models import normal

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl


def compiled_network(fitted):
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    network.compile("sgd", "mse", metrics=["mae"])
    if fitted:
        network.fit(normal(8, 3), np.zeros([8, 2]), verbose=0)
    return network


def compiled_density():
    network = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    network.compile("sgd", "mse")
    return network


@pytest.mark.parametrize(
    "layer",
    [
        lambda: fl.Stochastic(compiled_network(fitted=True)),
        lambda: fl.Stochastic(compiled_network(fitted=False)),
        lambda: fl.Dense(2, density=compiled_density()),
    ],
    ids=["fitted", "compiled", "density"],
)
def test_a_compiled_model_inside_keeps_its_metrics_to_itself(layer):
    flow, x = FlowModel([keras.Input([3]), layer()]), normal(64, 3)
    flow.compile("adam")
    stop = keras.callbacks.EarlyStopping("val_loss", patience=1)
    history = flow.fit(x, epochs=3, validation_data=(x,), callbacks=[stop], verbose=0).history
    assert len(history["loss"]) == 3
    assert sorted(history) == ["bits_per_dim", "loss", "nll", "val_bits_per_dim", "val_loss", "val_nll"]
    np.testing.assert_allclose(history["loss"], history["nll"], rtol=1e-5)
    assert history["val_loss"][0] > 1


class Counting(fl.LeakyReLU):
    """A flow layer with a metric of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.size = keras.metrics.Mean(name="size")

    def call(self, x):
        self.size.update_state(keras.ops.abs(x))
        return super().call(x)


def test_metrics_of_layers_are_reported():
    flow, x = FlowModel([keras.Input([3]), Counting()]), normal(8, 3)
    flow.compile("adam", metrics=["mae"], run_eagerly=True)
    logs = flow.evaluate(x, x, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["size"], np.mean(np.abs(x)), rtol=1e-5)


def test_activity_regularizers_count_in_each_step_alone():
    layer = fl.Dense(2, activity_regularizer=keras.regularizers.L2(0.1))
    flow, x = FlowModel([keras.Input([3]), layer]), normal(16, 3)
    flow.compile("adam", run_eagerly=True)
    flow(100 * x)  # Its loss is not that of the next step.
    logs = flow.evaluate(x, verbose=0, return_dict=True)
    expected = 0.1 * np.sum(np.square(flow.network(x))) / 16
    np.testing.assert_allclose(logs["loss"] - logs["nll"], expected, rtol=1e-3)
    flow.compile("adam")
    flow.predict(x, verbose=0)
    assert np.isfinite(flow.fit(x, verbose=0).history["loss"]).all()


class Block(keras.layers.Layer):
    """A layer whose call has no argument `training`."""

    def __init__(self, units):
        super().__init__()
        self.dropout, self.dense = keras.layers.Dropout(0.5), keras.layers.Dense(units)

    def call(self, x):
        return self.dense(self.dropout(x))


_dropout = keras.layers.Dropout(0.5)


def function_with_dropout(x):
    return _dropout(x)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: fl.Dense(2, density=Block(2)),
        lambda: fl.Stochastic(Block(2)),
        lambda: fl.Stochastic(function_with_dropout),
        lambda: fl.Conv1D(2, 1, density=Block(2)),
        lambda: fl.SplineCoupling(conditioner=Block(23 * 2)),
    ],
    ids=["density", "stochastic", "function", "sequence", "coupling"],
)
def test_dropout_is_active_in_training_alone(layer):
    layer = layer()
    shape = [4, 3] if isinstance(layer, fl.Conv1D) else [3]
    flow, x = FlowModel([keras.Input(shape), layer], seed=0), normal(50, *shape)
    for weight in flow.trainable_variables:
        weight.assign_add(0.3 * np.random.default_rng(0).normal(size=weight.shape))

    def losses(training):
        """With the same noise each time, so that only dropout differs."""
        counter = flow._training_draws if training else flow._test_draws
        for _ in range(2):
            counter.assign(0)
            yield float(flow.compute_loss(x, training=training))

    first, second = losses(training=True)
    assert first != second
    first, second = losses(training=False)
    assert first == second
    np.testing.assert_array_equal(flow.log_prob(x, seed=1), flow.log_prob(x, seed=1))
