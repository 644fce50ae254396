"""Where the patches of an image lie, how to cut them out and how to lay them back. Pure geometry, no parameters."""

import functools
import math

import numpy as np
import tensorflow as tf


class Patches:
    """The patches that a convolution or a pooling window sees.

    `extract` cuts an image (..., height, width, channels) into patches (..., rows, columns, kernel * channels) in
    the layout of a Keras kernel; `overlap_sum` is its transpose, which lays the patches back and adds them where they
    overlap. `overlap_counts` (height, width) is the number N of patches that a pixel is in. With `padding="same"`,
    cells of a patch outside the image are zero, and `mask` tells them.

    Both are slices, reshapes and sums along one axis after the other, so that one is written as the mirror image of the
    other. `extract` gives what `tf.image.extract_patches` does, which has no such transpose.

    >>> patches = Patches((4, 4, 1), kernel_size=(3, 3), strides=(1, 1))
    >>> patches.shape, patches.overlap_counts[0].tolist()
    ((2, 2, 9), [1, 2, 2, 1])
    """

    def __init__(self, image_shape, kernel_size, strides, padding="valid"):
        self.image_shape = tuple(image_shape)
        if len(self.image_shape) != 3:
            raise ValueError(f"An image has shape (height, width, channels). Received: image_shape={image_shape}")
        self.channels = self.image_shape[2]
        self.kernel_size, self.strides = tuple(kernel_size), tuple(strides)
        self._axes = [
            _Axis(size, kernel, stride, padding)
            for size, kernel, stride in zip(self.image_shape, self.kernel_size, self.strides, strict=False)
        ]
        rows, columns = self._axes
        self.shape = (rows.count, columns.count, math.prod(self.kernel_size) * self.channels)
        self.overlap_counts = np.multiply.outer(rows.coverage, columns.coverage)
        self.uncovered = np.flatnonzero(self.overlap_counts == 0)
        self.noise_dimension = int(np.maximum(self.overlap_counts - 1, 0).sum()) * self.channels

    def extract(self, image):
        """Cuts (..., height, width, channels) into (..., rows, columns, kernel * channels)."""
        rows, columns = self._axes
        frames = columns.frame(rows.frame(_as_batch(image, 3), axis=1), axis=3)
        frames = tf.transpose(frames, [0, 1, 3, 2, 4, 5])
        return _like(tf.reshape(frames, [-1, *self.shape]), image, 3)

    def overlap_sum(self, patches):
        """Lays patches back on the image and adds where they overlap: the transpose of `extract`."""
        rows, columns = self._axes
        cells = (rows.count, columns.count, *self.kernel_size, self.channels)
        frames = tf.transpose(tf.reshape(patches, [-1, *cells]), [0, 1, 3, 2, 4, 5])
        return _like(rows.overlap_add(columns.overlap_add(frames, axis=3), axis=1), patches, 3)

    def overlap_mean(self, patches):
        """The mean over the copies of each pixel; zero where no patch covers it."""
        return self.overlap_sum(patches) / np.maximum(self.overlap_counts, 1)[..., None].astype(
            patches.dtype.as_numpy_dtype
        )

    def cell_values(self, per_pixel, outside=0):
        """A static (height, width) array, cut into patches: (rows, columns, kernel * channels), in NumPy."""
        rows, columns = self._axes
        per_row = rows.cells(per_pixel, axis=0, outside=outside)
        per_cell = columns.cells(per_row, axis=2, outside=outside)
        per_cell = np.transpose(per_cell, [0, 2, 1, 3])[..., None]
        return np.broadcast_to(per_cell, (*per_cell.shape[:-1], self.channels)).reshape(self.shape)

    @property
    def border(self):
        """((top, bottom), (left, right)): the cells around the image that the patches see."""
        return tuple((axis.before, max(axis.reach - axis.before - axis.length, 0)) for axis in self._axes)

    @functools.cached_property
    def mask(self):
        """1.0 for the cells of patches that lie on the image, 0.0 for those outside."""
        return self.cell_values(np.ones(self.image_shape[:2]))


