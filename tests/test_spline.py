"""Rational-quadratic splines against TFP's, far out, at their knots and with knots for each entry."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import values

from tfp_flowify.math import spline_forward, spline_inverse, spline_knots
from tfp_flowify.math.spline import _solve, rational_quadratic


def tfp_spline(knots, bound):
    knots_x, knots_y, slopes = knots
    return tfp.bijectors.RationalQuadraticSpline(
        knots_x[..., 1:] - knots_x[..., :-1], knots_y[..., 1:] - knots_y[..., :-1], slopes[..., 1:-1], -bound
    )


@pytest.mark.parametrize("shape", [(), (3,), (50, 3)], ids=["shared", "per channel", "per entry"])
@pytest.mark.parametrize("bins, bound", [(2, 1.0), (8, 2.0), (16, 5.0)])
def test_spline_is_that_of_tfp(shape, bins, bound):
    parameters = 2 * values((*shape, 3 * bins - 1), tf.float64)
    x = 2 * bound * tf.random.stateless_uniform([50, 3], (1, 2), -1, 1, tf.float64)
    expected = tfp_spline(spline_knots(parameters, bins, bound), bound)
    z, log_slope = spline_forward(x, parameters, bins, bound)
    np.testing.assert_allclose(z, expected.forward(x), atol=1e-12)
    np.testing.assert_allclose(log_slope, expected.forward_log_det_jacobian(x), atol=1e-9)
    back, inverse_log_slope = spline_inverse(z, parameters, bins, bound)
    np.testing.assert_allclose(back, x, atol=1e-10)
    np.testing.assert_allclose(inverse_log_slope, -log_slope, atol=1e-9)


def test_zero_parameters_are_the_identity():
    x = tf.linspace(tf.constant(-3.0, tf.float64), 3.0, 101)
    for parameters in (tf.zeros([23], tf.float64), tf.zeros([101, 23], tf.float64)):
        z, log_slope = spline_forward(x, parameters, 8, 2.0)
        np.testing.assert_allclose(z, x, atol=1e-14)
        np.testing.assert_allclose(log_slope, np.zeros(101), atol=1e-14)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@pytest.mark.parametrize("shape", [(), (3,), (50, 3)], ids=["shared", "per channel", "per entry"])
def test_first_and_second_derivatives_are_those_of_tfp(shape, inverse, traced):
    """Ours are in closed form where they cost, TFP's are those of TensorFlow throughout."""
    parameters, x = values((*shape, 14), tf.float64), 1.2 * values((50, 3), tf.float64)

    def ours(x, parameters):
        return (spline_inverse if inverse else spline_forward)(x, parameters, 5, 2.0)

    def theirs(x, parameters):
        spline = tfp_spline(spline_knots(parameters, 5, 2.0), 2.0)
        x = tf.identity(x)
        if inverse:
            return spline.inverse(x), spline.inverse_log_det_jacobian(x)
        return spline.forward(x), spline.forward_log_det_jacobian(x)

    def derivatives(function):
        given = [tf.identity(x), tf.identity(parameters)]
        with tf.GradientTape() as outer:
            outer.watch(given)
            with tf.GradientTape() as inner:
                inner.watch(given)
                z, log_slope = function(*given)
                loss = tf.reduce_sum(tf.sin(z) + z * log_slope)
            first = inner.gradient(loss, given)
            squares = tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in first])
        return [*first, *outer.gradient(squares, given)]

    run = tf.function(derivatives) if traced else derivatives
    for got, wanted in zip(run(ours), derivatives(theirs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-7 * np.abs(wanted).max())


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("direction", [spline_forward, spline_inverse])
def test_values_and_gradients_are_finite_everywhere(direction, own):
    parameters = tf.Variable(5 * values((23,), tf.float32))
    knots = spline_knots(parameters, 8, 2.0)
    x = tf.concat([[-1e30, -100.0, -2.0, 2.0, 100.0, 1e30], knots[0], knots[1], tf.linspace(-2.1, 2.1, 500)], 0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        given = tf.tile(parameters[None], [len(x), 1]) if own else tf.convert_to_tensor(parameters)
        z, log_slope = direction(x, given, 8, 2.0)
        loss = tf.reduce_sum(log_slope) + tf.reduce_sum(tf.clip_by_value(z, -3, 3))
    assert np.isfinite(z).all() and np.isfinite(log_slope).all()
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(loss, [x, parameters]))
    assert np.all(np.diff(np.sort(z)) >= 0)


@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_the_inverse_does_not_cancel(ratio):
    """In float32, where the slope changes by a factor of a thousand in one bin, up and down."""
    t = tf.linspace(tf.constant(0.0, tf.float64), 1.0, 1001)
    first, last = tf.constant(ratio**0.5, tf.float64), tf.constant(ratio**-0.5, tf.float64)
    share, log_slope = rational_quadratic(t, first * tf.ones_like(t), last * tf.ones_like(t))
    back = _solve(*(tf.cast(number, tf.float32) for number in (share, first, last)))
    # What rounding of the share itself makes of t cannot be avoided.
    allowed = 1e-6 + 2e-7 * np.maximum(1, np.exp(-log_slope))
    assert np.all(np.abs(back - t.numpy()) < allowed)


def test_one_spline_for_each_of_many_columns_takes_little_memory():
    """2,000 columns with 32 bins, a batch of 240: the gradient once took a matrix of 480,000 x 64,000."""
    code = """
        import tensorflow as tf
        from tfp_flowify.experiments.machine import peak_memory
        from tfp_flowify.math import spline_forward
        x = tf.random.stateless_normal([240, 2000], (1, 2))
        parameters = tf.Variable(0.1 * tf.random.stateless_normal([2000, 95], (3, 4)))
        with tf.GradientTape() as tape:
            z, log_slope = spline_forward(x, tf.convert_to_tensor(parameters), 32, 5.0)
            loss = tf.reduce_sum(z * z + log_slope)
        assert bool(tf.reduce_all(tf.math.is_finite(tape.gradient(loss, parameters))))
        print(peak_memory())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 2e9
