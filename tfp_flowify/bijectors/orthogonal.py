"""Orthogonal matrices: three parametrisations, each of which can start at any given matrix."""

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context, Prepared
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import TensorLike
from tfp_flowify.math.expm import expm

PLAIN = Context()


class Orthogonal(FlowBijector):
    """z = Q x with Q orthogonal; the inverse is the transpose and the log-det zero.

    Shapes: (..., n) -> (..., n).

    >>> Expm(tf.ones([3])).inverse(Expm(tf.ones([3])).forward([1.0, 2.0, 3.0])).numpy().round(4).tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, size: int, dtype: tf.DType | str, start: TensorLike | None = None) -> None:
        self.size = int(size)
        self.start = start if start is None else parameter(start, f"{type(self).__name__} start", (size, size))
        super().__init__(inputs=[(self.size,)], outputs=[(self.size,)], dtype=dtype)

    def matrix(self, context: Context = PLAIN) -> tf.Tensor:
        """Q as a dense (n, n) tensor."""
        raise NotImplementedError(f"{type(self).__name__} must define matrix(context).")

    def rows(self, count: int) -> tf.Tensor:
        """The first rows of Q, (count, n)."""
        return self.matrix()[:count]

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return [multiply(parts[0], self.matrix(context), transpose=True)], tf.zeros([], self.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return [multiply(parts[0], self.matrix(context))], tf.zeros([], self.dtype)


class Expm(Prepared, Orthogonal):
    """Q = start exp(A), A skew-symmetric: the paper's parametrisation, from a fixed start.

    With A = 0, Q is the start: a random one makes Q Haar-random, a given one is taken over exactly, with determinant -1
    as well as 1, and the exponential is evaluated near zero, where it is cheap.

    Args:
      skew: The n (n - 1) / 2 entries of A below the diagonal.
      start: An orthogonal (n, n) matrix, or None for the identity.

    Cost: O(n^3) for the matrix, O(n^2) a vector.

    >>> Expm(tf.zeros([3])).matrix().numpy().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, skew: TensorLike, start: TensorLike | None = None) -> None:
        self.skew = parameter(skew, f"{type(self).__name__} skew", (None,))
        super().__init__(_size_from_triangle(self.skew.shape[0]), self.skew.dtype, start)

    @classmethod
    def from_matrix(cls, matrix: TensorLike, dtype: tf.DType | str = tf.float32) -> Self:
        """Starts at the given orthogonal matrix, with a trainable variable."""
        matrix = check_orthogonal(matrix)
        entries = len(matrix) * (len(matrix) - 1) // 2
        return cls(tf.Variable(tf.zeros([entries], dtype), name="skew"), tf.constant(matrix, dtype))

    def matrix(self, context: Context = PLAIN) -> tf.Tensor:
        return context.prepared_for(self)

    @property
    def batch_key(self) -> tuple:
        """Matrices up to twice as large are computed together, wide ones alone."""
        return self.dtype, max(self.size, 31).bit_length() if self.size <= 256 else id(self)

    @classmethod
    def prepare_batch(cls, layers: list["Expm"]) -> list[tf.Tensor]:
        """The matrices: blocks of larger ones, with zeros for A around them."""
        if len(layers) == 1:  # A wide one, whose n^2 indices would swell the graph.
            return [layers[0]._from_start(cls.rotation_of(skew_symmetric(layers[0].skew)))]
        rotations = cls.rotation_of(skew_symmetric_batch([layer.skew for layer in layers]))
        return [
            layer._from_start(r[: layer.size, : layer.size])
            for layer, r in zip(layers, tf.unstack(rotations), strict=True)
        ]

    def _from_start(self, rotation):
        return rotation if self.start is None else tf.convert_to_tensor(self.start) @ rotation

    @staticmethod
    def rotation_of(skew: tf.Tensor) -> tf.Tensor:
        """Skew-symmetric matrices (..., n, n) to rotations."""
        return expm(skew)


class Cayley(Expm):
    """Q = start (I - A)^-1 (I + A), A skew-symmetric: one linear solve in place of an exponential.

    It reaches every rotation of the start without an eigenvalue -1. Arguments and starts are those of `Expm`.

    Cost: O(n^3) for the matrix, O(n^2) a vector.

    >>> Cayley(tf.ones([1])).matrix().numpy().round(5).tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """

    @staticmethod
    def rotation_of(skew: tf.Tensor) -> tf.Tensor:
        identity = tf.eye(skew.shape[-1], dtype=skew.dtype)
        return tf.linalg.solve(identity - skew, identity + skew)