class _Axis:
    """One axis of the geometry: `count` windows of `size` cells, `stride` apart, the first `before` cells outside."""

    def __init__(self, length, size, stride, padding):
        if min(length, size, stride) < 1:
            raise ValueError(
                f"Sizes, kernels and strides are at least 1. Received: size={length}, kernel={size}, strides={stride}"
            )
        if padding == "same":
            self.count = -(-length // stride)
            self.before = max((self.count - 1) * stride + size - length, 0) // 2
        elif padding == "valid":
            if size > length:
                raise ValueError(
                    f"A kernel of size {size} does not fit an image side of {length} without padding. "
                    'Use a smaller kernel or padding="same".'
                )
            self.count, self.before = (length - size) // stride + 1, 0
        else:
            raise ValueError(f'padding must be "same" or "valid". Received: padding={padding!r}')
        self.length, self.size, self.stride = length, size, stride
        self.blocks = -(-size // stride)  # A window spans this many steps of the stride.

    @property
    def reach(self):
        """Cells from the start of the first window to the end of the last."""
        return (self.count - 1) * self.stride + self.size

    @property
    def after(self):
        """Cells behind the image that the blocks of all windows span, or minus the number of cells that they leave."""
        return (self.count - 1 + self.blocks) * self.stride - self.before - self.length

    @property
    def coverage(self):
        index = self._index()
        return np.bincount(index[(index >= 0) & (index < self.length)], minlength=self.length)

    def _index(self):
        return np.arange(self.count)[:, None] * self.stride + np.arange(self.size) - self.before

    def cells(self, values, axis, outside):
        index = self._index()
        inside = (index >= 0) & (index < self.length)
        taken = np.take(values, np.where(inside, index, 0), axis=axis)
        shape = [1] * axis + list(index.shape) + [1] * (values.ndim - axis - 1)
        return np.where(inside.reshape(shape), taken, outside)

    def frame(self, x, axis):
        """(..., length, ...) -> (..., count, size, ...)."""
        x = _fit(x, axis, self.before, self.after)
        x = _reshape_axes(x, axis, 1, [self.count - 1 + self.blocks, self.stride])
        shifted = [_slice(x, axis, j, self.count) for j in range(self.blocks)]
        return _slice(tf.concat(shifted, axis + 1), axis + 1, 0, self.size)

    def overlap_add(self, frames, axis):
        """(..., count, size, ...) -> (..., length, ...): the transpose of `frame`."""
        frames = _fit(frames, axis + 1, 0, self.blocks * self.stride - self.size)
        shifted = [
            _fit(_slice(frames, axis + 1, j * self.stride, self.stride), axis, j, self.blocks - 1 - j)
            for j in range(self.blocks)
        ]
        x = _reshape_axes(tf.add_n(shifted), axis, 2, [(self.count - 1 + self.blocks) * self.stride])
        return _fit(x, axis, -self.before, -self.after)


def _slice(x, axis, start, size):
    if start == 0 and x.shape[axis] == size:
        return x
    return x[(slice(None),) * axis + (slice(start, start + size),)]


def _fit(x, axis, before, after):
    """Pads an axis with zeros, or crops it where a number is negative."""
    start, end = max(-before, 0), x.shape[axis] - max(-after, 0)
    x = _slice(x, axis, start, end - start)
    if before <= 0 and after <= 0:
        return x
    return tf.pad(x, [(max(before, 0), max(after, 0)) if i == axis else (0, 0) for i in range(x.shape.rank)])


def _reshape_axes(x, axis, count, sizes):
    """Reshapes `count` axes from `axis` on to `sizes`; only the first axis of `x` may be of unknown size."""
    return tf.reshape(x, [-1, *x.shape[1:axis], *sizes, *x.shape[axis + count :]])


def _as_batch(x, event_ndims):
    if x.shape.rank == event_ndims + 1:
        return x
    return tf.reshape(x, [-1, *x.shape[x.shape.rank - event_ndims :]])


def _like(x, original, event_ndims):
    """Undoes `_as_batch`: gives x the leading axes of `original`."""
    if original.shape.rank == event_ndims + 1:
        return x
    leading = tf.shape(original)[: original.shape.rank - event_ndims]
    event = x.shape[1:]
    x = tf.reshape(x, tf.concat([leading, event], axis=0))
    return tf.ensure_shape(x, original.shape[: original.shape.rank - event_ndims].concatenate(event))
