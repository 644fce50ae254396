"""Pooling: windows are unfolded, then each is reduced to its maximum or its mean and what that loses."""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.augmentation import Code, SignedNormal, StandardNormal
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.choices import fold_sign, unfold_sign
from tfp_flowify.bijectors.conditional import Funnel
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.bijectors.convolution import per_side
from tfp_flowify.bijectors.graph import Sequential
from tfp_flowify.bijectors.unfold import Unfold
from tfp_flowify.core.types import Shape, TensorFunction, TensorLike
from tfp_flowify.math.patches import Patches
from tfp_flowify.transforms import Transform


class _Windows(FlowBijector):
    """Reduces every window of k cells to one value and k - 1 others; windows at the border may have fewer cells.

    Cells are held as (..., windows, cells, channels), those on the image first; only they count. The k - 1 others
    of all windows are one part, (..., others, channels); `others` says which of windows * (k - 1) they are.
    """

    def __init__(
        self, patches: Patches, codes: bool = False, dtype: tf.DType | str = tf.float32, name: str | None = None
    ) -> None:
        *places, _ = patches.shape
        windows, cells, channels = math.prod(places), math.prod(patches.kernel_size), patches.channels
        mask = patches.mask.reshape(windows, cells, channels)[..., 0] > 0
        self._order = np.argsort(~mask, axis=1, kind="stable")
        self._cell_shape, self._patch_shape = (windows, cells, channels), patches.shape
        self.valid = np.take_along_axis(mask, self._order, axis=1)
        self.counts = mask.sum(axis=1)
        self.others = np.flatnonzero(self.valid[:, 1:])
        others = (len(self.others), channels)
        drawn = [Code((*places, channels), dtype), Code(others, dtype)] if codes else []
        super().__init__(
            inputs=[patches.shape],
            outputs=[(*places, channels)],
            noise=drawn,
            residuals=[(SignedNormal if codes else StandardNormal)(others, dtype), *drawn],
            dtype=dtype,
            name=name,
        )

    def to_cells(self, patches: tf.Tensor) -> tf.Tensor:
        cells = _event_reshape(patches, len(self._patch_shape), self._cell_shape)
        return cells if self.valid.all() else self._reorder(cells, self._order)

    def to_patches(self, cells: tf.Tensor) -> tf.Tensor:
        if not self.valid.all():
            cells = tf.where(self.valid[..., None], cells, tf.zeros([], cells.dtype))
            cells = self._reorder(cells, np.argsort(self._order, axis=1))
        return _event_reshape(cells, 3, self._patch_shape)

    def _reorder(self, cells, order):
        windows, count, channels = self._cell_shape
        flat = _event_reshape(cells, 3, (windows * count, channels))
        flat = tf.gather(flat, (np.arange(windows)[:, None] * count + order).flatten(), axis=-2)
        return _event_reshape(flat, 2, self._cell_shape)

    def pack(self, others: tf.Tensor) -> tf.Tensor:
        """(..., windows, cells - 1, channels) -> (..., others, channels): those of cells on the image."""
        windows, count, channels = self._cell_shape
        flat = _event_reshape(others, 3, (windows * (count - 1), channels))
        return flat if self.valid.all() else tf.gather(flat, self.others, axis=-2)

    def unpack(self, packed: tf.Tensor) -> tf.Tensor:
        """Undoes `pack`, with zeros for cells outside the image."""
        windows, count, channels = self._cell_shape
        if not self.valid.all():
            source = np.full(windows * (count - 1), len(self.others))
            source[self.others] = np.arange(len(self.others))
            behind = [(0, 0)] * (packed.shape.rank - 2) + [(0, 1), (0, 0)]
            packed = tf.gather(tf.pad(packed, behind), source, axis=-2)
        return _event_reshape(packed, 2, (windows, count - 1, channels))

    def to_image(self, values: tf.Tensor) -> tf.Tensor:
        return _event_reshape(values, 2, self.outputs[0])

    def from_image(self, image: tf.Tensor) -> tf.Tensor:
        windows, _, channels = self._cell_shape
        return _event_reshape(image, len(self.outputs[0]), (windows, channels))


