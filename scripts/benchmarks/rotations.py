"""Orthogonal parametrisations against their size."""

import numpy as np
import tensorflow as tf

from benchmarks.measure import Effort, milliseconds
from tfp_flowify import bijectors as fb

SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
LIMIT = 4000  # Milliseconds beyond which larger sizes are not tried.
BATCH_SIZE = 128


def measure_rotations(effort: Effort) -> list:
    """Milliseconds of value and gradient for a batch of vectors; None where a smaller size took too long."""
    rows, over = [], set()
    for size in SIZES[: -4 if effort.quick else None]:
        row = {"size": size}
        for name, make in _kinds(size).items():
            row[name] = None if name in over else milliseconds(_step(make(), size), effort)
            if row[name] and row[name] > LIMIT / 6:  # The next size may take eight times as long.
                over.add(name)
        rows.append(row)
    return rows


def _kinds(size):
    generator = np.random.default_rng(0)
    skew = (0.5 / np.sqrt(size) * generator.normal(size=size * (size - 1) // 2)).astype(np.float32)
    vectors = generator.normal(size=(size, size)).astype(np.float32)
    base = tf.constant(fb.random_orthogonal(size, 0), tf.float32) if size <= 1024 else tf.eye(size)
    return {
        "dense": lambda: _Dense(tf.Variable(vectors)),
        "expm": lambda: fb.Expm(tf.Variable(skew), base),
        "cayley": lambda: fb.Cayley(tf.Variable(skew), base),
        "householder": lambda: fb.Householder(tf.Variable(vectors), base),
        "householder_32": lambda: fb.Householder(tf.Variable(vectors[: min(32, size)]), base),
    }


class _Dense(tf.Module):
    """A plain matrix: what a rotation costs at the least."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = matrix

    def forward_and_log_det(self, x):
        return x @ self.matrix, 0.0


def _step(rotation, size):
    x = tf.random.stateless_normal([BATCH_SIZE, size], [0, 0])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(rotation.forward_and_log_det(x)[0]))
        return [tf.reduce_sum(g) for g in tape.gradient(loss, [x, *rotation.trainable_variables])]

    return lambda: step()[0].numpy()
