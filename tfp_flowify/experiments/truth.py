"""Whether a trained flow is what it says: its log-dets beside those of Jacobians by autodiff, in double precision."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_flowify.conversion.prepare import default_policy
from tfp_flowify.core.seeds import fold_in, stateless_seed
from tfp_flowify.core.types import Seed, TensorLike
from tfp_flowify.data import Data
from tfp_flowify.experiments.fresh_flow import build_flow
from tfp_flowify.experiments.options import Options
from tfp_flowify.model import FlowModel

#: Rows of a Jacobian that are computed at once.
ROWS = 64


def log_dets(distribution: Any, x: TensorLike, seed: Seed = 0) -> np.ndarray:
    """The log-det of a flow at some examples with one draw of the noise, and that of its whole Jacobian by autodiff.

    Whole numbers have no derivatives: there the map is from the noise alone, which has as many dimensions as go out.

    Args:
      distribution: A `FlowDistribution` without a condition, in float64 for figures that agree to many digits.
      x: Some examples.
      seed: Seed for the noise.

    Returns:
      (examples, 2).
    """
    bijector, context = distribution.bijector, distribution.prepare()
    points = tf.cast(x, distribution.dtype)
    noise = [d.sample(len(points), seed=fold_in(stateless_seed(seed), i)) for i, d in enumerate(bijector.noise)]
    rows = []
    for i in range(len(points)):
        example, *its_noise = (part[i : i + 1] for part in (points, *noise))
        fixed, moved = ([example], its_noise) if bijector.takes_integers else ([], [example, *its_noise])

        def forward(parts, fixed=fixed):
            whole = [copies_of(part, parts[0].shape[0]) for part in fixed]
            return bijector.forward_and_log_det([*whole, *parts], context)

        own = tf.reshape(forward(moved)[1], [-1])[0]
        rows.append([float(own), np.linalg.slogdet(jacobian(lambda parts: forward(parts)[0], moved))[1]])
    return np.array(rows)


def jacobian(function: Callable[[list], list], parts: list[tf.Tensor]) -> np.ndarray:
    """The matrix of all derivatives of a function of one example.

    Args:
      function: Takes a list of tensors with a row for each example, and gives such a list.
      parts: The example, a list of tensors with one row.
    """
    sizes = [math.prod(part.shape[1:]) for part in parts]

    @tf.function(autograph=False)
    def rows(which):
        copies = [copies_of(part, ROWS) for part in parts]
        with tf.GradientTape() as tape:
            tape.watch(copies)
            flat = tf.concat([tf.reshape(part, [ROWS, -1]) for part in function(copies)], axis=1)
            chosen = tf.reduce_sum(flat * tf.one_hot(which, flat.shape[1], dtype=flat.dtype))
        gradients = tape.gradient(chosen, copies, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return tf.concat([tf.reshape(gradient, [ROWS, -1]) for gradient in gradients], axis=1)

    outputs = sum(math.prod(part.shape[1:]) for part in function(parts))
    if outputs != sum(sizes):
        raise ValueError(
            f"The Jacobian has {sum(sizes)} columns and {outputs} rows: noise of overlapping patches is held in more "
            "numbers than it has dimensions. Take a network whose patches do not overlap."
        )
    found = [rows(tf.range(first, first + ROWS)).numpy() for first in range(0, outputs, ROWS)]
    return np.concatenate(found)[:outputs]


def copies_of(part: tf.Tensor, count: int) -> tf.Tensor:
    """One row so many times."""
    return tf.tile(part, [count, *[1] * (part.shape.rank - 1)])


def in_double_precision(flow: FlowModel, options: Options, data: Data) -> FlowModel:
    """A flow of the same weights in float64.

    Args:
      flow: A flow that was trained by these options.
      options: Options of a run.
      data: Its data.
    """
    with default_policy("float64"):
        double = build_flow(options, data)
    double.set_weights(flow.get_weights())
    return double
