"""Scales and offsets, and normalization of batches and of examples."""

import math

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.affine import affine, is_per_channel, lifted_gains, rescaled, with_gains
from tfp_flowify.conversion.converters.axes import event_axes, with_axes_last
from tfp_flowify.conversion.registry import register_layer

kl = keras.layers


def _noise_of_rescaling(call):
    scale, offset = call.layer.scale, call.layer.offset
    plain = is_per_channel(scale, call.shape) and is_per_channel(offset, call.shape) and np.all(np.asarray(scale))
    return 0 if plain else None


@register_layer(kl.Rescaling, noise=_noise_of_rescaling)
def _rescaling(layer, x):
    return rescaled(x, layer.scale, layer.offset, layer.name)


@register_layer(kl.BatchNormalization)
def _batch_normalization(layer, x):
    mean, variance = (np.asarray(value, np.float64) for value in (layer.moving_mean, layer.moving_variance))
    gains, lifted = lifted_gains(layer.gamma if layer.scale else np.ones_like(mean))
    scale = gains / np.sqrt(variance + layer.epsilon)
    offset = (np.asarray(layer.beta) if layer.center else 0.0) - mean * scale
    axes = event_axes(layer.axis, len(x.shape) - 1)
    return with_axes_last(x, axes, lambda x: affine(x, scale, offset, layer.name, lifted))


def _is_of_channels(call) -> bool:
    """Whether a `Normalization` has a mean and a variance for each place of the last axis, or one of each."""
    return all(is_per_channel(value, call.shape) for value in (call.layer.mean, call.layer.variance))


@register_layer(kl.Normalization, noise=lambda call: 0 if _is_of_channels(call) else None)
def _normalization(layer, x):
    mean, deviation = np.ravel(layer.mean), np.maximum(np.sqrt(np.ravel(layer.variance)), keras.config.epsilon())
    if layer.invert:
        return rescaled(x, deviation, mean, layer.name)
    return rescaled(x, 1 / deviation, -mean / deviation, layer.name)


def _noise_of_vectors(call, axes, forgotten):
    """So many numbers for each vector over these axes; vectors of no more numbers are for the fallback."""
    size = math.prod(call.shape[axis - 1] for axis in axes)
    return math.prod(call.shape) // size * forgotten if size > forgotten else None


def _noise_of_layer(call):
    if getattr(call.layer, "rms_scaling", False):  # Divides by the deviation from a mean that it does not subtract.
        return None
    axes = event_axes(call.layer.axis, len(call.shape))
    return _noise_of_vectors(call, axes, 2) if axes == sorted(axes) else None  # The order of gamma is that of axes.


@register_layer(kl.LayerNormalization, noise=_noise_of_layer)
def _layer_normalization(layer, x):
    def convert(x):
        return _with_gains(layer, normalized(x, layer.epsilon, True, layer.name))

    return with_axes_last(x, event_axes(layer.axis, len(x.shape) - 1), convert)


def normalized(x: keras.KerasTensor, epsilon: float, centre: bool, name: str) -> keras.KerasTensor:
    """The tensor with the vectors of its last axis normalized."""
    return fl.LayerNormalization(epsilon, center=False, scale=False, rms_scaling=not centre, name=name)(x)


def _affine_of(layer) -> str:
    return f"{layer.name}_affine"


def _with_gains(layer, z):
    return with_gains(z, getattr(layer, "gamma", None), getattr(layer, "beta", None), _affine_of(layer))


def _noise_of_length(call):
    return _noise_of_vectors(call, event_axes(call.layer.axis, len(call.shape)), 1)


@register_layer(kl.RMSNormalization, noise=_noise_of_length)
def _rms_normalization(layer, x):
    def convert(x):
        return with_gains(normalized(x, layer.epsilon, False, layer.name), layer.scale, None, _affine_of(layer))

    return with_axes_last(x, event_axes(layer.axis, len(x.shape) - 1), convert)


#: Keras divides by no less than 1e-12; here that is added to the square, for vectors that are zero.
_UNIT_EPSILON = 1e-24


@register_layer(kl.UnitNormalization, noise=_noise_of_length)
def _unit_normalization(layer, x):
    def convert(x):
        z = normalized(x, _UNIT_EPSILON, False, layer.name)
        return rescaled(z, 1 / math.sqrt(x.shape[-1]), 0.0, _affine_of(layer))

    return with_axes_last(x, event_axes(layer.axis, len(x.shape) - 1), convert)


def _groups(layer, channels):
    return channels if layer.groups == -1 else layer.groups


def _noise_of_groups(call):
    (axis,) = event_axes(call.layer.axis, len(call.shape))
    groups = _groups(call.layer, call.shape[axis - 1])
    return 2 * groups if math.prod(call.shape) // groups > 2 else None


@register_layer(kl.GroupNormalization, noise=_noise_of_groups)
def _group_normalization(layer, x):
    """Channels last, then groups of them in front, each with all places as one vector."""

    def convert(x):
        *sides, channels = x.shape[1:]
        groups, ndims = _groups(layer, channels), len(sides)
        size = channels // groups
        z = fl.Permute((ndims + 1, *range(1, ndims + 1), ndims + 2))(fl.Reshape((*sides, groups, size))(x))
        z = normalized(fl.Reshape((groups, math.prod(sides) * size))(z), layer.epsilon, True, layer.name)
        z = fl.Permute((*range(2, ndims + 2), 1, ndims + 2))(fl.Reshape((groups, *sides, size))(z))
        return _with_gains(layer, fl.Reshape((*sides, channels))(z))

    return with_axes_last(x, event_axes(layer.axis, len(x.shape) - 1), convert)
