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
