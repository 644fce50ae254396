"""Networks inside bijectors: how those are made that give densities, and how bijectors run them."""

import math

import keras
import tensorflow as tf

from tfp_flowify.bijectors.context import InContext
from tfp_flowify.layers.chain import chain


def conditioner_for(given, dropped, size: int, dtype=None, kind=None, width=None) -> keras.Model:
    """A Keras model from the kept values to `size` numbers for each dropped one, all zero at the start.

    Args:
      given, dropped: Event shapes of what is kept and what is dropped.
      size: Number of parameters for one dropped value.
      dtype: Dtype policy of the model.
      kind: "last" acts on the last axis alone and may be used on events with more axes in front. By default images and
        sequences get convolutions, where the dropped values fit their grid, and anything else a dense network.
      width: Units of its two hidden layers.

    >>> conditioner_for((7, 7, 4), (7, 7, 12), 2).output_shape
    (None, 7, 7, 24)
    """
    outputs = math.prod(dropped) * size
    if kind == "last":
        return _model((*[None] * (len(given) - 1), given[-1]), _dense(given[-1], outputs, width), dtype)
    grid = given[:-1]
    if len(grid) in (1, 2) and outputs % math.prod(grid) == 0:
        return _model(given, _convolutions(len(grid), outputs // math.prod(grid), width), dtype)
    return _model(given, [keras.layers.Flatten, *_dense(math.prod(given), outputs, width)], dtype)


def _model(given, layers, dtype):
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


class KerasFunction(InContext):
    """A Keras layer, or any function, as a bijector runs it.

    It runs in its own precision and in the training mode of the pass, and gives its result in the precision of its
    input.
    """

    def __init__(self, function):
        super().__init__()
        self.layer = function if isinstance(function, keras.layers.Layer) else AsLayer(function)

    def __call__(self, x, context):
        return tf.cast(self.layer(x, training=context.training), x.dtype)


class AsLayer(keras.layers.Layer):
    """A function as a layer: Keras hands the training mode on to layers that the function calls."""

    def __init__(self, function):
        super().__init__(autocast=False)
        self.function = function

    def call(self, x):
        return self.function(x)


class PerChannel(tf.Module):
    """A conditioner that depends on nothing: the same parameters, (channels * size,), for each of some pixels."""

    def __init__(self, bias, pixels):
        super().__init__()
        self.bias, self.pixels = bias, pixels

    def __call__(self, given):
        return tf.tile(tf.convert_to_tensor(self.bias), [self.pixels])


def ensure_built(network, shape) -> tuple:
    """Builds a Keras layer or model, and all inside it, for events of this shape; returns the shape that it gives."""
    return tuple(network(keras.Input(shape)).shape)
