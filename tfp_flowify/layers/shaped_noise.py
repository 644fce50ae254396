"""Noise that follows the data, and the condition."""

import math
from typing import Any

import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.shaped_noise import noise_numbers
from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.base import FlowLayer, register
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.networks import conditioner_for


@register
class ShapedNoise(FlowLayer):
    """A layer whose noise has a mean and a deviation by a network of its input, and of the condition if there is one.

    Called, it is the layer. In a flow, the noise that the layer adds is shaped by that network before it goes in: the
    bound can get tighter, for the time that the network takes.

    Args:
      layer: A layer that adds noise: a `Dense` with more units than features, a `Widen`, a convolution.
      width: Units of the hidden layers of the network.

    >>> from tfp_flowify.layers import Dense
    >>> ShapedNoise(Dense(7))(tf.ones([5, 3])).shape.as_list()
    [5, 7]
    """

    def __init__(self, layer: FlowLayer, width: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if not isinstance(layer, FlowLayer):
            raise TypeError(f"ShapedNoise takes a layer of tfp_flowify that adds noise. Received: layer={layer!r}")
        if layer.takes_condition:
            raise TypeError(f"{layer.name} reads the condition itself, so its noise cannot be shaped from outside.")
        self.layer = layer
        self.width = width if width is None else whole_number("width", width)

    def build(self, input_shape: Shape) -> None:
        if not self.layer.built:
            self.layer.build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.layer(x)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return self.layer.compute_output_shape(input_shape)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        bijector = self.layer.make_bijector(shape, densities.add_part(self.layer))
        numbers = [noise_numbers(noise) for noise in bijector.noise]
        if not any(numbers):
            raise ValueError(f"{self.layer.name} adds no noise here, {shape} -> {bijector.outputs}. Use it as it is.")
        conditioners = [
            self._conditioner(densities, shape, tuple(noise.event_shape), count) if count else None
            for noise, count in zip(bijector.noise, numbers, strict=True)
        ]
        return fb.ShapedNoise(bijector, conditioners)

    def _conditioner(self, densities, shape, event, count):
        """Two numbers for each entry of the noise, where there are as many: then it may be convolutional."""
        per_entry = count == 2 * math.prod(event)
        network = conditioner_for(
            shape,
            event if per_entry else (count,),
            2 if per_entry else 1,
            self.dtype_policy,
            kind=None if per_entry else "dense",
            width=self.width,
            condition=densities.condition,
        )
        return densities.add_conditioner(network)
