"""Scalar functions whose parameters a network gives: they turn a dropped value into a standard normal residual.

A transform has `size`, the number of parameters for one value, and two functions of (x, parameters (..., size)) that
return a value and a log-slope for each entry. With all parameters zero it is the identity, or next to it. `is_odd` says
whether T(-x) = -T(x) for all parameters.

These are not bijectors: `tfp_flowify.bijectors.Whiten`, `Funnel` and `Coupling` make bijectors of them.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import tensorflow as tf

from tfp_flowify.math.limits import floored
from tfp_flowify.math.mixtures import mixture_forward, mixture_inverse
from tfp_flowify.math.spline import Table, spline_forward, spline_inverse

__all__ = ["Mixture", "Spline", "Stack", "Standardize"]


class Transform(Protocol):
    """What all transforms have: any class that has it may stand where a transform is taken."""

    size: int
    is_odd: bool

    def forward(self, x: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]: ...

    def inverse(self, z: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]: ...


class Standardize:
    """z = (x - loc) exp(-log_scale): subtracts a mean and divides by a deviation. The paper's Gaussian density.

    A deviation is at least exp(-7), about 1e-3. Without this floor, values that are constant in the data have a density
    that grows without bound, and training diverges.

    Args:
      shift: Whether there is a mean. Then the parameters are [loc, log_scale], else [log_scale], and it is odd.

    >>> [float(value) for value in Standardize().forward(tf.constant(3.0), tf.constant([1.0, 0.0]))]
    [2.0, -0.0]
    """

    def __init__(self, shift: bool = True) -> None:
        self.shift = shift
        self.size, self.is_odd = (2, False) if shift else (1, True)

    def forward(self, x: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        loc, log_scale = self._split(parameters)
        return (x if loc is None else x - loc) * tf.exp(-log_scale), -log_scale

    def inverse(self, z: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        loc, log_scale = self._split(parameters)
        x = z * tf.exp(log_scale)
        return x if loc is None else x + loc, log_scale

    def _split(self, parameters):
        *loc, log_scale = tf.unstack(parameters, axis=-1)
        return loc[0] if loc else None, floored(log_scale)


class Spline:
    """A monotone rational-quadratic spline on [-bound, bound], the identity outside (Durkan et al. 2019).

    Parameters: `bins` log-widths, `bins` log-heights, and the log-slopes of the `bins - 1` inner knots.

    Args:
      bins: Number of pieces.
      bound: The spline lives on [-bound, bound].
      odd: Whether it is a spline of |x| on [0, bound] that keeps the sign of x: z = sign(x) S(|x|), S(0) = 0.

    >>> round(float(Spline(bins=8, bound=2.0).forward(tf.constant(0.7), tf.zeros([23]))[0]), 6)
    0.7
    """

    def __init__(self, bins: int = 8, bound: float = 2.0, odd: bool = False) -> None:
        if bins < 2 or not bound > 0:
            raise ValueError(
                f"A spline has two bins or more and a positive bound. Received: bins={bins}, bound={bound}"
            )
        self.bins, self.bound, self.is_odd = bins, float(bound), odd
        self.size = 3 * bins - 1

    def forward(self, x: tf.Tensor, parameters: tf.Tensor | Table) -> tuple[tf.Tensor, tf.Tensor]:
        return self._run(spline_forward, x, parameters)

    def inverse(self, z: tf.Tensor, parameters: tf.Tensor | Table) -> tuple[tf.Tensor, tf.Tensor]:
        return self._run(spline_inverse, z, parameters)

    def _run(self, function, x, parameters):
        if not self.is_odd:
            return function(x, parameters, self.bins, self.bound)
        # [0, bound] is stretched to [-bound, bound], where the spline lives, and back.
        value, log_slope = function(2 * tf.abs(x) - self.bound, parameters, self.bins, self.bound)
        return tf.sign(x) * 0.5 * (value + self.bound), log_slope


class Mixture:
    """z = logit(F(x)) with F a mixture of logistic distributions: a density with several modes.

    One part is `Standardize`. See `tfp_flowify.math.mixtures`.

    Parameters: a logit of the weight, a centre and a log-scale for each part, [logits, centres, log_scales]. With all
    of them zero the centres are still apart, else they would never part in training.

    Args:
      parts: Number of logistic distributions.
      spread: The centres are `spread` times -1 ... 1, beside the parameters.

    >>> mixture = Mixture(parts=2)
    >>> z, _ = mixture.forward(tf.constant(0.0), tf.zeros([mixture.size]))
    >>> mixture.size, abs(float(z))
    (6, 0.0)
    """

    is_odd = False

    def __init__(self, parts: int = 4, spread: float = 0.5) -> None:
        if parts < 1:
            raise ValueError(f"A mixture has one part or more. Received: parts={parts}")
        self.parts, self.size = parts, 3 * parts
        apart = np.zeros([3, parts])
        apart[1] = np.linspace(-spread, spread, parts) if parts > 1 else 0.0
        self.start = apart.reshape(-1)

    def forward(self, x: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return mixture_forward(x, parameters + tf.cast(self.start, parameters.dtype))

    def inverse(self, z: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return mixture_inverse(z, parameters + tf.cast(self.start, parameters.dtype))


class Stack:
    """One transform after the other, each with parameters of its own: `Stack([Standardize(), Spline()])`.

    >>> Stack([Standardize(), Spline()]).size
    25
    """

    def __init__(self, transforms: Iterable[Transform]) -> None:
        self.transforms = list(transforms)
        self.size = sum(transform.size for transform in self.transforms)
        self.is_odd = all(transform.is_odd for transform in self.transforms)

    def forward(self, x: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._run([(t.forward, p) for t, p in self._share_out(parameters)], x)

    def inverse(self, z: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._run([(t.inverse, p) for t, p in reversed(self._share_out(parameters))], z)

    def _share_out(self, parameters):
        sizes = [transform.size for transform in self.transforms]
        return list(zip(self.transforms, tf.split(parameters, sizes, axis=-1), strict=True))

    @staticmethod
    def _run(steps, x):
        total = 0.0
        for function, parameters in steps:
            x, log_slope = function(x, parameters)
            total += log_slope
        return x, total
