"""What data a flow takes, checked for shape, finite numbers, and whole numbers in range."""

import numbers
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_flowify.core.moments import is_constant, moments, some_rows
from tfp_flowify.core.types import DTypeLike, Shape, TensorLike
from tfp_flowify.model.entries import Range, check_weights, dense, is_numeric, with_asserted_weights

#: So many examples are looked at, at most, to see whether data have a density.
SEEN = 10_000


class InputCheck:
    """Checks data against what a flow takes.

    Args:
      event_shape: Shape of one example.
      levels: How many whole numbers 0 ... levels - 1 it takes; None for real numbers.
      dtype: The type that it works in.
    """

    def __init__(self, event_shape: Shape, levels: int | None = None, dtype: DTypeLike = tf.float32):
        self.event_shape, self.levels = tuple(event_shape), levels
        self.range = Range.of_type(dtype) if levels is None else Range(0, levels - 1, whole=True)

    def data(self, x: Any) -> Any:
        """Checks what Keras' methods take: anything like an array; or batches, which are checked as they are read.

        Batches come as a dataset or a generator. Others, such as a `keras.utils.PyDataset`, pass as they are: in
        training, the shapes of their batches are checked.
        """
        if isinstance(x, tf.data.Dataset):
            return self._dataset(x)
        if isinstance(x, types.GeneratorType):
            return map_data(x, self.array)
        if x is None or isinstance(x, dict | tuple | str | numbers.Number):
            given = "nothing" if x is None else type(x).__name__
            raise ValueError(f"This flow takes {self._wanted()}, as an array, a tensor or a dataset. Received: {given}")
        return self.array(x) if is_array(x) else x

    def array(self, x: TensorLike) -> np.ndarray | tf.Tensor:
        """An array or a tensor; raises a ValueError where it is not what the flow takes."""
        wanted = f"This flow takes {self._wanted()}"
        x = dense(x, wanted)
        shape = tuple(x.shape)
        if len(shape) != len(self.event_shape) + 1 or shape[1:] != self.event_shape:
            raise ValueError(f"{wanted}. Received: shape={shape}")
        if 0 in shape:
            raise ValueError(f"{wanted}, one or more. Received: shape={shape}")
        self.range.check(np.asarray(x), wanted)
        return x

    def batch(self, x: tf.Tensor) -> None:
        """Raises a ValueError where a batch in a training step has another shape."""
        if not hasattr(x, "shape") or not tf.TensorShape([None, *self.event_shape]).is_compatible_with(x.shape):
            raise ValueError(f"This flow takes {self._wanted()}. Received: {getattr(x, 'shape', type(x).__name__)}")

    def asserted(self, x: tf.Tensor) -> tf.Tensor:
        """The same tensor; when a graph runs with other data than the flow takes, it fails and says so."""
        return self.range.asserted(tf.ensure_shape(x, [None, *self.event_shape]), f"This flow takes {self._wanted()}")

    def warn_of_no_density(self, x: Any) -> None:
        """Warns where real data lie on a part of space that has no volume: no density describes them.

        Args:
          x: An array that has passed the check, or a table of pandas, whose columns then are named.
        """
        names, x = getattr(x, "columns", None), some_rows(np.asarray(x), SEEN)
        if self.levels is not None or len(x) < 3:
            return
        mean, deviation = moments(x, len(self.event_shape))
        constant = np.argwhere(is_constant(mean, deviation))
        if len(constant):
            _warn(f"{len(constant)} of {mean.size} entries are constant, {_named(constant, names)}")
        elif len(self.event_shape) == 1 and (copies := _copies(x, mean, deviation)):
            pairs = ", ".join(f"{_named([[i]], names)} of {_named([[j]], names)}" for i, j in copies[:5])
            _warn(f"{len(copies)} of {mean.size} columns are copies of others, {pairs}")
        elif np.array_equal(x, np.round(x)):
            _warn("all numbers are whole", " Put Dequantize(levels) in front.")

    def element(self, spec: tf.TypeSpec) -> None:
        """Raises a ValueError where the elements of a dataset have another shape, or are no numbers, or none at all."""
        if not isinstance(spec, tf.TensorSpec) or not is_numeric(spec.dtype) or spec.shape[:1] == [0]:
            raise ValueError(f"This flow takes {self._wanted()}, one or more. Received: a dataset of {spec}")
        if not spec.shape.is_compatible_with([None, *self.event_shape]):
            unbatched = spec.shape.is_compatible_with(self.event_shape)
            hint = " Its elements are single examples: call .batch(size)." if unbatched else ""
            raise ValueError(f"This flow takes {self._wanted()}. Received: a dataset of {spec.shape}.{hint}")

    def _wanted(self):
        return f"batches (n, {', '.join(map(str, self.event_shape))}) of {self.range}"

    def _dataset(self, dataset):
        spec = dataset.element_spec
        first = data_of(spec)
        if not hasattr(first, "shape"):
            raise ValueError(f"This flow takes {self._wanted()} as a dataset of x or (x, y). Received: {spec}")
        self.element(first)

        def check(*element):
            x = self.asserted(element[0])
            return (x, *with_asserted_weights(element[1:])) if isinstance(spec, tuple) else x

        return dataset.map(check, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def data_of(element: Any) -> Any:
    """The data of an element of a dataset, x or (x, y) or (x, y, sample_weight)."""
    return element[0] if isinstance(element, tuple) else element


def is_endless(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset is known to have no end."""
    return int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY


def map_data(batches: Iterable, check: Callable[[Any], Any]) -> Iterator:
    """Batches of a generator with their data checked, and their weights."""
    for element in batches:
        x = check(data_of(element))
        labels = element[1:] if isinstance(element, tuple) else ()
        for weights in labels[1:]:
            check_weights(weights, len(tf.nest.flatten(x)[0]))
        yield (x, *labels) if isinstance(element, tuple) else x


def is_array(x: object) -> bool:
    """Whether something is an array or can be made one: a tensor, a list of numbers, a table of pandas."""
    return tf.is_tensor(x) or hasattr(x, "__array__") or isinstance(x, list)


def check_parts_of_encode(
    names: Sequence[str], specs: Sequence[tf.TensorSpec], parts: TensorLike | Sequence[TensorLike]
) -> list:
    """Tensors of the parts that `decode` takes, or an error that says which do not fit.

    Args:
      names, specs: Names and specs of the parts that `encode` gives.
      parts: One part, or a list of them.
    """
    parts = list(parts) if isinstance(parts, list | tuple) else [parts]
    wanted = ", ".join(f"({', '.join(map(str, ('n', *spec.shape[1:])))})" for spec in specs)
    wanted = f"decode takes what encode gives, parts of {wanted}, n > 0"
    parts = [dense(part, wanted, "a part") for part in parts]
    shapes = [tuple(part.shape) for part in parts]
    fits = len(parts) == len(specs) and all(
        spec.shape.is_compatible_with(shape) and shape[0] == shapes[0][0]
        for spec, shape in zip(specs, shapes, strict=True)
    )
    if not fits or shapes[0][0] == 0:
        raise ValueError(f"{wanted}. Received: shapes {shapes}")
    parts = [tf.cast(part, spec.dtype) for part, spec in zip(parts, specs, strict=True)]
    bad = [name for name, part in zip(names, parts, strict=True) if not _is_finite(part)]
    if bad:
        raise ValueError(f"decode takes finite numbers. Received: NaN or infinite entries in {', '.join(bad)}.")
    return parts


def _is_finite(part) -> bool:
    return not tf.executing_eagerly() or bool(np.isfinite(part).all())


def _copies(x, mean, deviation) -> list:
    """Pairs (i, j): column i is column j, but for a shift and a factor."""
    standardized = (some_rows(x, SEEN if x.shape[1] <= 200 else SEEN // 10) - mean) / deviation
    correlation = np.abs(standardized.T @ standardized) / len(standardized)
    alike = np.argwhere(np.tril(correlation > 1 - 1e-6, k=-1))
    return list({int(i): (int(i), int(j)) for i, j in alike[::-1]}.values())[::-1]


def _named(indices, names, most=5):
    """The first few indices of entries, by the names of columns where there are some."""
    shown = [str(names[i[0]]) if names is not None else str(tuple(map(int, i))) for i in indices[:most]]
    return ", ".join(shown) + (", ..." if len(indices) > most else "")


def _warn(what, way_out=" Leave them out, or add noise of the size of their precision."):
    warnings.warn(
        f"These data have no density over real numbers: {what}. Scales are kept from vanishing, so training goes on, "
        f"but its likelihoods say more about that floor than about the data.{way_out}",
        stacklevel=4,
    )
