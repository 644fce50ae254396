"""The weights of rotations, by the names that layers take for the ways to hold them."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.core.types import TensorLike

ORTHOGONAL = ("auto", "expm", "cayley", "householder")

#: Up to this size "auto" takes the exponential; beyond it, so many reflections from a random start.
WIDE, REFLECTIONS = 128, 64

#: Scale of the vectors of reflections at the start. Only directions count, so it says how much a training step turns.
VECTOR_SCALE = 0.1


def add_rotation(
    layer: keras.layers.Layer, name: str, size: int, matrix: np.ndarray | None = None
) -> fb.Householder | fb.Expm:
    """An orthogonal bijector whose weights belong to a layer.

    Args:
      layer: A Keras layer with an attribute `orthogonal`.
      name: "left" or "right", for the names of the weights.
      size: Number of dimensions.
      matrix: The orthogonal matrix to start at; a random one if left out.
    """
    kind = layer.orthogonal
    if kind == "auto":
        kind = "expm" if size <= WIDE else "reflections"
    if kind == "householder":
        return fb.Householder(_add_vectors(layer, name, size, size, matrix))
    vectors = _add_vectors(layer, name, REFLECTIONS, size) if kind == "reflections" else None
    start = layer.add_weight(
        name=f"{name}_start", shape=(size, size), initializer=_start_of(matrix, vectors), trainable=False
    )
    setattr(layer, f"{name}_start", start)  # For tf.train.Checkpoint, which finds attributes.
    if kind == "reflections":
        return fb.Householder(vectors, start)
    if size == 1:
        return fb.Expm(tf.zeros([0], layer.variable_dtype), start)
    skew = layer.add_weight(name=f"{name}_skew", shape=[size * (size - 1) // 2], initializer="zeros")
    setattr(layer, f"{name}_skew", skew)
    return {"expm": fb.Expm, "cayley": fb.Cayley}[kind](skew, start)


def add_rotations(
    layer: keras.layers.Layer, name: str, groups: int, size: int, matrices: np.ndarray | None = None
) -> fb.GroupedExpm:
    """One rotation for each of some groups, whose weights belong to a layer; arguments as for `add_rotation`."""
    start = layer.add_weight(
        name=f"{name}_start",
        shape=(groups, size, size),
        initializer=_random_orthogonal if matrices is None else constant(matrices),
        trainable=False,
    )
    setattr(layer, f"{name}_start", start)
    if size == 1:
        return fb.GroupedExpm(tf.zeros([groups, 0], layer.variable_dtype), start)
    skew = layer.add_weight(name=f"{name}_skew", shape=(groups, size * (size - 1) // 2), initializer="zeros")
    setattr(layer, f"{name}_skew", skew)
    return fb.GroupedExpm(skew, start)


def _random_orthogonal(shape, dtype=None):
    return tf.linalg.qr(keras.random.normal(shape, dtype=dtype))[0]


def _add_vectors(layer, name, count, size, matrix=None):
    start = keras.initializers.RandomNormal(stddev=VECTOR_SCALE)
    if matrix is not None:
        values = VECTOR_SCALE * np.asarray(fb.Householder.from_matrix(matrix).vectors)
        count, start = len(values), constant(values)
    vectors = layer.add_weight(name=f"{name}_vectors", shape=(count, size), initializer=start)
    setattr(layer, f"{name}_vectors", vectors)
    return vectors


def _start_of(matrix, vectors):
    """An initializer of the fixed matrix behind a rotation."""
    if matrix is None:
        return keras.initializers.Orthogonal()
    if vectors is None:
        return constant(matrix)
    return constant(matrix @ fb.Householder(np.asarray(vectors, np.float64)).matrix().numpy().T)


def constant(values: TensorLike) -> Callable:
    """An initializer that gives these values."""
    return lambda shape, dtype: tf.cast(values, dtype)
