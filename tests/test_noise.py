"""The augmentation distributions have the covariance, the support and the density that they must have."""

import math

import numpy as np
import pytest
import tensorflow as tf
from test_bijectors import coordinates

from tfp_flowify import bijectors as fb
from tfp_flowify.distributions import Code, OrthogonalNormal, OrthogonalUniform, StandardNormal, StandardUniform
from tfp_flowify.math.patches import Patches

# Geometries with a pixel in this many patches.
GEOMETRIES = {
    1: Patches((4, 4, 1), (2, 2), (2, 2)),
    2: Patches((3, 2, 1), (2, 2), (1, 2)),
    3: Patches((5, 1, 2), (3, 1), (1, 1)),
    4: Patches((3, 3, 1), (2, 2), (1, 1)),
    6: Patches((4, 5, 1), (2, 3), (1, 1)),
    9: Patches((5, 5, 1), (3, 3), (1, 1)),
}
multiplicities = pytest.mark.parametrize("multiplicity", GEOMETRIES)
DRAWS = 40_000


def basis_and_coordinates(patches, noise):
    """Samples of the noise of `Unfold`, in an orthonormal basis of the space it lives in."""
    unfold = fb.Unfold(patches, noise=noise, dtype=tf.float64)
    basis = coordinates(unfold)[1]
    samples = unfold.noise[0].sample(DRAWS, seed=1).numpy().reshape(DRAWS, -1)
    np.testing.assert_allclose(samples @ basis @ basis.T, samples, atol=1e-12)
    return unfold.noise[0], samples @ basis


@multiplicities
def test_geometry_has_the_multiplicity(multiplicity):
    assert GEOMETRIES[multiplicity].overlap_counts.max() == multiplicity


def test_no_noise_where_nothing_overlaps():
    assert fb.Unfold(GEOMETRIES[1]).noise == []
    assert GEOMETRIES[1].noise_dimension == 0
    assert not np.any(OrthogonalNormal(GEOMETRIES[1]).sample(3, seed=1))
    assert not np.any(OrthogonalUniform(GEOMETRIES[1]).sample(3, seed=1))
    assert float(OrthogonalUniform(GEOMETRIES[1]).log_prob(tf.zeros(GEOMETRIES[1].shape))) == 0


@multiplicities
@pytest.mark.parametrize("noise", ["normal", "uniform"])
def test_covariance_is_the_projection(multiplicity, noise):
    if multiplicity == 1:
        return test_no_noise_where_nothing_overlaps()
    distribution, u = basis_and_coordinates(GEOMETRIES[multiplicity], noise)
    assert u.shape[1] == distribution.dimension == GEOMETRIES[multiplicity].noise_dimension
    assert np.abs(u.mean(axis=0)).max() < 5 / math.sqrt(DRAWS)
    assert np.abs(u.T @ u / DRAWS - np.eye(u.shape[1])).max() < 7 / math.sqrt(DRAWS)


@multiplicities
def test_normal_noise_is_normal_and_has_its_density(multiplicity):
    if multiplicity == 1:
        return test_no_noise_where_nothing_overlaps()
    distribution, u = basis_and_coordinates(GEOMETRIES[multiplicity], "normal")
    assert abs(np.mean(u**4) - 3) < 0.1
    samples = distribution.sample(10, seed=2)
    dimension = distribution.dimension
    length2 = np.sum(samples.numpy() ** 2, axis=(1, 2, 3))
    np.testing.assert_allclose(distribution.log_prob(samples), -(length2 + dimension * np.log(2 * np.pi)) / 2)
    mean_log_prob = np.mean(distribution.log_prob(distribution.sample(DRAWS, seed=3)))
    assert abs(distribution.entropy() + mean_log_prob) < 5 * math.sqrt(dimension / 2 / DRAWS)


