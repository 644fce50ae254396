"""The geometry of patches: where they lie on an image, how to cut them out and how to lay them back."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


class Patches:
    """The patches that a convolution or a pooling window sees.

    An image has any number of axes in front of its channels: one for a sequence, two for a picture, three for a volume.
    `extract` cuts an image (..., height, width, channels) into patches (..., rows, columns, kernel * channels) in
    the layout of a Keras kernel; `overlap_sum` is its transpose, which lays the patches back and adds them where they
    overlap. `overlap_counts` (height, width) is the number N of patches that a pixel is in. With `padding="same"`,
    cells of a patch outside the image are zero, and `mask` tells them.

    Both are lookups by fixed indices, one the gradient of the other. `extract` gives what `tf.image.extract_patches`
    does, which has no such transpose and takes longer.

    Args:
      image_shape: (*sides, channels).
      kernel_size, strides: A number for each side.
      padding: "valid", "same", or "causal", where a patch sees nothing behind its place.
      dilation: The distance between neighbouring cells of a patch, a number for each side; 1 if left out.

    >>> patches = Patches((4, 4, 1), kernel_size=(3, 3), strides=(1, 1))
    >>> patches.shape, patches.overlap_counts[0].tolist()
    ((2, 2, 9), [1, 2, 2, 1])
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        kernel_size: Sequence[int],
        strides: Sequence[int],
        padding: str = "valid",
        dilation: Sequence[int] | None = None,
    ) -> None:
        self.image_shape = tuple(image_shape)
        *sides, self.channels = self.image_shape
        self.ndims = len(sides)
        self.kernel_size, self.strides = tuple(kernel_size), tuple(strides)
        dilation = self.dilation = (1,) * self.ndims if dilation is None else tuple(dilation)
        if not sides or not len(self.kernel_size) == len(self.strides) == len(dilation) == self.ndims:
            raise ValueError(
                "An image has shape (*sides, channels), and patches a size, a stride and a dilation for each side. "
                f"Received: image_shape={image_shape}, kernel_size={kernel_size}, strides={strides}, {dilation=}"
            )
        geometry = zip(sides, self.kernel_size, self.strides, dilation, strict=True)
        self._axes = [_Axis(side, kernel, stride, padding, apart) for side, kernel, stride, apart in geometry]
        self.shape = (*(axis.count for axis in self._axes), math.prod(self.kernel_size) * self.channels)
        self.overlap_counts = functools.reduce(np.multiply.outer, [axis.coverage for axis in self._axes])
        self.uncovered = np.flatnonzero(self.overlap_counts == 0)
        self.noise_dimension = int(np.maximum(self.overlap_counts - 1, 0).sum()) * self.channels
        self._pixel_of_cell = self._in_patches(np.arange(self.overlap_counts.size), outside=-1).flatten()
        self._cells_of_pixel = _positions(self._pixel_of_cell, self.overlap_counts.flatten())

    def extract(self, image: tf.Tensor) -> tf.Tensor:
        """Cuts (..., height, width, channels) into (..., rows, columns, kernel * channels)."""
        return self._linear(self._extract, self._overlap_sum)(image)

    def convolve(self, image: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
        """The product of each patch with a matrix (kernel * channels, filters), without cutting patches out.

        It is `extract(image) @ matrix`, as a convolution of TensorFlow; see `can_convolve`.
        """
        one = (1,) * (2 - self.ndims)  # A sequence is an image of width one.
        kernel = tf.reshape(matrix, [*self.kernel_size, *one, self.channels, matrix.shape[-1]])
        border = [(0, 0), *self.border, *[(0, 0)] * len(one), (0, 0)]
        *sides, channels = self.image_shape
        images = tf.reshape(image, [-1, *sides, *one, channels])
        images = tf.pad(images, border) if any(map(sum, border)) else images
        places = tf.nn.conv2d(images, kernel, (*self.strides, *one), "VALID")
        # TensorFlow gives no examples the wrong shape.
        return _like(tf.reshape(places, [-1, *self.shape[:-1], matrix.shape[-1]]), image)

    @property
    def can_convolve(self) -> bool:
        """Whether TensorFlow has such a convolution on all devices, with Jacobians: one or two sides, not dilated."""
        return self.ndims <= 2 and max(self.dilation) == 1

    def overlap_sum(self, patches: tf.Tensor) -> tf.Tensor:
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

    def overlap_mean(self, patches: tf.Tensor) -> tf.Tensor:
        """The mean over the copies of each pixel; zero where no patch covers it."""
        return self.overlap_sum(patches) / np.maximum(self.overlap_counts, 1)[..., None].astype(
            patches.dtype.as_numpy_dtype
        )

    def cell_values(self, per_pixel: np.ndarray, outside: float = 0) -> np.ndarray:
        """A static (height, width) array, cut into patches: (rows, columns, kernel * channels), in NumPy."""
        per_cell = self._in_patches(per_pixel, outside)[..., None]
        return np.broadcast_to(per_cell, (*per_cell.shape[:-1], self.channels)).reshape(self.shape)

    def _in_patches(self, per_pixel, outside):
        """One number for each pixel to (rows, columns, kernel height, kernel width)."""
        inside, places = True, []
        for i, axis in enumerate(self._axes):
            shape = np.ones(2 * self.ndims, int)
            shape[i], shape[self.ndims + i] = axis.count, axis.size
            on_image, place = axis.index
            inside = inside & on_image.reshape(shape)
            places.append(place.reshape(shape))
        return np.where(inside, np.reshape(per_pixel, self.image_shape[:-1])[tuple(places)], outside)

    @property
    def border(self) -> tuple[tuple[int, int], ...]:
        """((top, bottom), (left, right)): the cells around the image that the patches see."""
        return tuple((axis.before, max(axis.reach - axis.before - axis.length, 0)) for axis in self._axes)

    @functools.cached_property
    def mask(self) -> np.ndarray:
        """1.0 for the cells of patches that lie on the image, 0.0 for those outside."""
        return self.cell_values(np.ones(self.image_shape[:-1]))


class _Axis:
    """One axis of the geometry: `count` windows of `size` cells, `stride` apart, the first `before` cells outside."""

    def __init__(self, length: int, size: int, stride: int, padding: str, dilation: int = 1) -> None:
        if min(length, size, stride, dilation) < 1:
            raise ValueError(
                f"Sizes, kernels, strides and dilations are at least 1. Received: size={length}, kernel={size}, "
                f"strides={stride}, dilation={dilation}"
            )
        width = (size - 1) * dilation + 1
        if padding in ("same", "causal"):
            self.count = -(-length // stride)
            behind = max((self.count - 1) * stride + width - length, 0)
            self.before = width - 1 if padding == "causal" else behind // 2
        elif padding == "valid":
            if width > length:
                raise ValueError(
                    f"A kernel of size {width} does not fit an image side of {length} without padding. "
                    'Use a smaller kernel or padding="same".'
                )
            self.count, self.before = (length - width) // stride + 1, 0
        else:
            raise ValueError(f'padding must be "same", "valid" or "causal". Received: padding={padding!r}')
        self.length, self.size, self.stride, self.width, self.dilation = length, size, stride, width, dilation

    @property
    def reach(self) -> int:
        """Cells from the start of the first window to the end of the last."""
        return (self.count - 1) * self.stride + self.width

    @property
    def index(self) -> tuple[np.ndarray, np.ndarray]:
        """Tells for the cells of each window, (count, size), whether they are on the image, and where; else 0."""
        cells = np.arange(self.size) * self.dilation
        place = np.arange(self.count)[:, None] * self.stride + cells - self.before
        inside = (place >= 0) & (place < self.length)
        return inside, np.where(inside, place, 0)

    @property
    def coverage(self) -> np.ndarray:
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
    """Gives x, (n, *a), the leading axes of `original`, (..., *b), where a and b have as many axes."""
    if original.shape.rank == x.shape.rank:
        return x
    leading = original.shape[: original.shape.rank - x.shape.rank + 1]
    x = tf.reshape(x, tf.concat([tf.shape(original)[: len(leading)], x.shape[1:]], axis=0))
    return tf.ensure_shape(x, leading.concatenate(x.shape[len(leading) :]))
