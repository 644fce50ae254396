"""The map that takes a mixture of logistic distributions to one: monotone, with as many steps as there are parts.

A mixture of k parts has 3 k parameters on the last axis: logits of the weights, centres, and log-scales. With F its
distribution function,

    z = log F(x) - log(1 - F(x)),    log dz/dx = log f(x) - log F(x) - log(1 - F(x))

which is (x - centre) / scale for one part. Ho et al. 2019, "Flow++".
"""

import numpy as np
import tensorflow as tf

from tfp_flowify.math.limits import floored


def mixture_forward(x: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """z, and the log of dz/dx.

    Args:
      x: Numbers, of any shape.
      parameters: (*shape of x, 3 k), or of a shape that broadcasts to it.

    >>> z, log_slope = mixture_forward(tf.constant(0.7), tf.zeros([6]))  # Two equal parts are one.
    >>> round(float(z), 5), abs(round(float(log_slope), 5))
    (0.7, 0.0)
    """
    shape = tf.shape(x)
    z, log_slope = _forward(tf.reshape(x, [-1]), *_parts(parameters, shape))
    return tf.reshape(z, shape), tf.reshape(log_slope, shape)


def mixture_inverse(z: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The x of which `mixture_forward` makes z, and the log of dx/dz: by bisection between the points of the parts.

    A last step of Newton's method has the gradients of the inverse.
    """
    shape = tf.shape(z)
    parts = _parts(parameters, shape)
    z, (_, centres, log_scales), fixed = tf.reshape(z, [-1]), parts, [tf.stop_gradient(part) for part in parts]
    wanted, points = tf.stop_gradient(z), tf.stop_gradient(centres + tf.exp(log_scales) * z)

    def halve(i, low, high):
        middle = 0.5 * (low + high)
        above = _forward(middle, *fixed)[0] > wanted
        return i + 1, tf.where(above, low, middle), tf.where(above, middle, high)

    steps = np.finfo(z.dtype.as_numpy_dtype).nmant + 4
    ends = tf.reduce_min(points, axis=0), tf.reduce_max(points, axis=0)
    _, low, high = tf.while_loop(lambda i, *_: i < steps, halve, (0, *ends), maximum_iterations=steps)
    found = tf.stop_gradient(0.5 * (low + high))
    value, log_slope = _forward(found, *parts)
    x = found - (value - z) * tf.exp(-tf.stop_gradient(log_slope))
    return tf.reshape(x, shape), tf.reshape(-_forward(x, *parts)[1], shape)


def _parts(parameters, shape):
    """Logits, centres and log-scales, (k, n) each: TensorFlow sums fastest over the first axis."""
    size = parameters.shape[-1]
    flat = tf.reshape(tf.broadcast_to(parameters, tf.concat([shape, [size]], axis=0)), [-1, size])
    logits, centres, log_scales = tf.split(tf.transpose(flat), 3)
    return logits, centres, floored(log_scales)


@tf.custom_gradient
def _forward(x, logits, centres, log_scales):
    """`mixture_forward` of x, (n,), with a gradient in closed form: a third of TensorFlow's operations."""
    per_scale = tf.exp(-log_scales)
    t = (x - centres) * per_scale
    log_weights = logits - tf.reduce_logsumexp(logits, axis=0)
    log_above = -tf.nn.softplus(t)  # log(1 - sigmoid(t)); log sigmoid(t) is t more.
    log_below = t + log_above
    below, share_below = _sum(log_weights + log_below)
    above, share_above = _sum(log_weights + log_above)
    density, share = _sum(log_weights + log_below + log_above - log_scales)
    z, log_slope = below - above, density - below - above

    def gradient(d_z, d_log_slope):
        down, up = (d_z - d_log_slope) * share_below, -(d_z + d_log_slope) * share_above
        d_density = d_log_slope * share
        sigmoid = tf.exp(log_below)
        d_t = down * (1 - sigmoid) - up * sigmoid + d_density * (1 - 2 * sigmoid)
        d_log_weights, d_centres = down + up + d_density, -d_t * per_scale
        d_logits = d_log_weights - tf.exp(log_weights) * tf.reduce_sum(d_log_weights, axis=0)
        return -tf.reduce_sum(d_centres, axis=0), d_logits, d_centres, -d_t * t - d_density

    return (z, log_slope), gradient


def _sum(logs):
    """The log of the sum of exponentials over the first axis, and the share that each has in it."""
    largest = tf.reduce_max(logs, axis=0)
    powers = tf.exp(logs - largest)
    total = tf.reduce_sum(powers, axis=0)
    return largest + tf.math.log(total), powers / total
