"""Entries of arrays and tensors: whether they are numbers, and those that are wanted; in NumPy and in graphs."""

import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import largest_number
from tfp_flowify.core.types import DTypeLike, TensorLike


class Range:
    """The numbers from `low` to `high`; NaN is none of them.

    Args:
      low, high: The least and the largest.
      whole: Whether only whole numbers are meant.

    >>> Range(0, 4, whole=True).holds(np.array([0.0, 0.5, 7.0])).tolist()
    [True, False, False]
    """

    def __init__(self, low: float, high: float, whole: bool = False):
        self.low, self.high, self.whole = low, high, whole

    @classmethod
    def of_type(cls, dtype: DTypeLike) -> "Range":
        """The numbers that can be worked with in a type: of floating ones, those that can be squared."""
        dtype = tf.as_dtype(dtype)
        if dtype.is_floating:
            return cls(-largest_number(dtype), largest_number(dtype))
        return cls(0, 1, whole=True) if dtype.is_bool else cls(int(dtype.min), int(dtype.max), whole=True)

    def __str__(self):
        return f"whole numbers {self.low} ... {self.high}" if self.whole else f"finite numbers, {self.high:g} at most"

    def holds(self, values: np.ndarray | tf.Tensor) -> np.ndarray | tf.Tensor:
        """Tells for each entry of an array or a tensor whether it is in the range."""
        values = _comparable(values)
        if not tf.is_tensor(values) and values.dtype.kind in "iub":
            return (values >= self.low) & (values <= self.high)
        largest = float(tf.as_dtype(values.dtype).max)  # A bound beyond it would be infinity.
        inside = (values >= max(self.low, -largest)) & (values <= min(self.high, largest))
        if not self.whole:
            return inside
        return inside & (values == (tf.floor(values) if tf.is_tensor(values) else np.floor(values)))

    def check(self, values: np.ndarray, wanted: str, of: str = "") -> None:
        """Raises a ValueError where entries of an array are not in the range.

        Args:
          values: The array.
          wanted: What is wanted instead, the beginning of the error.
          of: What they are entries of, " of condition", say.
        """
        good = self.holds(values)
        if not good.all():
            first = tuple(int(i) for i in np.argwhere(~good)[0])
            too_large = not self.whole and np.isfinite(values[first]) and abs(values[first]) > self.high
            hint = " Divide by a constant: squares of larger numbers are infinite." if too_large else ""
            raise ValueError(
                f"{wanted}. Received: {int((~good).sum())} of {good.size} entries{of} are others; the first is "
                f"{values[first]} at {first}.{hint}"
            )

    def asserted(self, x: tf.Tensor, wanted: str) -> tf.Tensor:
        """The same tensor; when a graph runs with entries that are not in the range, it fails and says so."""
        good = tf.reduce_all(self.holds(x))
        with tf.control_dependencies([tf.debugging.Assert(good, [f"{wanted}."])]):
            return tf.identity(x)


#: Weights of examples; and temperatures, not so low or so high that they leave the range of float32.
WEIGHTS, TEMPERATURES = Range(0, largest_number("float32")), Range(1e-18, 1e18)


def dense(x: TensorLike, wanted: str, name: str = "data") -> np.ndarray | tf.Tensor:
    """A tensor, or anything like an array as one of NumPy; an error where entries are missing, or are not numbers.

    Args:
      x: The values.
      wanted: What is wanted, the beginning of the error.
      name: What they are called in the error.

    >>> dense([[1, 2], [3]], "This is a table")
    Traceback (most recent call last):
    ValueError: This is a table. Received: data with rows of different lengths
    """
    if isinstance(x, tf.RaggedTensor | tf.SparseTensor) or np.ma.is_masked(x):
        raise ValueError(f"{wanted}, all of them there. Received: {name} with gaps, a {type(x).__name__}")
    if tf.is_tensor(x):
        x = tf.convert_to_tensor(x)
        if not is_numeric(x.dtype):
            raise ValueError(f"{wanted}. Received: {name} of type {x.dtype.name}")
        return x
    try:
        values = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{wanted}. Received: {name} with rows of different lengths") from error
    if values.dtype.kind in "fiub":
        return values
    kind = type(x).__name__ if values.ndim == 0 else values.dtype
    if values.ndim == 0 or (values.dtype != object and values.dtype != tf.bfloat16.as_numpy_dtype):
        raise ValueError(f"{wanted}. Received: {name} of type {kind}")
    try:
        return values.astype(np.float32)
    except (TypeError, ValueError) as error:  # A table of mixed types, not all of them numbers.
        raise ValueError(f"{wanted}. Received: {name} of type {kind}: {error}") from error


def is_numeric(dtype: tf.DType) -> bool:
    """Whether values of a type are real numbers."""
    return dtype.is_floating or dtype.is_integer or dtype.is_bool


def check_weights(weights: TensorLike | dict | None, count: int) -> None:
    """Raises an error where weights of examples are not one for each, or others than zero and positive numbers.

    None, and different weights for each of several outputs, pass.
    """
    if weights is None or isinstance(weights, dict | list | tuple):
        return
    wanted = f"sample_weight has a number for each of {count} examples, zero or more"
    weights = dense(weights, wanted, "weights")
    if tuple(weights.shape) not in ((count,), (count, 1)):
        raise ValueError(f"{wanted}. Received: shape={tuple(weights.shape)}")
    WEIGHTS.check(np.asarray(weights), wanted)


def with_asserted_weights(labels: tuple) -> tuple:
    """What follows the data in an element of a dataset: labels, and weights that are checked as they are read."""

    def asserted(weights):
        return WEIGHTS.asserted(weights, "sample_weight is zero or more, and finite")

    return (*labels[:1], *tf.nest.map_structure(asserted, labels[1:]))


def checked_temperature(temperature: TensorLike, dtype: DTypeLike) -> tf.Tensor:
    """A temperature as a tensor; an error where it is not one number, or not a positive one."""
    value = dense(temperature, "The temperature is a positive number", "temperature")
    if value.shape != () or (tf.executing_eagerly() and not TEMPERATURES.holds(np.asarray(value))):
        raise ValueError(f"The temperature is a positive number, 1e+18 at most. Received: temperature={temperature}")
    return tf.cast(value, dtype)


def _comparable(values):
    """Values in a type that holds all bounds: half precision, and whole numbers in graphs, are taken to a wider one."""
    if not tf.is_tensor(values):
        return values if values.dtype.kind in "iub" or values.dtype.itemsize >= 4 else values.astype(np.float32)
    if values.dtype in (tf.float32, tf.float64):
        return values
    return tf.cast(values, tf.float64 if values.dtype.size > 2 else tf.float32)
