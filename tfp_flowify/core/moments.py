"""Means and deviations of data, and what stands for a deviation where data do not vary."""

import numpy as np
import tensorflow as tf

from tfp_flowify.core.types import TensorLike

#: TensorFlow takes smaller numbers of float32 for zero.
LEAST = float(np.finfo(np.float32).tiny)


def moments(x: TensorLike, event_ndims: int = 1) -> tuple:
    """Mean and standard deviation over all axes in front of the last `event_ndims`, in float64; NaN does not count.

    >>> moments([[1.0, 10.0], [3.0, 10.0]])[1].tolist()
    [1.0, 0.0]
    """
    x = np.asarray(x, np.float64)
    axes = tuple(range(x.ndim - event_ndims))
    return np.nanmean(x, axes), np.nanstd(x, axes)


def some_rows(x: np.ndarray | tf.Tensor, most: int) -> np.ndarray | tf.Tensor:
    """At most so many rows of an array, evenly spaced.

    >>> some_rows(np.arange(10), 3).tolist()
    [0, 4, 9]
    """
    return x if len(x) <= most else x[np.linspace(0, len(x) - 1, most).astype(int)]


def is_constant(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Whether numbers vary by no more than the rounding of float32 numbers of their size, or the least of these."""
    return deviation <= np.maximum(1e-6 * np.abs(mean), LEAST)


def unit_where_constant(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Deviations, with one for what is constant: columns may differ by any factor, so there is no typical one."""
    return np.where(is_constant(mean, deviation), 1.0, deviation)


def standardization(x: TensorLike, event_ndims: int = 1) -> tuple:
    """The shift and the log-scale that give x mean zero and unit deviation: (x - mean) / deviation."""
    mean, deviation = moments(x, event_ndims)
    deviation = unit_where_constant(mean, deviation)
    return -mean / deviation, -np.log(deviation)


def not_too_small(deviation: np.ndarray, scale: float = 0.0) -> np.ndarray:
    """Deviations of values of one kind; what hardly varies is given a hundredth of what the others do.

    It may vary more in other data.

    Args:
      deviation: One for each value.
      scale: The typical deviation of the data that the values were made of; none is less than a hundredth of it.
    """
    least = 0.01 * max(typical(deviation), scale)
    return np.maximum(deviation, least) if least > 0 else np.ones_like(deviation)


def typical(deviation: np.ndarray) -> float:
    """The root mean square of deviations, 0 for none."""
    return float(np.sqrt(np.mean(np.square(deviation)))) if np.size(deviation) else 0.0


#: Scales of a layer that is taken over are at least this share of the largest.
LEAST_SHARE = 1e-4


def lift(scales: np.ndarray, least: float = 0.0, largest: float = np.inf) -> tuple:
    """Scales, none of them less than a small share of the largest; and how many were lifted, and their change.

    What is mapped to zero cannot be undone. The change is relative to the norm of all.

    Args:
      scales: Numbers, zero or more.
      least, largest: Limits of what they may be.

    >>> lifted, (count, change) = lift(np.array([1.0, 0.0]))
    >>> lifted.tolist(), count, round(change, 6)
    ([1.0, 0.0001], 1, 0.0001)
    """
    lifted = np.clip(np.maximum(scales, LEAST_SHARE * (np.max(scales) or 1.0)), least, largest)
    change = np.linalg.norm(lifted - scales) / np.linalg.norm(lifted)
    return lifted, (int((lifted != scales).sum()), float(change))
