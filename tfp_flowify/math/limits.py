"""Limits for the logarithms of scales, which training can leave again."""

import math

import tensorflow as tf

#: The least logarithm of a deviation, about 1e-3 of a unit.
LEAST_LOG_SCALE = -7.0

#: The largest logarithm of a singular value, up or down: about 5e8, whose square is far from overflow.
LARGEST_LOG_SINGULAR = 20.0

#: Singular values that layers can have.
SINGULAR_RANGE = math.exp(-LARGEST_LOG_SINGULAR), math.exp(LARGEST_LOG_SINGULAR)


@tf.custom_gradient
def floored(log_scale: tf.Tensor) -> tf.Tensor:
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


@tf.custom_gradient
def bounded(log_singular: tf.Tensor) -> tf.Tensor:
    """log_singular, cut to -20 ... 20, with a gradient that leads back but never further out.

    Data that lie on a part of space without volume have a density without bound: singular values would grow for ever.

    >>> bounded(tf.constant([-30.0, 1.0, 30.0])).numpy().tolist()
    [-20.0, 1.0, 20.0]
    """
    value = tf.clip_by_value(log_singular, -LARGEST_LOG_SINGULAR, LARGEST_LOG_SINGULAR)

    def gradient(upstream):
        # A step goes against the gradient: a positive one leads down, where there must be room.
        down, up = (value + LARGEST_LOG_SINGULAR) * 1e30, (value - LARGEST_LOG_SINGULAR) * 1e30
        return tf.clip_by_value(upstream, up, down)

    return value, gradient
