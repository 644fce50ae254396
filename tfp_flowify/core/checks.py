"""Parts, shapes and parameters, checked where they come in, with errors that name the thing and the way out."""

import math
import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_flowify.core.types import DTypeLike, Shape, TensorLike


def as_list(parts: Any) -> list:
    """The parts as a list, also where TFP gives a lone one as it is."""
    return list(parts) if isinstance(parts, list | tuple) and not isinstance(parts, tf.TensorShape) else [parts]


def bundle(parts: list) -> Any:
    """A lone part as it is, several as a list: the structure that TFP sees."""
    return parts[0] if len(parts) == 1 else list(parts)


def event_shapes(distributions: Iterable) -> list:
    """The event shape of each distribution."""
    return [tuple(d.event_shape) for d in distributions]


def sum_last(x: tf.Tensor, ndims: int) -> tf.Tensor:
    """The sum over the last `ndims` axes."""
    return tf.reduce_sum(x, axis=list(range(-ndims, 0))) if ndims else x


def sum_over(log_det: TensorLike, shape: tuple) -> tf.Tensor:
    """Sums over the last axes, of this shape, which a log-det may have or only broadcast to."""
    log_det = tf.convert_to_tensor(log_det)
    if not shape:
        return log_det
    if log_det.shape.rank == 0:
        return log_det if tf.get_static_value(log_det) == 0 else log_det * math.prod(shape)
    if tuple(log_det.shape[-len(shape) :]) != shape:
        log_det += tf.zeros(shape, log_det.dtype)
    return sum_last(log_det, len(shape))


def all_finite(tensors: Iterable) -> tf.Tensor:
    """Whether all numbers of all tensors, or single rows of them, are finite, as a tensor. None counts for nothing.

    >>> bool(all_finite([tf.ones([2]), tf.constant(np.nan)]))
    False
    """
    values = [tensor.values if isinstance(tensor, tf.IndexedSlices) else tensor for tensor in tensors]
    sums = [tf.cast(tf.reduce_sum(value), tf.float64) for value in values if value is not None]
    return tf.math.is_finite(tf.add_n(sums)) if sums else tf.constant(True)


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is not too small, or an error that names it."""
    value = value.numpy() if tf.is_tensor(value) else value
    if not isinstance(value, numbers.Real) or value % 1 != 0 or value < least:  # NaN and infinity leave NaN.
        raise ValueError(f"{name} must be a whole number, at least {least}. Received: {name}={value!r}")
    return int(value)  # type: ignore[call-overload]  # Real numbers of NumPy are numbers.Real too.


def largest_number(dtype: DTypeLike) -> float:
    """The power of ten up to which numbers can be squared in a floating type, and multiplied by ten before.

    >>> largest_number("float32")
    1e+18
    """
    return 10.0 ** int(math.log10(np.finfo(tf.as_dtype(dtype).as_numpy_dtype).max) / 2 - 1)


class RefusedError(ValueError):
    """A ValueError that says all there is to say, and passes where errors of other libraries are put in words."""


def first_line(error: Exception) -> str:
    """The first line of an error without TensorFlow's names of functions, or its type where it says nothing."""
    text = re.sub(r"\{\{.*?\}\} ?| ?\[Op:\w+\]( name:)?", "", str(error)).strip()
    return (text or type(error).__name__).splitlines()[0][:200]


def as_shape(shape: Shape) -> tuple:
    """An event shape as a tuple of whole numbers."""
    try:
        return tuple(int(size) for size in shape)
    except TypeError as error:
        raise TypeError(f"An event shape is a tuple of sizes, such as (5,). Received: {shape!r}") from error


def check_parts(owner: Any, x: Any, shapes: Sequence, dtype: tf.DType | None) -> list:
    """Tensors of the parts `x`, or an error that names the owner, what it needs and what it got."""
    parts = [x] if len(shapes) == 1 else as_list(x)
    wanted = ", ".join(f"(..., {', '.join(map(str, shape))})" if shape else "(...)" for shape in shapes)
    if len(parts) != len(shapes):
        raise ValueError(f"{owner.name} takes {len(shapes)} part(s), {wanted}. Received: {len(parts)} part(s).")
    parts = [_as_float(owner, part, dtype) for part in parts]
    for part in parts:
        if part.shape.rank is None:
            raise ValueError(f"{owner.name} needs tensors of known rank, {wanted}. Received: {part}")
    leading = [part.shape[: max(part.shape.rank - len(shape), 0)] for part, shape in zip(parts, shapes, strict=True)]
    fits = all(
        part.shape.is_compatible_with(first.concatenate(shape))
        for part, first, shape in zip(parts, leading, shapes, strict=True)
    )
    if not fits or not all(first.is_compatible_with(leading[0]) for first in leading):
        received = ", ".join(str(tuple(p.shape)) for p in parts)
        same = ", with the same leading axes" if len(shapes) > 1 else ""
        raise ValueError(f"{owner.name} takes parts of shape {wanted}{same}. Received: {received}")
    return parts


