"""Dense layers."""

import math

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.activations import activate, is_onto, noise_of
from tfp_flowify.conversion.converters.whole import entries, fallback
from tfp_flowify.conversion.registry import register_layer

kl = keras.layers


def dense(x, kernel, bias, name):
    """The tensor behind a dense layer with these weights."""
    return fl.Dense(kernel.shape[-1], use_bias=bias is not None, name=name).start_at(kernel, bias)(x)


def noise_of_dense(features, shape) -> int:
    """Dimensions of noise of a linear map from so many features to the last axis of a shape."""
    *places, units = shape
    return math.prod(places) * max(units - features, 0)


@register_layer(
    kl.Dense,
    noise=lambda call: noise_of_dense(call.shapes[0][-1], call.shape) + noise_of(call.layer.activation, call.shape),
    onto=lambda call: is_onto(call.layer.activation),
)
def _dense(layer, x):
    return activate(layer.activation, dense(x, layer.kernel, layer.bias, layer.name), layer)


class _Einsum:
    """The equation of an `EinsumDense` that is a dense layer over its last axes: "ab..cd,cde->ab..e"."""

    def __init__(self, layer, shape):
        left, self.outputs = layer.equation.replace(" ", "").split("->")
        inputs, kernel = left.replace("...", "").split(",")
        outputs = self.outputs.replace("...", "")
        summed = [label for label in inputs if label not in outputs]
        new = [label for label in outputs if label not in inputs]
        batch = [label for label in inputs if label in outputs]
        plain = inputs == "".join(batch + summed) and outputs == "".join(batch + new) and summed
        self.is_dense = bool(plain) and kernel == "".join(summed + new) and bool(new)
        self.summed, self.new = len(summed), len(new)
        self.features = math.prod(shape[len(shape) - self.summed :])


@register_layer(
    kl.EinsumDense,
    noise=lambda call: _noise_of_einsum(call),
    onto=lambda call: is_onto(call.layer.activation),
)
def _einsum_dense(layer, x):
    shape = tuple(x.shape[1:])
    equation = _Einsum(layer, shape)
    if not equation.is_dense:
        return fallback(layer, x)
    kernel = np.asarray(layer.kernel)
    units = kernel.shape[equation.summed :]
    bias = None if layer.bias is None else np.broadcast_to(np.asarray(layer.bias), units).reshape(-1)
    places = shape[: len(shape) - equation.summed]
    flat = fl.Reshape((*places, equation.features))(x) if equation.summed > 1 else x
    z = dense(flat, kernel.reshape(equation.features, -1), bias, layer.name)
    z = fl.Reshape((*places, *units))(z) if len(units) > 1 else z
    return activate(layer.activation, z, layer)


def _noise_of_einsum(call):
    equation, shape = _Einsum(call.layer, call.shapes[0]), call.shape
    if not equation.is_dense:
        return entries(call)
    places, units = shape[: len(shape) - equation.new], math.prod(shape[len(shape) - equation.new :])
    return noise_of_dense(equation.features, (*places, units)) + noise_of(call.layer.activation, shape)