class MaxWindows(_Windows):
    """The maximum of every window, the gaps below it, and a `Code` for where it was.

        forward: [x, w, v] -> [z = max, s (z - other cells), (index + w) / k, v']
        log_det = (other cells) log 2 - sum over windows and channels of log k

    The gaps are positive; a sign from a second code unfolds them to the line: s = -1 and v' = 2 v for v < 1/2, else
    s = 1 and v' = 2 v - 1. So a gap has the density of a normal folded at zero.
    Exact. Shapes: [(..., *places, k c), (..., *places, c), (..., others, c)] -> [(..., *places, c), (..., others, c),
    (..., *places, c), (..., others, c)].  After Nielsen et al. 2020 (SurVAE).

    >>> MaxWindows(Patches((2, 2, 1), (2, 2), (2, 2))).without_noise(tf.ones([1, 1, 4])).shape.as_list()
    [1, 1, 1]
    """

    def __init__(self, patches: Patches, dtype: tf.DType | str = tf.float32, name: str | None = None) -> None:
        super().__init__(patches, codes=True, dtype=dtype, name=name)

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, code, sign_code = parts
        cells = tf.where(self.valid[..., None], self.to_cells(x), tf.cast(x.dtype.min / 4, x.dtype))
        index = tf.argmax(cells, axis=-2, output_type=tf.int32)
        highest = tf.reduce_max(cells, axis=-2)
        before = np.arange(self.valid.shape[1] - 1)[:, None] < index[..., None, :]
        others = tf.where(before, cells[..., :-1, :], cells[..., 1:, :])
        gaps, sign_code = unfold_sign(self.pack(highest[..., None, :] - others), sign_code)
        code = self.to_image((tf.cast(index, x.dtype) + self.from_image(code)) / self._counts(x.dtype))
        return [self.to_image(highest), gaps, code, sign_code], self._log_det(x.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z, gaps, code, sign_code = parts
        counts, highest = self._counts(z.dtype), self.from_image(z)
        scaled = self.from_image(code) * counts
        index = tf.clip_by_value(tf.floor(scaled), 0, counts - 1)
        gaps, sign_code = fold_sign(gaps, sign_code)
        others = highest[..., None, :] - self.unpack(gaps)
        slots = np.arange(self.valid.shape[1])[:, None].astype(z.dtype.as_numpy_dtype)
        at, missing = index[..., None, :], highest[..., None, :]
        before, behind = tf.concat([others, missing], axis=-2), tf.concat([missing, others], axis=-2)
        cells = tf.where(slots < at, before, tf.where(slots > at, behind, missing))
        return [self.to_patches(cells), self.to_image(scaled - index), sign_code], -self._log_det(z.dtype)

    def _counts(self, dtype):
        return self.counts[:, None].astype(dtype.as_numpy_dtype)

    def _log_det(self, dtype):
        signs, places = len(self.others) * math.log(2), float(np.log(self.counts).sum())
        return tf.constant(self.outputs[0][-1] * (signs - places), dtype)


class MeanWindows(_Windows):
    """The mean of every window, and k - 1 orthonormal coordinates of what it loses.

        forward: x -> [z = mean, dropped],  log_det = -sum over windows and channels of (log k) / 2
        inverse: the reflection that is its own inverse

    A Householder reflection turns (1, ..., 1) / sqrt(k) into the first axis, so that the first coordinate is the sum
    over sqrt(k); the others are dropped. Exact.
    Shapes: (..., *places, k c) -> [(..., *places, c), (..., others, c)].

    >>> windows = MeanWindows(Patches((2, 2, 1), (2, 2), (2, 2)))
    >>> windows.without_noise(tf.ones([1, 1, 4])).numpy().flatten().round(5).tolist()
    [1.0]
    """

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        turned = self._reflect(self.to_cells(parts[0]))
        mean = turned[..., 0, :] / self._root_counts(turned.dtype)
        return [self.to_image(mean), self.pack(turned[..., 1:, :])], -self._log_det(turned.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z, dropped = parts
        first = self.from_image(z) * self._root_counts(z.dtype)
        turned = tf.concat([first[..., None, :], self.unpack(dropped)], axis=-2)
        return [self.to_patches(self._reflect(turned))], self._log_det(z.dtype)

    def _reflect(self, cells):
        normals = np.eye(self.valid.shape[1])[0] - self.valid / np.sqrt(self.counts)[:, None]
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        normals = np.divide(normals, lengths, out=np.zeros_like(normals), where=lengths > 1e-9)
        normals = tf.constant(normals[..., None], cells.dtype)
        return cells - 2 * normals * tf.reduce_sum(normals * cells, axis=-2, keepdims=True)

    def _root_counts(self, dtype):
        return np.sqrt(self.counts)[:, None].astype(dtype.as_numpy_dtype)

    def _log_det(self, dtype):
        return tf.constant(0.5 * self.outputs[0][-1] * float(np.log(self.counts).sum()), dtype)


class _Pool(Sequential):
    """`Unfold`, then one of the above on every window."""

    windows: type[_Windows]

    def __init__(
        self,
        image_shape: Shape,
        pool_size: int | Sequence[int] = 2,
        strides: int | Sequence[int] | None = None,
        padding: str = "valid",
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        conditioner: TensorFunction | InContext | None = None,
        transform: Transform | None = None,
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        ndims = len(image_shape) - 1
        size = per_side(pool_size, ndims)
        strides = size if strides is None else per_side(strides, ndims)
        if math.prod(size) * math.prod(strides) < 2:
            raise ValueError(
                f"A pooling window has two cells or more, or strides of more than one. Received: pool_size={pool_size}"
            )
        patches = Patches(image_shape, size, strides, padding)
        unfold = Unfold(patches, log_noise_scale, noise, dtype)
        self.unseen = len(patches.uncovered)
        layers: list[FlowBijector] = [unfold]
        if math.prod(size) > 1:
            windows = self.windows(patches, dtype=unfold.dtype)
            layers.append(Funnel(windows, conditioner, transform) if conditioner else windows)
        super().__init__(layers, name=name)


class MaxPool(_Pool):
    """Max pooling: `Unfold`, then `MaxWindows`. With noise zero it is the Keras layer.

    Exact where the windows do not overlap; where they do, pixels in several windows are copied with noise.

    Args:
      image_shape: (*sides, c).
      pool_size, strides: A number, or one for each side; strides are the pool size if left out.
      padding: "valid" or "same"; cells outside the image do not count.
      log_noise_scale, noise: See `Unfold`.
      conditioner, transform: Whiten what a window loses given its maximum, see `Funnel`.

    >>> pool = MaxPool((4, 4, 1), 2)
    >>> pool.without_noise(tf.reshape(tf.range(16.0), [4, 4, 1])).numpy().flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """

    windows = MaxWindows


class AveragePool(_Pool):
    """Average pooling: `Unfold`, then `MeanWindows`. Arguments as for `MaxPool`.

    >>> AveragePool((2, 2, 1), 2).without_noise(tf.reshape(tf.range(4.0), [2, 2, 1])).numpy().flatten().tolist()
    [1.5]
    """

    windows = MeanWindows


class GlobalAveragePool(Sequential):
    """The mean over all pixels, (..., *sides, c) -> (..., c): one window as large as the image. Exact.

    >>> GlobalAveragePool((2, 2, 1)).without_noise(tf.reshape(tf.range(4.0), [2, 2, 1])).numpy().tolist()
    [1.5]
    """

    def __init__(self, image_shape: Shape, dtype: tf.DType | str = tf.float32, name: str | None = None) -> None:
        *sides, channels = image_shape
        pool = [AveragePool(image_shape, sides, dtype=dtype)] if math.prod(sides) > 1 else []
        flatten = tfp.bijectors.Reshape(event_shape_out=(channels,), event_shape_in=(*[1] * len(sides), channels))
        super().__init__([*pool, flatten], event_shape=image_shape, name=name)


#: The names for two sides.
MaxPool2D, AveragePool2D, GlobalAveragePool2D = MaxPool, AveragePool, GlobalAveragePool


def _event_reshape(x, ndims, shape):
    """Reshapes the last axes of x."""
    if x.shape.rank == ndims + 1:
        return tf.reshape(x, [-1, *shape])
    return tf.reshape(x, tf.concat([tf.shape(x)[: x.shape.rank - ndims], shape], axis=0))
