"""The networks that give the density of what a layer drops: small, and convolutional where the layer is."""

import math

import keras


def conditioner_for(given, dropped, size: int, dtype=None, kind=None) -> keras.Model:
    """A Keras model from the kept values to `size` numbers for each dropped one, all zero at the start.

    Args:
      given, dropped: event shapes of what is kept and what is dropped.
      size: parameters of one dropped value.
      dtype: the dtype policy.
      kind: "last" acts on the last axis alone and may be used on events with more axes in front. By default images and
        sequences get convolutions, where the dropped values fit their grid, and anything else a dense network.

    >>> conditioner_for((7, 7, 4), (7, 7, 12), 2).output_shape
    (None, 7, 7, 24)
    """
    outputs = math.prod(dropped) * size
    if kind == "last":
        return _network((*[None] * (len(given) - 1), given[-1]), _dense(given[-1], outputs), dtype)
    grid = given[:-1]
    if len(grid) in (1, 2) and outputs % math.prod(grid) == 0:
        return _network(given, _convolutions(len(grid), given[-1], outputs // math.prod(grid)), dtype)
    return _network(given, [keras.layers.Flatten, *_dense(math.prod(given), outputs)], dtype)


def _network(given, layers, dtype):
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    inputs = keras.Input(given, dtype=policy.variable_dtype)
    outputs = inputs
    for layer in layers:
        outputs = layer(dtype=policy)(outputs)
    network = keras.Model(inputs, outputs, name="conditioner")
    network.dtype_policy = policy
    return network


def _dense(features, outputs):
    width = _width(features, outputs, 128)
    return [
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, outputs, kernel_initializer="zeros"),
    ]


def _convolutions(ndims, channels, outputs):
    conv = {1: keras.layers.Conv1D, 2: keras.layers.Conv2D}[ndims]
    width = _width(channels, outputs, 64)
    return [
        _layer(conv, width, kernel_size=3, padding="same", activation="gelu"),
        _layer(conv, width, kernel_size=1, activation="gelu"),
        _layer(conv, outputs, kernel_size=1, kernel_initializer="zeros"),
    ]


def _layer(kind, size, **kwargs):
    return lambda dtype: kind(size, dtype=dtype, **kwargs)


def _width(features, outputs, most):
    return min(most, max(32, 2 * min(features, outputs)))