def _as_float(owner, part, dtype):
    if not tf.is_tensor(part):
        array = np.asarray(part)
        whole = array.dtype.kind in "iub" and array.ndim > 0
        hint = None if whole or part is array else tf.float32
        part = tf.convert_to_tensor(part, dtype=None if whole else dtype, dtype_hint=hint)
    if not part.dtype.is_floating:
        if not owner.takes_integers:
            _raise_for_integers(owner, part.dtype.name)
        part = tf.cast(part, dtype or tf.float32)
    if dtype is not None and part.dtype != dtype:
        raise TypeError(f"{owner.name} works in {dtype.name}. Received: {part.dtype.name}. Use tf.cast.")
    return part


def _raise_for_integers(owner, dtype_name):
    raise TypeError(
        f"{owner.name} is a density over real numbers and takes floats. Received: {dtype_name}. "
        "Put Dequantize(levels) in front for whole numbers, or use tf.cast."
    )


def parameter(
    value: Any, name: str, shape: Shape | None = None, dtype: DTypeLike | None = None
) -> tf.Tensor | tf.Variable:
    """A parameter as a bijector keeps it: a variable or tensor as it is, anything else as a constant.

    Raises where it is not a floating-point number, not finite or not of the shape (None: any size).
    """
    if isinstance(value, np.ndarray | np.generic):
        value = tf.convert_to_tensor(value, dtype=dtype)
    elif not hasattr(value, "dtype"):
        value = tf.convert_to_tensor(value, dtype=dtype, dtype_hint=tf.float32)
    if not tf.as_dtype(value.dtype).is_floating:
        raise TypeError(f"{name} must be of a floating type. Received: {tf.as_dtype(value.dtype).name}")
    if shape is not None and not tf.TensorShape(shape).is_compatible_with(value.shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}. Received: shape={tuple(value.shape)}")
    if tf.executing_eagerly():
        finite = np.isfinite(tf.convert_to_tensor(value).numpy())
        if not finite.all():
            bad = int((~finite).sum())
            raise ValueError(f"{name} must be finite. Received: {bad} of {finite.size} entries are NaN or infinite.")
    return value


def check_dtype(name: str, value: tf.Tensor | tf.Variable, dtype: DTypeLike) -> None:
    """Raises an error where a value is not of the type that a layer works in."""
    if tf.as_dtype(value.dtype) != dtype:
        raise TypeError(
            f"{name} is of type {tf.as_dtype(value.dtype).name}, but the layer works in {tf.as_dtype(dtype).name}. "
            "Give both the same type."
        )


def swap_shapes(owner: Any, given: Iterable, expected: Sequence, wanted: Iterable) -> list:
    """Event shapes on the other side: the given ones may have leading axes, the same for all parts."""
    given = [tuple(shape) for shape in given]
    prefixes = {shape[: max(len(shape) - len(least), 0)] for shape, least in zip(given, expected, strict=True)}
    fits = all(shape[len(shape) - len(least) :] == least for shape, least in zip(given, expected, strict=True))
    if len(prefixes) != 1 or not fits:
        raise ValueError(f"{owner.name} takes event shapes {expected}, with the same leading axes. Received: {given}")
    (prefix,) = prefixes
    return [tf.TensorShape((*prefix, *shape)) for shape in wanted]


def static_shapes(owner: Any, shapes: Any) -> Any:
    """Event shapes given as tensors, as shapes."""
    values = [tf.get_static_value(shape) for shape in as_list(shapes)]
    if any(value is None for value in values):
        raise ValueError(f"{owner.name} needs event shapes that are known when the graph is built.")
    return bundle([tf.TensorShape(value) for value in values])
