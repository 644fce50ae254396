"""A floor for the logarithms of scales, which training can leave again."""

import tensorflow as tf

#: The least logarithm of a deviation, about 1e-3 of a unit.
LEAST_LOG_SCALE = -7.0


@tf.custom_gradient
def floored(log_scale):
    """max(log_scale, LEAST_LOG_SCALE), with the gradient of log_scale itself.

    The gradient of `tf.maximum` is zero below the floor, so that a parameter that fell there would stay for ever; this one
    leads back. It also takes no operation of its own, and this function is in every step of every flow.

    >>> floored(tf.constant([-20.0, 1.0])).numpy().tolist()
    [-7.0, 1.0]
    """
    return tf.maximum(log_scale, tf.cast(LEAST_LOG_SCALE, log_scale.dtype)), lambda upstream: upstream
