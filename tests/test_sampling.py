"""Samples: seeds, temperature, means, draws without a preimage, in functions."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import CASES, flow_layer, linear
from flows import exact_flow, noisy_flow
from nets import some

from tfp_flowify import FlowDistribution
from tfp_flowify import bijectors as fb

tfd = tfp.distributions


def test_samples_with_residuals_at_their_mean_share_the_latents():
    flow = noisy_flow(tf.float64)
    drawn, mean = flow.sample(6, seed=(1, 2)), flow.sample(6, seed=(1, 2), mean=True)
    assert np.all(drawn != mean)
    noise = [tf.zeros([6, *shape], tf.float64) for shape in flow.noise_shapes]
    assert flow.bijector.forward([mean, *noise])[0].shape == [6, 2]
    parts = flow.bijector.inverse([tf.zeros([1, 2], tf.float64), tf.zeros([1, 3], tf.float64)])
    np.testing.assert_allclose(flow.sample(1, seed=(1, 2), mean=True, temperature=0.0), parts[0], atol=1e-12)
    exact = exact_flow(tf.float64)
    z = [exact.without_noise(exact.sample(6, seed=(1, 2), mean=m)) for m in (False, True)]
    np.testing.assert_allclose(z[0], z[1], atol=1e-10)


def test_temperature_scales_the_normal_parts():
    flow = FlowDistribution(linear(3, 3, tf.float64))
    centre = flow.sample(1, seed=1, temperature=0.0)
    hot, cold = (flow.sample(50, seed=(1, 2), temperature=t) - centre for t in (2.0, 0.5))
    np.testing.assert_allclose(hot, 4 * cold, atol=1e-10)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", ["linear_more", "conv_overlap_same", "relu", "max_pool", "residual_conv", "tanh"])
def test_sampling_and_scoring_in_functions(name, jit_compile):
    flow = FlowDistribution(CASES[name](tf.float32))
    sample = tf.function(lambda seed: flow.sample(5, seed=seed), jit_compile=jit_compile)
    score = tf.function(lambda x, seed: flow.log_prob(x, seed=seed), jit_compile=jit_compile)
    seed = tf.constant([1, 2])
    x = sample(seed)
    np.testing.assert_array_equal(x, sample(seed))
    np.testing.assert_array_equal(score(x, seed), score(x, seed))
    assert x.shape == [5, *flow.event_shape] and np.isfinite(x).all() and np.isfinite(score(x, seed)).all()
    if not jit_compile:
        np.testing.assert_allclose(x, flow.sample(5, seed=seed), atol=1e-4)
    if not jit_compile or flow.is_exact:
        np.testing.assert_allclose(score(x, seed), flow.log_prob(x, seed=seed), rtol=1e-4, atol=1e-4)


TWO_INPUTS = (
    "concatenate",
    "whiten",
    "whiten_spline",
    "whiten_mixture",
    "whiten_affine_mixture",
    "whiten_constant",
    "whiten_constant_mixture",
    "given_whiten",
    "sum",
    "sum_funnel",
    "multiply",
    "multiply_gate",
)
SINGLE_INPUT = [name for name in CASES if name not in TWO_INPUTS]


@pytest.mark.parametrize("name", some(SINGLE_INPUT, every=2))
def test_every_layer_scores_and_samples_with_unknown_batch_size(name):
    flow = FlowDistribution(flow_layer(name, tf.float32))
    x = tf.cast(flow.sample(3, seed=1), tf.float32)
    signature = [tf.TensorSpec([None, *flow.event_shape])]
    for num_draws in (1, 3):
        score = functools.partial(flow.log_prob, num_draws=num_draws, chunk_size=2, seed=(1, 2))
        np.testing.assert_allclose(tf.function(score, input_signature=signature)(x), score(x), rtol=1e-3, atol=1e-3)
    sample = tf.function(lambda n: flow.sample(n, seed=(1, 2)), input_signature=[tf.TensorSpec([], tf.int32)])
    np.testing.assert_allclose(sample(tf.constant(3)), flow.sample(3, seed=(1, 2)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "bijector",
    [tfp.bijectors.Softsign(), tfp.bijectors.SoftClip(-1.0, 1.0), tfp.bijectors.Chain([tfp.bijectors.Tanh()])],
)
def test_bijectors_of_tfp_that_are_not_onto_are_sampled_by_their_density(bijector):
    flow = FlowDistribution(fb.Sequential([bijector, tfp.bijectors.Scale(0.8)], event_shape=(1,)))
    assert not flow.bijector.is_onto
    samples = flow.sample(20_000, seed=1).numpy()
    z = flow.without_noise(samples).numpy()
    reachable = np.random.default_rng(0).normal(size=100_000)
    reachable = reachable[np.abs(reachable) < 0.8]
    assert np.abs(z).max() <= 0.8
    assert abs(np.mean(z**2) - np.mean(reachable**2)) < 0.01


def test_gradients_through_samples_are_claimed_only_where_they_are_right():
    full = tfd.FULLY_REPARAMETERIZED
    assert exact_flow().reparameterization_type == full == noisy_flow().reparameterization_type
    for name in ("tanh", "max_pool", "abs", "relu", "dequantize"):
        assert FlowDistribution(CASES[name](tf.float32)).reparameterization_type != full
    mixture = tfd.MixtureSameFamily(tfd.Categorical([0.0, 0.0]), tfd.MultivariateNormalDiag(tf.zeros([2, 2])))
    assert FlowDistribution(linear(3, 2, tf.float32), mixture).reparameterization_type != full
