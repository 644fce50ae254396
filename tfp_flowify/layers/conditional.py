"""Maps of each entry whose parameters a network makes of the condition."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify import transforms
from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import positive
from tfp_flowify.layers.base import FlowLayer, register
from tfp_flowify.layers.conditioners import KerasFunction, ensure_built
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.networks import conditioner_for
from tfp_flowify.transforms import Transform


class TakingCondition(FlowLayer):
    """The base of layers that are called on x or on [x, condition] and run by their `bijector`, made in `build`."""

    takes_condition = True

    def call(self, inputs: tf.Tensor | list, training: bool | None = None) -> tf.Tensor:
        return self.run(self.bijector, inputs, training)

    def compute_output_shape(self, input_shape: Sequence) -> tuple:
        return split_shapes(input_shape)[0]

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return self.bijector


class ConditionalMap(TakingCondition):
    """The base of the maps whose parameters depend on the condition alone: one function for each channel.

    Args:
      conditioner: A Keras model of the condition that gives the parameters, as many for each channel as the map needs.
      width: Units of the hidden layers of the network that it makes without one; that one starts as the identity.
    """

    def __init__(self, conditioner: keras.layers.Layer | None = None, width: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.conditioner = conditioner
        self.width = width if width is None else whole_number("width", width)

    def make_transform(self) -> Transform:
        """The scalar function whose parameters the network gives."""
        raise NotImplementedError(f"{type(self).__name__} must define make_transform().")

    def build(self, input_shape: Sequence) -> None:
        input_shape, condition = split_shapes(input_shape)
        if None in input_shape[1:]:
            raise ValueError(f"{self.name} takes events of known size. Received: shape={input_shape}")
        if condition is None:
            raise ValueError(
                f"{self.name} depends on a condition, and is given none. Call it on [x, condition], or use it in "
                "FlowModel(..., condition=shape)."
            )
        transform, channels = self.make_transform(), input_shape[-1:]
        self.model = self.conditioner or conditioner_for(
            None, channels, transform.size, self.dtype_policy, width=self.width, condition=condition
        )
        numbers, wanted = ensure_built(self.model, (condition,))[-1], transform.size * channels[0]
        if numbers != wanted:
            raise ValueError(
                f"The conditioner of {self.name} gives {numbers} numbers. It maps {channels[0]} channels, with "
                f"{transform.size} numbers for each: {wanted}."
            )
        function = fb.ConditionalTransform(channels, KerasFunction(self.model), transform, self.variable_dtype)
        self.bijector = fb.bind(function, input_shape[1:])


@register
class ConditionalAffine(ConditionalMap):
    """z = (x - loc(c)) / scale(c), with a mean and a deviation for each channel by a network of the condition c. Exact.

    Args:
      conditioner, width: See `ConditionalMap`; two numbers for each channel, the mean and the log of the deviation.

    >>> layer = ConditionalAffine()
    >>> layer([tf.ones([5, 2]), tf.ones([5, 3])]).numpy()[0].tolist()  # A fresh one is the identity.
    [1.0, 1.0]
    """

    def make_transform(self) -> Transform:
        return transforms.Standardize()


@register
class ConditionalSpline(ConditionalMap):
    """A monotone spline for each channel, with parameters by a network of the condition. Exact.

    Args:
      bins, bound: Number of pieces of the spline, which lives on [-bound, bound]; outside it is the identity.
      conditioner, width: See `ConditionalMap`; 3 bins - 1 numbers for each channel.

    >>> ConditionalSpline()([tf.ones([5, 2]), tf.ones([5, 3])]).shape.as_list()
    [5, 2]
    """

    def __init__(
        self,
        bins: int = 8,
        bound: float = 2.0,
        conditioner: keras.layers.Layer | None = None,
        width: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(conditioner, width, **kwargs)
        self.bins, self.bound = whole_number("bins", bins), positive("bound", bound)

    def make_transform(self) -> Transform:
        return transforms.Spline(self.bins, self.bound)


def split_shapes(input_shape: Sequence) -> tuple:
    """The shape of x and the size of the condition, or None, of what a layer is called on: x or [x, condition]."""
    if not isinstance(input_shape[0], list | tuple):
        return tuple(input_shape), None
    x, condition = map(tuple, input_shape)
    if len(condition) != 2 or condition[-1] is None:
        raise ValueError(f"A layer takes a condition (batch, numbers). Received: shape={condition}")
    return x, condition[-1]
