"""Scalar functions with parameters that a network may give: pure maths, one set of parameters for each entry.

A transform has `size`, the parameters of one entry, and two functions of (x, parameters (..., size)) that return
a value and a log-slope for each entry. With all parameters zero it is the identity. `is_odd` says that T(-x) = -T(x).
"""

import tensorflow as tf

from tfp_flowify.math.spline import spline_forward, spline_inverse


class Affine:
    """z = (x - loc) exp(-log_scale), parameters [loc, log_scale]: the paper's Gaussian inverse density.

    >>> [float(value) for value in Affine().forward(tf.constant(3.0), tf.constant([1.0, 0.0]))]
    [2.0, -0.0]
    """

    size, is_odd = 2, False

    def forward(self, x, parameters):
        loc, log_scale = tf.unstack(parameters, axis=-1)
        return (x - loc) * tf.exp(-log_scale), -log_scale

    def inverse(self, z, parameters):
        loc, log_scale = tf.unstack(parameters, axis=-1)
        return z * tf.exp(log_scale) + loc, log_scale


class Scale:
    """z = x exp(-log_scale), parameters [log_scale].

    >>> [float(value) for value in Scale().forward(tf.constant(3.0), tf.constant([0.0]))]
    [3.0, -0.0]
    """

    size, is_odd = 1, True

    def forward(self, x, parameters):
        return x * tf.exp(-parameters[..., 0]), -parameters[..., 0]

    def inverse(self, z, parameters):
        return z * tf.exp(parameters[..., 0]), parameters[..., 0]


class Spline:
    """A monotone rational-quadratic spline on [-bound, bound], the identity outside (Durkan et al. 2019).

    Parameters: `bins` log-widths, `bins` log-heights, and the log-slopes of the `bins - 1` inner knots.

    >>> round(float(Spline(bins=8, bound=2.0).forward(tf.constant(0.7), tf.zeros([23]))[0]), 6)
    0.7
    """

    is_odd = False

    def __init__(self, bins: int = 8, bound: float = 2.0):
        if bins < 2 or not bound > 0:
            raise ValueError(
                f"A spline has two bins or more and a positive bound. Received: bins={bins}, bound={bound}"
            )
        self.bins, self.bound = bins, float(bound)
        self.size = 3 * bins - 1

    def forward(self, x, parameters):
        return spline_forward(x, parameters, self.bins, self.bound)

    def inverse(self, z, parameters):
        return spline_inverse(z, parameters, self.bins, self.bound)


class OddSpline(Spline):
    """A spline of |x| on [0, bound], with the sign of x: z = sign(x) S(|x|), S(0) = 0, the identity beyond the bound.

    >>> spline, parameters = OddSpline(bins=4), tf.linspace(-1.0, 1.0, 11)
    >>> bool(spline.forward(tf.constant(-0.7), parameters)[0] == -spline.forward(tf.constant(0.7), parameters)[0])
    True
    """

    is_odd = True

    def forward(self, x, parameters):
        return self._mirror(super().forward, x, parameters)

    def inverse(self, z, parameters):
        return self._mirror(super().inverse, z, parameters)

    def _mirror(self, function, x, parameters):
        """[0, bound] is stretched to [-bound, bound], where the spline lives, and back."""
        value, log_slope = function(2 * tf.abs(x) - self.bound, parameters)
        return tf.sign(x) * 0.5 * (value + self.bound), log_slope


class Stack:
    """One transform after the other, each with parameters of its own: `Stack([Affine(), Spline()])`.

    >>> Stack([Affine(), Spline()]).size
    25
    """

    def __init__(self, transforms):
        self.transforms = list(transforms)
        self.size = sum(transform.size for transform in self.transforms)
        self.is_odd = all(transform.is_odd for transform in self.transforms)

    def forward(self, x, parameters):
        return self._run([(t.forward, p) for t, p in self._share_out(parameters)], x)

    def inverse(self, z, parameters):
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
