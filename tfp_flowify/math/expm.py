"""The matrix exponential with a gradient that compiles under XLA, as that of `tf.linalg.expm` does not."""

import math

import tensorflow as tf

_DEGREE = 12
_COEFFICIENTS = [1 / math.factorial(k) for k in range(_DEGREE + 1)]
# The largest 1-norm at which the Taylor polynomial of that degree is exact to rounding.
_RADIUS = {tf.float32: 1.5, tf.complex64: 1.5, tf.float64: 0.35, tf.complex128: 0.35}


def expm(matrix: tf.Tensor) -> tf.Tensor:
    """exp(matrix) for square matrices (..., n, n), real or complex: `tf.linalg.expm`, also trainable under XLA.

    Scaling and squaring of a Taylor polynomial: five products, and one more for each doubling of the norm beyond the
    radius in which the polynomial is exact. Close to zero, where rotations start, there is none.

    The gradient is the adjoint of the directional derivative, grad = D exp(A^H)[upstream], which the same
    algorithm gives on pairs (matrix, direction) with three products in place of one.

    >>> expm(tf.zeros([2, 2])).numpy().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    matrix = tf.convert_to_tensor(matrix)
    if matrix.dtype not in _RADIUS:
        raise TypeError(f"expm works in {', '.join(t.name for t in _RADIUS)}. Received: {matrix.dtype.name}")
    return _expm(matrix)


@tf.custom_gradient
def _expm(matrix):
    def gradient(upstream):
        return _expm_derivative(tf.linalg.adjoint(matrix), upstream)

    return _scale_and_square([matrix])[0], gradient


@tf.custom_gradient
def _expm_derivative(matrix, direction):
    """The derivative of expm at `matrix` along `direction`, itself differentiable."""

    def gradient(upstream):
        size = tf.shape(matrix)[-1]
        adjoint = tf.linalg.adjoint
        # D2 exp(A)[H, G] is a block of the exponential of a block triangular matrix; only second derivatives need it.
        zero = tf.zeros_like(matrix)
        a, h, g = adjoint(matrix), adjoint(direction), upstream
        first = tf.concat([tf.concat([a, g], -1), tf.concat([zero, a], -1)], -2)
        second = tf.concat([tf.concat([h, zero], -1), tf.concat([zero, h], -1)], -2)
        return _expm_derivative(first, second)[..., :size, size:], _expm_derivative(a, g)

    return _scale_and_square([matrix, direction])[1], gradient


def _scale_and_square(a):
    """exp of a truncated power series [matrix] or [matrix, derivative]."""
    a = [tf.stop_gradient(part) for part in a]  # Else a persistent tape differentiates the loop all the same.
    norm = tf.reduce_max(tf.reduce_sum(tf.abs(a[0]), axis=-2, keepdims=True))
    doublings = tf.math.ceil(tf.math.log(tf.maximum(norm / _RADIUS[a[0].dtype], 1)) / math.log(2))
    scale = tf.cast(0.5**doublings, a[0].dtype)
    result = _taylor([part * scale for part in a])
    return tf.while_loop(
        lambda i, *_: i < tf.cast(doublings, tf.int32),
        lambda i, *parts: (i + 1, *_product(parts, parts)),
        (tf.constant(0), *result),
    )[1:]


def _taylor(a):
    """sum of a^k / k! up to degree 12, as a cubic polynomial in a^3 (Paterson and Stockmeyer)."""
    square = _product(a, a)
    cube = _product(square, a)
    blocks = [_quadratics(*parts) for parts in zip(a, square, strict=True)]
    identity = tf.eye(tf.shape(a[0])[-1], dtype=a[0].dtype)
    constants = tf.reshape(tf.constant(_COEFFICIENTS[:_DEGREE:3], a[0].dtype), [-1] + [1] * a[0].shape.rank)
    blocks[0] += constants * identity
    *lower, result = zip(*map(tf.unstack, blocks), strict=True)
    result = [top + _COEFFICIENTS[_DEGREE] * part for top, part in zip(result, cube, strict=True)]
    for block in reversed(lower):
        result = [part + term for part, term in zip(_product(result, cube), block, strict=True)]
    return result


def _quadratics(a, square):
    """a / (k + 1)! + square / (k + 2)! for k = 0, 3, 6, 9, in one product."""
    coefficients = tf.constant([_COEFFICIENTS[k + 1 : k + 3] for k in range(0, _DEGREE, 3)], a.dtype)
    powers = tf.reshape(tf.stack([a, square]), [2, -1])
    return tf.reshape(coefficients @ powers, tf.concat([[_DEGREE // 3], tf.shape(a)], axis=0))


def _product(a, b):
    """The product of two power series, truncated behind the first derivative."""
    product = [a[0] @ b[0]]
    return product if len(a) == 1 else [*product, a[0] @ b[1] + a[1] @ b[0]]
