"""The geometry of patches: where they lie on an image, how to cut them out and how to lay them back."""

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

    Both are lookups by fixed indices, one the gradient of the other. `extract` gives what `tf.image.extract_patches`
    does, which has no such transpose and takes longer.

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
        self._pixel_of_cell = self._in_patches(np.arange(self.overlap_counts.size), outside=-1).flatten()
        self._cells_of_pixel = _positions(self._pixel_of_cell, self.overlap_counts.flatten())

    def extract(self, image):
        """Cuts (..., height, width, channels) into (..., rows, columns, kernel * channels)."""
        return self._linear(self._extract, self._overlap_sum)(image)

    def overlap_sum(self, patches):
        """Lays patches back on the image and adds where they overlap: the transpose of `extract`."""
        return self._linear(self._overlap_sum, self._extract)(patches)

    def _linear(self, function, transpose):
        """A linear function with the gradient that its transpose is."""

        @tf.custom_gradient
        def with_gradient(x):
            return function(x), self._linear(transpose, function)

        return with_gradient

    def _extract(self, image):
        pixels = _look_up(tf.reshape(image, [-1, self.overlap_counts.size, self.channels]), self._pixel_of_cell)
        return _like(tf.reshape(pixels, [-1, *self.shape]), image)

    def _overlap_sum(self, patches):
        cells = tf.reshape(patches, [-1, self._pixel_of_cell.size, self.channels])
        copies = [_look_up(cells, index) for index in self._cells_of_pixel]
        total = tf.add_n(copies) if len(copies) > 1 else copies[0]
        return _like(tf.reshape(total, [-1, *self.image_shape]), patches)

    def overlap_mean(self, patches):
        """The mean over the copies of each pixel; zero where no patch covers it."""
        return self.overlap_sum(patches) / np.maximum(self.overlap_counts, 1)[..., None].astype(
            patches.dtype.as_numpy_dtype
        )

    def cell_values(self, per_pixel, outside=0):
        """A static (height, width) array, cut into patches: (rows, columns, kernel * channels), in NumPy."""
        per_cell = self._in_patches(per_pixel, outside)[..., None]
        return np.broadcast_to(per_cell, (*per_cell.shape[:-1], self.channels)).reshape(self.shape)

    def _in_patches(self, per_pixel, outside):
        """One number for each pixel to (rows, columns, kernel height, kernel width)."""
        (in_rows, row), (in_columns, column) = (axis.index for axis in self._axes)
        inside = in_rows[:, None, :, None] & in_columns[None, :, None, :]
        taken = np.reshape(per_pixel, self.image_shape[:2])[row[:, None, :, None], column[None, :, None, :]]
        return np.where(inside, taken, outside)

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

    @property
    def reach(self):
        """Cells from the start of the first window to the end of the last."""
        return (self.count - 1) * self.stride + self.size

    @property
    def index(self):
        """Tells for the cells of each window, (count, size), whether they are on the image, and where; else 0."""
        place = np.arange(self.count)[:, None] * self.stride + np.arange(self.size) - self.before
        inside = (place >= 0) & (place < self.length)
        return inside, np.where(inside, place, 0)

    @property
    def coverage(self):
        inside, place = self.index
        return np.bincount(place[inside], minlength=self.length)


def _positions(values, counts):
    """Finds each k = 0, 1, ... among the values: arrays of the first place, the second, ..., -1 for none."""
    order, first = np.argsort(values, kind="stable"), np.searchsorted(np.sort(values), np.arange(len(counts)))
    ranks = range(max(counts.max(), 1))
    return [np.where(counts > rank, order[np.minimum(first + rank, len(order) - 1)], -1) for rank in ranks]


def _look_up(x, index):
    """Entries of the second axis at an index; zeros where it is -1."""
    if index.min() < 0:
        x = tf.pad(x, [(0, 0), (0, 1), (0, 0)])
    return tf.gather(x, np.where(index < 0, x.shape[1] - 1, index).astype(np.int32), axis=1)


def _like(x, original):
    """Gives x, (n, a, b, c), the leading axes of `original`, (..., d, e, f)."""
    if original.shape.rank == 4:
        return x
    leading = original.shape[: original.shape.rank - 3]
    x = tf.reshape(x, tf.concat([tf.shape(original)[: len(leading)], x.shape[1:]], axis=0))
    return tf.ensure_shape(x, leading.concatenate(x.shape[len(leading) :]))
