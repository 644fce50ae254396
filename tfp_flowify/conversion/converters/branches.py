"""Layers of several tensors."""

import math
from collections.abc import Sequence

import keras

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.axes import event_axes
from tfp_flowify.conversion.graph import Call
from tfp_flowify.conversion.registry import register_layer
from tfp_flowify.core.types import Shape

kl = keras.layers


def of_one_shape(call: Call) -> float:
    """No noise but that of copies where all tensors have one shape; no way where they are broadcast."""
    return call.repeated if len(set(call.shapes)) == 1 and len(call.shapes) > 1 else math.inf


def negated(x: keras.KerasTensor) -> keras.KerasTensor:
    return fl.Rescaling(-1.0)(x)


@register_layer(kl.Add, noise=of_one_shape)
def _add(layer, inputs):
    return fl.Add(name=layer.name)(inputs)


@register_layer(kl.Subtract, noise=of_one_shape)
def _subtract(layer, inputs):
    return fl.Add(name=layer.name)([inputs[0], negated(inputs[1])])


@register_layer(kl.Average, noise=of_one_shape)
def _average(layer, inputs):
    return fl.Rescaling(1 / len(inputs))(fl.Add(name=layer.name)(inputs))


def maximum(inputs: Sequence[keras.KerasTensor], name: str) -> keras.KerasTensor:
    """The largest of several tensors, entry by entry: they are the columns of an image, pooled row by row."""
    shape = tuple(inputs[0].shape[1:])
    size = math.prod(shape)
    columns = fl.Concatenate()([fl.Reshape((size, 1))(x) for x in inputs])
    z = fl.MaxPooling2D((1, len(inputs)), name=name)(fl.Reshape((size, len(inputs), 1))(columns))
    return fl.Reshape(shape)(z)


@register_layer(kl.Maximum, noise=of_one_shape)
def _maximum(layer, inputs):
    return maximum(inputs, layer.name)


def minimum(inputs: Sequence[keras.KerasTensor], name: str) -> keras.KerasTensor:
    return negated(maximum([negated(x) for x in inputs], name))


@register_layer(kl.Minimum, noise=of_one_shape)
def _minimum(layer, inputs):
    return minimum(inputs, layer.name)


def is_factor(shape: Shape, factor: Shape) -> bool:
    """Whether a tensor of one shape can be a factor of one of another: the same shape, or sides of one in it."""
    return len(shape) == len(factor) and all(b in (1, a) for a, b in zip(shape, factor, strict=True))


def noise_of_product(call: Call) -> float:
    largest = max(call.shapes, key=math.prod)
    return call.repeated if all(is_factor(largest, shape) for shape in call.shapes) else math.inf


def product(inputs: Sequence[keras.KerasTensor], name: str) -> keras.KerasTensor:
    """The product of several tensors; the factors, dropped one after the other, are the smaller ones."""
    z, *factors = sorted(inputs, key=lambda x: -math.prod(x.shape[1:]))
    for i, factor in enumerate(factors):
        z = fl.Multiply(name=name if i == 0 else f"{name}_{i}")([z, factor])
    return z


@register_layer(kl.Multiply, noise=noise_of_product)
def _multiply(layer, inputs):
    return product(inputs, layer.name)


def noise_of_concatenation(call: Call) -> float:
    """None but that of copies; no way along the axis of the batch, with constants, or of one tensor."""
    (axis,) = event_axes(call.layer.axis, len(call.shape))
    joined = sum(shape[axis - 1] for shape in call.shapes)
    return call.repeated if axis and len(call.shapes) > 1 and joined == call.shape[axis - 1] else math.inf


@register_layer(kl.Concatenate, noise=noise_of_concatenation)
def _concatenate(layer, inputs):
    return concatenated(inputs, layer.axis, layer.name)


def concatenated(inputs: Sequence[keras.KerasTensor], axis: int, name: str) -> keras.KerasTensor:
    """Tensors joined along any axis but that of the batch."""
    ndims = len(inputs[0].shape) - 1
    (axis,) = event_axes(axis, ndims)
    if axis == ndims:
        return fl.Concatenate(name=name)(inputs)
    order = [*(a for a in range(1, ndims + 1) if a != axis), axis]
    z = fl.Concatenate(name=name)([fl.Permute(order)(x) for x in inputs])
    return fl.Permute([order.index(a) + 1 for a in range(1, ndims + 1)])(z)
