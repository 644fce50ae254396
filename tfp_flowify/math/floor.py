"""A floor for the logarithms of scales, which training can leave again."""

import tensorflow as tf

#: The least logarithm of a deviation, about 1e-3 of a unit.
LEAST_LOG_SCALE = -7.0


@tf.custom_gradient
def floored(log_scale):
    """max(log_scale, LEAST_LOG_SCALE), with a gradient that never pushes below the floor but always leads back.

    The gradient of `tf.maximum` is zero below the floor, so that a parameter that fell there would stay for ever.

    >>> floored(tf.constant([-20.0, 1.0])).numpy().tolist()
    [-7.0, 1.0]
    """

    def gradient(upstream):
        return tf.where((log_scale > LEAST_LOG_SCALE) | (upstream < 0), upstream, tf.zeros_like(upstream))

    return tf.maximum(log_scale, tf.cast(LEAST_LOG_SCALE, log_scale.dtype)), gradient