@multiplicities
def test_uniform_noise_is_uniform_on_the_ball(multiplicity):
    patches = GEOMETRIES[multiplicity]
    if multiplicity == 1:
        return test_no_noise_where_nothing_overlaps()
    distribution = OrthogonalUniform(patches, tf.float64)
    samples = distribution.sample(DRAWS, seed=1)
    row, column = np.argwhere(patches.overlap_counts == multiplicity)[0]
    length = np.sqrt(patches.overlap_sum(samples**2)[:, row, column, 0])
    dimension = multiplicity - 1
    # On a ball, (length / radius)^dimension is uniform on [0, 1].
    rank = np.sort((length / math.sqrt(dimension + 2)) ** dimension)
    assert np.abs(rank - (np.arange(DRAWS) + 0.5) / DRAWS).max() < 1.95 / math.sqrt(DRAWS)
    # And its directions are uniform: any coordinate of the direction has mean square 1 / dimension.
    cells = patches.cell_values(np.arange(patches.overlap_counts.size).reshape(patches.overlap_counts.shape), -1)
    copies = (cells == row * patches.image_shape[1] + column).flatten()
    copies = np.flatnonzero(copies)[:: patches.channels]
    direction = samples.numpy().reshape(DRAWS, -1)[:, copies] / length[:, None]
    centred = np.eye(multiplicity) - 1 / multiplicity
    np.testing.assert_allclose(direction.T @ direction / DRAWS, centred / dimension, atol=0.02)
    log_volume = -float(distribution.log_prob(samples[0]))
    expected = patches.channels * sum(
        (n - 1) / 2 * math.log(math.pi) - math.lgamma((n + 1) / 2) + (n - 1) / 2 * math.log(n + 1)
        for n in patches.overlap_counts.flatten()
        if n > 1
    )
    assert abs(log_volume - expected) < 1e-9 and abs(distribution.entropy() - expected) < 1e-9
    assert np.isfinite(distribution.log_prob(samples)).all()
    assert np.isneginf(distribution.log_prob(3 * samples[:5])).any()


@pytest.mark.parametrize("distribution", [StandardNormal, StandardUniform])
def test_standard_noise_has_unit_variance_and_its_entropy(distribution):
    noise = distribution((2, 3), tf.float64)
    samples = noise.sample(DRAWS, seed=1)
    assert np.abs(np.mean(samples, axis=0)).max() < 5 / math.sqrt(DRAWS)
    assert np.abs(np.var(samples, axis=0) - 1).max() < 10 / math.sqrt(DRAWS)
    assert abs(noise.entropy() + np.mean(noise.log_prob(samples))) < 0.03
    np.testing.assert_array_equal(noise.mean(), np.zeros((2, 3)))


def test_uniform_is_flat_inside_and_impossible_outside():
    noise = StandardUniform((2,), tf.float64, -0.5, 0.5)
    np.testing.assert_array_equal(noise.log_prob([[0.2, -0.5], [0.2, 0.6]]), [0, -np.inf])
    np.testing.assert_array_equal(Code((2,)).mean(), [0.5, 0.5])


@pytest.mark.parametrize(
    "noise",
    [
        StandardNormal((2,)),
        StandardUniform((2,)),
        Code((2,)),
        OrthogonalNormal(GEOMETRIES[4]),
        OrthogonalUniform(GEOMETRIES[4]),
    ],
    ids=lambda d: d.name,
)
def test_noise_keeps_the_conventions_of_tfp(noise):
    assert noise.batch_shape == []
    samples = noise.sample([4, 3], seed=(1, 2))
    assert samples.shape == [4, 3, *noise.event_shape]
    np.testing.assert_array_equal(samples, noise.sample([4, 3], seed=(1, 2)))
    assert np.any(samples != noise.sample([4, 3], seed=(1, 3)))
    assert noise.log_prob(samples).shape == [4, 3]
    tiled = noise.tile((4, 3))
    assert tiled.event_shape == [4, 3, *noise.event_shape]
    assert tiled.dimension == 12 * noise.dimension
    np.testing.assert_allclose(tiled.log_prob(samples), np.sum(noise.log_prob(samples)), rtol=1e-5)
    assert tiled.sample(seed=(1, 2)).shape == tiled.event_shape
    np.testing.assert_allclose(tiled.entropy(), 12 * noise.entropy(), rtol=1e-6)
