"""Layers that forget lengths and factors: normalization of each example by itself, and products."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import one_of, positive
from tfp_flowify.layers.base import Dropping, register
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.scale import Affine


@register
class LayerNormalization(Dropping):
    """Gives the vector of channels at each place mean zero and unit deviation; then a scale and an offset for each.

    In a flow it drops mean and deviation, with a density for them, and puts noise in their place: a bound, of two
    numbers of noise for each vector.

    Args:
      epsilon, center, scale: As in Keras.
      rms_scaling: Whether to leave the mean, and divide by the root of the mean square, as `RMSNormalization` does.
      noise, noise_scale: Kind of the noise, and its scale at the start.
      **kwargs: See `Dropping`.

    >>> LayerNormalization()(tf.constant([[1.0, 1.0, 3.0, 3.0]])).numpy().round(2).tolist()
    [[-1.0, -1.0, 1.0, 1.0]]
    """

    def __init__(
        self,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        rms_scaling: bool = False,
        noise: str = "normal",
        noise_scale: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.epsilon, self.center, self.scale = float(epsilon), bool(center), bool(scale)
        self.rms_scaling, self.noise = bool(rms_scaling), one_of("noise", noise, ("normal", "uniform"))
        self.noise_scale = positive("noise_scale", noise_scale)

    def build(self, input_shape: Shape) -> None:
        self.affine = Affine(name="affine", dtype=self.dtype_policy) if self.center or self.scale else None
        if self.affine is not None:
            self.affine.build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.cast(x, self.variable_dtype)
        x = x if self.rms_scaling else x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
        z = tf.cast(x * tf.math.rsqrt(variance + self.epsilon), self.compute_dtype)
        return z if self.affine is None else self.affine(z)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        lost = 1 if self.rms_scaling else 2
        scales = densities.add("log_noise_scale", [lost], math.log(self.noise_scale))
        normalize = fb.Normalize(shape[-1], not self.rms_scaling, self.epsilon, scales, self.noise)
        conditioner = self.conditioner(densities, shape, (lost,), kind="last")
        if conditioner is not None:
            normalize = fb.Funnel(normalize, conditioner, self.make_transform())
        affine = [] if self.affine is None else [self.affine.make_bijector(shape, densities)]
        return fb.Sequential([fb.bind(normalize, shape), *affine])


@register
class Multiply(Dropping):
    """The product of two tensors. In a flow it drops the second, with a density for it. Exact where that is not zero.

    The second may have sides of one, such as a gate of each channel, (batch, 1, 1, channels).

    >>> Multiply()([tf.ones([5, 2, 2, 3]), tf.ones([5, 1, 1, 3])]).shape.as_list()
    [5, 2, 2, 3]
    """

    def build(self, input_shape: Sequence[Shape]) -> None:
        shape, factor = (tuple(each)[1:] for each in input_shape)
        fb.Multiply(shape, factor)  # Raises where they do not fit.

    def call(self, inputs: list) -> tf.Tensor:
        x, factor = inputs
        return keras.ops.multiply(x, factor)

    def compute_output_shape(self, input_shape: Sequence[Shape]) -> tuple:
        return tuple(input_shape[0])

    def make_bijector(self, shape: Sequence[Shape], densities: Densities) -> fb.FlowBijector:
        return self.funnel(fb.Multiply(shape[0], shape[1], self.variable_dtype), densities)
