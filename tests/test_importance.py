"""Importance weights: unbiased, in the memory of a chunk, trainable."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import CASES, values
from flows import exact_flow, mild_flow, noisy_flow

from tfp_flowify import FlowDistribution
from tfp_flowify import bijectors as fb
from tfp_flowify.distributions import Code

tfd = tfp.distributions


@pytest.mark.parametrize("num_draws, chunk_size", [(1, 16), (5, 4), (8, 4), (3, 16)])
def test_importance_weights_are_unbiased_for_the_density(num_draws, chunk_size):
    """E exp(log_prob(k)) = p(x) for every k: also when the last chunk is not full."""
    flow = mild_flow()
    x = tf.broadcast_to(values((3,), tf.float64), [100_000, 3])
    weights = np.exp(flow.log_prob(x, num_draws=num_draws, chunk_size=chunk_size, seed=(1, 1)))
    reference = np.exp(flow.log_prob(x[:100], num_draws=20_000, chunk_size=500, seed=(2, 2)))
    error = math.hypot(weights.std() / math.sqrt(len(weights)), reference.std() / 10)
    assert abs(weights.mean() - reference.mean()) < 4 * error
    assert error < 0.01 * reference.mean()


def test_importance_weights_in_a_function_are_those_of_eager():
    flow, x = noisy_flow(tf.float64), values((4, 3), tf.float64)
    score = functools.partial(flow.log_prob, num_draws=10, chunk_size=4, seed=(1, 2))
    np.testing.assert_allclose(tf.function(score)(x), score(x), rtol=1e-10)


def test_importance_weights_under_xla_bound_the_same_density():
    """XLA draws other numbers from the same seed, as it does for all of TensorFlow's random functions."""
    flow, x = mild_flow(), values((4, 3), tf.float64)
    score = functools.partial(flow.log_prob, num_draws=20_000, chunk_size=500, seed=(1, 2))
    compiled = tf.function(score, jit_compile=True)
    np.testing.assert_allclose(compiled(x), score(x), atol=0.03)
    np.testing.assert_array_equal(compiled(x), compiled(x))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_importance_weighted_bound_can_be_trained(jit_compile):
    flow, x = noisy_flow(), values((4, 3), tf.float32)

    @tf.function(jit_compile=jit_compile)
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(flow.log_prob(x, num_draws=10, chunk_size=4, seed=(1, 2)))
        return tape.gradient(loss, flow.trainable_variables)

    assert all(np.isfinite(gradient).all() for gradient in gradients())


def test_memory_does_not_grow_with_the_draws():
    """No tensor of the graph is larger with 1000 draws than with the 8 of one chunk."""

    def largest(num_draws):
        flow = noisy_flow()
        graph = (
            tf.function(lambda x: flow.log_prob(x, num_draws=num_draws, chunk_size=8))
            .get_concrete_function(tf.TensorSpec([50, 3]))
            .graph.as_graph_def(add_shapes=True)
        )
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        shapes = [shape for node in nodes for shape in node.attr["_output_shapes"].list.shape]
        return max(math.prod(dim.size for dim in shape.dim) for shape in shapes if not shape.unknown_rank)

    assert largest(1000) == largest(8) >= 8 * 50 * 3


def test_exact_flows_need_no_draws():
    flow, x = exact_flow(), values((4, 3), tf.float32)
    assert flow.is_exact
    np.testing.assert_array_equal(flow.log_prob(x), flow.log_prob(x, num_draws=1000))
    pooled = FlowDistribution(CASES["max_pool"](tf.float32))
    assert pooled.is_exact and all(isinstance(noise, Code) for noise in pooled.bijector.noise)
    images = values((4, 4, 4, 2), tf.float32)
    np.testing.assert_allclose(pooled.log_prob(images, seed=1), pooled.log_prob(images, seed=2), rtol=1e-6)


def test_points_that_no_draw_reaches_have_density_zero():
    base = tfd.Independent(tfd.Uniform(-tf.ones(3), tf.ones(3)), 1)
    flow = FlowDistribution(fb.Linear.create(2, 3, seed=0), base)
    x = tf.constant([[0.1, 0.1], [5.0, 5.0]])
    with tf.GradientTape() as tape:
        log_prob = flow.log_prob(x, num_draws=40, chunk_size=2, seed=1)
        loss = log_prob[0]
    assert np.isfinite(log_prob[0]) and np.isneginf(log_prob[1])
    assert all(np.isfinite(g).all() for g in tape.gradient(loss, flow.trainable_variables) if g is not None)
