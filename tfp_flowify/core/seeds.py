"""Seeds: one number from the user, and from it a separate stream of draws for every purpose."""

import contextlib
import itertools
import numbers
import random
import zlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.core.types import Seed

fold_in = tf.random.experimental.stateless_fold_in


def stateless_seed(seed: Seed) -> tf.Tensor:
    """A seed for TensorFlow's stateless functions, a pair of int32.

    The same number always gives the same seed, and None gives a new one. (TFP's own `sanitize_seed` gives a new one for
    a number too, each time it is called.)

    >>> stateless_seed(7).numpy().tolist()
    [0, 7]
    """
    if isinstance(seed, numbers.Integral):
        return tf.constant([int(seed) >> 31 & 0x7FFFFFFF, int(seed) & 0x7FFFFFFF], tf.int32)
    if seed is None or callable(seed):
        return tfp.random.sanitize_seed(seed)
    pair = seed if tf.is_tensor(seed) else np.asarray(seed)
    whole = pair.dtype.is_integer if tf.is_tensor(pair) else pair.dtype.kind in "iu"
    if whole and tf.is_tensor(pair) and pair.shape.rank == 0:
        return tf.stack([0, tf.cast(pair, tf.int32)])
    if not whole or not tf.TensorShape([2]).is_compatible_with(pair.shape):
        raise TypeError(f"A seed is a whole number, or a pair of them. Received: seed={seed!r}")
    return tfp.random.sanitize_seed(tf.cast(pair, tf.int32))


def salted(seed: Seed, purpose: str) -> tf.Tensor:
    """A seed for one purpose; draws for different purposes are independent, though the user gave one seed for all.

    >>> first, second = salted(7, "training"), salted(7, "adapt")
    >>> bool(tf.reduce_all(first == second))
    False
    """
    return fold_in(stateless_seed(seed), zlib.crc32(purpose.encode()) & 0x7FFFFFFF)


def numbered(seed: Seed, purpose: str) -> Iterator[tf.Tensor]:
    """Endless seeds for pieces of one task, such as batches: the first is the given seed, the others are salted."""
    seed = stateless_seed(seed)
    yield seed
    stream = salted(seed, purpose)
    yield from (fold_in(stream, i) for i in itertools.count(1))


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds what Keras draws for weights and dropout inside; afterwards Python's generator is what it was before."""
    before = random.getstate()  # Keras seeds its initializers and its dropout from here.
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
