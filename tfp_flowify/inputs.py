"""Data on its way into a flow, checked: shape, finite numbers, whole numbers in range."""

import numpy as np
import tensorflow as tf


class InputCheck:
    """What data a flow takes.

    Args:
      event_shape: of one example.
      levels: how many whole numbers 0 ... levels - 1 it takes; None for real numbers.
    """

    def __init__(self, event_shape, levels=None):
        self.event_shape, self.levels = tuple(event_shape), levels

    def data(self, x):
        """An array, a tensor or a `tf.data.Dataset`, as given or with a check in its pipeline; others pass unseen."""
        if x is None or isinstance(x, dict | list | tuple):
            given = "nothing" if x is None else type(x).__name__
            raise ValueError(f"This flow takes {self._wanted()}, as an array, a tensor or a dataset. Received: {given}")
        if isinstance(x, tf.data.Dataset):
            return self._dataset(x)
        if isinstance(x, np.ndarray) or tf.is_tensor(x):
            self.array(x)
        return x

    def array(self, x):
        """Raises a ValueError where an array is not what the flow takes."""
        shape = tuple(x.shape)
        if len(shape) != len(self.event_shape) + 1 or shape[1:] != self.event_shape:
            raise ValueError(f"This flow takes {self._wanted()}. Received: shape={shape}")
        values = np.asarray(x)
        values = values if values.dtype.kind in "fiub" else values.astype(np.float32)  # bfloat16, say.
        if not values.size:
            raise ValueError(f"This flow takes {self._wanted()}, one or more. Received: shape={shape}")
        bad = self._bad(values)
        if bad.any():
            first = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"This flow takes {self._wanted()}. Received: {int(bad.sum())} of {bad.size} entries that are not, "
                f"the first {values[first]} at {first}."
            )

    def batch(self, x):
        """Raises a ValueError where a batch in a training step has another shape."""
        if not hasattr(x, "shape") or not tf.TensorShape([None, *self.event_shape]).is_compatible_with(x.shape):
            raise ValueError(f"This flow takes {self._wanted()}. Received: {getattr(x, 'shape', type(x).__name__)}")

    def _bad(self, values):
        if self.levels is None:
            return ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        return ~((values >= 0) & (values < self.levels) & (values == np.floor(values)))

    def _wanted(self):
        kind = "finite numbers" if self.levels is None else f"whole numbers 0 ... {self.levels - 1}"
        return f"batches (n, {', '.join(map(str, self.event_shape))}) of {kind}"

    def _dataset(self, dataset):
        spec = dataset.element_spec
        first = spec[0] if isinstance(spec, tuple) else spec
        if not hasattr(first, "shape"):
            raise ValueError(f"This flow takes {self._wanted()} as a dataset of x or (x, y). Received: {spec}")
        if not first.shape.is_compatible_with([None, *self.event_shape]):
            unbatched = first.shape.is_compatible_with(self.event_shape)
            hint = " Its elements are single examples: call .batch(size)." if unbatched else ""
            raise ValueError(f"This flow takes {self._wanted()}. Received: a dataset of {first.shape}.{hint}")

        def check(*element):
            x = element[0]
            with tf.control_dependencies([tf.debugging.Assert(self._all_good(x), [self._message()])]):
                x = tf.identity(x)
            return (x, *element[1:]) if isinstance(spec, tuple) else x

        return dataset.map(check, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _all_good(self, x):
        if self.levels is None:
            return tf.reduce_all(tf.math.is_finite(x)) if x.dtype.is_floating else tf.constant(True)
        values = tf.cast(x, tf.float32)
        return tf.reduce_all((values >= 0) & (values < self.levels) & (values == tf.floor(values)))

    def _message(self):
        return f"This flow takes {self._wanted()}. The dataset has others."


def check_parts_of_encode(names, specs, parts) -> list:
    """Tensors of the parts that `decode` takes, or an error that says which do not fit.

    Args:
      names, specs: of the parts.
      parts: one, or a list of them.
    """
    parts = list(parts) if isinstance(parts, list | tuple) else [parts]
    parts = [part if tf.is_tensor(part) else np.asarray(part) for part in parts]
    wanted = ", ".join(str((None, *spec.shape[1:])) for spec in specs)
    shapes = [tuple(part.shape) for part in parts]
    fits = len(parts) == len(specs) and all(
        spec.shape.is_compatible_with(shape) and shape[0] == shapes[0][0]
        for spec, shape in zip(specs, shapes, strict=True)
    )
    if not fits:
        raise ValueError(f"decode takes what encode gives, parts of {wanted}. Received: shapes {shapes}")
    parts = [tf.cast(part, spec.dtype) for part, spec in zip(parts, specs, strict=True)]
    bad = [name for name, part in zip(names, parts, strict=True) if not _is_finite(part)]
    if bad:
        raise ValueError(f"decode takes finite numbers. Received: NaN or infinite entries in {', '.join(bad)}.")
    return parts


def _is_finite(part) -> bool:
    return not tf.executing_eagerly() or bool(np.isfinite(part).all())
