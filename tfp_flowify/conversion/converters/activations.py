"""Activations: as layers, as an argument of other layers, and as operations."""

import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import layers as fl
from tfp_flowify.conversion.fallback import fallback
from tfp_flowify.conversion.registry import register_layer
from tfp_flowify.core.types import Shape

kl = keras.layers


def _celu(x, alpha=1.0, **kwargs):
    return fl.Rescaling(alpha)(fl.ELU(**kwargs)(fl.Rescaling(1 / alpha)(x)))


def _log_sigmoid(x, **kwargs):
    return fl.Rescaling(-1.0)(fl.Softplus(**kwargs)(fl.Rescaling(-1.0)(x)))


#: Activations with a flow layer, by their names in Keras: functions of a tensor, their arguments and a layer's name.
KNOWN = {
    "celu": _celu,
    "elu": lambda x, alpha=1.0, **kwargs: fl.ELU(alpha, **kwargs)(x),
    "exponential": lambda x, **kwargs: fl.Exponential(**kwargs)(x),
    "leaky_relu": lambda x, negative_slope=0.2, **kwargs: fl.LeakyReLU(negative_slope, **kwargs)(x),
    "linear": lambda x, **kwargs: x,
    "log_sigmoid": _log_sigmoid,
    "relu": lambda x, **kwargs: fl.ReLU(**kwargs)(x),
    "selu": lambda x, **kwargs: fl.SELU(**kwargs)(x),
    "sigmoid": lambda x, **kwargs: fl.Sigmoid(**kwargs)(x),
    "softplus": lambda x, **kwargs: fl.Softplus(**kwargs)(x),
    "softsign": lambda x, **kwargs: fl.Softsign(**kwargs)(x),
    "tanh": lambda x, **kwargs: fl.Tanh(**kwargs)(x),
}

#: Those of them that reach all of the line, where noise is added with that.
ONTO = ("leaky_relu", "linear", "relu")

#: The names by the functions themselves: one of a user's may have the same name.
_NAMES = {
    id(getattr(module, name)): name
    for module in (keras.activations, keras.ops, tf.nn)
    for name in KNOWN
    if hasattr(module, name)
}

#: The names of Keras' operations, which have their arguments as attributes, and one layer that is like them.
OPERATIONS = {
    "Celu": "celu",
    "Elu": "elu",
    "Exp": "exponential",
    "LeakyRelu": "leaky_relu",
    "LogSigmoid": "log_sigmoid",
    "ReLU": "relu",
    "Relu": "relu",
    "Selu": "selu",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Tanh": "tanh",
}


def named(activation: Callable) -> tuple:
    """An activation as its name in `KNOWN` and arguments; (None, {}) for any other.

    Args:
      activation: A function, a layer or an operation of Keras, or any other function.
    """
    if isinstance(activation, kl.Activation):
        activation = activation.activation
    if isinstance(activation, kl.ReLU | kl.LeakyReLU | kl.ELU) or not isinstance(activation, kl.Layer):
        kinds = {kl.LeakyReLU: "leaky_relu", kl.ELU: "elu"}
        name = _NAMES.get(id(activation)) or kinds.get(type(activation)) or OPERATIONS.get(type(activation).__name__)
        return _plain(name, {k: v for k, v in vars(activation).items() if k in _ARGUMENTS} if name else {})
    return None, {}


#: Attributes of layers and operations that say which function they are.
_ARGUMENTS = ("alpha", "negative_slope", "max_value", "threshold")


def _plain(name, arguments) -> tuple:
    """A name and its arguments, such as slopes, with other names for functions that these make of it."""
    if arguments.pop("max_value", None) is not None or arguments.pop("threshold", 0.0):
        return None, {}
    arguments = {key: float(value) for key, value in arguments.items()}
    slope, alpha = arguments.get("negative_slope"), arguments.get("alpha")
    if name in ("relu", "leaky_relu") and slope is not None:
        name = "leaky_relu" if slope > 0 else "relu" if slope == 0 else None
    if name == "elu" and alpha is not None and alpha <= 0:
        name = "relu" if alpha == 0 else None
    if name in (None, "relu"):
        return name, {}
    return name, arguments


def activate(activation: Callable, x: keras.KerasTensor, layer: keras.Operation) -> keras.KerasTensor:
    """The tensor behind an activation that belongs to a layer, or is one."""
    name, arguments = named(activation)
    title = layer.name if activation is layer else f"{layer.name}_activation"
    if name is not None:
        return KNOWN[name](x, name=title, **arguments)
    return fallback(activation if isinstance(activation, keras.Operation) else _as_layer(activation, title), x)


def _as_layer(function, name):
    return kl.Activation(function, name=name)


def noise_of_activation(activation: Callable, shape: Shape) -> int:
    """Dimensions of noise that an activation adds to a tensor."""
    return math.prod(shape) if named(activation)[0] in (None, "relu") else 0


def is_onto(activation: Callable) -> bool:
    """Whether all values have a preimage, once noise is added where it is."""
    return named(activation)[0] in (None, *ONTO)


@register_layer(
    kl.Activation,
    kl.ReLU,
    kl.LeakyReLU,
    kl.ELU,
    *OPERATIONS,
    noise=lambda call: None if named(call.layer)[0] is None else noise_of_activation(call.layer, call.shape),
    onto=lambda call: is_onto(call.layer),
)
def _activation(layer, x):
    return activate(layer, x, layer)


def _slopes(layer):
    """The slopes of a `PReLU`, one for each channel; None where they are no such, or not positive."""
    alpha = np.asarray(layer.alpha)
    per_channel = alpha.size == alpha.shape[-1]
    return alpha.reshape(-1) if per_channel and alpha.min() > 0 else None


@register_layer(kl.PReLU, noise=lambda call: None if _slopes(call.layer) is None else 0)
def _prelu(layer, x):
    prelu = fl.PReLU(name=layer.name)
    z = prelu(x)
    prelu.log_slope.assign(np.log(np.broadcast_to(_slopes(layer), prelu.log_slope.shape)))
    return z
