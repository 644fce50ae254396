"""The rational-quadratic spline against TFP's, far out, at its knots and with knots for each entry."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import values

from tfp_flowify.math import spline_forward, spline_inverse, spline_knots


def tfp_spline(knots, bound):
    knots_x, knots_y, slopes = knots
    return tfp.bijectors.RationalQuadraticSpline(
        knots_x[..., 1:] - knots_x[..., :-1], knots_y[..., 1:] - knots_y[..., :-1], slopes[..., 1:-1], -bound
    )


@pytest.mark.parametrize("shape", [(), (3,), (50, 3)], ids=["shared", "per channel", "per entry"])
@pytest.mark.parametrize("bins, bound", [(2, 1.0), (8, 2.0), (16, 5.0)])
def test_spline_is_that_of_tfp(shape, bins, bound):
    knots = spline_knots(2 * values((*shape, 3 * bins - 1), tf.float64), bins, bound)
    x = 2 * bound * tf.random.stateless_uniform([50, 3], (1, 2), -1, 1, tf.float64)
    expected = tfp_spline(knots, bound)
    z, log_slope = spline_forward(x, knots)
    np.testing.assert_allclose(z, expected.forward(x), atol=1e-12)
    np.testing.assert_allclose(log_slope, expected.forward_log_det_jacobian(x), atol=1e-9)
    back, inverse_log_slope = spline_inverse(z, knots)
    np.testing.assert_allclose(back, x, atol=1e-10)
    np.testing.assert_allclose(inverse_log_slope, -log_slope, atol=1e-9)


def test_zero_parameters_are_the_identity():
    knots = spline_knots(tf.zeros([23], tf.float64), 8, 2.0)
    x = tf.linspace(tf.constant(-3.0, tf.float64), 3.0, 101)
    np.testing.assert_allclose(spline_forward(x, knots)[0], x, atol=1e-14)
    np.testing.assert_allclose(spline_forward(x, knots)[1], np.zeros(101), atol=1e-14)


@pytest.mark.parametrize("direction", [spline_forward, spline_inverse])
def test_values_and_gradients_are_finite_everywhere(direction):
    parameters = tf.Variable(5 * values((23,), tf.float32))
    knots = spline_knots(parameters, 8, 2.0)
    x = tf.concat([[-1e30, -100.0, -2.0, 2.0, 100.0, 1e30], knots[0], knots[1], tf.linspace(-2.1, 2.1, 500)], 0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        z, log_slope = direction(x, spline_knots(parameters, 8, 2.0))
        loss = tf.reduce_sum(log_slope) + tf.reduce_sum(tf.clip_by_value(z, -3, 3))
    assert np.isfinite(z).all() and np.isfinite(log_slope).all()
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(loss, [x, parameters]))
    assert np.all(np.diff(np.sort(z)) >= 0)
