"""Scales and offsets of channels, with numbers that are given."""

import math
from typing import Any

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.core.moments import lift
from tfp_flowify.core.types import Shape, TensorLike


def affine(
    x: keras.KerasTensor, scale: TensorLike, offset: TensorLike, name: str | None = None, lifted: tuple = (0, 0.0)
) -> keras.KerasTensor:
    """The tensor scale * x + offset, with one number or one for each channel, none of the scales zero.

    `lifted` is what `lift` told of the scales.
    """
    layer = fl.Affine(name=name).start_at(np.ravel(scale), np.ravel(offset))
    layer.lifted = lifted
    return layer(x)


def rescaled(x: keras.KerasTensor, scale: TensorLike, offset: TensorLike, name: str | None = None) -> keras.KerasTensor:
    """The same with numbers that are no weights of the network, so that they are never trained."""
    scale, offset = (np.ravel(value) for value in (scale, offset))
    return fl.Rescaling(*(value[0] if value.size == 1 else value for value in (scale, offset)), name=name)(x)


def lifted_gains(gains: TensorLike) -> tuple:
    """Gains of normalized channels, with those that are next to zero lifted; and what `lift` tells of that."""
    gains = np.ravel(np.asarray(gains, np.float64))
    sizes, lifted = lift(np.abs(gains))
    return np.where(gains < 0, -sizes, sizes), lifted


def with_gains(
    z: keras.KerasTensor, gains: TensorLike | None, offset: TensorLike | None, name: str | None
) -> keras.KerasTensor:
    """Normalized channels with a gain and an offset for each, None for none of that."""
    if gains is None and offset is None:
        return z
    scale, lifted = lifted_gains(1.0 if gains is None else gains)
    return affine(z, scale, 0.0 if offset is None else offset, name, lifted)


def is_per_channel(value: Any, shape: Shape) -> bool:
    """Whether a constant is one number, or one for each channel of tensors of an event shape."""
    try:
        value = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return False
    is_vector = value.ndim and value.shape[-1] == shape[-1] and value.ndim <= len(shape) + 1
    return value.size == 1 or bool(is_vector and value.size == math.prod(value.shape[-1:]))
