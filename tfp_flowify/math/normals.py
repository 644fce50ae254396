"""Mixtures of normal distributions, and the map that makes a standard normal of one.

A mixture of k parts has 3 k parameters on the last axis: logits of the weights, centres, and log-scales.
"""

import math

import numpy as np
import tensorflow as tf

from tfp_flowify.math.limits import floored

_LOG_ROOT = 0.5 * math.log(2 * math.pi)


def to_normal(x, parameters):
    """The quantile z of the standard normal that is as high as x is in the mixture, and the log of dz/dx.

    z = Phi^-1(F(x)),  log dz/dx = log f(x) - log phi(z).  Computed from the tail that x is in, so accurate far out too.

    >>> z, log_slope = to_normal(tf.constant(0.7), tf.zeros([3]))  # One part, the standard normal: the identity.
    >>> round(float(z), 6), abs(round(float(log_slope), 5))
    (0.7, 0.0)
    """
    log_weights, log_scales, standard = _standardized(x, parameters)
    weights, root = tf.exp(log_weights), math.sqrt(0.5)
    lower, upper = (
        0.5 * tf.reduce_sum(weights * tf.math.erfc(sign * root * standard), axis=-1) for sign in (-1.0, 1.0)
    )
    least = tf.cast(10 * np.finfo(x.dtype.as_numpy_dtype).tiny, x.dtype)
    below = lower < upper
    z = tf.math.ndtri(tf.clip_by_value(tf.where(below, lower, upper), least, 0.5))
    z = tf.where(below, z, -z)
    log_density = tf.reduce_logsumexp(log_weights - log_scales - 0.5 * tf.square(standard), axis=-1) - _LOG_ROOT
    return z, log_density + 0.5 * tf.square(z) + _LOG_ROOT


def from_normal(z, parameters):
    """The x of which `to_normal` makes z, and the log of dx/dz: by bisection between the quantiles of the parts.

    A last step of Newton's method has the gradients of the inverse.
    """
    _, centres, log_scales = _split(parameters)
    quantiles = tf.stop_gradient(centres + tf.exp(log_scales) * z[..., tf.newaxis])
    fixed = tf.stop_gradient(parameters)

    def halve(_, low, high):
        middle = 0.5 * (low + high)
        above = to_normal(middle, fixed)[0] > tf.stop_gradient(z)
        return _ + 1, tf.where(above, low, middle), tf.where(above, middle, high)

    steps = np.finfo(z.dtype.as_numpy_dtype).nmant + 4
    ends = tf.reduce_min(quantiles, axis=-1), tf.reduce_max(quantiles, axis=-1)
    _, low, high = tf.while_loop(lambda i, *_: i < steps, halve, (0, *ends), maximum_iterations=steps)
    found = tf.stop_gradient(0.5 * (low + high))
    value, log_slope = to_normal(found, parameters)
    x = found - (value - z) * tf.exp(-tf.stop_gradient(log_slope))
    return x, -to_normal(x, parameters)[1]


def _standardized(x, parameters):
    """The logs of weights and scales, and x in units of each part."""
    logits, centres, log_scales = _split(parameters)
    return tf.nn.log_softmax(logits), log_scales, (x[..., tf.newaxis] - centres) * tf.exp(-log_scales)


def _split(parameters):
    logits, centres, log_scales = tf.split(parameters, 3, axis=-1)
    return logits, centres, floored(log_scales)
