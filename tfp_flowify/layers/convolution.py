"""Convolutions: a linear layer on every patch, or a filter through the Fourier transform."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import CHANNELS_LAST, check_image, one_of, sizes, window_counts
from tfp_flowify.layers.base import Dropping, register
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.linear import Linear


class Conv(Linear):
    """The base of the convolutions: `Linear` on every patch. Channels are last.

    Args:
      filters: Number of channels that go out.
      kernel_size, strides: A number, or one for each side.
      padding: "valid", "same", or for sequences "causal".
      dilation_rate: Distance between neighbouring cells of a patch: a number, or one for each side.
      groups: Number of groups of channels, each of which gives its share of the filters from its own channels.
    """

    ndims: int

    fixed_arguments: ClassVar = {
        **Linear.fixed_arguments,
        **CHANNELS_LAST,
    }

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        *,
        dilation_rate: int | Sequence[int] = 1,
        groups: int = 1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.groups = whole_number("groups", groups)
        if self.groups > 1 and (self.stages > 1 or self.kernel_initializer is not None):
            raise ValueError("A convolution of groups takes stages=1 and no kernel_initializer.")
        self.filters = whole_number("filters", filters)
        self.padding = one_of("padding", padding, ("valid", "same", "causal")[: 3 if self.ndims == 1 else 2])
        self.kernel_size = sizes("kernel_size", kernel_size, self.ndims)
        self.strides = sizes("strides", strides, self.ndims)
        self.dilation_rate = sizes("dilation_rate", dilation_rate, self.ndims)

    def build(self, input_shape: Shape) -> None:
        check_image(self.name, input_shape, self.ndims)
        channels = input_shape[-1]
        if channels % self.groups or self.filters % self.groups:
            raise ValueError(
                f"{self.name} has {self.groups} groups of channels, and takes and gives a multiple of that. "
                f"Received: {channels} channels, filters={self.filters}"
            )
        self.build_linear((*self.kernel_size, channels // self.groups, self.filters))
        self.build_activation(input_shape)

    @property
    def kernel(self) -> tf.Tensor:
        """The kernel (*kernel_size, channels / groups, filters) of the ordinary layer, computed from the weights."""
        kernel = super().kernel
        if self.groups > 1:
            kernel = tf.transpose(kernel, [1, 0, 2])  # (features, groups, units)
        return tf.reshape(kernel, [*self.kernel_size, -1, self.filters])

    def _linear(self, *arguments):
        if self.groups == 1:
            return super()._linear(*arguments)
        cells = math.prod(self.kernel_size)
        return fb.GroupedLinear(cells, self.right, self.log_singular, self.left, *arguments)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        padding = self.padding
        if padding == "causal":
            before, padding = (self.kernel_size[0] - 1) * self.dilation_rate[0], "valid"
            x = keras.ops.pad(x, ((0, 0), (before, 0), (0, 0)))
        # Keras finds the groups by the channels of the kernel.
        z = keras.ops.conv(x, self.kernel, self.strides, padding, "channels_last", self.dilation_rate)
        return self.activate(self.add_bias(z))

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        counts = window_counts(input_shape[1:-1], self.kernel_size, self.strides, self.padding, self.dilation_rate)
        return (input_shape[0], *counts, self.filters)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        given = self.compute_output_shape((None, *shape))[1:]
        linear = self.with_density(self.make_linear(densities), given, densities)
        return self.with_activation(self.convolve(shape, linear, densities), densities)

    def convolve(self, shape: Shape, linear: fb.FlowBijector, densities: Densities) -> fb.FlowBijector:
        """The linear bijector on every patch of an image."""
        arguments = {"padding": self.padding, "noise": self.noise, "dilation": self.dilation_rate}
        plain, scale = fb.Conv(shape, linear, self.kernel_size, self.strides, **arguments), math.log(self.noise_scale)
        if plain.adds_border:
            arguments["log_pad_scale"] = densities.add("log_pad_scale", (), scale)
        if plain.repeats_pixels:
            arguments["log_noise_scale"] = densities.add("log_repetition_scale", (), scale)
        conv = fb.Conv(shape, linear, self.kernel_size, self.strides, **arguments)
        return self.with_density_of_unseen(conv, densities)


@register
class Conv2D(Conv):
    """A convolution of images (batch, height, width, channels).

    In a flow, pixels that several patches see are repeated with noise, `padding="same"` adds a border of noise, and
    each patch is a `Dense` layer that drops or adds dimensions.

    Args:
      filters, kernel_size, strides, padding, dilation_rate: As in Keras.
      **kwargs: See `Linear` and `Dropping`. The network of a density takes the image that goes out.

    >>> Conv2D(4, kernel_size=2, strides=2)(tf.ones([5, 8, 8, 1])).shape.as_list()
    [5, 4, 4, 4]
    """

    ndims = 2


@register
class Conv1D(Conv):
    """A convolution of sequences (batch, length, channels). Arguments as for `Conv2D`.

    >>> Conv1D(3, kernel_size=2, strides=2)(tf.ones([5, 8, 1])).shape.as_list()
    [5, 4, 3]
    """

    ndims = 1


@register
class Conv3D(Conv):
    """A convolution of volumes (batch, depth, height, width, channels). Arguments as for `Conv2D`.

    >>> Conv3D(3, kernel_size=2, strides=2)(tf.ones([5, 4, 4, 4, 1])).shape.as_list()
    [5, 2, 2, 2, 3]
    """

    ndims = 3


class DepthwiseConv(Conv):
    """The base of depthwise convolutions: each channel is a group of its own."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        *,
        dilation_rate: int | Sequence[int] = 1,
        **kwargs: Any,
    ):
        super().__init__(1, kernel_size, strides, padding, dilation_rate=dilation_rate, **kwargs)
        self.depth_multiplier = whole_number("depth_multiplier", depth_multiplier)

    @classmethod
    def _argument_names(cls):
        return [name for name in super()._argument_names() if name not in ("filters", "groups")]

    def build(self, input_shape: Shape) -> None:
        self.groups = input_shape[-1]
        self.filters = self.depth_multiplier * self.groups
        super().build(input_shape)

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (*super().compute_output_shape(input_shape)[:-1], self.depth_multiplier * input_shape[-1])


