"""Mixtures of logistic distributions: the probability of an interval, and that of all below a point.

A mixture of k parts has 3 k parameters on the last axis: logits of the weights, centres, and log-scales. With all
parameters zero it is the standard logistic.
"""

import tensorflow as tf

from tfp_flowify.math.limits import floored


def log_interval(
    low: tf.Tensor, high: tf.Tensor, parameters: tf.Tensor, reaches_down: tf.Tensor | bool, reaches_up: tf.Tensor | bool
) -> tf.Tensor:
    """The log-probability of an interval between two points.

    Args:
      low, high: Its ends, of any shape.
      parameters: Those of a mixture for each interval, on one axis more.
      reaches_down, reaches_up: Whether the interval has no lower end, or no upper one; what is given for that end does
        not count then, but must be finite.

    >>> ends = tf.constant(-1.0), tf.constant(1.0)
    >>> round(float(tf.exp(log_interval(*ends, tf.zeros([3]), False, False))), 4)  # sigmoid(1) - sigmoid(-1)
    0.4621
    """
    log_weights, low, high = _standardized(parameters, low, high)
    log_below, log_above = tf.math.log_sigmoid(high), tf.math.log_sigmoid(-low)
    # sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)); the last factor is never quite zero.
    gap = tf.maximum(high - low, tf.cast(1e-30, low.dtype))
    inside = log_below + log_above + tf.math.log(-tf.math.expm1(-gap))
    inside = tf.where(_column(reaches_down), log_below, tf.where(_column(reaches_up), log_above, inside))
    return tf.reduce_logsumexp(log_weights + inside, axis=-1)


def below(x: tf.Tensor, parameters: tf.Tensor) -> tf.Tensor:
    """The probability of all below a point.

    >>> float(below(tf.constant(0.0), tf.zeros([6])))
    0.5
    """
    log_weights, x = _standardized(parameters, x)
    return tf.reduce_sum(tf.exp(log_weights) * tf.math.sigmoid(x), axis=-1)


def _standardized(parameters, *points):
    """The logs of the weights, and the points in units of each part of the mixture."""
    logits, centres, log_scales = tf.split(parameters, 3, axis=-1)
    factors = tf.exp(-floored(log_scales))
    return tf.nn.log_softmax(logits), *((_column(x) - centres) * factors for x in points)


def _column(x):
    return tf.convert_to_tensor(x)[..., tf.newaxis]
