"""Whole numbers spread over the line, by noise that is easy to describe."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.augmentation import StandardNormal
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.bijectors.levels import Levels
from tfp_flowify.core.checks import parameter, sum_over
from tfp_flowify.core.types import Shape, TensorFunction, TensorLike
from tfp_flowify.math.limits import floored


class Spread(FlowBijector):
    """Spreads levels over intervals of the line: dequantization by normal noise, with a shape for each level.

    `Levels` cut the line into an interval (a, b) for each level. With t = loc + scale noise, of numbers trained for
    each level, and s = sigmoid(t),

        lowest level:   z = b - softplus(t),     log_det = log scale + log s
        highest level:  z = a + softplus(t),     log_det = log scale + log s
        others:         z = a + (b - a) s,       log_det = log scale + log(b - a) + log s + log(1 - s)

    So the background of an image, its lowest level, is normal where loc is large. The intervals fill the line, so the
    probabilities of all levels sum to one. What is behind has to describe the noise, so the likelihood is a bound: the
    tighter, the better the noise fits. With a conditioner this is *variational dequantization*: loc and scale depend on
    all of the image. With noise zero the layer is a table, a number for each level. Ho et al. 2019, "Flow++".

    Args:
      shape: Event shape, (..., channels).
      levels: The `Levels` of the channels.
      loc, log_scale: (channels, levels).
      conditioner: A function of the features of all levels, see `Levels.features`, that gives two numbers for each
        entry, which are added to loc and log_scale; None to leave them as they are. With noise zero it is not asked.

    >>> levels = Levels(tf.zeros([1]), tf.zeros([1, 1]))  # Three levels, cut at 0 and 1.
    >>> spread = Spread((3, 1), levels, tf.zeros([1, 3]), tf.zeros([1, 3]))
    >>> spread.without_noise([[0], [1], [2]]).numpy().astype(float).round(2).tolist()
    [[-0.69], [0.5], [1.69]]
    """

    levels: int

    def __init__(
        self,
        shape: Shape,
        levels: Levels,
        loc: TensorLike,
        log_scale: TensorLike,
        conditioner: TensorFunction | InContext | None = None,
        name: str | None = None,
    ) -> None:
        self.levels_of, self.levels, self.conditioner = levels, levels.count, conditioner
        if tuple(shape)[-1:] != (levels.channels,):
            raise ValueError(f"Spread takes events of {levels.channels} channel(s), as its levels. Received: {shape}")
        table = (levels.channels, levels.count)
        self.loc, self.log_scale = parameter(loc, "Spread loc", table), parameter(log_scale, "Spread log_scale", table)
        dtype = tf.as_dtype(levels.first_cut.dtype)
        super().__init__(inputs=[shape], outputs=[shape], noise=[StandardNormal(shape, dtype)], dtype=dtype, name=name)

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, noise = parts
        interval = self._interval(x, context)
        is_level = (x >= 0) & (x < self.levels) & (x == tf.floor(x))
        z, log_slope = interval.place(interval.loc + interval.scale * noise)
        log_slope = tf.where(is_level, log_slope, tf.cast(-math.inf, x.dtype))
        return [z], sum_over(log_slope, self.inputs[0])

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        (z,) = parts
        x = self.levels_of.at(z)
        interval = self._interval(x, context)
        t = interval.undo(z)
        return [x, (t - interval.loc) / interval.scale], -sum_over(interval.place(t)[1], self.inputs[0])

    def _interval(self, x, context):
        """The interval of each entry, of one table with a row for each level."""
        low, high = self.levels_of.tables()
        loc, log_scale = tf.convert_to_tensor(self.loc), floored(tf.convert_to_tensor(self.log_scale))
        rows = tf.stack([low, high, loc, tf.exp(log_scale), log_scale, self.levels_of.log_widths()], axis=-1)
        low, high, loc, scale, log_scale, log_width = tf.unstack(self.levels_of.look_up(rows, x), axis=-1)
        if self.conditioner is not None and not context.without_noise:
            added = tf.reshape(context.run(self.conditioner, self.levels_of.features(x)), [*_shape(x), 2])
            loc, log_scale = loc + added[..., 0], floored(log_scale + added[..., 1])
            scale = tf.exp(log_scale)
        return _Interval(low, high, loc, scale, log_scale, log_width, x == 0, x == self.levels - 1)


class _Interval(NamedTuple):
    """Intervals, one for each entry, and the map from the line onto them."""

    low: tf.Tensor
    high: tf.Tensor
    loc: tf.Tensor
    scale: tf.Tensor
    log_scale: tf.Tensor
    log_width: tf.Tensor
    at_bottom: tf.Tensor
    at_top: tf.Tensor

    def place(self, t: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The point of t, and the log of its slope with respect to the noise, all from one softplus."""
        half = tf.nn.softplus(t)  # sigmoid(t) = exp(t - half), and 1 - sigmoid(t) = exp(-half).
        inside = self.low + (self.high - self.low) * tf.exp(t - half)
        z = self._choose(self.high - half, self.low + half, inside)
        slope = t - half
        return z, self.log_scale + self._choose(slope, slope, slope - half + self.log_width)

    def undo(self, z: tf.Tensor) -> tf.Tensor:
        """The number t that is placed at z; one next to an end, where rounding took z there."""
        least = tf.cast(np.finfo(z.dtype.as_numpy_dtype).tiny, z.dtype)
        half = tf.maximum(tf.where(self.at_bottom, self.high - z, z - self.low), least)
        margin = tf.cast(np.finfo(z.dtype.as_numpy_dtype).eps, z.dtype)
        share = tf.clip_by_value((z - self.low) / (self.high - self.low), margin, 1 - margin)
        inside = tf.math.log(share) - tf.math.log1p(-share)
        outside = tfp.math.softplus_inverse(half)
        return self._choose(outside, outside, inside)

    def _choose(self, bottom, top, inside):
        return tf.where(self.at_bottom, bottom, tf.where(self.at_top, top, inside))


def _shape(x):
    return tf.unstack(tf.shape(x))
