"""Operations on Keras tensors, by their names: arithmetic, joins, slices and shapes. The fallback takes all others."""

import math

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.affine import is_per_channel, rescaled
from tfp_flowify.conversion.converters.axes import event_axes
from tfp_flowify.conversion.converters.branches import (
    concatenated,
    maximum,
    minimum,
    negated,
    noise_of_concatenation,
    noise_of_product,
    of_one_shape,
    product,
)
from tfp_flowify.conversion.registry import register_layer


def is_tensor(value: object) -> bool:
    return isinstance(value, keras.KerasTensor)


def _arguments(call) -> list:
    """The positional arguments of an operation."""
    args, _ = call.arguments({id(tensor): tensor for tensor in call.node.input_tensors})
    return list(args)


def _with_constant(call):
    """The constant of an operation on a tensor and a constant for each channel; None where it is no such."""
    first, second = _arguments(call)[:2]
    constant = second if is_tensor(first) else first
    plain = call.shape == call.shapes[0] and is_per_channel(constant, call.shape)
    return np.ravel(np.asarray(constant, np.float64)) if plain else None


def _are_tensors(call) -> bool:
    return all(map(is_tensor, _arguments(call)[:2]))


def _noise_of_sum(call):
    """None, but for copies: of two tensors of one shape, or of a tensor and a constant."""
    if _are_tensors(call):
        return of_one_shape(call)
    return None if _with_constant(call) is None else 0


def _noise_of_factor(call):
    if _are_tensors(call):
        return noise_of_product(call)
    constant = _with_constant(call)
    return 0 if constant is not None and np.all(constant) else None


def _noise_of_quotient(call):
    if _are_tensors(call):
        return math.inf
    return _noise_of_factor(call) if is_tensor(_arguments(call)[0]) else None


def _number(value):
    return np.ravel(np.asarray(value, np.float64))


@register_layer("Add", noise=_noise_of_sum)
def _add(operation, first, second):
    if is_tensor(first) and is_tensor(second):
        return fl.Add(name=operation.name)([first, second])
    tensor, constant = (first, second) if is_tensor(first) else (second, first)
    return rescaled(tensor, 1.0, _number(constant), operation.name)


@register_layer("Subtract", noise=_noise_of_sum)
def _subtract(operation, first, second):
    if is_tensor(first) and is_tensor(second):
        return fl.Add(name=operation.name)([first, negated(second)])
    if is_tensor(first):
        return rescaled(first, 1.0, -_number(second), operation.name)
    return rescaled(second, -1.0, _number(first), operation.name)


@register_layer("Multiply", noise=_noise_of_factor)
def _multiply(operation, first, second):
    if is_tensor(first) and is_tensor(second):
        return product([first, second], operation.name)
    tensor, constant = (first, second) if is_tensor(first) else (second, first)
    return rescaled(tensor, _number(constant), 0.0, operation.name)


@register_layer("TrueDivide", "Divide", noise=_noise_of_quotient)
def _divide(operation, first, second):
    return rescaled(first, 1 / _number(second), 0.0, operation.name)


@register_layer("Negative")
def _negative(operation, x):
    return negated(x)


@register_layer("Concatenate", noise=noise_of_concatenation)
def _concatenate(operation, inputs):
    return concatenated(inputs, operation.axis, operation.name)


def _noise_of_extreme(call):
    return of_one_shape(call) if _are_tensors(call) else None


@register_layer("Maximum", noise=_noise_of_extreme)
def _maximum(operation, first, second):
    return maximum([first, second], operation.name)


@register_layer("Minimum", noise=_noise_of_extreme)
def _minimum(operation, first, second):
    return minimum([first, second], operation.name)


def _event_key(x, key):
    """The index or slice for each axis of the event; None where it is no plain slice, or cuts the batch."""
    key = list(key) if isinstance(key, list | tuple) else [key]
    places = [i for i, index in enumerate(key) if index is Ellipsis]
    for place in places[:1]:
        key[place : place + 1] = [slice(None)] * (len(x.shape) - len(key) + 1)
    if not all(isinstance(index, int | slice) for index in key) or key[0] != slice(None):
        return None
    return key[1:] + [slice(None)] * (len(x.shape) - len(key))


@register_layer("GetItem", noise=lambda call: math.inf if _event_key(*_arguments(call)) is None else 0)
def _get_item(operation, x, key):
    """A single place is a slice of one, and then taken away as an axis."""
    key = _event_key(x, key)
    slices = [(i, i + 1 or None, None) if isinstance(i, int) else (i.start, i.stop, i.step) for i in key]
    z = fl.Slice(slices, name=operation.name)(x)
    kept = [size for size, index in zip(z.shape[1:], key, strict=True) if isinstance(index, slice)]
    return z if len(kept) == len(key) else fl.Reshape(kept)(z)


def _keeps_the_batch(call) -> bool:
    """Whether an operation on shapes leaves each example what it was: as many numbers, and the batch in front."""
    return call.outputs[0].shape[0] is None and math.prod(call.shape) == math.prod(call.shapes[0])


def _noise_of_shapes(call):
    return 0 if _keeps_the_batch(call) else math.inf


@register_layer("Reshape", "Squeeze", "ExpandDims", noise=_noise_of_shapes)
def _reshape(operation, x):
    shape = operation.compute_output_spec(x).shape[1:]
    return fl.Reshape(shape, name=operation.name)(x)


@register_layer("Transpose", noise=lambda call: 0 if call.layer.axes and call.layer.axes[0] == 0 else math.inf)
def _transpose(operation, x):
    return fl.Permute(tuple(operation.axes[1:]), name=operation.name)(x)


def _flipped_axes(operation, ndims) -> list:
    return event_axes(range(ndims + 1) if operation.axis is None else operation.axis, ndims)


@register_layer("Flip", noise=lambda call: math.inf if 0 in _flipped_axes(call.layer, len(call.shape)) else 0)
def _flip(operation, x):
    ndims = len(x.shape) - 1
    flipped = _flipped_axes(operation, ndims)
    slices = [(None, None, -1 if axis in flipped else None) for axis in range(1, ndims + 1)]
    return fl.Slice(slices, name=operation.name)(x)


@register_layer("Round", "Cast", noise=math.inf)
def _not_alone(operation, *args):
    raise TypeError(f"{operation.name} makes whole numbers of real ones, which a flow takes inside a block only.")
