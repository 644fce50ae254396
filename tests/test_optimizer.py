"""FusedAdam is Keras' Adam: the same steps, with all that Keras puts around them, on two devices, and when saved."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import normal, small_flow

from tfp_flowify import FlowModel, FusedAdam
from tfp_flowify import layers as fl

ARGUMENTS = {
    "plain": {},
    "betas": {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3},
    "clipped": {"global_clipnorm": 0.1},
    "decay": {"weight_decay": 0.1},
    "average": {"use_ema": True, "ema_overwrite_frequency": 3},
    "amsgrad": {"amsgrad": True},
    "accumulated": {"gradient_accumulation_steps": 2},
    "schedule": {"learning_rate": keras.optimizers.schedules.CosineDecay(0.1, 10)},
}


def weights_after(optimizer, traced, dtype="float32", steps=7):
    """Weights of a quadratic function that is minimised, one of them with gradients for single rows."""
    start = np.random.default_rng(0).normal(size=(4, 3)).astype(dtype)
    weights = [keras.Variable(start, dtype=dtype), keras.Variable(2 * start, dtype=dtype)]
    optimizer.build(weights)

    def step():
        with tf.GradientTape() as tape:
            rows = tf.gather(weights[1].value, [0, 2, 0])
            loss = tf.reduce_sum(tf.square(weights[0].value - 1)) + tf.reduce_sum(tf.square(rows))
        optimizer.apply(tape.gradient(loss, [w.value for w in weights]), weights)

    step = tf.function(step) if traced else step
    for _ in range(steps):
        step()
    return [np.asarray(w) for w in weights]


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_steps_are_those_of_adam(name, traced):
    arguments = {"learning_rate": 0.1, **ARGUMENTS[name]}
    expected = weights_after(keras.optimizers.Adam(**arguments), traced)
    for got, wanted in zip(weights_after(FusedAdam(**arguments), traced), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-5)  # 1 - beta_2 is rounded before or after.


def test_float64():
    """Against the formula, as Keras rounds the betas to float32."""
    got = weights_after(FusedAdam(0.125), True, "float64")[0]
    weight = np.random.default_rng(0).normal(size=(4, 3))
    momentum, velocity = np.zeros([2, 4, 3])
    for step in range(1, 8):
        gradient = 2 * (weight - 1)
        momentum, velocity = 0.9 * momentum + 0.1 * gradient, 0.999 * velocity + 0.001 * gradient**2
        rate = 0.125 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weight = weight - rate * momentum / (np.sqrt(velocity) + 1e-7)
    np.testing.assert_allclose(got, weight, rtol=1e-10)


def test_two_devices_take_the_steps_of_adam(two_devices):
    def train(optimizer):
        keras.utils.set_random_seed(0)
        with two_devices.scope():
            flow = FlowModel([keras.Input([3]), fl.Dense(3), fl.LeakyReLU(), fl.Dense(2)])
            flow.compile(optimizer(1e-2))
        flow.fit(normal(64, 3), batch_size=32, epochs=3, shuffle=False, verbose=0)
        return flow.get_weights()

    for got, wanted in zip(train(FusedAdam), train(keras.optimizers.Adam), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_gradients_are_clipped_behind_their_sum(two_devices):
    """So that two devices take the steps of one, which Keras' Adam does not."""

    def train(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            flow = FlowModel([keras.Input([3]), fl.Dense(3), fl.LeakyReLU()])  # No noise, which would differ.
            flow.compile(FusedAdam(1e-2, global_clipnorm=0.1, epsilon=1.0))
        flow.fit(10 * normal(64, 3), batch_size=32, epochs=3, shuffle=False, verbose=0)
        return flow.get_weights()

    for got, wanted in zip(train(two_devices), train(tf.distribute.get_strategy()), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("arguments", [{}, {"global_clipnorm": 1.0}, {"weight_decay": 0.0}])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_steps_that_are_not_finite_are_not_taken(arguments, bad, two_devices):
    for strategy in (tf.distribute.get_strategy(), two_devices):
        with strategy.scope():
            weights = [keras.Variable([1.0, 2.0]), keras.Variable([3.0])]
            optimizer = FusedAdam(0.1, **arguments)
            optimizer.build(weights)

        @tf.function
        def apply(first, second, optimizer=optimizer):
            optimizer.apply([tf.identity(first), tf.identity(second)])  # On a device, as gradients are.

        def step(gradients, strategy=strategy, apply=apply):
            strategy.run(apply, [tf.constant(gradient) for gradient in gradients])

        def state(weights=weights, optimizer=optimizer):
            variables = [*weights, *optimizer.variables[2:]]  # Without the learning rate and the number of steps.
            return [np.array(tf.convert_to_tensor(variable.value)) for variable in variables]

        step([[1.0, -1.0], [2.0]])
        before = state()
        step([[1.0, bad], [2.0]])
        for got, wanted in zip(state(), before, strict=True):
            np.testing.assert_array_equal(got, wanted)
        step([[1.0, -1.0], [2.0]])
        assert all(
            np.any(got != wanted) and np.isfinite(got).all() for got, wanted in zip(state(), before, strict=True)
        )


def test_gradients_of_single_rows_that_are_not_finite():
    """Those of an embedding."""
    table, optimizer = keras.Variable(np.ones([4, 2])), FusedAdam(0.1)
    for factor in (1.0, np.nan):
        before = np.array(table)
        with tf.GradientTape() as tape:
            loss = factor * tf.reduce_sum(tf.gather(table.value, [1, 3]) ** 2)
        (gradient,) = tape.gradient(loss, [table.value])
        assert isinstance(gradient, tf.IndexedSlices)
        optimizer.apply([gradient], [table])
        assert np.isnan(factor) == np.array_equal(table, before)
    assert all(np.isfinite(variable).all() for variable in optimizer.variables)


def test_adam_by_name_is_fused_and_saved_with_its_state(tmp_path):
    flow, x = small_flow(), normal(64, 3)
    flow.compile("adam")
    flow.fit(x, batch_size=32, verbose=0)
    flow.save(tmp_path / "flow.keras")
    again = keras.models.load_model(tmp_path / "flow.keras")
    assert isinstance(again.optimizer, FusedAdam) and int(again.optimizer.iterations) == 2
    for got, wanted in zip(again.optimizer.variables, flow.optimizer.variables, strict=True):
        np.testing.assert_array_equal(got, wanted)
