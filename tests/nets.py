"""Small conditioners with weights, and numbers that are not special."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tfp_flowify import bijectors as fb


def some(names, every=3, but=()) -> list:
    """Names to test with by default, one of every few but for some; the others are slow tests."""
    is_slow = {name: i % every > 0 or name in but for i, name in enumerate(names)}
    return [pytest.param(name, marks=[pytest.mark.slow] * is_slow[name]) for name in names]


@functools.cache
def _normal(shape, seed):
    return np.random.default_rng(seed).normal(size=shape)


def values(shape, dtype, seed=0):
    return tf.constant(_normal(tuple(shape), (seed, *shape)), dtype)


class Net(tf.Module):
    """A conditioner with weights: features -> outputs, with one hidden layer."""

    def __init__(self, features, outputs, dtype, hidden=5):
        super().__init__()
        self.first = tf.Variable(values((features, hidden), dtype), name="first")
        self.second = tf.Variable(0.3 * values((hidden, outputs), dtype), name="second")
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return tf.tensordot(tf.tanh(tf.tensordot(x, self.first, 1)), self.second, 1)


class ConvNet(Net):
    """A conditioner that sees neighbouring pixels."""

    def __call__(self, x):
        return super().__call__(x + tf.roll(x, 1, axis=-2))


class ConditionalNet(fb.Conditional):
    """A conditioner that sees a condition of two numbers beside its input."""

    def __init__(self, features, outputs, dtype):
        super().__init__(self.see_both)
        self.net = Net(features + 2, outputs, dtype)

    def see_both(self, x, condition):
        return self.net(tf.concat([x, spread(condition, x)], axis=-1))


class ConditionalConvNet(ConditionalNet):
    """The same, and neighbouring pixels."""

    def see_both(self, x, condition):
        return super().see_both(x + tf.roll(x, 1, axis=-2), condition)


def spread(condition, x):
    """A condition (n, 2) at all places of x (n, ..., features)."""
    places = tf.shape(x)[1:-1]
    rows = tf.reshape(condition, tf.concat([tf.shape(x)[:1], tf.ones_like(places), [2]], axis=0))
    return tf.broadcast_to(rows, tf.concat([tf.shape(x)[:-1], [2]], axis=0))