@register
class DepthwiseConv2D(DepthwiseConv):
    """A convolution of each channel by itself.

    Args:
      kernel_size, strides, padding, depth_multiplier, dilation_rate: As in Keras; the kernel is that of a convolution
        with as many groups as channels.
      **kwargs: See `Linear` and `Dropping`.

    >>> DepthwiseConv2D(3)(tf.ones([5, 8, 8, 2])).shape.as_list()
    [5, 6, 6, 2]
    """

    ndims = 2


@register
class DepthwiseConv1D(DepthwiseConv):
    """`DepthwiseConv2D` for sequences.

    >>> DepthwiseConv1D(3)(tf.ones([5, 8, 2])).shape.as_list()
    [5, 6, 2]
    """

    ndims = 1


@register
class FourierConv2D(Dropping):
    """A circular convolution through the Fourier transform, for as many filters as channels or fewer: exact.

    Args:
      filters: Number of channels that go out.
      kernel_size: Odd; of the kernels that generate the filter, see `tfp_flowify.bijectors.FourierConv2D`.
      use_bias: Whether to add a bias.
      **kwargs: See `Dropping`.

    >>> FourierConv2D(2)(tf.ones([5, 8, 8, 3])).shape.as_list()
    [5, 8, 8, 2]
    """

    def __init__(self, filters: int, kernel_size: int | Sequence[int] = 3, use_bias: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.filters, self.kernel_size = whole_number("filters", filters), sizes("kernel_size", kernel_size, 2)
        self.use_bias = bool(use_bias)

    def build(self, input_shape: Shape) -> None:
        check_image(self.name, input_shape)
        image, channels = tuple(input_shape[1:]), input_shape[-1]
        if None in image:
            raise ValueError(f"{self.name} takes images of known size. Received: shape={tuple(input_shape)}")
        start = keras.initializers.RandomNormal(stddev=0.1)
        self.right = self.add_weight(name="right", shape=(*self.kernel_size, channels, channels), initializer=start)
        self.log_singular = self.add_weight(
            name="log_singular", shape=(*self.kernel_size, self.filters), initializer="zeros"
        )
        self.left = self.add_weight(
            name="left", shape=(*self.kernel_size, self.filters, self.filters), initializer=start
        )
        self.bias = self.add_weight(name="bias", shape=[self.filters], initializer="zeros") if self.use_bias else None
        self.bijector = fb.FourierConv2D(image, self.right, self.log_singular, self.left, self.bias)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.run(self.bijector, x)

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (*input_shape[:-1], self.filters)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return self.funnel(self.bijector, densities)
