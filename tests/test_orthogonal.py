"""Orthogonal matrices: orthogonal, able to start anywhere, and trainable; the exponential is that of TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
from cases import values

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.context import prepare
from tfp_flowify.bijectors.orthogonal import orthogonal, random_orthogonal, skew_symmetric
from tfp_flowify.math.expm import expm


@pytest.mark.parametrize("kind", ["expm", "cayley", "householder"])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("determinant", [1, -1])
def test_starts_at_a_given_matrix(kind, size, determinant):
    matrix = random_orthogonal(size, seed=size)
    matrix[0] *= determinant * np.sign(np.linalg.det(matrix))
    start = orthogonal(kind, matrix, tf.float64)
    np.testing.assert_allclose(start.matrix(), matrix, atol=1e-12)
    x = values((4, size), tf.float64)
    np.testing.assert_allclose(start.forward(x), x @ matrix.T, atol=1e-12)
    np.testing.assert_allclose(start.inverse(x), x @ matrix, atol=1e-12)


@pytest.mark.parametrize("matrix", [np.eye(4), -np.eye(4), np.eye(4)[[1, 0, 2, 3]], np.diag([1.0, -1, 1, 1])], ids=str)
def test_householder_starts_at_special_matrices(matrix):
    np.testing.assert_allclose(fb.Householder.from_matrix(matrix, tf.float64).matrix(), matrix, atol=1e-14)


@pytest.mark.parametrize("reflections", [1, 2, 3, 8])
def test_few_reflections_start_at_a_given_matrix(reflections):
    matrix = random_orthogonal(8, seed=1)
    start = fb.Householder.from_matrix(matrix, tf.float64, reflections)
    assert start.vectors.shape == [reflections, 8]
    np.testing.assert_allclose(start.matrix(), matrix, atol=1e-12)


def test_householder_is_the_product_of_reflections():
    vectors = values((3, 5), tf.float64).numpy()
    product = np.eye(5)
    for v in vectors:
        product = product @ (np.eye(5) - 2 * np.outer(v, v) / (v @ v))
    np.testing.assert_allclose(fb.Householder(vectors).matrix(), product, atol=1e-14)


@pytest.mark.parametrize("kind", ["expm", "cayley", "householder"])
def test_training_reaches_a_target_and_stays_orthogonal(kind):
    """Gradient descent on the parameters, from one random rotation to another."""
    target = random_orthogonal(6, seed=1)
    start = random_orthogonal(6, seed=2)
    start[0] *= np.sign(np.linalg.det(start) * np.linalg.det(target))
    layer = orthogonal(kind, start, tf.float64)
    optimizer = tf.keras.optimizers.Adam(0.05)
    optimizer.build(layer.trainable_variables)

    @tf.function(jit_compile=True)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((layer.matrix() - target) ** 2)
        gradients = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply_gradients(zip(gradients, layer.trainable_variables, strict=True))
        return loss

    for _ in range(600):
        loss = step()
    assert loss < 1e-3
    matrix = layer.matrix().numpy()
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(6), atol=1e-12)


def test_random_orthogonal_is_haar():
    """For a Haar matrix of size n the trace has mean 0 and variance 1, and both determinants are equally likely."""
    matrices = np.stack([random_orthogonal(3, seed) for seed in range(2000)])
    traces = np.trace(matrices, axis1=1, axis2=2)
    assert abs(traces.mean()) < 0.1 and abs(traces.var() - 1) < 0.15
    assert abs(np.mean(np.linalg.det(matrices) > 0) - 0.5) < 0.05


@pytest.mark.parametrize("norm", [0.0, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("dtype, tolerance", [(tf.float32, 2e-5), (tf.float64, 1e-13)])
def test_expm_is_that_of_tensorflow(norm, dtype, tolerance):
    matrix = skew_symmetric(values((15,), dtype))
    matrix *= norm / tf.reduce_max(tf.reduce_sum(tf.abs(matrix), axis=0))
    batch = tf.stack([matrix, 0.1 * matrix])

    def value_and_gradient(function):
        with tf.GradientTape() as tape:
            tape.watch(batch)
            result = function(batch)
            loss = tf.reduce_sum(tf.sin(result))
        return [result, tape.gradient(loss, batch)]

    expected = value_and_gradient(tf.linalg.expm)
    for jit_compile in (False, True):
        compiled = tf.function(lambda: value_and_gradient(expm), jit_compile=jit_compile)
        for got, wanted in zip(compiled(), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * max(norm, 1))


def test_expm_of_matrices_that_are_not_skew_and_of_complex_ones():
    real = values((2, 5, 5), tf.float64)
    np.testing.assert_allclose(expm(real), tf.linalg.expm(real), rtol=1e-10)
    skew_hermitian = tf.complex(real - tf.linalg.matrix_transpose(real), real + tf.linalg.matrix_transpose(real))
    unitary = expm(skew_hermitian).numpy()
    np.testing.assert_allclose(unitary, tf.linalg.expm(skew_hermitian), atol=1e-12)
    np.testing.assert_allclose(unitary @ unitary.conj().swapaxes(1, 2), [np.eye(5)] * 2, atol=1e-12)


def test_expm_can_be_differentiated_twice():
    matrix = values((4, 4), tf.float64)

    def gradient_of_gradient(function):
        with tf.GradientTape() as outer:
            outer.watch(matrix)
            with tf.GradientTape() as inner:
                inner.watch(matrix)
                loss = tf.reduce_sum(function(matrix) ** 2)
            loss = tf.reduce_sum(inner.gradient(loss, matrix) ** 2)
        return outer.gradient(loss, matrix)

    np.testing.assert_allclose(gradient_of_gradient(expm), gradient_of_gradient(tf.linalg.expm), rtol=1e-9)


def test_matrices_computed_together_are_those_computed_alone():
    rotations = [
        *(fb.Expm(values((10,), tf.float64) * scale) for scale in (0.1, 1.0, 3.0)),
        fb.Expm(values((10,), tf.float64), random_orthogonal(5, seed=0)),
        fb.Cayley(values((10,), tf.float64)),
        fb.Expm(values((3,), tf.float64)),
        fb.Householder(values((2, 5), tf.float64)),
    ]
    alone = [rotation.matrix().numpy() for rotation in rotations]
    context = prepare(rotations[:-1])
    together = [rotation.matrix(context).numpy() for rotation in rotations]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13)


def test_matrices_computed_once_do_not_outlive_a_change_of_weights():
    rotation = fb.Expm(tf.Variable(tf.zeros([1])))
    np.testing.assert_array_equal(rotation.matrix(prepare([rotation])), np.eye(2))
    rotation.skew.assign([np.pi / 2])
    np.testing.assert_allclose(rotation.matrix(), [[0, -1], [1, 0]], atol=1e-6)
