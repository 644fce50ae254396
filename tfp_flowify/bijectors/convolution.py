"""Convolutions: a linear layer on every patch, behind padding and unfolding."""

import math

import numpy as np
import tensorflow as tf

from tfp_flowify.bijectors.base import FlowBijector, parameter
from tfp_flowify.bijectors.graph import Sequential
from tfp_flowify.bijectors.linear import Linear
from tfp_flowify.bijectors.parts import Reshape
from tfp_flowify.distributions.augmentation import StandardNormal, orthogonal_noise, standard_noise
from tfp_flowify.patches import Patches


class Pad(FlowBijector):
    """Puts a border of noise around an image.

        forward: [x, noise] -> z,  z = x inside, a noise on the border;  log_det = (border entries) log a.
        inverse: crop.

    Shapes: [(..., h, w, c), (..., border pixels, c)] -> (..., top + h + bottom, left + w + right, c).
    Mirror of `Crop`.

    Args:
      image_shape: (h, w, c).
      padding: ((top, bottom), (left, right)).
      log_noise_scale: log a, a scalar.
      noise: "normal" or "uniform".

    >>> pad = Pad((1, 1, 1), ((0, 0), (1, 1)))
    >>> pad.network(tf.ones([1, 1, 1])).numpy().flatten().tolist()
    [0.0, 1.0, 0.0]
    """

    def __init__(self, image_shape, padding, log_noise_scale=0.0, noise="normal", dtype=tf.float32, name=None):
        self.log_noise_scale = parameter(log_noise_scale, "Pad log_noise_scale", (), dtype)
        self.frame = _Frame(image_shape, padding)
        super().__init__(
            inputs=[image_shape],
            outputs=[self.frame.outer],
            noise=[standard_noise(noise, self.frame.border, self.log_noise_scale.dtype)],
            dtype=self.log_noise_scale.dtype,
            name=name,
        )

    def forward_and_log_det(self, x):
        image, noise = x
        log_scale = tf.convert_to_tensor(self.log_noise_scale)
        return self.frame.join(image, noise * tf.exp(log_scale)), math.prod(self.frame.border) * log_scale

    def inverse_and_log_det(self, z):
        image, border = self.frame.cut(z)
        log_scale = tf.convert_to_tensor(self.log_noise_scale)
        return [image, border * tf.exp(-log_scale)], -math.prod(self.frame.border) * log_scale


