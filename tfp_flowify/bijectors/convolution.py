"""Convolutions: a linear layer on every patch, behind padding and unfolding."""

import math
import numbers

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.base import check_layer
from tfp_flowify.bijectors.graph import Sequential
from tfp_flowify.bijectors.linear import Linear
from tfp_flowify.bijectors.padding import Pad
from tfp_flowify.bijectors.unfold import Unfold
from tfp_flowify.math.patches import Patches

tfb = tfp.bijectors


class Conv2D(Sequential):
    """A convolution: `Pad`, `Unfold`, then the same linear layer on every patch.

        forward: [x, *noise] -> [z, *residuals],  log_det = the sum of the three.

    With noise zero it is the Keras layer with the same kernel, strides and padding. Exact where no patches overlap, no
    border is added and the linear layer adds no units; else a bound.
    Shapes: (..., h, w, c) -> (..., rows, columns, filters), beside noise and residuals.

    Args:
      image_shape: (h, w, c).
      linear: A bijector (kernel * c,) -> (filters,): `Linear`, or `Funnel` of one.
      kernel_size, strides: A number or a pair.
      padding: "valid" or "same".
      log_noise_scale: log a of the repetition, a scalar.
      log_pad_scale: log a of the border, a scalar.
      noise: "normal" or "uniform".

    >>> conv = Conv2D((4, 4, 1), Linear.create(4, 2, seed=0), kernel_size=2, strides=2)
    >>> [tuple(part.shape) for part in conv.forward(tf.ones([5, 4, 4, 1]))]
    [(5, 2, 2, 2), (5, 2, 2, 2)]
    """

    def __init__(
        self,
        image_shape,
        linear,
        kernel_size,
        strides=1,
        padding="valid",
        log_noise_scale=0.0,
        log_pad_scale=0.0,
        noise="normal",
        name=None,
    ):
        check_layer(linear, "Conv2D")
        self.linear, self.kernel_size, dtype = linear, pair(kernel_size), linear.dtype
        wanted = math.prod(self.kernel_size) * image_shape[-1]
        if linear.inputs[0] != (wanted,):
            raise ValueError(
                f"The linear layer of a convolution with kernel_size={self.kernel_size} over {image_shape[-1]} "
                f"channels takes {wanted} features. Received: {linear.inputs[0]}"
            )
        patches = Patches(image_shape, self.kernel_size, pair(strides), padding)
        border = patches.border
        layers = []
        if any(sum(sides) for sides in border):
            layers.append(Pad(image_shape, border, log_pad_scale, noise, dtype))
            patches = Patches(layers[0].outputs[0], self.kernel_size, pair(strides))
        layers.append(Unfold(patches, log_noise_scale, noise, dtype))
        super().__init__([*layers, linear], name=name)

    @classmethod
    def from_weights(cls, image_shape, kernel, bias=None, orthogonal_kind="expm", noise="normal", dtype=None, **kwargs):
        """Takes over an ordinary layer: kernel (rows, columns, channels, filters) as in Keras, bias (filters,).

        The parameters become trainable variables that start there exactly; the scales of the noise start at one.
        """
        kernel = np.asarray(kernel)
        linear = Linear.from_weights(kernel.reshape(-1, kernel.shape[-1]), bias, orthogonal_kind, noise, dtype=dtype)
        return cls(image_shape, linear, kernel.shape[:2], noise=noise, **{**_free_scales(linear.dtype), **kwargs})

    @property
    def adds_border(self) -> bool:
        """Whether padding adds noise, of scale `log_pad_scale`."""
        return any(isinstance(bijector, Pad) for bijector in self.bijectors)

    @property
    def unseen(self) -> int:
        """The number of pixels that no patch sees: they are the first residual."""
        return sum(len(b.patches.uncovered) for b in self.bijectors if isinstance(b, Unfold))

    @property
    def repeats_pixels(self) -> bool:
        """Whether patches overlap, so that there is noise of scale `log_noise_scale`."""
        return any(isinstance(bijector, Unfold) and bijector.noise for bijector in self.bijectors)

    @property
    def kernel(self):
        """The kernel of the ordinary layer, (rows, columns, channels, filters)."""
        matrix = getattr(self.linear, "layer", self.linear).kernel
        return tf.reshape(matrix, [*self.kernel_size, -1, matrix.shape[-1]])

    @property
    def bias(self):
        """The bias of the ordinary layer, (filters,), or None."""
        return getattr(self.linear, "layer", self.linear).bias


class OverSequence(Sequential):
    """A layer for images as one for sequences: (..., length, channels) is an image of width one.

    >>> conv = OverSequence(Conv2D((6, 1, 1), Linear.create(2, 2, seed=0), kernel_size=(2, 1), strides=(2, 1)))
    >>> conv.without_noise(tf.ones([5, 6, 1])).shape.as_list()
    [5, 3, 2]
    """

    def __init__(self, layer, name=None):
        self.layer = layer
        (length, _, channels), (length_out, _, filters) = image, image_out = layer.inputs[0], layer.outputs[0]
        super().__init__(
            [tfb.Reshape(image, (length, channels)), layer, tfb.Reshape((length_out, filters), image_out)],
            event_shape=(length, channels),
            name=name or layer.name,
        )


class Conv1D(OverSequence):
    """A convolution over sequences (..., length, channels): `Conv2D` on an image of width one.

    Args:
      sequence_shape: (length, channels).
      linear: A bijector (kernel_size * channels,) -> (filters,).
      kernel_size, strides: Numbers.
      **kwargs: See `Conv2D`.

    >>> conv = Conv1D((6, 1), Linear.create(2, 2, seed=0), kernel_size=2, strides=2)
    >>> conv.without_noise(tf.ones([5, 6, 1])).shape.as_list()
    [5, 3, 2]
    """

    def __init__(self, sequence_shape, linear, kernel_size, strides=1, name=None, **kwargs):
        length, channels = sequence_shape
        super().__init__(Conv2D((length, 1, channels), linear, (kernel_size, 1), (strides, 1), **kwargs), name=name)
        self.adds_border, self.repeats_pixels = self.layer.adds_border, self.layer.repeats_pixels
        self.unseen = self.layer.unseen

    @classmethod
    def from_weights(
        cls, sequence_shape, kernel, bias=None, orthogonal_kind="expm", noise="normal", dtype=None, **kwargs
    ):
        """Takes over an ordinary layer: kernel (size, channels, filters) as in Keras, bias (filters,)."""
        kernel = np.asarray(kernel)
        linear = Linear.from_weights(kernel.reshape(-1, kernel.shape[-1]), bias, orthogonal_kind, noise, dtype=dtype)
        return cls(sequence_shape, linear, kernel.shape[0], noise=noise, **{**_free_scales(linear.dtype), **kwargs})

    @property
    def kernel(self):
        """The kernel of the ordinary layer, (size, channels, filters)."""
        return tf.squeeze(self.layer.kernel, axis=1)

    @property
    def bias(self):
        """The bias of the ordinary layer, (filters,), or None."""
        return self.layer.bias


def _free_scales(dtype):
    return {name: tf.Variable(0.0, dtype=dtype, name=name) for name in ("log_noise_scale", "log_pad_scale")}


def pair(value):
    """A number or a pair of numbers as a pair."""
    return (int(value),) * 2 if isinstance(value, numbers.Integral) else tuple(value)
