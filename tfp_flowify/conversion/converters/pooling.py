"""Pooling."""

import math

import keras

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.axes import channels_last, with_channels_last
from tfp_flowify.conversion.registry import register_layer
from tfp_flowify.math.patches import Patches

kl = keras.layers

_WINDOWS = {
    kl.MaxPooling1D: fl.MaxPooling1D,
    kl.MaxPooling2D: fl.MaxPooling2D,
    kl.MaxPooling3D: fl.MaxPooling3D,
    kl.AveragePooling1D: fl.AveragePooling1D,
    kl.AveragePooling2D: fl.AveragePooling2D,
    kl.AveragePooling3D: fl.AveragePooling3D,
}
_OF_ALL = {1: fl.MaxPooling1D, 2: fl.MaxPooling2D, 3: fl.MaxPooling3D}


def _is_nothing(layer) -> bool:
    return math.prod(layer.pool_size) == math.prod(layer.strides) == 1


def _noise(call):
    layer, image = call.layer, with_channels_last(call.layer, call.shapes[0])
    return 0 if _is_nothing(layer) else Patches(image, layer.pool_size, layer.strides, layer.padding).noise_dimension


@register_layer(*_WINDOWS, noise=_noise)
def _pool(layer, x):
    if _is_nothing(layer):
        return x
    kind = next(_WINDOWS[kind] for kind in type(layer).__mro__ if kind in _WINDOWS)
    pool = kind(layer.pool_size, layer.strides, layer.padding, name=layer.name)
    return channels_last(layer, x, pool)


def _global(layer, x, convert):
    """The tensor behind pooling over all places, with sides of one where the layer keeps them."""
    if layer.data_format == "channels_first":
        x = fl.Permute((*range(2, len(x.shape)), 1))(x)
    ndims, channels, z = len(x.shape) - 2, x.shape[-1], convert(x)
    if not layer.keepdims:
        return z
    ones = (1,) * ndims
    return fl.Reshape((*ones, channels) if layer.data_format == "channels_last" else (channels, *ones))(z)


@register_layer(kl.GlobalAveragePooling1D, kl.GlobalAveragePooling2D, kl.GlobalAveragePooling3D)
def _global_average(layer, x):
    return _global(layer, x, fl.GlobalAveragePooling(name=layer.name))


@register_layer(kl.GlobalMaxPooling1D, kl.GlobalMaxPooling2D, kl.GlobalMaxPooling3D)
def _global_max(layer, x):
    def convert(x):
        *sides, channels = x.shape[1:]
        if math.prod(sides) == 1:
            return fl.Flatten(name=layer.name)(x)
        return fl.Reshape((channels,))(_OF_ALL[len(sides)](tuple(sides), name=layer.name)(x))

    return _global(layer, x, convert)
