"""Convolutions: plain, of groups, depthwise, separable and transposed."""

import math
from collections.abc import Sequence

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.activations import activate, is_onto, noise_of_activation
from tfp_flowify.conversion.converters.axes import channels_last, sides, with_channels_last
from tfp_flowify.conversion.converters.linear import dense, noise_of_dense
from tfp_flowify.conversion.registry import register_layer
from tfp_flowify.core.types import Shape, TensorLike
from tfp_flowify.math.patches import Patches

kl = keras.layers

_CONVOLUTIONS = {1: fl.Conv1D, 2: fl.Conv2D, 3: fl.Conv3D}
_DEPTHWISE = {1: fl.DepthwiseConv1D, 2: fl.DepthwiseConv2D}


def noise_of_patches(image: Shape, layer: keras.layers.Layer, strides: Sequence[int] | None = None) -> tuple:
    """Noise of padding and of pixels that patches repeat; and the number of patches."""
    geometry = (layer.kernel_size, strides or layer.strides)
    border = Patches(image, *geometry, layer.padding, layer.dilation_rate).border
    padded = (*(side + sum(pair) for side, pair in zip(image[:-1], border, strict=True)), image[-1])
    patches = Patches(padded, *geometry, dilation=layer.dilation_rate)
    return math.prod(padded) - math.prod(image) + patches.noise_dimension, math.prod(patches.shape[:-1])


def _noise_of_conv(call):
    layer, image = call.layer, with_channels_last(call.layer, call.shapes[0])
    added, places = noise_of_patches(image, layer)
    groups = layer.groups
    features = math.prod(layer.kernel_size) * image[-1] // groups
    added += noise_of_dense(features, (places, groups, layer.filters // groups))
    return added + noise_of_activation(layer.activation, call.shape)


@register_layer(kl.Conv1D, kl.Conv2D, kl.Conv3D, noise=_noise_of_conv, onto=lambda call: is_onto(call.layer.activation))
def _conv(layer, x):
    def convert(x):
        conv = _CONVOLUTIONS[layer.rank](
            layer.filters,
            layer.kernel_size,
            layer.strides,
            layer.padding,
            dilation_rate=layer.dilation_rate,
            groups=layer.groups,
            use_bias=layer.use_bias,
            name=layer.name,
        )
        return conv.start_at(layer.kernel, layer.bias)(x)

    return activate(layer.activation, channels_last(layer, x, convert), layer)


def depthwise(
    layer: keras.layers.Layer, x: keras.KerasTensor, kernel: TensorLike, bias: TensorLike | None, name: str
) -> keras.KerasTensor:
    """The tensor behind a depthwise convolution with the geometry of a Keras layer and these weights."""
    strides = sides(layer.strides, layer.rank)
    conv = _DEPTHWISE[layer.rank](
        layer.kernel_size,
        strides,
        layer.padding,
        layer.depth_multiplier,
        dilation_rate=layer.dilation_rate,
        use_bias=bias is not None,
        name=name,
    )
    return conv.start_at(np.reshape(kernel, (*layer.kernel_size, 1, -1)), bias)(x)


def _noise_of_depthwise(call):
    layer, image = call.layer, with_channels_last(call.layer, call.shapes[0])
    added, places = noise_of_patches(image, layer, sides(layer.strides, layer.rank))
    return added + noise_of_dense(math.prod(layer.kernel_size), (places, image[-1], layer.depth_multiplier))


@register_layer(
    kl.DepthwiseConv1D,
    kl.DepthwiseConv2D,
    noise=lambda call: _noise_of_depthwise(call) + noise_of_activation(call.layer.activation, call.shape),
    onto=lambda call: is_onto(call.layer.activation),
)
def _depthwise_conv(layer, x):
    z = channels_last(layer, x, lambda x: depthwise(layer, x, layer.kernel, layer.bias, layer.name))
    return activate(layer.activation, z, layer)


def _noise_of_separable(call):
    layer, image = call.layer, with_channels_last(call.layer, call.shapes[0])
    *places, filters = with_channels_last(layer, call.shape)
    pointwise = noise_of_dense(image[-1] * layer.depth_multiplier, (*places, filters))
    return _noise_of_depthwise(call) + pointwise + noise_of_activation(layer.activation, call.shape)


@register_layer(
    kl.SeparableConv1D,
    kl.SeparableConv2D,
    noise=_noise_of_separable,
    onto=lambda call: is_onto(call.layer.activation),
)
def _separable_conv(layer, x):
    def convert(x):
        z = depthwise(layer, x, layer.depthwise_kernel, None, f"{layer.name}_depthwise")
        kernel = np.asarray(layer.pointwise_kernel)
        return dense(z, kernel.reshape(kernel.shape[-2:]), layer.bias, layer.name)

    return activate(layer.activation, channels_last(layer, x, convert), layer)


def _is_tiling(layer) -> bool:
    """Whether a transposed convolution lays its patches side by side."""
    return layer.kernel_size == layer.strides and set(layer.dilation_rate) == {1} and not layer.output_padding


def _noise_of_transposed(call):
    layer = call.layer
    if not _is_tiling(layer):
        return None
    *places, channels = with_channels_last(layer, call.shapes[0])
    added = noise_of_dense(channels, (*places, math.prod(layer.kernel_size) * layer.filters))
    return added + noise_of_activation(layer.activation, call.shape)


@register_layer(
    kl.Conv1DTranspose,
    kl.Conv2DTranspose,
    kl.Conv3DTranspose,
    noise=_noise_of_transposed,
    onto=lambda call: is_onto(call.layer.activation),
)
def _transposed_conv(layer, x):
    """Each pixel becomes a patch, by a dense layer; the patches are laid side by side."""
    cells, filters, ndims = layer.kernel_size, layer.filters, layer.rank

    def convert(x):
        *places, channels = x.shape[1:]
        kernel = np.moveaxis(np.asarray(layer.kernel), -1, 0).reshape(channels, -1)
        bias = None if layer.bias is None else np.tile(np.asarray(layer.bias), math.prod(cells))
        z = fl.Reshape((*places, *cells, filters))(dense(x, kernel, bias, layer.name))
        order = [axis for i in range(ndims) for axis in (i + 1, ndims + i + 1)]
        z = fl.Permute((*order, 2 * ndims + 1))(z)
        return fl.Reshape((*(a * b for a, b in zip(places, cells, strict=True)), filters))(z)

    return activate(layer.activation, channels_last(layer, x, convert), layer)
