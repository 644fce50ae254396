"""Axes: channels first or last, one axis or several, sides of a window."""

import math
from collections.abc import Sequence

import keras

from tfp_flowify import layers as fl
from tfp_flowify.core.types import Shape, TensorFunction


def sides(value: int | Sequence[int], ndims: int) -> tuple:
    """A number for each side."""
    return tuple(value) if isinstance(value, list | tuple) else (value,) * ndims


def _has_channels_first(layer) -> bool:
    return getattr(layer, "data_format", "channels_last") == "channels_first"


def channels_last(layer: keras.layers.Layer, x: keras.KerasTensor, convert: TensorFunction) -> keras.KerasTensor:
    """The tensor that `convert` gives for x, with channels last in between where the layer has them first."""
    if not _has_channels_first(layer):
        return convert(x)
    axes = range(1, len(x.shape))
    z = convert(fl.Permute((*axes[1:], 1))(x))
    return fl.Permute((len(z.shape) - 1, *range(1, len(z.shape) - 1)))(z)


def with_channels_last(layer: keras.layers.Layer, shape: Shape) -> tuple:
    """An event shape with the channels last, of a layer that may have them first."""
    return (*shape[1:], shape[0]) if _has_channels_first(layer) else tuple(shape)


def event_axes(axis: int | list | tuple | range, ndims: int) -> list:
    """Axes of a tensor with so many event axes, counted from 1, of what a Keras layer has as `axis`."""
    axes = list(axis) if isinstance(axis, list | tuple | range) else [axis]
    return [a if a >= 0 else ndims + 1 + a for a in axes]


def with_axes_last(x: keras.KerasTensor, axes: Sequence[int], convert: TensorFunction) -> keras.KerasTensor:
    """The tensor that `convert` gives for x with some event axes, counted from 1, joined to one and put last."""
    ndims = len(x.shape) - 1
    others = [axis for axis in range(1, ndims + 1) if axis not in axes]
    order, shape = [*others, *axes], tuple(x.shape[1:])
    moved = order != list(range(1, ndims + 1))
    joined = fl.Permute(order)(x) if moved else x
    sizes = [shape[axis - 1] for axis in order]
    if len(axes) != 1:
        joined = fl.Reshape((*sizes[: len(others)], math.prod(sizes[len(others) :])))(joined)
    z = convert(joined)
    z = fl.Reshape(sizes)(z) if len(axes) != 1 else z
    return fl.Permute([order.index(axis) + 1 for axis in range(1, ndims + 1)])(z) if moved else z
