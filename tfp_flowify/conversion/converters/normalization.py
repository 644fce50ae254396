"""Scales and offsets, and normalization of batches and of examples."""

import math

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.whole import entries, fallback
from tfp_flowify.conversion.registry import register_layer

kl = keras.layers


def affine(x, scale, offset, name=None):
    """The tensor scale * x + offset, with one number or one for each channel."""
    return fl.Affine(name=name).start_at(scale, offset)(x)


def per_channel(value) -> bool:
    """Whether a constant is one number, or one for each channel."""
    shape = np.shape(value)
    return math.prod(shape) == (shape[-1] if shape else 1)


def with_axes_last(x, axes, convert):
    """The tensor that `convert` gives for x with some event axes, counted from 1, joined to one and put last."""
    ndims = len(x.shape) - 1
    others = [axis for axis in range(1, ndims + 1) if axis not in axes]
    order, shape = [*others, *axes], tuple(x.shape[1:])
    moved = order != list(range(1, ndims + 1))
    joined = fl.Permute(order)(x) if moved else x
    sides = [shape[axis - 1] for axis in order]
    if len(axes) != 1:
        joined = fl.Reshape((*sides[: len(others)], math.prod(sides[len(others) :])))(joined)
    z = convert(joined)
    z = fl.Reshape(sides)(z) if len(axes) != 1 else z
    return fl.Permute([order.index(axis) + 1 for axis in range(1, ndims + 1)])(z) if moved else z


def event_axes(axis, ndims) -> list:
    """Axes of a tensor with so many event axes, counted from 1, of what a Keras layer has as `axis`."""
    axes = list(axis) if isinstance(axis, list | tuple) else [axis]
    return sorted(a if a > 0 else ndims + 1 + a for a in axes)


@register_layer(kl.Rescaling, noise=lambda call: 0 if _plain_rescaling(call.layer) else entries(call))
def _rescaling(layer, x):
    if not _plain_rescaling(layer):
        return fallback(layer, x)
    return affine(x, np.ravel(layer.scale), np.ravel(layer.offset), layer.name)


def _plain_rescaling(layer):
    return per_channel(layer.scale) and per_channel(layer.offset)


@register_layer(kl.BatchNormalization)
def _batch_normalization(layer, x, **kwargs):
    mean, variance = (np.asarray(value, np.float64) for value in (layer.moving_mean, layer.moving_variance))
    scale = (np.asarray(layer.gamma) if layer.scale else 1.0) / np.sqrt(variance + layer.epsilon)
    offset = (np.asarray(layer.beta) if layer.center else 0.0) - mean * scale
    axes = event_axes(layer.axis, len(x.shape) - 1)
    return with_axes_last(x, axes, lambda x: affine(x, scale, offset, layer.name))


@register_layer(kl.Normalization, noise=lambda call: 0 if _of_channels(call.layer) else entries(call))
def _normalization(layer, x):
    if not _of_channels(layer):
        return fallback(layer, x)
    mean, deviation = np.ravel(layer.mean), np.maximum(np.sqrt(np.ravel(layer.variance)), keras.config.epsilon())
    if layer.invert:
        return affine(x, deviation, mean, layer.name)
    return affine(x, 1 / deviation, -mean / deviation, layer.name)


def _of_channels(layer):
    return np.size(layer.mean) == 1 or per_channel(np.asarray(layer.mean))


def normalized(x, epsilon, centre, name):
    """The tensor behind a normalization of the last axis."""
    return fl.LayerNormalization(epsilon, center=False, scale=False, rms_scaling=not centre, name=name)(x)


def _vectors(call, axes):
    """The number of vectors that are normalized along some axes."""
    return math.prod(call.shape) // math.prod(call.shape[axis - 1] for axis in axes)


def _noise_of_layer(call):
    axes = event_axes(call.layer.axis, len(call.shape))
    return _vectors(call, axes) * (1 if getattr(call.layer, "rms_scaling", False) else 2)


@register_layer(kl.LayerNormalization, noise=_noise_of_layer)
def _layer_normalization(layer, x):
    centre = not getattr(layer, "rms_scaling", False)
    gamma, beta = (None if w is None else np.ravel(w) for w in (layer.gamma, layer.beta))

    def convert(x):
        z = normalized(x, layer.epsilon, centre, layer.name)
        if gamma is None and beta is None:
            return z
        return affine(z, 1.0 if gamma is None else gamma, 0.0 if beta is None else beta, f"{layer.name}_affine")

    return with_axes_last(x, event_axes(layer.axis, len(x.shape) - 1), convert)


@register_layer(kl.RMSNormalization, noise=lambda call: _vectors(call, event_axes(call.layer.axis, len(call.shape))))
def _rms_normalization(layer, x):
    def convert(x):
        return affine(normalized(x, layer.epsilon, False, layer.name), np.ravel(layer.scale), 0.0)

    return with_axes_last(x, event_axes(layer.axis, len(x.shape) - 1), convert)


@register_layer(kl.UnitNormalization, noise=lambda call: _vectors(call, event_axes(call.layer.axis, len(call.shape))))
def _unit_normalization(layer, x):
    def convert(x):
        return affine(normalized(x, 0.0, False, layer.name), 1 / math.sqrt(x.shape[-1]), 0.0)

    return with_axes_last(x, event_axes(layer.axis, len(x.shape) - 1), convert)


def _groups(layer, channels):
    return channels if layer.groups == -1 else layer.groups


@register_layer(
    kl.GroupNormalization,
    noise=lambda call: 2 * _groups(call.layer, call.shape[event_axes(call.layer.axis, len(call.shape))[0] - 1]),
)
def _group_normalization(layer, x):
    """Channels last, then groups of them in front, each with all places as one vector."""
    gamma, beta = (None if w is None else np.ravel(w) for w in (layer.gamma, layer.beta))

    def convert(x):
        *sides, channels = x.shape[1:]
        groups, ndims = _groups(layer, channels), len(sides)
        size = channels // groups
        z = fl.Permute((ndims + 1, *range(1, ndims + 1), ndims + 2))(fl.Reshape((*sides, groups, size))(x))
        z = normalized(fl.Reshape((groups, math.prod(sides) * size))(z), layer.epsilon, True, layer.name)
        z = fl.Permute((*range(2, ndims + 2), 1, ndims + 2))(fl.Reshape((groups, *sides, size))(z))
        z = fl.Reshape((*sides, channels))(z)
        if gamma is None and beta is None:
            return z
        return affine(z, 1.0 if gamma is None else gamma, 0.0 if beta is None else beta, f"{layer.name}_affine")

    return with_axes_last(x, event_axes(layer.axis, len(x.shape) - 1), convert)
