"""A border around an image, added as noise or dropped."""

import math

import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal, standard_noise
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.core.checks import parameter


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
    >>> pad.without_noise(tf.ones([1, 1, 1])).numpy().flatten().tolist()
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

    def forward_and_log_det(self, parts, context):
        image, noise = parts
        log_scale = tf.convert_to_tensor(self.log_noise_scale)
        return [self.frame.join(image, noise * tf.exp(log_scale))], math.prod(self.frame.border) * log_scale

    def inverse_and_log_det(self, parts, context):
        image, border = self.frame.cut(parts[0])
        log_scale = tf.convert_to_tensor(self.log_noise_scale)
        return [image, border * tf.exp(-log_scale)], -math.prod(self.frame.border) * log_scale


class Crop(FlowBijector):
    """Drops the border of an image.

        forward: x -> [inside, border],  log_det = 0.

    Shapes: (..., h, w, c) -> [(..., h - top - bottom, w - left - right, c), (..., border pixels, c)].
    Mirror of `Pad`.

    >>> [tuple(part.shape) for part in Crop((3, 3, 1), ((1, 1), (1, 1))).forward(tf.ones([3, 3, 1]))]
    [(1, 1, 1), (8, 1)]
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

    def forward_and_log_det(self, parts, context):
        return self.frame.cut(parts[0]), tf.zeros([], self.dtype)

    def inverse_and_log_det(self, parts, context):
        return [self.frame.join(*parts)], tf.zeros([], self.dtype)


class _Frame:
    """An image and the border around it, the border as a list of pixels: top, left, right, bottom."""

    def __init__(self, inner, padding):
        (self.top, self.bottom), (self.left, self.right) = padding
        self.height, self.width, channels = self.inner = tuple(inner)
        if (
            min(self.top, self.bottom, self.left, self.right) < 0
            or self.top + self.bottom + self.left + self.right == 0
        ):
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
        return [image, tf.concat([pixels(side) for side in (top, left, right, bottom)], axis=-2)]


def pixels(image):
    """(..., h, w, c) as (..., h * w, c)."""
    height, width, channels = image.shape[-3:]
    return tf.reshape(image, tf.concat([tf.shape(image)[:-3], [height * width, channels]], axis=0))
