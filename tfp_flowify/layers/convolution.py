"""Convolutions: a linear layer on every patch, or a filter through the Fourier transform."""

import math
from typing import ClassVar

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.context import InContext
from tfp_flowify.core.checks import whole_number
from tfp_flowify.layers.arguments import CHANNELS_LAST, check_image, one_of, sizes, window_counts
from tfp_flowify.layers.base import Dropping, register
from tfp_flowify.layers.linear import Linear


class Conv(Linear):
    """The base of the convolutions: `Linear` on every patch. Channels are last.

    Args:
      filters: Number of channels that go out.
      kernel_size, strides: A number, or one for each side.
      padding: "valid" or "same".
    """

    ndims: int

    fixed_arguments: ClassVar = {
        **Linear.fixed_arguments,
        **CHANNELS_LAST,
        "dilation_rate": ((1, (1,), (1, 1), [1], [1, 1]), "patches have no gaps; Stochastic(layer) takes any layer"),
        "groups": ((1,), "a patch is one vector; Stochastic(layer) takes any layer"),
    }

    def __init__(self, filters, kernel_size, strides=1, padding="valid", **kwargs):
        super().__init__(**kwargs)
        self.filters, self.padding = whole_number("filters", filters), one_of("padding", padding, ("valid", "same"))
        self.kernel_size = sizes("kernel_size", kernel_size, self.ndims)
        self.strides = sizes("strides", strides, self.ndims)

    def build(self, input_shape):
        check_image(self.name, input_shape, self.ndims)
        self.build_linear((*self.kernel_size, input_shape[-1], self.filters))
        self.build_activation(input_shape)

    @property
    def kernel(self):
        """The kernel (*kernel_size, channels, filters) of the ordinary layer, computed from the weights."""
        return tf.reshape(super().kernel, [*self.kernel_size, -1, self.filters])

    def call(self, x):
        z = keras.ops.conv(x, self.kernel, self.strides, self.padding, "channels_last")
        return self.activate(self.add_bias(z))

    def compute_output_shape(self, input_shape):
        counts = window_counts(input_shape[1:-1], self.kernel_size, self.strides, self.padding)
        return (input_shape[0], *counts, self.filters)

    def make_bijector(self, shape, densities):
        given = self.compute_output_shape((None, *shape))[1:]
        linear = self.with_density(self.make_linear(densities), given, densities)
        scale = math.log(self.noise_scale)
        arguments = {"padding": self.padding, "noise": self.noise}
        plain = self.convolve(shape, linear, **arguments)
        if plain.adds_border:
            arguments["log_pad_scale"] = densities.add("log_pad_scale", (), scale)
        if plain.repeats_pixels:
            arguments["log_noise_scale"] = densities.add("log_repetition_scale", (), scale)
        convolution = self.with_density_of_unseen(self.convolve(shape, linear, **arguments), densities)
        return self.with_activation(convolution, densities)

    def convolve(self, shape, linear, **arguments):
        """The bijector for an image, or a sequence."""
        raise NotImplementedError(f"{type(self).__name__} must define convolve(shape, linear, **arguments).")


@register
class Conv2D(Conv):
    """A convolution of images (batch, height, width, channels).

    In a flow, pixels that several patches see are repeated with noise, `padding="same"` adds a border of noise, and
    each patch is a `Dense` layer that drops or adds dimensions.

    Args:
      filters, kernel_size, strides, padding: As in Keras.
      **kwargs: See `Linear` and `Dropping`. The network of a density takes the image that goes out.

    >>> Conv2D(4, kernel_size=2, strides=2)(tf.ones([5, 8, 8, 1])).shape.as_list()
    [5, 4, 4, 4]
    """

    ndims = 2

    def convolve(self, shape, linear, **arguments):
        return fb.Conv2D(shape, linear, self.kernel_size, self.strides, **arguments)


@register
class Conv1D(Conv):
    """A convolution of sequences (batch, length, channels). Arguments as for `Conv2D`.

    >>> Conv1D(3, kernel_size=2, strides=2)(tf.ones([5, 8, 1])).shape.as_list()
    [5, 4, 3]
    """

    ndims = 1

    def conditioner(self, densities, given, dropped, kind=None, or_dropped=None):
        """In the bijector, a sequence is an image of width one."""
        network = super().conditioner(densities, given, dropped, kind, or_dropped)
        return network and _OverSequence(network)

    def convolve(self, shape, linear, **arguments):
        return fb.Conv1D(shape, linear, *self.kernel_size, *self.strides, **arguments)


class _OverSequence(InContext):
    """A conditioner of sequences as one of images of width one."""

    def __init__(self, conditioner):
        super().__init__()
        self.conditioner = conditioner

    def __call__(self, image, context):
        return tf.expand_dims(context.run(self.conditioner, tf.squeeze(image, axis=-2)), axis=-2)


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

    def __init__(self, filters, kernel_size=3, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.kernel_size = whole_number("filters", filters), sizes("kernel_size", kernel_size, 2)
        self.use_bias = bool(use_bias)

    def build(self, input_shape):
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

    def call(self, x):
        return self.run(self.bijector, x)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.filters)

    def make_bijector(self, shape, densities):
        return self.funnel(self.bijector, densities)
