"""Layers that are bijections by added noise alone: any function, and whole numbers."""

import math

import numpy as np
import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal, StandardUniform, standard_noise
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.core.checks import check_dtype, parameter
from tfp_flowify.core.types import Shape, TensorFunction, TensorLike


class Stochastic(FlowBijector):
    """Any function as a flow layer: the universal fallback.

        forward: [x, noise] -> [z = f(x) + a noise, x],  log_det = sum of log a over the entries of z
        inverse: [z, x] -> [x, (z - f(x)) / a]

    A bijection whatever f is. All of x is dropped, so wrap it in `Funnel` to whiten x given z: that is a
    variational autoencoder with encoder f. The loosest bound; use a tighter layer wherever there is one.

    Args:
      function: Any function of x, for instance a Keras layer.
      shape_in, shape_out: Event shapes of x and f(x).
      log_noise_scale: log a, a scalar, or one for each place of the last axis of f(x).
      noise: "normal" or "uniform".
      noise_share: The share of the deviation of f(x) that `FlowModel.adapt` sets a to; None to leave it as it is.

    >>> layer = Stochastic(lambda x: tf.cumsum(x, axis=-1), (3,), (3,))
    >>> layer.without_noise([1.0, 2.0, 3.0]).numpy().tolist()
    [1.0, 3.0, 6.0]
    """

    def __init__(
        self,
        function: TensorFunction | InContext,
        shape_in: Shape,
        shape_out: Shape,
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        noise_share: float | None = None,
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        self.function, self.noise_share = function, noise_share
        self.log_noise_scale = parameter(log_noise_scale, "Stochastic log_noise_scale", None, dtype)
        dtype, scales = self.log_noise_scale.dtype, tuple(self.log_noise_scale.shape)
        if scales not in ((), tuple(shape_out[-1:])):
            raise ValueError(
                f"Stochastic with outputs {tuple(shape_out)} takes a log_noise_scale of shape () or "
                f"{tuple(shape_out[-1:])}. Received: shape={scales}"
            )
        super().__init__(
            inputs=[shape_in],
            outputs=[shape_out],
            noise=[standard_noise(noise, shape_out, dtype)],
            residuals=[StandardNormal(shape_in, dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, noise = parts
        return [self._value(x, context) + noise * tf.exp(self._log_scale()), x], self._log_det()

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z, x = parts
        return [x, (z - self._value(x, context)) * tf.exp(-self._log_scale())], -self._log_det()

    def _value(self, x, context):
        value = tf.convert_to_tensor(context.run(self.function, x))
        check_dtype(f"The function of {self.name}", value, x.dtype)
        ndims = len(self.outputs[0])
        if tuple(value.shape[value.shape.rank - ndims :]) != self.outputs[0]:
            raise ValueError(f"The function of {self.name} must give {self.outputs[0]}. Received: {tuple(value.shape)}")
        return value

    def _log_scale(self):
        return tf.convert_to_tensor(self.log_noise_scale)

    def _log_det(self):
        return math.prod(self.outputs[0]) * tf.reduce_mean(self._log_scale())


class Dequantize(FlowBijector):
    """Whole numbers 0 ... levels - 1 spread over (0, 1) by uniform noise.

        forward: [x, noise] -> z = (x + 1/2 + noise) / levels,  noise uniform on [-1/2, 1/2]
        inverse: x = floor(levels z), cut to 0 ... levels - 1
        log_det = -(entries) log(levels), from counting measure on x to length on z; -inf where x is no level

    The first cell reaches down to minus infinity and the last up to infinity, so that the probabilities of all levels
    sum to one whatever the flow behind does outside (0, 1). The noise does not reach there, so what the flow puts
    there is lost to the bound. With noise zero x goes to the middle of its cell.

    >>> Dequantize(4).without_noise([0, 3]).numpy().tolist()
    [0.125, 0.875]
    """

    levels: int

    def __init__(self, levels: int, dtype: tf.DType | str = tf.float32, name: str | None = None) -> None:
        if int(levels) != levels or levels < 2:
            raise ValueError(f"Dequantize takes two levels or more. Received: levels={levels}")
        self.levels = int(levels)
        super().__init__(
            inputs=[()], outputs=[()], noise=[StandardUniform((), dtype, -0.5, 0.5)], dtype=dtype, name=name
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, noise = parts
        spread = (x + 0.5 + noise) / self.levels
        # Rounding must not reach the ends for noise that does not: a logit may follow.
        margin = np.finfo(x.dtype.as_numpy_dtype).epsneg
        inside = tf.clip_by_value(spread, margin / self.levels, 1 - margin)
        z = tf.where(tf.abs(noise) <= 0.5, inside, spread)
        is_level = (x >= 0) & (x < self.levels) & (x == tf.floor(x))
        impossible = tf.constant(-math.inf, x.dtype)
        return [z], tf.where(is_level, tf.constant(-math.log(self.levels), x.dtype), impossible)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        scaled = parts[0] * self.levels
        x = tf.clip_by_value(tf.floor(scaled), 0, self.levels - 1)
        return [x, scaled - x - 0.5], tf.constant(math.log(self.levels), scaled.dtype)
