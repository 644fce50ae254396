"""Dense layers and convolutions: their weights are those of a singular value decomposition."""

import math

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.layers.arguments import check_image, one_of, positive, sizes, whole, window_counts
from tfp_flowify.layers.base import Dropping, make_transform, register

ORTHOGONAL = ("auto", "expm", "cayley", "householder")

#: Up to this size "auto" takes the exponential; beyond it, so many reflections from a random start.
WIDE, REFLECTIONS = 128, 64

#: Of the entries of reflections at the start. Only directions count, so that it says how much a training step turns.
VECTOR_SCALE = 0.1


class Linear(Dropping):
    """The weights of a linear map W = V S U between vectors; `Dense` and the convolutions use it.

    A fresh one keeps lengths: its rotations are random and all its singular values are `gain`.

    Args:
      use_bias: whether to add a bias.
      orthogonal: how the rotations V and U are held: "expm", "cayley" or "householder", which reach every rotation, at
        a cost of n^3 a step; or "auto", which for more than 128 dimensions takes 64 reflections of a random rotation,
        at a cost of n^2.
      gain: the singular values at the start.
      noise: "normal" or "uniform", for the dimensions that it adds.
      noise_scale: scale of the noise at the start; it is trained.
      inverse, transform: the density of the dimensions that it drops, see `Dropping`.
      steps: in how many steps those leave, at most. With one they are independent given the output; with more, each
        step is given the output and the steps before, by a network of its own: better, and slower.

    >>> layer = Dense(2, gain=0.5)
    >>> layer(tf.ones([5, 3])).shape.as_list(), layer.kernel.shape.as_list()
    ([5, 2], [3, 2])
    """

    def __init__(self, use_bias=True, orthogonal="auto", gain=1.0, noise="normal", noise_scale=1.0, steps=1, **kwargs):
        super().__init__(**kwargs)
        self.steps = whole("steps", steps)
        if self.steps > 1 and isinstance(self.inverse, keras.layers.Layer):
            raise ValueError(f"A conditioner of one's own is for one step. Received: steps={steps}")
        self.use_bias = bool(use_bias)
        self.orthogonal = one_of("orthogonal", orthogonal, ORTHOGONAL)
        self.noise = one_of("noise", noise, ("normal", "uniform"))
        self.gain, self.noise_scale = positive("gain", gain), positive("noise_scale", noise_scale)

    def build_linear(self, features, units):
        start = keras.initializers.Constant(math.log(self.gain))
        self.right = self._add_rotation("right", features)
        self.log_singular = self.add_weight(name="log_singular", shape=[min(features, units)], initializer=start)
        self.left = self._add_rotation("left", units)
        self.bias = self.add_weight(name="bias", shape=[units], initializer="zeros") if self.use_bias else None

    def _add_rotation(self, name, size):
        kind = self.orthogonal
        if kind == "auto":
            kind = "expm" if size <= WIDE else "reflections"
        if kind == "householder":
            return fb.Householder(self._add_vectors(name, size, size))
        base = self.add_weight(name=f"{name}_base", shape=(size, size), initializer="orthogonal", trainable=False)
        if kind == "reflections":
            return fb.Householder(self._add_vectors(name, REFLECTIONS, size), base)
        if size == 1:
            return fb.Expm(tf.zeros([0], self.variable_dtype), base)
        skew = self.add_weight(name=f"{name}_skew", shape=[size * (size - 1) // 2], initializer="zeros")
        return {"expm": fb.Expm, "cayley": fb.Cayley}[kind](skew, base)

    def _add_vectors(self, name, count, size):
        start = keras.initializers.RandomNormal(stddev=VECTOR_SCALE)
        return self.add_weight(name=f"{name}_vectors", shape=(count, size), initializer=start)

    def make_linear(self, inverse):
        added = self.left.size - self.right.size
        scales = inverse.weight("log_noise_scale", [added], math.log(self.noise_scale)) if added > 0 else 0.0
        return fb.Linear(self.right, self.log_singular, self.left, self.bias, scales, self.noise)

    def with_density(self, linear, given, inverse, kind=None):
        """The linear layer with a density for what it drops at each place of its output, of the shape `given`."""
        if not linear.residuals:
            return linear
        (dropped,), units = linear.residuals[0].event_shape, given[-1]
        conditioners = []
        for size in fb.step_sizes(dropped, min(self.steps, dropped)):
            shape = (size,) if kind == "last" else (*given[:-1], size)
            conditioners.append(self.conditioner(inverse, (*given[:-1], units), shape, kind))
            units += size
        if conditioners[0] is None:
            return linear
        if len(conditioners) == 1:
            return fb.Funnel(linear, conditioners[0], make_transform(self.transform))
        return fb.Cascade(linear, conditioners, make_transform(self.transform))

    @property
    def kernel(self):
        """The weight matrix (features, units) of the ordinary layer, computed from the weights."""
        return tf.cast(fb.Linear(self.right, self.log_singular, self.left).kernel, self.compute_dtype)

    def add_bias(self, z):
        return z if self.bias is None else z + tf.cast(self.bias, z.dtype)


@register
class Dense(Linear):
    """z = x @ kernel + bias, on the last axis.

    In a flow, fewer units drop dimensions, with a density for them; more units add noise.

    Args:
      units: features that go out.
      use_bias, orthogonal, gain, noise, noise_scale: see `Linear`.
      inverse, transform: see `Dropping`.

    >>> Dense(2)(tf.ones([5, 3])).shape.as_list()
    [5, 2]
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = whole("units", units)

    def build(self, input_shape):
        self.build_linear(input_shape[-1], self.units)

    def call(self, x):
        return self.add_bias(keras.ops.matmul(x, self.kernel))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def make_bijector(self, shape, inverse):
        linear = self.with_density(self.make_linear(inverse), (*shape[:-1], self.units), inverse, kind="last")
        return fb.Sequential([linear], event_shape=shape)


class Conv(Linear):
    """What the convolutions share: `Linear` on every patch. Channels are last.

    Args:
      filters: channels that go out.
      kernel_size, strides: a number, or one for each side.
      padding: "valid" or "same".
    """

    ndims: int

    def __init__(self, filters, kernel_size, strides=1, padding="valid", **kwargs):
        super().__init__(**kwargs)
        self.filters, self.padding = whole("filters", filters), one_of("padding", padding, ("valid", "same"))
        self.kernel_size = sizes("kernel_size", kernel_size, self.ndims)
        self.strides = sizes("strides", strides, self.ndims)

    def build(self, input_shape):
        check_image(self.name, input_shape, self.ndims)
        self.build_linear(math.prod(self.kernel_size) * input_shape[-1], self.filters)

    @property
    def kernel(self):
        """The kernel (*kernel_size, channels, filters) of the ordinary layer, computed from the weights."""
        return tf.reshape(super().kernel, [*self.kernel_size, -1, self.filters])

    def call(self, x):
        z = keras.ops.conv(x, self.kernel, self.strides, self.padding, "channels_last")
        return self.add_bias(z)

    def compute_output_shape(self, input_shape):
        counts = window_counts(input_shape[1:-1], self.kernel_size, self.strides, self.padding)
        return (input_shape[0], *counts, self.filters)

    def make_bijector(self, shape, inverse):
        linear = self.with_density(self.make_linear(inverse), self.compute_output_shape((None, *shape))[1:], inverse)
        scale = math.log(self.noise_scale)
        arguments = {"padding": self.padding, "noise": self.noise}
        plain = self.convolve(shape, linear, **arguments)
        if plain.adds_border:
            arguments["log_pad_scale"] = inverse.weight("log_pad_scale", (), scale)
        if plain.repeats_pixels:
            arguments["log_noise_scale"] = inverse.weight("log_repetition_scale", (), scale)
        return self.with_density_of_unseen(self.convolve(shape, linear, **arguments), inverse)

    def convolve(self, shape, linear, **arguments):
        """The bijector for an image, or a sequence."""
        raise NotImplementedError(f"{type(self).__name__} must define convolve(shape, linear, **arguments).")


@register
class Conv2D(Conv):
    """A convolution of images (batch, height, width, channels).

    In a flow, pixels that several patches see are repeated with noise, `padding="same"` adds a border of noise, and
    each patch is a `Dense` layer that drops or adds dimensions.

    Args:
      filters, kernel_size, strides, padding: as for Keras' layer.
      use_bias, orthogonal, gain, noise, noise_scale: see `Linear`.
      inverse, transform: see `Dropping`. The conditioner takes the image that goes out.

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

    def conditioner(self, inverse, given, dropped, kind=None):
        """In the bijector, a sequence is an image of width one."""
        network = super().conditioner(inverse, given, dropped, kind)
        return network and _OverSequence(network)

    def convolve(self, shape, linear, **arguments):
        return fb.Conv1D(shape, linear, *self.kernel_size, *self.strides, **arguments)


class _OverSequence(tf.Module):
    """A conditioner of sequences as one of images of width one."""

    def __init__(self, conditioner):
        super().__init__()
        self.conditioner = conditioner

    def __call__(self, image):
        return tf.expand_dims(self.conditioner(tf.squeeze(image, axis=-2)), axis=-2)


@register
class FourierConv2D(Dropping):
    """A circular convolution through the Fourier transform, for as many filters as channels or fewer: exact.

    Args:
      filters: channels that go out.
      kernel_size: odd; of the kernels that generate the filter, see `tfp_flowify.bijectors.FourierConv2D`.
      use_bias: whether to add a bias.
      inverse, transform: see `Dropping`.

    >>> FourierConv2D(2)(tf.ones([5, 8, 8, 3])).shape.as_list()
    [5, 8, 8, 2]
    """

    def __init__(self, filters, kernel_size=3, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.kernel_size = whole("filters", filters), sizes("kernel_size", kernel_size, 2)
        self.use_bias = bool(use_bias)

    def build(self, input_shape):
        check_image(self.name, input_shape)
        image, channels = tuple(input_shape[1:]), input_shape[-1]
        if None in image:
            raise ValueError(f"{self.name} takes images of known size. Received: shape={tuple(input_shape)}")
        start = keras.initializers.RandomNormal(stddev=0.1)
        self.bijector = fb.FourierConv2D(
            image,
            self.add_weight(name="right", shape=(*self.kernel_size, channels, channels), initializer=start),
            self.add_weight(name="log_singular", shape=(*self.kernel_size, self.filters), initializer="zeros"),
            self.add_weight(name="left", shape=(*self.kernel_size, self.filters, self.filters), initializer=start),
            self.add_weight(name="bias", shape=[self.filters], initializer="zeros") if self.use_bias else None,
        )

    def call(self, x):
        return self.run(self.bijector, x)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.filters)

    def make_bijector(self, shape, inverse):
        return self.funnel(self.bijector, inverse)
