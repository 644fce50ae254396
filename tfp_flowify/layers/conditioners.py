"""The networks that give the density of what a layer drops: how they are made, and how bijectors run them."""

import contextlib
import contextvars
import inspect
import math

import keras
import tensorflow as tf

from tfp_flowify.layers.chain import chain

# Bijectors are no Keras layers, so Keras cannot tell the networks inside them whether they are being trained.
_TRAINING = contextvars.ContextVar("training", default=False)


def conditioner_for(given, dropped, size: int, dtype=None, kind=None, width=None) -> keras.Model:
    """A Keras model from the kept values to `size` numbers for each dropped one, all zero at the start.

    Args:
      given, dropped: event shapes of what is kept and what is dropped.
      size: parameters of one dropped value.
      dtype: the dtype policy.
      kind: "last" acts on the last axis alone and may be used on events with more axes in front. By default images and
        sequences get convolutions, where the dropped values fit their grid, and anything else a dense network.
      width: units of its two hidden layers.

    >>> conditioner_for((7, 7, 4), (7, 7, 12), 2).output_shape
    (None, 7, 7, 24)
    """
    outputs = math.prod(dropped) * size
    if kind == "last":
        return _network((*[None] * (len(given) - 1), given[-1]), _dense(given[-1], outputs, width), dtype)
    grid = given[:-1]
    if len(grid) in (1, 2) and outputs % math.prod(grid) == 0:
        return _network(given, _convolutions(len(grid), outputs // math.prod(grid), width), dtype)
    return _network(given, [keras.layers.Flatten, *_dense(math.prod(given), outputs, width)], dtype)


def _network(given, layers, dtype):
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    return chain([layer(dtype=policy) for layer in layers], given, policy, name="conditioner")


def _dense(features, outputs, width):
    width = width or min(128, max(64, 2 * min(features, outputs)))
    return [
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, outputs, kernel_initializer="zeros"),
    ]


def _convolutions(ndims, outputs, width):
    conv = {1: keras.layers.Conv1D, 2: keras.layers.Conv2D}[ndims]
    width = width or 64
    return [
        _layer(conv, width, kernel_size=3, padding="same", activation="gelu"),
        _layer(conv, width, kernel_size=1, activation="gelu"),
        _layer(conv, outputs, kernel_size=1, kernel_initializer="zeros"),
    ]


def _layer(kind, size, **kwargs):
    return lambda dtype: kind(size, dtype=dtype, **kwargs)


class InPrecision(tf.Module):
    """A Keras model, or a function, as a bijector uses it: in its own precision, and told whether it is trained."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        is_layer = isinstance(network, keras.layers.Layer)
        self._knows_training = is_layer and "training" in inspect.signature(network.call).parameters

    def __call__(self, x):
        known = {"training": _TRAINING.get()} if self._knows_training else {}
        return tf.cast(self.network(x, **known), x.dtype)


class PerChannel(tf.Module):
    """A conditioner that depends on nothing: the same parameters, (channels * size,), for each of some pixels."""

    def __init__(self, bias, pixels):
        super().__init__()
        self.bias, self.pixels = bias, pixels

    def __call__(self, given):
        return tf.tile(tf.convert_to_tensor(self.bias), [self.pixels])


@contextlib.contextmanager
def training_mode(training):
    """Networks inside bijectors run in this mode."""
    token = _TRAINING.set(bool(training))
    try:
        yield
    finally:
        _TRAINING.reset(token)


def ensure_built(network, shape):
    """Builds a Keras layer or model, and all inside it, for events of this shape; returns the shape it gives."""
    return tuple(network(keras.Input(shape)).shape)
