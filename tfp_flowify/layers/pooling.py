"""Pooling, with a density for what a window loses."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.context import InContext
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import CHANNELS_LAST, check_image, one_of, positive, sizes, window_counts
from tfp_flowify.layers.base import Dropping, register
from tfp_flowify.layers.densities import Densities


class Pooling(Dropping):
    """The base of max and average pooling."""

    bijector: type
    ndims: int
    function: staticmethod
    fixed_arguments = CHANNELS_LAST

    def __init__(
        self,
        pool_size: int | Sequence[int] = 2,
        strides: int | Sequence[int] | None = None,
        padding: str = "valid",
        *args: Any,
        noise: str = "normal",
        noise_scale: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.pool_size = sizes("pool_size", pool_size, self.ndims)
        self.strides = self.pool_size if strides is None else sizes("strides", strides, self.ndims)
        self.padding = one_of("padding", padding, ("valid", "same"))
        self.noise = one_of("noise", noise, ("normal", "uniform"))
        self.noise_scale = positive("noise_scale", noise_scale)

    def build(self, input_shape: Shape) -> None:
        check_image(self.name, input_shape, self.ndims)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if self.ndims < 3:
            return self._pool(x, 0, self.ndims)
        # One side, then the two others: TensorFlow has no kernel for three in double precision.
        depth, height, width, channels = x.shape[1:]
        z = self._pool(keras.ops.reshape(x, (-1, depth, height * width * channels)), 0, 1)
        z = self._pool(keras.ops.reshape(z, (-1, height, width, channels)), 1, 3)
        return keras.ops.reshape(z, (-1, *self.compute_output_shape(x.shape)[1:]))

    def _pool(self, x, first, last):
        """Pools along some sides."""
        sides = slice(first, last)
        return self.function(x, self.pool_size[sides], self.strides[sides], self.padding, "channels_last")

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        check_image(self.name, input_shape, self.ndims)
        counts = window_counts(input_shape[1:-1], self.pool_size, self.strides, self.padding)
        return (input_shape[0], *counts, input_shape[-1])

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        arguments = {"padding": self.padding, "noise": self.noise, "dtype": self.variable_dtype}
        pool = self.bijector(shape, self.pool_size, self.strides, **arguments)
        unfold, *reduced = pool.bijectors
        if not reduced:  # Windows of one cell: some pixels are kept, and the others not seen.
            return self.with_density_of_unseen(pool, densities)
        (windows,) = reduced
        if unfold.noise:
            arguments["log_noise_scale"] = densities.add("log_noise_scale", (), math.log(self.noise_scale))
        *places, channels = image = windows.outputs[0]
        lost = math.prod(places) * (math.prod(self.pool_size) - 1)
        conditioner = self.conditioner(densities, image, (lost, channels), or_dropped=(len(windows.others), channels))
        if conditioner is not None:
            arguments["transform"] = self.make_transform()
            arguments["conditioner"] = conditioner if len(windows.others) == lost else _ForCells(conditioner, windows)
        pool = self.bijector(shape, self.pool_size, self.strides, **arguments)
        return self.with_density_of_unseen(pool, densities)


class _ForCells(InContext):
    """A conditioner for all cells of all windows, of which only those on the image count."""

    def __init__(self, conditioner, windows):
        super().__init__()
        self.conditioner, self.cells, self.total = conditioner, windows.others, windows.valid[:, 1:].size
        self.channels = windows.outputs[0][-1]

    def __call__(self, z, context):
        parameters = context.run(self.conditioner, z)
        numbers = math.prod(parameters.shape[1:])
        if numbers % (self.total * self.channels):
            return parameters  # One's own conditioner may give those that count alone.
        return tf.gather(tf.reshape(parameters, [-1, self.total, numbers // self.total]), self.cells, axis=1)

    def spread(self, dropped):
        """Values (n, cells that count, channels) in their places among all, with NaN for the others."""
        places = np.full([len(dropped), self.total, self.channels], np.nan)
        places[:, self.cells] = dropped
        return places


class MaxPooling(Pooling):
    """The maximum of each window. In a flow it drops the gaps below it, and where it was. Exact without overlap."""

    bijector, odd, function = fb.MaxPool, True, staticmethod(keras.ops.max_pool)


class AveragePooling(Pooling):
    """The mean of each window. In a flow it drops the differences. Exact without overlap."""

    bijector, function = fb.AveragePool, staticmethod(keras.ops.average_pool)


@register
class MaxPooling2D(MaxPooling):
    """The maximum of each window. In a flow it drops the gaps below it, and where it was. Exact without overlap.

    Args:
      pool_size, strides, padding: As in Keras.
      noise, noise_scale: Where windows overlap, their pixels are repeated with this noise.
      **kwargs: See `Dropping`.

    >>> MaxPooling2D()(tf.ones([5, 4, 4, 1])).shape.as_list()
    [5, 2, 2, 1]
    """

    ndims = 2


@register
class MaxPooling1D(MaxPooling):
    """`MaxPooling2D` for sequences.

    >>> MaxPooling1D()(tf.ones([5, 4, 1])).shape.as_list()
    [5, 2, 1]
    """

    ndims = 1


@register
class MaxPooling3D(MaxPooling):
    """`MaxPooling2D` for volumes.

    >>> MaxPooling3D()(tf.ones([5, 4, 4, 4, 1])).shape.as_list()
    [5, 2, 2, 2, 1]
    """

    ndims = 3


@register
class AveragePooling2D(AveragePooling):
    """The mean of each window. In a flow it drops the differences. Exact without overlap. Arguments as `MaxPooling2D`.

    >>> AveragePooling2D()(tf.ones([5, 4, 4, 1])).shape.as_list()
    [5, 2, 2, 1]
    """

    ndims = 2


@register
class AveragePooling1D(AveragePooling):
    """`AveragePooling2D` for sequences.

    >>> AveragePooling1D()(tf.ones([5, 4, 1])).shape.as_list()
    [5, 2, 1]
    """

    ndims = 1


@register
class AveragePooling3D(AveragePooling):
    """`AveragePooling2D` for volumes.

    >>> AveragePooling3D()(tf.ones([5, 4, 4, 4, 1])).shape.as_list()
    [5, 2, 2, 2, 1]
    """

    ndims = 3


@register
class GlobalAveragePooling(Dropping):
    """The mean over all places, whatever the number of sides. In a flow it drops the differences. Exact.

    >>> GlobalAveragePooling()(tf.ones([5, 4, 4, 3])).shape.as_list()
    [5, 3]
    """

    fixed_arguments: ClassVar = {**CHANNELS_LAST, "keepdims": ((False,), "put Reshape((1, 1, channels)) behind it")}

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.mean(x, axis=tuple(range(1, len(x.shape) - 1)))

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (input_shape[0], input_shape[-1])

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return self.funnel(fb.GlobalAveragePool(shape, self.variable_dtype), densities)


@register
class GlobalAveragePooling2D(GlobalAveragePooling):
    """`GlobalAveragePooling` for images.

    >>> GlobalAveragePooling2D()(tf.ones([5, 4, 4, 3])).shape.as_list()
    [5, 3]
    """

    def build(self, input_shape: Shape) -> None:
        check_image(self.name, input_shape)
