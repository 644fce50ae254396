"""A floor for the logarithms of scales, which training can leave again."""

import tensorflow as tf

#: The least logarithm of a deviation, about 1e-3 of a unit.
LEAST_LOG_SCALE = -7.0


@tf.custom_gradient
def floored(log_scale):
    """max(log_scale, LEAST_LOG_SCALE), with a gradient that leads back above the floor but never further below it.

    The gradient of `tf.maximum` is zero below the floor, so that a parameter that fell there would stay for ever; with
    that of log_scale itself it would fall on, and take as long to come back.

    >>> floored(tf.constant([-20.0, 1.0])).numpy().tolist()
    [-7.0, 1.0]
    """
    value = tf.maximum(log_scale, tf.cast(LEAST_LOG_SCALE, log_scale.dtype))

    def gradient(upstream):
        # Zero at the floor and huge above it: this is in every step of every flow, so it takes few operations.
        room = (value - LEAST_LOG_SCALE) * 1e30
        return tf.minimum(upstream, room)

    return value, gradient