class Householder(Orthogonal):
    """Q = start H_1 ... H_k, each H_i = I - 2 v_i v_i^T / |v_i|^2 a reflection: for wide layers.

    The product is never formed. In compact form it is I - V^T T V with V the (k, n) matrix of vectors and
    T^-1 = triu(V V^T, 1) + diag(V V^T) / 2, so that it costs O(n k) a vector and O(n k^2 + k^3) a step.

    Args:
      vectors: (k, n), k at most n; their lengths do not matter.
      start: An orthogonal (n, n) matrix, or None for the identity, which alone keeps the cost at O(n k).

    >>> Householder(tf.constant([[1.0, 0.0]])).matrix().numpy().tolist()
    [[-1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, vectors: TensorLike, start: TensorLike | None = None) -> None:
        self.vectors = parameter(vectors, "Householder vectors", (None, None))
        count, size = self.vectors.shape
        if count > size:
            raise ValueError(
                f"{size} reflections reach every orthogonal matrix of size {size}: use at most as many. "
                f"Received: {count} reflections for {size} dimensions."
            )
        if tf.executing_eagerly() and not np.all(np.any(tf.convert_to_tensor(self.vectors).numpy() != 0, axis=1)):
            raise ValueError(f"A reflection needs a vector other than zero. Received: vectors={self.vectors}")
        super().__init__(size, self.vectors.dtype, start)

    @classmethod
    def from_matrix(
        cls,
        matrix: TensorLike,
        dtype: tf.DType | str = tf.float32,
        reflections: int | None = None,
        seed: int | Sequence[int] | np.random.Generator | None = 0,
    ) -> Self:
        """Starts at the given orthogonal matrix, with a trainable variable.

        By default it is factored into n reflections, or n - 1 where its determinant is not that of n of them. With
        fewer, the vectors are random, and the start makes up the difference.
        """
        matrix = check_orthogonal(matrix)
        if reflections is None:
            return cls(tf.Variable(_reflection_vectors(matrix), dtype=dtype, name="vectors"))
        vectors = np.random.default_rng(seed).normal(size=(reflections, len(matrix)))
        reflected = cls(vectors).matrix().numpy()
        return cls(tf.Variable(vectors, dtype=dtype, name="vectors"), tf.constant(matrix @ reflected.T, dtype))

    def rows(self, count: int) -> tf.Tensor:
        units = tf.eye(count, self.size, dtype=self.dtype)  # Few of them cost less than the whole matrix.
        return self.inverse_and_log_det([units], PLAIN)[0][0]

    def matrix(self, context: Context = PLAIN) -> tf.Tensor:
        (columns,), _ = self.forward_and_log_det([tf.eye(self.size, dtype=self.dtype)], context)
        return tf.transpose(columns)

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z = self._reflect(parts[0], adjoint=False)
        z = z if self.start is None else multiply(z, tf.convert_to_tensor(self.start), transpose=True)
        return [z], tf.zeros([], self.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x = parts[0] if self.start is None else multiply(parts[0], tf.convert_to_tensor(self.start))
        return [self._reflect(x, adjoint=True)], tf.zeros([], self.dtype)

    def _reflect(self, x, adjoint):
        vectors = tf.math.l2_normalize(self.vectors, axis=1)
        gram = tf.matmul(vectors, vectors, transpose_b=True)
        upper = tf.linalg.band_part(gram, 0, -1) - 0.5 * tf.linalg.diag(tf.linalg.diag_part(gram))
        # (T V)^T as a (n, k) matrix: the solve is done once, not for each vector.
        solved = tf.transpose(tf.linalg.triangular_solve(upper, vectors, lower=False, adjoint=adjoint))
        return x - multiply(multiply(x, solved), vectors)


def skew_symmetric(entries: TensorLike) -> tf.Tensor:
    """Skew-symmetric matrices (..., n, n) with these (..., n (n - 1) / 2) entries below their diagonals."""
    entries = tf.convert_to_tensor(entries)
    leading = entries.shape[:-1]
    if _size_from_triangle(entries.shape[-1]) == 1:
        return tf.zeros([*leading, 1, 1], entries.dtype)
    lower = tf.pad(tfp.math.fill_triangular(entries), [*[(0, 0)] * len(leading), (1, 0), (0, 1)])
    return lower - tf.linalg.matrix_transpose(lower)


def skew_symmetric_batch(entries: list) -> tf.Tensor:
    """Such matrices for several sets of entries in few operations, with zeros around the smaller ones."""
    sizes = [_size_from_triangle(each.shape[0]) for each in entries]
    order, first = np.full([len(sizes), max(sizes), max(sizes)], -1), 0
    for matrix, size in zip(order, sizes, strict=True):
        numbers = first + np.arange(size * (size - 1) // 2)  # As `fill_triangular` has them.
        filled = np.concatenate([numbers[size - 1 :], numbers[::-1]]).reshape(size - 1, size - 1)
        matrix[1:size, : size - 1] = np.where(np.tri(size - 1, dtype=bool), filled, -1)
        first += len(numbers)
    below = np.flatnonzero(order >= 0)
    place = np.empty(first, np.int32)
    place[order.flat[below]] = below

    @tf.custom_gradient
    def fill(numbers):
        lower = tf.gather(tf.pad(numbers, [(0, 1)]), np.where(order < 0, first, order))

        def gradient(upstream):
            return tf.gather(tf.reshape(upstream - tf.linalg.matrix_transpose(upstream), [-1]), place)

        return lower - tf.linalg.matrix_transpose(lower), gradient

    return fill(tf.concat([tf.convert_to_tensor(each) for each in entries], axis=0))


def multiply(x: tf.Tensor, matrix: tf.Tensor, transpose: bool = False) -> tf.Tensor:
    """x @ matrix, or its transpose, for vectors (..., n) as one product of two matrices."""
    if x.shape.rank == 2:
        return tf.matmul(x, matrix, transpose_b=transpose)
    product = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), matrix, transpose_b=transpose)
    places = x.shape[1:-1]
    if x.shape.rank > 2 and places.is_fully_defined():
        return tf.reshape(product, [-1, *places, product.shape[-1]])
    return tf.reshape(product, tf.concat([tf.shape(x)[:-1], product.shape[-1:]], axis=0))


def random_orthogonal(size: int, seed: int | Sequence[int] | np.random.Generator | None = None) -> np.ndarray:
    """An orthogonal matrix drawn uniformly (Haar), in float64; the seed may be a NumPy generator.

    >>> q = random_orthogonal(3, seed=0)
    >>> bool(np.allclose(q @ q.T, np.eye(3)))
    True
    """
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def orthogonal(
    kind: str, matrix: TensorLike, dtype: tf.DType | str = tf.float32, reflections: int | None = None
) -> Orthogonal:
    """An orthogonal parametrisation by name, "expm", "cayley" or "householder", that starts at `matrix`."""
    if kind == "householder":
        return Householder.from_matrix(matrix, dtype, reflections)
    kinds = {"expm": Expm, "cayley": Cayley}
    if kind not in kinds:
        raise ValueError(f'orthogonal must be one of "expm", "cayley", "householder". Received: orthogonal={kind!r}')
    return kinds[kind].from_matrix(matrix, dtype)


def check_orthogonal(matrix: TensorLike) -> np.ndarray:
    """The matrix in float64, or an error that says how far it is from orthogonal."""
    matrix = np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"An orthogonal matrix is square. Received: shape={matrix.shape}")
    error = np.abs(matrix @ matrix.T - np.eye(len(matrix))).max()
    if not error < 1e-4:
        raise ValueError(
            f"The matrix is not orthogonal: |Q Q^T - I| is up to {error:.2g}. "
            "Take over an arbitrary matrix with Linear.from_weights."
        )
    return matrix


def _size_from_triangle(entries: int) -> int:
    size = (1 + math.isqrt(1 + 8 * entries)) // 2
    if size * (size - 1) // 2 != entries:
        raise ValueError(f"A matrix of size n has n (n - 1) / 2 entries below its diagonal. Received: {entries}")
    return size


def _reflection_vectors(matrix):
    """Vectors of reflections whose product is the orthogonal matrix: n, or n - 1 where the determinant asks for it."""
    size, rest, vectors = len(matrix), matrix.copy(), []
    for i, unit in enumerate(np.eye(size)):
        vector = rest[:, i] - unit
        if np.linalg.norm(vector) > 1e-12:
            vectors.append(vector / np.linalg.norm(vector))
            rest -= 2 * np.outer(vectors[-1], vectors[-1] @ rest)
    # Columns that were right already need no reflection: fill up with pairs, which cancel.
    for unit in np.eye(size)[: (size - len(vectors)) // 2]:
        vectors += [unit, unit]
    return np.reshape(vectors, (-1, size))
