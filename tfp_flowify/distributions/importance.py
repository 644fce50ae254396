"""The importance-weighted bound: the mean of many weights, in the memory of a few."""

import math
from collections.abc import Callable

import tensorflow as tf


def log_mean_weight(
    log_weights: Callable[[tf.Tensor], tf.Tensor], points: tf.Tensor, num_draws: int | tf.Tensor, chunk_size: int
) -> tf.Tensor:
    """The log of the mean of `num_draws` weights for each point, of which `chunk_size` are held at once.

    Args:
      log_weights: Function of the number i of a chunk that gives the logs of `chunk_size` weights for each point,
        (chunk_size * n,), all points of a draw behind each other.
      points: A tensor (n, ...) of the type of the weights, for its size.
      num_draws, chunk_size: Weights in all, and in a chunk. What is too much in the last chunk does not count.
    """
    count, batch, dtype, chunks = tf.shape(points)[0], points.shape[:1], points.dtype, -(-num_draws // chunk_size)

    def add_chunk(i, highest, total):
        """Adds weights exp(log_weight - highest); written out, since a sum of none must not make NaN gradients."""
        weights = tf.reshape(log_weights(i), [chunk_size, count])
        surplus = i * chunk_size + tf.range(chunk_size) >= num_draws
        weights = tf.where(surplus[:, None], tf.cast(-math.inf, dtype), weights)
        new = tf.maximum(highest, tf.stop_gradient(tf.reduce_max(weights, axis=0)))
        shift = tf.where(tf.math.is_finite(new), new, tf.zeros_like(new))
        return i + 1, new, total * tf.exp(highest - shift) + tf.reduce_sum(tf.exp(weights - shift), axis=0)

    nothing = tf.fill([count], tf.cast(-math.inf, dtype))
    _, highest, total = tf.while_loop(
        lambda i, *_: i < chunks,
        add_chunk,
        (tf.constant(0), nothing, tf.zeros([count], dtype)),
        shape_invariants=(tf.TensorShape([]), batch, batch),
        parallel_iterations=1,
        maximum_iterations=chunks,
    )
    some = total > 0
    return tf.where(some, highest + tf.math.log(tf.where(some, total, 1) / tf.cast(num_draws, dtype)), nothing)
