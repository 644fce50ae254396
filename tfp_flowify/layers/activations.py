"""Activations, entry by entry. Those that reach only part of the line are `is_onto = False` as bijectors."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify import bijectors as fb
from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import positive
from tfp_flowify.layers.base import FlowLayer, register
from tfp_flowify.layers.densities import Densities

tfb = tfp.bijectors


class Activation(FlowLayer):
    """A function of each entry."""

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


@register
class LeakyReLU(Activation):
    """z = x where x >= 0, negative_slope x elsewhere. Exact.

    >>> LeakyReLU(0.5)(tf.constant([-2.0, 2.0])).numpy().tolist()
    [-1.0, 2.0]
    """

    def __init__(self, negative_slope: float = 0.3, **kwargs: Any):
        super().__init__(**kwargs)
        fb.LeakyReLU(negative_slope)  # Raises where it is not invertible.
        self.negative_slope = float(negative_slope)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.leaky_relu(x, self.negative_slope)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(fb.LeakyReLU(self.negative_slope), shape)


@register
class PReLU(Activation):
    """z = x where x >= 0, slope x elsewhere, with a trainable positive slope for each channel. Exact.

    Args:
      negative_slope: The slope at the start.

    >>> PReLU(0.25)(tf.constant([[-2.0, 2.0]])).numpy().tolist()
    [[-0.5, 2.0]]
    """

    def __init__(self, negative_slope: float = 0.25, **kwargs: Any):
        super().__init__(**kwargs)
        self.negative_slope = positive("negative_slope", negative_slope)

    def build(self, input_shape: Shape) -> None:
        start = keras.initializers.Constant(float(keras.ops.log(self.negative_slope)))
        self.log_slope = self.add_weight(name="log_slope", shape=[input_shape[-1]], initializer=start)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        slope = tf.cast(tf.exp(tf.convert_to_tensor(self.log_slope)), x.dtype)
        return tf.where(x < 0, slope * x, x)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(fb.PReLU(self.log_slope), shape)


@register
class ReLU(Activation):
    """z = max(x, 0). In a flow, noise takes the place of the zeros, and what was below zero has a density. A bound.

    Args:
      noise_scale: Scale of the noise at the start; it is trained, one for each channel.

    >>> ReLU()(tf.constant([[-2.0, 2.0]])).numpy().tolist()
    [[0.0, 2.0]]
    """

    fixed_arguments: ClassVar = {
        "max_value": ((None,), "what it cuts off above has no density; Stochastic(keras.layers.ReLU(...)) takes it"),
        "negative_slope": ((0, 0.0), "LeakyReLU has a slope below zero"),
        "threshold": ((0, 0.0), "the threshold is zero; Stochastic(keras.layers.ReLU(...)) takes any"),
    }

    def __init__(self, *args: Any, noise_scale: float = 1.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.noise_scale = positive("noise_scale", noise_scale)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.relu(x)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        channels = shape[-1:]
        scale = densities.add("log_noise_scale", channels, float(keras.ops.log(self.noise_scale)))
        density = [densities.add_parameters(name, channels) for name in ("sign_logit", "log_scale")]
        return fb.bind(fb.ReLU(channels, scale, *density), shape)


@register
class Abs(Activation):
    """z = |x|. In a flow, the sign is a choice with a trainable probability. Exact, onto [0, inf).

    >>> Abs()(tf.constant([-2.0, 2.0])).numpy().tolist()
    [2.0, 2.0]
    """

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.absolute(x)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(fb.Abs(densities.add_parameters("sign_logit"), self.variable_dtype), shape)


@register
class ELU(Activation):
    """z = x where x > 0, alpha (exp(x) - 1) elsewhere. Exact, onto (-alpha, inf).

    >>> ELU()(tf.constant([0.0, 2.0])).numpy().tolist()
    [0.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.alpha = positive("alpha", alpha)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.elu(x, self.alpha)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(fb.ELU(self.alpha), shape)


class _Fixed(Activation):
    """A function without arguments or weights, and its bijector."""

    function: staticmethod
    bijector: type

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.function(x)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(self.bijector(), shape)


@register
class SELU(_Fixed):
    """The self-normalising `ELU`. Exact, onto (-1.758, inf).

    >>> SELU()(tf.constant([0.0])).numpy().tolist()
    [0.0]
    """

    function, bijector = staticmethod(keras.ops.selu), fb.SELU


@register
class Tanh(_Fixed):
    """z = tanh(x). Exact, onto (-1, 1).

    >>> Tanh()(tf.constant([0.0])).numpy().tolist()
    [0.0]
    """

    function, bijector = staticmethod(keras.ops.tanh), tfb.Tanh


@register
class Sigmoid(_Fixed):
    """z = 1 / (1 + exp(-x)). Exact, onto (0, 1).

    >>> Sigmoid()(tf.constant([0.0])).numpy().tolist()
    [0.5]
    """

    function, bijector = staticmethod(keras.ops.sigmoid), fb.Sigmoid


@register
class Softplus(_Fixed):
    """z = log(1 + exp(x)). Exact, onto (0, inf).

    >>> Softplus()(tf.constant([0.0])).numpy().round(4).tolist()
    [0.6930999755859375]
    """

    function, bijector = staticmethod(keras.ops.softplus), tfb.Softplus


@register
class Softsign(_Fixed):
    """z = x / (1 + |x|). Exact, onto (-1, 1).

    >>> Softsign()(tf.constant([1.0])).numpy().tolist()
    [0.5]
    """

    function, bijector = staticmethod(keras.ops.softsign), tfb.Softsign


@register
class Exponential(_Fixed):
    """z = exp(x). Exact, onto (0, inf).

    >>> Exponential()(tf.constant([0.0])).numpy().tolist()
    [1.0]
    """

    function, bijector = staticmethod(keras.ops.exp), tfb.Exp


@register
class Logit(Activation):
    """z = log((x - low) / (high - x)), from the box (low, high) to the whole line. Exact.

    Behind `Dequantize` the box is (0, 1). In front of a flow it keeps samples inside a box, such as the support of a
    uniform prior.

    Args:
      low, high: The sides of the box: numbers, or one for each channel.

    >>> Logit()(tf.constant([0.5])).numpy().tolist(), Logit(-1.0, 1.0)(tf.constant([0.0])).numpy().tolist()
    ([0.0], [0.0])
    """

    def __init__(
        self,
        low: float | Sequence[float] | np.ndarray = 0.0,
        high: float | Sequence[float] | np.ndarray = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.autocast = False  # In half precision, numbers near the ends would be the ends.
        self.low, self.high = (np.asarray(side, np.float64).tolist() for side in (low, high))
        fb.Logit(self.low, self.high)  # Raises where that is no box.

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.run(self._bijector(x.shape[1:]), x)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return self._bijector(shape)

    def _bijector(self, shape):
        logit = fb.Logit(self.low, self.high, self.variable_dtype)
        if logit.inputs[0] not in ((), tuple(shape[-1:])):
            raise ValueError(f"{self.name} has a box of {logit.inputs[0]}; its data are {tuple(shape)}.")
        return fb.bind(logit, shape)


@register
class Spline(Activation):
    """A trainable monotone function, shared by all entries or one for each channel: the paper's activation. Exact.

    Args:
      bins: Number of pieces of the rational-quadratic spline on [-bound, bound]; outside it is the identity.
      bound: The spline lives on [-bound, bound].
      per_channel: Whether each channel has a function of its own.

    >>> Spline()(tf.constant([[0.5, 3.0]])).numpy().tolist()
    [[0.5, 3.0]]
    """

    def __init__(self, bins: int = 8, bound: float = 2.0, per_channel: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.bins, self.bound = whole_number("bins", bins), positive("bound", bound)
        self.per_channel = bool(per_channel)

    def build(self, input_shape: Shape) -> None:
        size = 3 * self.bins - 1
        shape = [input_shape[-1], size] if self.per_channel else [size]
        self.parameters = self.add_weight(name="parameters", shape=shape, initializer="zeros")
        self.spline = fb.Spline(self.parameters, self.bound)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.run(self.spline, x)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(self.spline, shape)


# The layers by the names of Keras' activation functions, with Keras' default arguments.
_BY_NAME = {
    "relu": ReLU,
    "leaky_relu": lambda **kwargs: LeakyReLU(0.2, **kwargs),
    "elu": ELU,
    "selu": SELU,
    "tanh": Tanh,
    "sigmoid": Sigmoid,
    "softplus": Softplus,
}


def activation_layer(
    activation: str | Callable | None, dtype: keras.DTypePolicy | str | None = None
) -> FlowLayer | None:
    """The layer for an argument `activation`, or None for the identity.

    Args:
      activation: None, the name of a Keras activation, the function itself, or an activation of this package.
      dtype: Dtype policy of the layer.

    >>> type(activation_layer("relu")).__name__
    'ReLU'
    """
    if activation is None or isinstance(activation, Activation):
        return activation
    name = activation if isinstance(activation, str) else getattr(activation, "__name__", repr(activation))
    if name == "linear":
        return None
    if name not in _BY_NAME:
        raise ValueError(
            f"activation is one of {', '.join(map(repr, _BY_NAME))}, 'linear', or an activation of tfp_flowify.layers. "
            f"Received: activation={name!r}. For any other function, put Stochastic(function) behind the layer: it "
            "adds noise, so its bound is looser."
        )
    return _BY_NAME[name](dtype=dtype)
