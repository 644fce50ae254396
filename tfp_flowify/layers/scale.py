"""Shifts and scales of each channel: `Rescaling` by given numbers, `Normalization` by those of the data."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.core.moments import standardization
from tfp_flowify.core.types import Examples, Shape, TensorLike
from tfp_flowify.layers.base import FlowLayer, register
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.rotations import constant


@register
class Rescaling(FlowLayer):
    """z = scale x + offset, with given numbers, which are not trained. Exact.

    Args:
      scale, offset: Numbers, or one for each channel.

    >>> Rescaling(2.0, offset=-1.0)(tf.constant([0.0, 1.0])).numpy().tolist()
    [-1.0, 1.0]
    """

    def __init__(
        self,
        scale: float | Sequence[float] | np.ndarray,
        offset: float | Sequence[float] | np.ndarray = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.scale, self.offset = (np.asarray(value, np.float64).tolist() for value in (scale, offset))
        if not np.all(self.scale) or not all(np.isfinite(value).all() for value in (self.scale, self.offset)):
            raise ValueError(f"Rescaling takes a scale other than zero. Received: scale={scale}, offset={offset}")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x * tf.constant(self.scale, x.dtype) + tf.constant(self.offset, x.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        scale, offset = np.broadcast_arrays(self.scale, self.offset)
        log_scale = tf.constant(np.log(np.abs(scale)), self.variable_dtype)
        return fb.bind(fb.Diagonal(log_scale, tf.constant(offset, self.variable_dtype), np.sign(scale)), shape)


@register
class Normalization(FlowLayer):
    """z = (x - mean) / deviation for each channel, with those of the data. Exact.

    `adapt(data)` measures them; `FlowModel.adapt` does so for all such layers, on what reaches them. They are not
    trained. Before that it is the identity.

    >>> layer = Normalization()
    >>> layer.adapt(tf.constant([[1.0, 10.0], [3.0, 30.0]]))
    >>> layer(tf.constant([[1.0, 10.0], [3.0, 30.0]])).numpy().round(3).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    fixed_arguments: ClassVar = {
        "axis": ((-1,), "each channel, on the last axis, has a mean and a deviation; put Permute in front"),
        "mean": ((None,), "call adapt(data), which measures it"),
        "variance": ((None,), "call adapt(data), which measures it"),
        "invert": ((False,), "a flow goes from data to unit scale, and inverts it to sample"),
    }

    def build(self, input_shape: Shape) -> None:
        channels = [input_shape[-1]]
        self.shift = self.add_weight(name="shift", shape=channels, initializer="zeros", trainable=False)
        self.log_scale = self.add_weight(name="log_scale", shape=channels, initializer="zeros", trainable=False)

    def adapt(self, data: Examples) -> None:
        """Measures mean and deviation of each channel over all examples and places, of an array or a dataset."""
        if isinstance(data, tf.data.Dataset):
            data = np.concatenate(list(data.as_numpy_iterator()))
        if not self.built:
            self.build(np.shape(data))
        shift, log_scale = standardization(data)
        self.shift.assign(shift)
        self.log_scale.assign(log_scale)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        scale = tf.exp(tf.convert_to_tensor(self.log_scale))
        return x * tf.cast(scale, x.dtype) + tf.cast(self.shift, x.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(fb.Diagonal(self.log_scale, self.shift), shape)


@register
class Affine(FlowLayer):
    """z = scale x + offset for each channel, with weights that are trained: what batch normalization is at inference.

    The sign of each scale is fixed. Exact.

    >>> Affine().start_at([2.0, -1.0], [0.0, 1.0])(tf.constant([[1.0, 1.0]])).numpy().tolist()
    [[2.0, 0.0]]
    """

    _start = None

    def start_at(self, scale: TensorLike, offset: TensorLike) -> Self:
        """Makes a layer that is not built yet start at given numbers, one or one for each channel; returns the layer.

        No scale may be zero.
        """
        self._start = (np.asarray(scale, np.float64), np.asarray(offset, np.float64))
        if not np.all(self._start[0]) or not all(np.isfinite(value).all() for value in self._start):
            raise ValueError(f"{self.name} takes finite numbers, and scales other than zero. Received: scale={scale}")
        return self

    def build(self, input_shape: Shape) -> None:
        channels, start = [input_shape[-1]], self._start or (1.0, 0.0)
        scale, offset = (np.broadcast_to(value, channels) for value in start)
        sizes = constant(np.log(np.abs(scale)))
        self.log_scale = self.add_weight(name="log_scale", shape=channels, initializer=sizes)
        self.offset = self.add_weight(name="offset", shape=channels, initializer=constant(offset))
        signs = constant(np.where(scale < 0, -1.0, 1.0))
        self.sign = self.add_weight(name="sign", shape=channels, initializer=signs, trainable=False)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        scale = tf.convert_to_tensor(self.sign) * tf.exp(tf.convert_to_tensor(self.log_scale))
        return x * tf.cast(scale, x.dtype) + tf.cast(self.offset, x.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(fb.Diagonal(self.log_scale, self.offset, self.sign), shape)