class Crop(FlowBijector):
    """Drops the border of an image.

        forward: x -> [inside, border],  log_det = 0.

    Shapes: (..., h, w, c) -> [(..., h - top - bottom, w - left - right, c), (..., border pixels, c)].
    Mirror of `Pad`.
    """

    def __init__(self, image_shape, cropping, dtype=tf.float32, name=None):
        (top, bottom), (left, right) = cropping
        height, width, channels = image_shape
        inner = (height - top - bottom, width - left - right, channels)
        if min(inner) < 1:
            raise ValueError(f"Crop must leave an image. Received: image_shape={image_shape}, cropping={cropping}")
        self.frame = _Frame(inner, cropping)
        super().__init__(
            inputs=[image_shape],
            outputs=[inner],
            residuals=[StandardNormal(self.frame.border, dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, x):
        return self.frame.cut(x), tf.zeros([], x.dtype)

    def inverse_and_log_det(self, z):
        return self.frame.join(*z), tf.zeros([], z[0].dtype)


class Unfold(FlowBijector):
    """Repeats every pixel in all the patches that see it, with noise orthogonal to the repetition.

    A pixel in N patches becomes N copies, and the noise, patch-shaped, sums to zero over them:

        forward: [x, noise] -> z = extract(x) + sqrt(N) a noise
        inverse: x = overlap_mean(z), the rest is the noise
        log_det = sum over pixels with N > 0 and channels of (N / 2) log N + (N - 1) log a

    There is no noise part where no patches overlap. Pixels that no patch sees (N = 0) are a residual part.
    Shapes: [(..., h, w, c), (..., rows, columns, kernel * c)] -> [(..., rows, columns, kernel * c), (..., unseen, c)].
    Mate et al. 2022, section 3.2.

    Args:
      patches: the geometry.
      log_noise_scale: log a, a scalar.
      noise: "normal", or "uniform" on the ball as in the paper's appendix.

    >>> unfold = Unfold(Patches((3, 1, 1), kernel_size=(2, 1), strides=(1, 1)))
    >>> unfold.network(tf.reshape([1.0, 2.0, 3.0], [3, 1, 1])).numpy().tolist()
    [[[1.0, 2.0]], [[2.0, 3.0]]]
    """

    def __init__(self, patches: Patches, log_noise_scale=0.0, noise="normal", dtype=tf.float32, name=None):
        self.patches = patches
        scale = parameter(log_noise_scale, "Unfold log_noise_scale", (), dtype)
        dtype = tf.as_dtype(scale.dtype)
        self.log_noise_scale = scale if patches.noise_dimension else tf.zeros([], dtype)
        unseen = (len(patches.uncovered), patches.channels)
        counts = patches.overlap_counts[patches.overlap_counts > 0]
        self._repetition_log_det = patches.channels * 0.5 * float((counts * np.log(counts)).sum())
        self._root_counts = patches.cell_values(np.sqrt(patches.overlap_counts), outside=1).astype(dtype.as_numpy_dtype)
        super().__init__(
            inputs=[patches.image_shape],
            outputs=[patches.shape],
            noise=[orthogonal_noise(noise, patches, dtype)] if patches.noise_dimension else [],
            residuals=[StandardNormal(unseen, dtype)] if unseen[0] else [],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, x):
        image = x[0] if self.noise else x
        z = self.patches.extract(image)
        if self.noise:
            z += self._noise_factor() * x[1]
        return [z, self._unseen(image)] if self.residuals else z, self._log_det()

    def inverse_and_log_det(self, z):
        copies = z[0] if self.residuals else z
        seen = self.patches.overlap_mean(copies)
        image = self._put_unseen(seen, z[1]) if self.residuals else seen
        if not self.noise:
            return image, -self._log_det()
        return [image, (copies - self.patches.extract(seen)) / self._noise_factor()], -self._log_det()

    def _noise_factor(self):
        return self._root_counts * tf.exp(tf.convert_to_tensor(self.log_noise_scale))

    def _log_det(self):
        return self._repetition_log_det + self.patches.noise_dimension * tf.convert_to_tensor(self.log_noise_scale)

    def _unseen(self, image):
        return tf.gather(_pixels(image), self.patches.uncovered, axis=-2)

    def _put_unseen(self, seen, unseen):
        """Takes each pixel from one of the two, by a fixed permutation."""
        pixels = tf.concat([_pixels(seen), unseen], axis=-2)
        source = np.arange(self.patches.overlap_counts.size)
        source[self.patches.uncovered] = source.size + np.arange(len(self.patches.uncovered))
        return tf.reshape(tf.gather(pixels, source, axis=-2), tf.shape(seen))


class Conv2D(Sequential):
    """A convolution: `Pad`, `Unfold`, then the same linear layer on every patch.

        forward: [x, *noise] -> [z, *residuals],  log_det = the sum of the three.

    With noise zero it is the Keras layer with the same kernel, strides and padding. Exact where no patches overlap, no
    border is added and the linear layer adds no units; else a bound.
    Shapes: (..., h, w, c) -> (..., rows, columns, filters), beside noise and residuals.

    Args:
      image_shape: (h, w, c).
      linear: a bijector (kernel * c,) -> (filters,): `Linear`, or `Funnel` of one.
      kernel_size, strides: a number or a pair.
      padding: "valid" or "same".
      log_noise_scale: log a of the repetition, a scalar; log_pad_scale: that of the border.
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
        self.linear, self.kernel_size, dtype = linear, pair(kernel_size), linear.dtype
        wanted = math.prod(self.kernel_size) * image_shape[-1]
        if linear.inputs[0] != (wanted,):
            raise ValueError(
                f"The linear layer of a convolution with kernel_size={self.kernel_size} over {image_shape[-1]} channels "
                f"takes {wanted} features. Received: {linear.inputs[0]}"
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
        """Takes over an ordinary layer: kernel (rows, columns, channels, filters) as in Keras, bias (filters,)."""
        kernel = np.asarray(kernel)
        matrix = kernel.reshape(-1, kernel.shape[-1])
        linear = Linear.from_weights(matrix, bias, orthogonal_kind, noise, dtype=dtype)
        return cls(image_shape, linear, kernel.shape[:2], noise=noise, **kwargs)

    @property
    def kernel(self):
        """The kernel of the ordinary layer, (rows, columns, channels, filters)."""
        matrix = getattr(self.linear, "layer", self.linear).kernel
        return tf.reshape(matrix, [*self.kernel_size, -1, matrix.shape[-1]])


class OverSequence(Sequential):
    """A layer for images as one for sequences: (..., length, channels) is an image of width one.

    >>> conv = OverSequence(Conv2D((6, 1, 1), Linear.create(2, 2, seed=0), kernel_size=(2, 1), strides=(2, 1)))
    >>> conv.network(tf.ones([5, 6, 1])).shape.as_list()
    [5, 3, 2]
    """

    def __init__(self, layer, name=None):
        self.layer = layer
        (length, _, channels), (steps, _, filters) = layer.inputs[0], layer.outputs[0]
        super().__init__(
            [Reshape((length, channels), (length, 1, channels)), layer, Reshape((steps, 1, filters), (steps, filters))],
            event_shape=(length, channels),
            name=name or layer.name,
        )


class Conv1D(OverSequence):
    """A convolution over sequences (..., length, channels): `Conv2D` on an image of width one.

    Args:
      sequence_shape: (length, channels).
      linear: a bijector (kernel_size * channels,) -> (filters,).
      kernel_size, strides: numbers. The rest as for `Conv2D`.

    >>> Conv1D((6, 1), Linear.create(2, 2, seed=0), kernel_size=2, strides=2).network(tf.ones([5, 6, 1])).shape.as_list()
    [5, 3, 2]
    """

    def __init__(self, sequence_shape, linear, kernel_size, strides=1, name=None, **kwargs):
        length, channels = sequence_shape
        super().__init__(Conv2D((length, 1, channels), linear, (kernel_size, 1), (strides, 1), **kwargs), name=name)

    @classmethod
    def from_weights(cls, sequence_shape, kernel, bias=None, orthogonal_kind="expm", noise="normal", dtype=None, **kwargs):
        """Takes over an ordinary layer: kernel (size, channels, filters) as in Keras, bias (filters,)."""
        kernel = np.asarray(kernel)
        linear = Linear.from_weights(kernel.reshape(-1, kernel.shape[-1]), bias, orthogonal_kind, noise, dtype=dtype)
        return cls(sequence_shape, linear, kernel.shape[0], noise=noise, **kwargs)

    @property
    def kernel(self):
        """The kernel of the ordinary layer, (size, channels, filters)."""
        return tf.squeeze(self.layer.kernel, axis=1)


class _Frame:
    """An image and the border around it, the border as a list of pixels: top, left, right, bottom."""

    def __init__(self, inner, padding):
        (self.top, self.bottom), (self.left, self.right) = padding
        self.height, self.width, channels = self.inner = tuple(inner)
        if min(self.top, self.bottom, self.left, self.right) < 0 or self.top + self.bottom + self.left + self.right == 0:
            raise ValueError(f"A border has positive width on one side or more. Received: {padding}")
        self.outer = (self.height + self.top + self.bottom, self.width + self.left + self.right, channels)
        self._sides = [
            (self.top, self.outer[1]),
            (self.height, self.left),
            (self.height, self.right),
            (self.bottom, self.outer[1]),
        ]
        self._sizes = [rows * columns for rows, columns in self._sides]
        self.border = (sum(self._sizes), channels)

    def join(self, image, border):
        sides = tf.split(border, self._sizes, axis=-2)
        leading, channels = tf.shape(border)[:-2], border.shape[-1]
        top, left, right, bottom = (
            tf.reshape(side, tf.concat([leading, [*size, channels]], axis=0))
            for side, size in zip(sides, self._sides, strict=True)
        )
        return tf.concat([top, tf.concat([left, image, right], axis=-2), bottom], axis=-3)

    def cut(self, framed):
        top, middle, bottom = tf.split(framed, [self.top, self.height, self.bottom], axis=-3)
        left, image, right = tf.split(middle, [self.left, self.width, self.right], axis=-2)
        return [image, tf.concat([_pixels(side) for side in (top, left, right, bottom)], axis=-2)]


def pair(value):
    """A number or a pair of numbers as a pair."""
    return (value, value) if isinstance(value, int) else tuple(value)


def _pixels(image):
    """(..., h, w, c) as (..., h * w, c)."""
    height, width, channels = image.shape[-3:]
    return tf.reshape(image, tf.concat([tf.shape(image)[:-3], [height * width, channels]], axis=0))
