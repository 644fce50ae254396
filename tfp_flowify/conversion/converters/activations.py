"""Activations: as layers, and as an argument of other layers."""

import math

import keras
import numpy as np

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.whole import entries, fallback
from tfp_flowify.conversion.registry import register_layer

kl = keras.layers


def _celu(x, alpha=1.0, **kwargs):
    return fl.Rescaling(alpha)(fl.ELU(**kwargs)(fl.Rescaling(1 / alpha)(x)))


def _log_sigmoid(x, **kwargs):
    return fl.Rescaling(-1.0)(fl.Softplus(**kwargs)(fl.Rescaling(-1.0)(x)))


#: Activations that are invertible, by their names in Keras: functions of a tensor and the name of the layer.
INVERTIBLE = {
    "celu": _celu,
    "elu": lambda x, alpha=1.0, **kwargs: fl.ELU(alpha, **kwargs)(x),
    "exponential": lambda x, **kwargs: fl.Exponential(**kwargs)(x),
    "leaky_relu": lambda x, negative_slope=0.2, **kwargs: fl.LeakyReLU(negative_slope, **kwargs)(x),
    "linear": lambda x, **kwargs: x,
    "log_sigmoid": _log_sigmoid,
    "selu": lambda x, **kwargs: fl.SELU(**kwargs)(x),
    "sigmoid": lambda x, **kwargs: fl.Sigmoid(**kwargs)(x),
    "softplus": lambda x, **kwargs: fl.Softplus(**kwargs)(x),
    "softsign": lambda x, **kwargs: fl.Softsign(**kwargs)(x),
    "tanh": lambda x, **kwargs: fl.Tanh(**kwargs)(x),
}

#: Those of them that reach all of the line.
ONTO = ("leaky_relu", "linear")


def named(activation) -> tuple:
    """An activation, a function or a layer of Keras, as a name of Keras' and arguments; no name for one of another."""
    if isinstance(activation, kl.Activation):
        activation = activation.activation
    if isinstance(activation, kl.ReLU):
        if activation.max_value is not None or activation.threshold:
            return None, {}
        slope = float(activation.negative_slope)
        return ("leaky_relu", {"negative_slope": slope}) if slope else ("relu", {})
    if isinstance(activation, kl.LeakyReLU):
        return "leaky_relu", {"negative_slope": float(activation.negative_slope)}
    if isinstance(activation, kl.ELU):
        return "elu", {"alpha": float(activation.alpha)}
    name = getattr(activation, "__name__", None)
    return (name if name in INVERTIBLE or name == "relu" else None), {}


def activate(activation, x, layer):
    """The tensor behind an activation that belongs to a layer, or is one."""
    name, arguments = named(activation)
    title = layer.name if activation is layer else f"{layer.name}_activation"
    if name == "relu":
        return fl.ReLU(name=title)(x)
    if name is not None:
        return INVERTIBLE[name](x, name=title, **arguments)
    return fallback(activation if isinstance(activation, kl.Layer) else kl.Activation(activation, name=title), x)


def noise_of(activation, shape) -> int:
    """Dimensions of noise that an activation adds to a tensor."""
    return 0 if named(activation)[0] in INVERTIBLE else math.prod(shape)


def is_onto(activation) -> bool:
    """Whether all values have a preimage, once noise is added where it is."""
    name = named(activation)[0]
    return name not in INVERTIBLE or name in ONTO


@register_layer(
    kl.Activation,
    kl.ReLU,
    kl.LeakyReLU,
    kl.ELU,
    kl.Softmax,
    noise=lambda call: noise_of(call.layer, call.shape),
    onto=lambda call: is_onto(call.layer),
)
def _activation(layer, x):
    return activate(layer, x, layer)


def _slopes(layer):
    """The slopes of a `PReLU`, one for each channel; None where they are no such, or not positive."""
    alpha = np.asarray(layer.alpha)
    per_channel = alpha.size == alpha.shape[-1]
    return alpha.reshape(-1) if per_channel and alpha.min() > 0 else None


@register_layer(kl.PReLU, noise=lambda call: entries(call) if _slopes(call.layer) is None else 0)
def _prelu(layer, x):
    slopes = _slopes(layer)
    if slopes is None:
        return fallback(layer, x)
    prelu = fl.PReLU(name=layer.name)
    z = prelu(x)
    prelu.log_slope.assign(np.log(np.broadcast_to(slopes, prelu.log_slope.shape)))
    return z
