"""Dense layers."""

import math

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.activations import activate, is_onto, noise_of_activation
from tfp_flowify.conversion.registry import register_layer
from tfp_flowify.core.types import Shape

kl = keras.layers


def dense(
    x: keras.KerasTensor, kernel: np.ndarray | keras.Variable, bias: np.ndarray | keras.Variable | None, name: str
) -> keras.KerasTensor:
    """The tensor behind a dense layer with these weights."""
    return fl.Dense(kernel.shape[-1], use_bias=bias is not None, name=name).start_at(kernel, bias)(x)


def noise_of_dense(features: int, shape: Shape) -> int:
    """Dimensions of noise of a linear map from so many features to the last axis of a shape."""
    *places, units = shape
    return math.prod(places) * max(units - features, 0)


def is_quantized(layer: keras.layers.Layer) -> bool:
    """Whether the kernel of a layer is held as whole numbers."""
    return getattr(layer, "quantization_mode", None) is not None


def _noise_of_dense_layer(call):
    if is_quantized(call.layer):
        return None
    activation = noise_of_activation(call.layer.activation, call.shape)
    return noise_of_dense(call.shapes[0][-1], call.shape) + activation


@register_layer(kl.Dense, noise=_noise_of_dense_layer, onto=lambda call: is_onto(call.layer.activation))
def _dense(layer, x):
    return activate(layer.activation, dense(x, layer.kernel, layer.bias, layer.name), layer)


class _Einsum:
    """The equation of an `EinsumDense`, such as "abcd,cde->abe": a dense layer over the last axes of its input.

    Attributes:
      is_dense: Whether it is one: summed labels last in the input, new ones last in the output and alone in the bias.
      summed, new: The numbers of these labels.
    """

    def __init__(self, layer):
        left, outputs = layer.equation.replace(" ", "").split("->")
        inputs, kernel = left.split(",")
        summed = [label for label in inputs if label not in outputs]
        new = [label for label in outputs if label not in inputs]
        batch = inputs[: len(inputs) - len(summed)]  # May hold "...".
        plain = (
            inputs == batch + "".join(summed) and outputs == batch + "".join(new) and kernel == "".join(summed + new)
        )
        self.is_dense = plain and bool(summed) and bool(new) and set(layer.bias_axes or "") <= set(new)
        self.summed, self.new = len(summed), len(new)


@register_layer(
    kl.EinsumDense,
    noise=lambda call: _noise_of_einsum(call),
    onto=lambda call: is_onto(call.layer.activation),
)
def _einsum_dense(layer, x):
    shape, equation, kernel = tuple(x.shape[1:]), _Einsum(layer), np.asarray(layer.kernel)
    places, units = shape[: len(shape) - equation.summed], kernel.shape[equation.summed :]
    features = math.prod(shape[len(places) :])
    bias = None if layer.bias is None else np.broadcast_to(np.asarray(layer.bias), units).reshape(-1)
    flat = fl.Reshape((*places, features))(x) if equation.summed > 1 else x
    z = dense(flat, kernel.reshape(features, -1), bias, layer.name)
    z = fl.Reshape((*places, *units))(z) if len(units) > 1 else z
    return activate(layer.activation, z, layer)


def _noise_of_einsum(call):
    equation, (given,), shape = _Einsum(call.layer), call.shapes, call.shape
    if not equation.is_dense or is_quantized(call.layer):
        return None
    features = math.prod(given[len(given) - equation.summed :])
    places, units = shape[: len(shape) - equation.new], math.prod(shape[len(shape) - equation.new :])
    return noise_of_dense(features, (*places, units)) + noise_of_activation(call.layer.activation, shape)
