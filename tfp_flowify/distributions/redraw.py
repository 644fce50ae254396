"""Samples of a flow whose layers reach only a part of the space: what has no preimage is drawn again."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfp_flowify.core.seeds import fold_in, salted

#: How often all that found no preimage is drawn again.
ROUNDS = 500

MESSAGE = (
    f"Some samples found no preimage in {ROUNDS} rounds: layers that reach only part of the space (tanh, sigmoid, "
    "softplus, ELU, Abs) get values outside it. Train the flow first, put an invertible function onto the whole line "
    "in their place, or use Stochastic."
)


def draw_until_preimage(
    draw_once: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]], seed: tf.Tensor, event_ndims: int
) -> tf.Tensor:
    """Draws again, up to a limit, what has no preimage: then samples follow the density, normalised.

    Args:
      draw_once: A function of a seed that gives samples (n, *event) and for each of them whether it has a preimage.
      seed: A pair of int32.
      event_ndims: Number of axes of an event.
    """
    again_seed = salted(seed, "draws without a preimage")

    def redraw(i, x, good):
        again, good_again = draw_once(fold_in(again_seed, i))
        keep = good[(..., *[None] * event_ndims)]
        return i + 1, tf.where(keep, x, again), good | good_again

    x, good = draw_once(seed)
    _, x, good = tf.while_loop(
        lambda i, _, good: ~tf.reduce_all(good), redraw, (tf.constant(0), x, good), maximum_iterations=ROUNDS
    )
    if tf.executing_eagerly():
        if not np.all(good):
            raise ValueError(MESSAGE)
        return x
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(good), [MESSAGE])]):
        return tf.identity(x)
