"""Activations that lose a choice, the sign or which side x was on: `Abs` and `ReLU`."""

import math

import tensorflow as tf

from tfp_flowify.augmentation import Code, SignedNormal, StandardNormal
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.core.checks import parameter, sum_last
from tfp_flowify.core.types import Shape, TensorFunction, TensorLike


class Abs(FlowBijector):
    """z = |x|, and which sign it had is a choice of probability pi, carried by a `Code`.

        x >= 0:  [x, w] -> [x, 1 - pi + pi w],   log_det = log pi
        x < 0:   [x, w] -> [-x, (1 - pi) w],     log_det = log(1 - pi)

    Exact. Onto [0, inf).

    Args:
      sign_logit: log(pi / (1 - pi)), a scalar, or a conditioner: a function of z that gives one for each entry.

    >>> [part.numpy().tolist() for part in Abs().forward([[-2.0, 2.0], [0.5, 0.5]])]
    [[2.0, 2.0], [0.25, 0.75]]
    """

    is_onto = False

    def __init__(
        self,
        sign_logit: TensorLike | TensorFunction | InContext = 0.0,
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        self.sign_logit = sign_logit if callable(sign_logit) else parameter(sign_logit, "Abs sign_logit", (), dtype)
        dtype = dtype if callable(sign_logit) else self.sign_logit.dtype
        super().__init__(
            inputs=[()], outputs=[()], noise=[Code((), dtype)], residuals=[Code((), dtype)], dtype=dtype, name=name
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, code = parts
        z = tf.abs(x)
        code, log_det = encode_choice(x >= 0, code, self._logit(z, context))
        return [z, code], log_det

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z, code = parts
        positive, code, log_det = decode_choice(code, self._logit(z, context))
        x = tf.where(positive, z, -z)
        return [tf.where(z >= 0, x, tf.cast(math.nan, z.dtype)), code], log_det

    def _logit(self, z, context):
        return tf.broadcast_to(_at(self.sign_logit, z, context), tf.shape(z))


class ReLU(FlowBijector):
    """z = max(x, 0), with noise in place of the zeros, so that it is a bijection.

    Noise: e normal, w a `Code`. Residuals: r, and the code w', which says whether x was positive.

        x >= 0:  z = x,    r = e,                      w' = 1 - pi(z) + pi(z) w
        x < 0:   z = a e,  r = -s x exp(-log_scale),   w' = (1 - pi(z)) v
        log_det = log pi(z),  or  log a + log 2 - log_scale + log(1 - pi(z))

    A sign s from the code unfolds -x to the line: s = -1 and v = 2 w for w < 1/2, else s = 1 and v = 2 w - 1. So -x has
    the density of a normal folded at zero. pi(z), the probability that an output z came from a positive x, is zero for
    z < 0, and for z >= 0

        log(pi / (1 - pi)) = sign_logit + (z / a)^2 / 2,

    Bayes' rule for a density of x that is flat on the scale of the noise. With noise zero it is exactly relu. Onto.

    Args:
      shape: Shape of the parameters: (), or say (channels,).
      log_noise_scale: log a, of that shape.
      sign_logit, log_scale: Of that shape, or conditioners: functions of z that give one for each entry.

    >>> ReLU().without_noise([-2.0, 2.0]).numpy().tolist()
    [0.0, 2.0]
    """

    def __init__(
        self,
        shape: Shape = (),
        log_noise_scale: TensorLike = 0.0,
        sign_logit: TensorLike | TensorFunction | InContext = 0.0,
        log_scale: TensorLike | TensorFunction | InContext = 0.0,
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        self.log_noise_scale = _filled(log_noise_scale, "ReLU log_noise_scale", shape, dtype)
        dtype = self.log_noise_scale.dtype
        self.sign_logit, self.log_scale = (
            value if callable(value) else _filled(value, f"ReLU {what}", shape, dtype)
            for what, value in {"sign_logit": sign_logit, "log_scale": log_scale}.items()
        )
        super().__init__(
            inputs=[shape],
            outputs=[shape],
            noise=[StandardNormal(shape, dtype), Code(shape, dtype)],
            residuals=[SignedNormal(shape, dtype), Code(shape, dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, noise, code = parts
        positive = x >= 0
        z = tf.where(positive, x, noise * tf.exp(tf.convert_to_tensor(self.log_noise_scale)))
        log_scale, logit = self._density(z, context)
        below, rest = unfold_sign(-x * tf.exp(-log_scale), code)
        code, log_det = encode_choice(positive, tf.where(positive, code, rest), logit, possible=z >= 0)
        return [z, tf.where(positive, noise, below), code], self._sum(log_det, positive, self._log_slope(log_scale))

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z, residual, code = parts
        log_scale, logit = self._density(z, context)
        positive, code, log_det = decode_choice(code, logit, possible=z >= 0)
        below, rest = fold_sign(residual, code)
        x = tf.where(positive, z, -below * tf.exp(log_scale))
        noise = tf.where(positive, residual, z * tf.exp(-tf.convert_to_tensor(self.log_noise_scale)))
        return [x, noise, tf.where(positive, code, rest)], self._sum(log_det, positive, -self._log_slope(log_scale))

    def _density(self, z, context):
        """The log-scale of what was below zero, and the logit of pi(z)."""
        scaled = z * tf.exp(-tf.convert_to_tensor(self.log_noise_scale))
        logit = _at(self.sign_logit, z, context) + 0.5 * tf.square(scaled)
        return _at(self.log_scale, z, context), logit

    def _log_slope(self, log_scale):
        return tf.convert_to_tensor(self.log_noise_scale) + math.log(2) - log_scale

    def _sum(self, log_det, positive, log_slope):
        log_det += tf.where(positive, tf.zeros([], log_det.dtype), log_slope)
        return sum_last(log_det, len(self.inputs[0]))


def _at(value, z, context):
    """A parameter, or what a conditioner gives for it."""
    return tf.convert_to_tensor(context.run(value, z) if callable(value) else value)


def encode_choice(
    chosen: tf.Tensor, code: tf.Tensor, logit: tf.Tensor, possible: tf.Tensor | bool = True
) -> tuple[tf.Tensor, tf.Tensor]:
    """Squeezes a code into the part of [0, 1] that stands for a choice; the log-det is the choice's log-probability.

    The choice has probability pi = sigmoid(logit), or zero where it is not possible. It takes the upper part,
    [1 - pi, 1]: in the lower one, small numbers keep the precision that a small 1 - pi needs.
    """
    other = tf.where(possible, tf.math.sigmoid(-logit), tf.ones_like(logit))
    log_other = tf.where(possible, tf.math.log_sigmoid(-logit), tf.zeros_like(logit))
    squeezed = tf.where(chosen, other + (1 - other) * code, other * code)
    return squeezed, tf.where(chosen, tf.math.log_sigmoid(logit), log_other)


def decode_choice(
    squeezed: tf.Tensor, logit: tf.Tensor, possible: tf.Tensor | bool = True
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The choice that a squeezed code stands for, the code itself, and the log-det of the way back."""
    other = tf.where(possible, tf.math.sigmoid(-logit), tf.ones_like(logit))
    chosen = (squeezed >= other) & possible
    log_other = tf.where(possible, tf.math.log_sigmoid(-logit), tf.zeros_like(logit))
    share = tf.where(chosen, 1 - other, other)
    code = (squeezed - tf.where(chosen, other, tf.zeros_like(other))) / share
    return chosen, code, -tf.where(chosen, tf.math.log_sigmoid(logit), log_other)


def unfold_sign(size: tf.Tensor, code: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A positive number to the whole line, by a sign that the code decides; log-det log 2, from the code's doubling."""
    upper = code >= 0.5
    return tf.where(upper, size, -size), 2 * code - tf.cast(upper, code.dtype)


def fold_sign(value: tf.Tensor, code: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Undoes `unfold_sign`: the sign goes back into the code."""
    return tf.abs(value), 0.5 * (code + tf.cast(value >= 0, code.dtype))


def _filled(value, name, shape, dtype):
    """A number fills the shape; anything else must have it."""
    value = tf.fill(tuple(shape), tf.constant(value, dtype)) if isinstance(value, int | float) else value
    return parameter(value, name, shape, dtype)
