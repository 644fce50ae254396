"""The geometry of patches against `tf.image.extract_patches`, over random shapes."""

import itertools

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfp_flowify import bijectors as fb
from tfp_flowify.core.checks import as_list, bundle
from tfp_flowify.math.patches import Patches

sizes, kernels = st.integers(1, 9), st.integers(1, 5)
geometries = st.tuples(
    sizes, sizes, st.integers(1, 3), kernels, kernels, kernels, kernels, st.sampled_from(["same", "valid"])
)


def patches_of(geometry):
    height, width, channels, rows, columns, down, right, padding = geometry
    if padding == "valid":
        rows, columns = min(rows, height), min(columns, width)
    return Patches((height, width, channels), (rows, columns), (down, right), padding), padding


@settings(max_examples=100, deadline=None)
@given(geometries, st.sampled_from([(), (2,), (0,), (2, 3)]))
def test_extract_and_its_transpose(geometry, batch):
    patches, padding = patches_of(geometry)
    x = tf.random.stateless_normal([*batch, *patches.image_shape], (1, 2), dtype=tf.float64)
    cut = patches.extract(x)
    assert cut.shape == (*batch, *patches.shape)
    if len(batch) == 1:
        expected = tf.image.extract_patches(
            x, [1, *patches.kernel_size, 1], [1, *patches.strides, 1], [1, 1, 1, 1], padding.upper()
        )
        np.testing.assert_array_equal(cut, expected)
    y = tf.random.stateless_normal([*batch, *patches.shape], (3, 4), dtype=tf.float64)
    # <extract(x), y> = <x, overlap_sum(y)>
    np.testing.assert_allclose(tf.reduce_sum(cut * y), tf.reduce_sum(x * patches.overlap_sum(y)), atol=1e-10)
    ones = patches.overlap_sum(patches.extract(tf.ones(patches.image_shape, tf.float64)))
    np.testing.assert_array_equal(ones[..., 0], patches.overlap_counts)
    np.testing.assert_array_equal(patches.mask, patches.extract(tf.ones(patches.image_shape, tf.float64)))
    values = np.arange(patches.overlap_counts.size, dtype=float).reshape(patches.overlap_counts.shape)
    image = tf.constant(np.repeat(values[..., None], patches.channels, axis=-1))
    np.testing.assert_array_equal(patches.cell_values(values), patches.extract(image))


def round_trips(bijector, seed=1):
    x = [tf.random.stateless_normal([2, *shape], (seed, 2), dtype=tf.float64) for shape in bijector.inputs]
    parts = x + [noise.sample(2, seed=(seed, 3)) for noise in bijector.noise]
    z = bijector.forward(bundle(parts))
    back = bijector.inverse(tf.nest.map_structure(tf.identity, z))
    dimension = sum(np.prod(s) for s in bijector.inputs) + sum(d.dimension for d in bijector.noise)
    assert dimension == sum(np.prod(s) for s in bijector.outputs) + sum(d.dimension for d in bijector.residuals)
    return all(np.allclose(a, b, atol=1e-9) for a, b in zip(as_list(back), parts, strict=True))


@settings(max_examples=40, deadline=None)
@given(geometries, st.integers(1, 6), st.sampled_from(["normal", "uniform"]))
def test_convolutions_of_any_shape_are_bijections(geometry, filters, noise):
    patches, padding = patches_of(geometry)
    features = int(np.prod(patches.kernel_size)) * patches.channels
    linear = fb.Linear.create(features, filters, noise=noise, seed=1, dtype=tf.float64)
    assert round_trips(
        fb.Conv2D(patches.image_shape, linear, patches.kernel_size, patches.strides, padding, noise=noise)
    )


@settings(max_examples=40, deadline=None)
@given(geometries, st.sampled_from([fb.MaxPool2D, fb.AveragePool2D]))
def test_pools_of_any_shape_are_bijections(geometry, pool):
    patches, padding = patches_of(geometry)
    if np.prod(patches.kernel_size) > 1:
        assert round_trips(pool(patches.image_shape, patches.kernel_size, patches.strides, padding, dtype=tf.float64))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["expm", "cayley", "householder"]), st.integers(0, 2))
def test_linear_layers_of_any_shape_are_bijections(features, units, kind, leading):
    linear = fb.Linear.create(features, units, kind, seed=1, dtype=tf.float64)
    shape = (*[2, 3][:leading], features)
    assert round_trips(fb.Sequential([linear, fb.LeakyReLU(0.5)], event_shape=shape))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=2, max_size=6), st.integers(0, 2**20))
def test_networks_of_any_widths_are_bijections(widths, seed):
    layers = []
    for features, units in itertools.pairwise(widths):
        layers += [fb.Linear.create(features, units, seed=seed, dtype=tf.float64), fb.LeakyReLU(0.5)]
    assert round_trips(fb.Sequential(layers), seed)
