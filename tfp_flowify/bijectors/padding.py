"""A border around an image, added as noise or dropped."""

import math
from collections.abc import Sequence

import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal, standard_noise
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import Shape, TensorLike


class Pad(FlowBijector):
    """Puts a border of noise around an image.

        forward: [x, noise] -> z,  z = x inside, a noise on the border;  log_det = (border entries) log a.
        inverse: crop.

    Shapes: [(..., h, w, c), (..., border pixels, c)] -> (..., top + h + bottom, left + w + right, c), and so for any
    number of sides.  Mirror of `Crop`.

    Args:
      image_shape: (*sides, c).
      padding: A pair for each side, ((top, bottom), (left, right)) for a picture.
      log_noise_scale: log a, a scalar.
      noise: "normal" or "uniform".

    >>> pad = Pad((1, 1, 1), ((0, 0), (1, 1)))
    >>> pad.without_noise(tf.ones([1, 1, 1])).numpy().flatten().tolist()
    [0.0, 1.0, 0.0]
    """

    def __init__(
        self,
        image_shape: Shape,
        padding: Sequence[Sequence[int]],
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        self.log_noise_scale = parameter(log_noise_scale, "Pad log_noise_scale", (), dtype)
        self.frame = _Frame(image_shape, padding)
        super().__init__(
            inputs=[image_shape],
            outputs=[self.frame.outer],
            noise=[standard_noise(noise, self.frame.border, self.log_noise_scale.dtype)],
            dtype=self.log_noise_scale.dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        image, noise = parts
        log_scale = tf.convert_to_tensor(self.log_noise_scale)
        return [self.frame.join(image, noise * tf.exp(log_scale))], math.prod(self.frame.border) * log_scale

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
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

    def __init__(
        self,
        image_shape: Shape,
        cropping: Sequence[Sequence[int]],
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        *sides, channels = image_shape
        inner = (*(side - sum(pair) for side, pair in zip(sides, cropping, strict=True)), channels)
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

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return self.frame.cut(parts[0]), tf.zeros([], self.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return [self.frame.join(*parts)], tf.zeros([], self.dtype)


class _Frame:
    """An image and the border around it, the border as a list of pixels: two slabs for each side, the last side first.

    Slabs of the last side are as long as the image, those in front of it as long as image and slabs together.
    """

    def __init__(self, inner: Shape, padding: Sequence[Sequence[int]]) -> None:
        *sides, channels = inner
        self.padding = tuple(tuple(pair) for pair in padding)
        widths = [width for pair in self.padding for width in pair]
        if len(self.padding) != len(sides) or min(widths) < 0 or not any(widths):
            raise ValueError(
                f"A border has a pair of widths for each side of the image, none negative, and one of positive width. "
                f"Received: {padding} for an image of {tuple(inner)}"
            )
        self._sides = tuple(sides)
        self._slabs: list[tuple[int, ...]] = []
        for axis in reversed(range(len(sides))):
            self._slabs += [(*sides[:axis], width, *sides[axis + 1 :], channels) for width in self.padding[axis]]
            sides[axis] += sum(self.padding[axis])
        self.outer, self.ndims = (*sides, channels), len(sides)
        self.border = (sum(math.prod(slab[:-1]) for slab in self._slabs), channels)

    def join(self, image: tf.Tensor, border: tf.Tensor) -> tf.Tensor:
        slabs = tf.split(border, [math.prod(slab[:-1]) for slab in self._slabs], axis=-2)
        leading = tf.shape(border)[:-2]
        slabs = [
            tf.reshape(s, tf.concat([leading, shape], axis=0)) for s, shape in zip(slabs, self._slabs, strict=True)
        ]
        for i, axis in enumerate(reversed(range(self.ndims))):
            before, behind = slabs[2 * i : 2 * i + 2]
            image = tf.concat([before, image, behind], axis=axis - self.ndims - 1)
        return image

    def cut(self, framed: tf.Tensor) -> list[tf.Tensor]:
        slabs: list[tf.Tensor] = []
        for axis, (before, behind) in enumerate(self.padding):
            sizes = [before, self._sides[axis], behind]
            first, framed, last = tf.split(framed, sizes, axis=axis - self.ndims - 1)
            slabs = [pixels(first, self.ndims), pixels(last, self.ndims), *slabs]
        return [framed, tf.concat(slabs, axis=-2)]


def pixels(image: tf.Tensor, ndims: int) -> tf.Tensor:
    """(..., *sides, c) with so many sides as (..., pixels, c)."""
    *sides, channels = image.shape[-ndims - 1 :]
    return tf.reshape(image, tf.concat([tf.shape(image)[: -ndims - 1], [math.prod(sides), channels]], axis=0))
