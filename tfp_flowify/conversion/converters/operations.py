"""Operations on Keras tensors: arithmetic, and functions of `keras.ops`, by their names."""

import math

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.activations import INVERTIBLE, ONTO
from tfp_flowify.conversion.converters.branches import (
    concatenated,
    negated,
    noise_of_product,
    of_one_shape,
    product,
)
from tfp_flowify.conversion.converters.normalization import affine, per_channel
from tfp_flowify.conversion.registry import register_layer


def is_tensor(value) -> bool:
    return isinstance(value, keras.KerasTensor)


def _arguments(call) -> list:
    """The positional arguments of an operation."""
    args, _ = call.arguments({id(tensor): tensor for tensor in call.node.input_tensors})
    return list(args)


def _noise_of_sum(call):
    """None, but for copies: of two tensors of one shape, or of a tensor and a constant for each channel."""
    first, second = _arguments(call)[:2]
    if is_tensor(first) and is_tensor(second):
        return of_one_shape(call)
    constant = second if is_tensor(first) else first
    return 0 if _is_constant(constant) else math.inf


def _noise_of_factor(call):
    first, second = _arguments(call)[:2]
    if is_tensor(first) and is_tensor(second):
        return noise_of_product(call)
    constant = second if is_tensor(first) else first
    return 0 if _is_constant(constant) and np.all(np.asarray(constant)) else math.inf


def _noise_of_quotient(call):
    first, second = _arguments(call)[:2]
    return math.inf if is_tensor(second) or not is_tensor(first) else _noise_of_factor(call)


def _is_constant(value) -> bool:
    try:
        return per_channel(np.asarray(value, np.float64))
    except (TypeError, ValueError):
        return False


def _number(value):
    return np.ravel(np.asarray(value, np.float64))


@register_layer("Add", noise=_noise_of_sum)
def _add(operation, first, second):
    if is_tensor(first) and is_tensor(second):
        return fl.Add(name=operation.name)([first, second])
    tensor, constant = (first, second) if is_tensor(first) else (second, first)
    return affine(tensor, 1.0, _number(constant), operation.name)


@register_layer("Subtract", noise=_noise_of_sum)
def _subtract(operation, first, second):
    if is_tensor(first) and is_tensor(second):
        return fl.Add(name=operation.name)([first, negated(second)])
    if is_tensor(first):
        return affine(first, 1.0, -_number(second), operation.name)
    return affine(second, -1.0, _number(first), operation.name)


@register_layer("Multiply", noise=_noise_of_factor)
def _multiply(operation, first, second):
    if is_tensor(first) and is_tensor(second):
        return product([first, second], operation.name)
    tensor, constant = (first, second) if is_tensor(first) else (second, first)
    return affine(tensor, _number(constant), 0.0, operation.name)


@register_layer("TrueDivide", "Divide", noise=_noise_of_quotient)
def _divide(operation, first, second):
    return affine(first, 1 / _number(second), 0.0, operation.name)


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


@register_layer("Negative")
def _negative(operation, x):
    return negated(x)


@register_layer("Concatenate", noise=lambda call: call.repeated)
def _concatenate(operation, inputs):
    return concatenated(inputs, operation.axis, operation.name)


@register_layer("Relu", noise=lambda call: math.prod(call.shape))
def _relu(operation, x):
    return fl.ReLU(name=operation.name)(x)


def _register_activation(kind, name):
    def convert(operation, x):
        return INVERTIBLE[name](x, name=operation.name)

    register_layer(kind, onto=name in ONTO)(convert)


for _kind, _name in {"Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus", "Selu": "selu"}.items():
    _register_activation(_kind, _name)
