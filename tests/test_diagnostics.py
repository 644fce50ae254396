"""The diagnostics tell right from wrong, on samples whose answers are known."""

import math

import numpy as np
import pytest

from tfp_flowify.diagnostics import (
    c2st,
    coverage,
    credible_levels,
    ranks,
    save_coverage,
    save_pairs,
    save_ranks,
    uniformity,
)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
def test_the_classifier_finds_what_there_is_to_find(shift):
    best = 0.5 * (1 + math.erf(shift / 2 / math.sqrt(2)))  # Of any classifier of two normals.
    got = c2st(normal(3000, 1), normal(3000, 1, seed=1) + shift, steps=400)
    assert abs(got - best) < 0.025


def test_the_classifier_sees_what_marginals_do_not():
    x = normal(3000, 2)
    correlated = np.stack([x[:, 0], 0.9 * x[:, 0] + math.sqrt(1 - 0.81) * x[:, 1]], axis=1)
    assert c2st(correlated, normal(3000, 2, seed=1), steps=400) > 0.7


def test_the_classifier_is_the_same_for_the_same_seed_and_for_any_units():
    a, b = normal(500, 2), normal(500, 2, seed=1) + 0.3
    first = c2st(a, b, steps=100, seed=5)
    assert first == c2st(a, b, steps=100, seed=5)
    assert abs(first - c2st(1e4 * a - 7, 1e4 * b - 7, steps=100, seed=5)) < 0.02


def test_ranks_are_uniform_for_the_true_posterior_and_for_no_other():
    """theta ~ N(0, 1), x ~ N(theta, 1): the posterior is N(x / 2, 1 / 2)."""
    theta = normal(2000, 2)
    x = theta + normal(2000, 2, seed=1)
    draws = normal(99, 2000, 2, seed=2)
    right = ranks(theta, x / 2 + math.sqrt(0.5) * draws)
    assert right.shape == (2000, 2) and right.min() >= 0 and right.max() <= 99
    assert uniformity(right, 99).min() > 0.01
    for wrong in (x / 2 + 0.6 * draws, x / 2 + 0.9 * draws, x / 2 + 0.1 + math.sqrt(0.5) * draws):
        assert uniformity(ranks(theta, wrong), 99).max() < 0.01


def test_p_values_of_uniform_ranks_are_uniform():
    generator = np.random.default_rng(0)
    p = uniformity(generator.integers(0, 100, size=(400, 500)), 99)
    assert 0.02 < np.mean(p < 0.05) < 0.08 and abs(np.mean(p) - 0.5) < 0.05


def test_coverage_is_that_of_the_region():
    theta = normal(4000, 1)
    x = theta + normal(4000, 1, seed=1)
    for scale, calibrated in ((math.sqrt(0.5), True), (0.4, False)):
        draws = x / 2 + scale * normal(200, 4000, 1, seed=2)

        def log_prob(t, scale=scale):
            return -0.5 * ((t - x[:, 0] / 2) / scale) ** 2

        levels = credible_levels(log_prob(theta[:, 0]), log_prob(draws[..., 0]))
        nominal, inside = coverage(levels, [0.2, 0.5, 0.8])
        assert (np.abs(inside - nominal).max() < 0.03) == calibrated
    assert coverage([0.5])[0].shape == (21,)


@pytest.mark.parametrize(
    "action, message",
    [
        (lambda: c2st(normal(20, 2), normal(20, 3)), r"shapes \(20, 2\) and \(20, 3\)"),
        (lambda: c2st(normal(5, 2), normal(5, 2)), "Received: 5"),
        (lambda: c2st(np.full((20, 2), np.nan), normal(20, 2)), "finite"),
        (lambda: ranks(normal(5, 2), normal(10, 5, 3)), r"\(5, 2\) and \(10, 5, 3\)"),
        (lambda: uniformity(np.zeros((5, 2), int), 9, bins=20), "bins=20"),
        (lambda: uniformity(np.full((5, 2), 12), 9, bins=5), "numbers 0 ... 9"),
    ],
)
def test_what_does_not_fit_is_named(action, message):
    with pytest.raises(ValueError, match=message):
        action()


def test_pictures(tmp_path):
    save_ranks(tmp_path / "ranks.png", np.random.default_rng(0).integers(0, 100, (300, 7)), 99, bins=20)
    save_coverage(tmp_path / "coverage.png", {"a": coverage(np.linspace(0, 1, 50))}, 50)
    panels = {"reference": normal(500, 3), "flow": normal(500, 3, seed=1)}
    save_pairs(tmp_path / "pairs.png", panels, names=["a", "b", "c"], truth=[0.0, 0.0, 0.0])
    assert all((tmp_path / f"{name}.png").stat().st_size > 5000 for name in ("ranks", "coverage", "pairs"))
