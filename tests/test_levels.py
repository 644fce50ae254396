"""Whole numbers: their probabilities sum to one, bounds are bounds, and nothing else takes them for real numbers."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import line, linear, spread, subsample

from tfp_flowify import FlowDistribution, FlowModel
from tfp_flowify import bijectors as fb
from tfp_flowify import layers as fl
from tfp_flowify.bijectors.levels import cuts_for
from tfp_flowify.bijectors.subsample import groups
from tfp_flowify.conversion.prepare import default_policy


def all_images(shape, levels):
    return np.array(list(itertools.product(range(levels), repeat=int(np.prod(shape)))), float).reshape(-1, *shape)


@pytest.mark.parametrize("shape, levels", [((2, 2, 1), 3), ((3, 1, 1), 5), ((2, 1, 2), 4), ((1, 3, 1), 2)])
def test_probabilities_of_dropped_pixels_sum_to_one_given_the_kept_ones(shape, levels):
    layer, x = subsample(shape, tf.float64, levels), all_images(shape, levels)
    noise = [np.random.default_rng(0).uniform(size=(len(x), *d.event_shape)) for d in layer.noise]
    probability = np.exp(layer.forward_log_det_jacobian([x, *noise]))
    kept = layer.without_noise(x).numpy().reshape(len(x), -1)
    for value in np.unique(kept, axis=0):
        np.testing.assert_allclose(probability[(kept == value).all(axis=1)].sum(), 1, atol=1e-12)


def test_likelihood_of_dropped_pixels_does_not_depend_on_the_noise():
    layer = subsample((2, 3, 2), tf.float64)
    x = np.random.default_rng(0).integers(0, 5, size=(4, 2, 3, 2)).astype(float)
    log_dets = [
        layer.forward_log_det_jacobian([x, *(np.full((4, *d.event_shape), w) for d in layer.noise)]).numpy()
        for w in (0.01, 0.7)
    ]
    np.testing.assert_array_equal(*log_dets)


def test_codes_fill_the_interval_of_their_level():
    """The codes of a pixel lie in parts of [0, 1] that neither overlap nor leave gaps."""
    levels, parameters = line(1, 6, tf.float64), tf.constant(np.random.default_rng(1).normal(size=6))
    x = tf.range(6, dtype=tf.float64)
    bottom, top = (levels.encode(x, tf.fill([6], tf.constant(w, tf.float64)), 0, parameters)[0] for w in (0.0, 1.0))
    np.testing.assert_allclose(bottom[1:], top[:-1], atol=1e-14)
    assert bottom[0] == 0 and top[-1] == 1


def test_first_guess_is_the_share_in_the_data():
    counts = np.array([[50, 0, 3, 7, 139]])
    levels = fb.Levels(*map(tf.constant, cuts_for(counts)))
    x, zeros = tf.range(5, dtype=tf.float64), tf.zeros([5], tf.float64)
    _, log_probability = levels.encode(x, zeros, 0, zeros[:3])
    np.testing.assert_allclose(np.exp(log_probability), (counts[0] + 1) / (counts.sum() + 5), rtol=1e-2)


@pytest.mark.parametrize("sides", [(4, 4), (5, 3), (7,), (1, 6), (3, 2, 5), (1, 1, 2)])
def test_groups_share_out_all_pixels(sides):
    layer = subsample((*sides, 1), tf.float64, state=2)
    taken = sum(int(np.prod(d.event_shape)) for d in layer.residuals) + int(np.prod(layer.outputs[0]))
    assert taken == np.prod(sides)
    assert len(groups(sides)) == 2 ** sum(side > 1 for side in sides) - 1


@pytest.mark.parametrize("variational", [False, True])
def test_spread_levels_have_the_probabilities_of_their_intervals(variational):
    """That of a level is the integral of the density over its interval, and the bound is below."""
    given = (lambda features: tf.sin(features)) if variational else None
    layer = spread((1, 1), tf.float64, levels=4, conditioner=given)
    behind = fb.Sequential([linear(1, 1, tf.float64), fb.LeakyReLU(0.4)])
    net = fb.Sequential([layer, fb.bind(behind, (1, 1))])
    flow = FlowDistribution(net)
    cuts = layer.levels_of.cuts().numpy()[0]
    edge = np.concatenate([[-60], cuts, [60]])
    points, density = np.linspace(-60, 60, 2_400_001), FlowDistribution(behind)
    values = np.exp(np.asarray(density.log_prob(points[:, None])))
    exact = np.array([values[(points >= a) & (points < b)].sum() for a, b in itertools.pairwise(edge)]) * 5e-5
    assert exact.sum() == pytest.approx(1, abs=1e-3)
    noise = np.linspace(-60, 60, 100_001)
    for x in range(4):
        joint = flow.joint.log_prob([np.full((len(noise), 1, 1), float(x)), noise[:, None, None]])
        assert np.exp(joint).sum() * 1.2e-3 == pytest.approx(exact[x], abs=1e-4)
        one = np.mean(flow.log_prob(np.full((2000, 1, 1), float(x)), seed=0))
        assert one < np.log(exact[x]) + 0.02


def test_whole_numbers_go_where_they_are_known_to_be_whole():
    layer = subsample((2, 2, 1), tf.float32)
    with pytest.raises(ValueError, match=r"Put Dequantize\(levels\) in front"):
        fb.Sequential([layer, fb.LeakyReLU(0.5)])
    with pytest.raises(ValueError, match="Put Dequantize"):
        fb.Sequential([layer, fb.Dequantize(7)])
    with pytest.raises(ValueError, match=r"Put Dequantize\(5\) behind it"):
        FlowDistribution(layer)
    with pytest.raises(ValueError, match=r"Put Dequantize\(5\) behind it"):
        FlowModel([keras.Input((2, 2, 1)), fl.Subsample(5, width=4)])


def test_adapt_measures_levels():
    x = np.random.default_rng(0).choice([0, 0, 0, 0, 3], size=(400, 4, 4, 1))
    flow = FlowModel([keras.Input((4, 4, 1)), fl.Subsample(4, width=4), fl.Dequantize(4), fl.Flatten()])
    before = np.mean(flow.bits_per_dim(x))
    flow.adapt(x)
    shares = np.array([0.8, 0.2])
    entropy = -(shares * np.log2(shares)).sum()  # Of the pixels that are dropped, three quarters.
    assert np.mean(flow.bits_per_dim(x)) < before - 0.5
    assert np.mean(flow.bits_per_dim(x)) == pytest.approx(0.75 * entropy + 0.25 * 2, abs=0.3)


def test_samples_are_levels_and_come_back():
    x = np.random.default_rng(0).integers(0, 4, size=(20, 6, 5, 2))
    stack = [fl.Subsample(4, width=8), fl.Subsample(4, width=8), fl.Spread(4), fl.Flatten(), fl.Dense(3)]
    flow = FlowModel([keras.Input((6, 5, 2)), *stack])
    flow.adapt(x)
    flow.compile("adam")
    flow.fit(x, epochs=2, verbose=0)
    samples = np.asarray(flow.sample(10, seed=0))
    assert samples.shape == (10, 6, 5, 2)
    assert set(np.unique(samples)) <= {0, 1, 2, 3}
    assert np.mean(np.asarray(flow.decode(flow.encode(x, seed=1))) != x) < 1e-3


def test_volumes_in_mixed_precision_have_finite_gradients():
    """Convolutions of volumes in bfloat16 do not: see `policy_for`."""
    with default_policy("mixed_bfloat16"):
        flow = FlowModel([keras.Input((3, 3, 3, 1)), fl.Subsample(2, width=4), fl.Spread(2), fl.Flatten()])
    x = np.random.default_rng(0).integers(0, 2, size=(8, 3, 3, 3, 1)).astype("float32")
    with tf.GradientTape() as tape:
        loss = -tf.reduce_mean(flow.log_prob(x, seed=1))
    for gradient in tape.gradient(loss, [weight.value for weight in flow.trainable_variables]):
        assert gradient is None or np.isfinite(tf.convert_to_tensor(gradient)).all()
