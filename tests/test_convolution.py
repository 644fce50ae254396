"""Convolutions as one product: what they give is what their factors give, one after the other."""

import numpy as np
import pytest
import tensorflow as tf
from cases import CASES

from tfp_flowify import bijectors as fb
from tfp_flowify.augmentation import draw
from tfp_flowify.bijectors import Context
from tfp_flowify.bijectors.convolution import LARGEST_WHOLE, PatchLinear
from tfp_flowify.math.patches import Patches

T = tf.float64


def whole_layers(bijector):
    return [module for module in (bijector, *bijector.submodules) if isinstance(module, PatchLinear)]


@pytest.mark.parametrize(
    "name",
    [
        *("conv_overlap_same", "conv_overlap_valid", "conv_uniform", "conv_tiles_funnel", "conv_more_filters"),
        *("conv1d", "conv_householder", "conv_as_many", "conv_staged_funnel", "conv_per_frame"),
    ],
)
def test_one_product_is_all_factors(name):
    (layer,) = whole_layers(CASES[name](T))
    x = tf.constant(np.random.default_rng(0).normal(size=(3, *layer.inputs[0])))
    parts = [x, *draw(layer.noise, [3], [0, 1])]
    whole, log_det = layer.forward_and_log_det(parts, Context())
    factors, wanted = fb.Sequential.forward_and_log_det(layer, parts, Context())
    assert len(whole) == len(factors)
    for a, b in zip(whole, factors, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_allclose(log_det, wanted, atol=1e-12)


@pytest.mark.parametrize("name", ["conv_gaps", "conv3d", "conv_dilated", "conv1d_causal", "conv_groups"])
def test_convolutions_that_tensorflow_lacks_go_through_the_factors(name):
    assert not whole_layers(CASES[name](T))


def test_wide_convolutions_keep_their_reflections():
    wide = fb.Linear.create(LARGEST_WHOLE + 1, 3, orthogonal_kind="householder", seed=0)
    assert not whole_layers(fb.Conv((4, LARGEST_WHOLE + 1), wide, 1))


@pytest.mark.parametrize(
    "shape, kernel, strides, padding",
    [
        ((7, 2), (3,), (2,), "same"),
        ((6, 1), (2,), (1,), "causal"),
        ((5, 4, 2), (3, 2), (2, 1), "same"),
        ((5, 7, 1), (2, 3), (2, 3), "valid"),
    ],
)
def test_convolution_is_the_product_of_each_patch(shape, kernel, strides, padding):
    generator, patches = np.random.default_rng(0), Patches(shape, kernel, strides, padding)
    image, matrix = (tf.constant(generator.normal(size=size)) for size in ((4, *shape), (patches.shape[-1], 5)))
    assert patches.can_convolve
    np.testing.assert_allclose(patches.convolve(image, matrix), patches.extract(image) @ matrix, atol=1e-12)
    nothing = patches.convolve(image[:0], matrix)
    assert nothing.shape == (0, *patches.shape[:-1], 5)
