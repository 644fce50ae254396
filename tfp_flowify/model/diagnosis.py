"""Where a training step first has numbers that are not finite."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.augmentation import draw
from tfp_flowify.distributions import FlowDistribution


def where_not_finite(
    distribution: FlowDistribution,
    weights: Sequence[keras.Variable],
    points: tf.Tensor,
    seed: tf.Tensor,
    condition: tf.Tensor | None = None,
) -> str | None:
    """Goes through a training step layer by layer, and says where NaN or infinity first appears; None where nowhere.

    Args:
      distribution: The flow.
      weights: Its trainable weights.
      points: A batch of data, in the type of the flow.
      seed: Seed for the noise, a pair of int32.
      condition: Vectors of the condition, or None.
    """
    context, bijector = distribution.prepare(True, condition), distribution.bijector
    found = []
    _walk(bijector, [points, *draw(bijector.noise, tf.shape(points)[:1], seed)], context, found)
    if found:
        return found[0]
    with tf.GradientTape() as tape:
        log_prob = distribution.score(points, 1, seed, training=True, condition=condition)
        loss = -tf.reduce_mean(log_prob)
    if _bad_rows([log_prob]):
        return f"the density of the output and of what is dropped ({_share([log_prob])})"
    gradients = tape.gradient(loss, [weight.value for weight in weights])
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None and not tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(gradient))):
            return f"the gradient of the weight {weight.path}"
    return None


def _walk(graph: fb.Graph, parts, context, found: list) -> list:
    """Runs a graph forward, and adds what it finds in each of its layers."""
    nodes = iter(graph.nodes)

    def run(bijector, taken):
        node = next(nodes)
        if isinstance(bijector, fb.Graph) and any(inside.layer for inside in bijector.nodes):
            return _walk(bijector, taken, context, found), 0.0
        results, log_det = bijector.forward_and_log_det(taken, context)
        if not found and _bad_rows([*results, log_det]):
            largest = max(float(tf.reduce_max(tf.abs(part))) for part in taken)
            share = _share([*results, log_det])
            found.append(f"layer {node.layer or bijector.name} ({bijector.name}; {share}; inputs up to {largest:.3g})")
        return results, log_det

    return graph.walk(parts, run)[0]


def _bad_rows(tensors) -> int:
    """The largest number of examples of which one of the tensors has numbers that are not finite."""
    return max(_count(tf.convert_to_tensor(tensor)) for tensor in tensors)


def _count(tensor) -> int:
    bad = ~tf.math.is_finite(tensor)
    bad = tf.reshape(bad, [tf.shape(bad)[0], -1]) if tensor.shape.rank else bad[None, None]
    return int(tf.reduce_sum(tf.cast(tf.reduce_any(bad, axis=-1), tf.int32)))


def _share(tensors) -> str:
    return f"{_bad_rows(tensors)} of {max(int(tf.shape(t)[0]) for t in tensors if len(t.shape))} examples"
