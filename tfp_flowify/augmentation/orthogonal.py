"""Noise that tells the copies of a pixel in overlapping patches apart, and leaves their mean alone."""

import math
from typing import Self

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.augmentation.noise import Augmentation, Gaussian, choose_noise
from tfp_flowify.core.seeds import stateless_seed
from tfp_flowify.core.types import Shape
from tfp_flowify.math.patches import Patches


class _Orthogonal(Augmentation):
    """Patch-shaped noise that sums to zero over the copies of each pixel.

    A pixel in N patches has N copies and N - 1 directions of noise, for each channel.
    """

    def __init__(
        self, patches: Patches, dtype: tf.DType | str = tf.float32, prefix: Shape = (), name: str | None = None
    ) -> None:
        self.patches, self.prefix = patches, tuple(prefix)
        super().__init__((*prefix, *patches.shape), dtype, math.prod(prefix) * patches.noise_dimension, name)

    def tile(self, prefix: Shape) -> Self:
        return type(self)(self.patches, self.dtype, (*prefix, *self.prefix))

    def _centred_normal(self, n, seed):
        normal = tf.random.stateless_normal(self._sample_shape(n), seed, dtype=self.dtype)
        normal = normal if self.patches.mask.all() else normal * self.patches.mask
        return normal - self.patches.extract(self.patches.overlap_mean(normal))


class OrthogonalNormal(_Orthogonal, Gaussian):
    """The standard normal on the space of patches that sum to zero over the copies of each pixel.

    A standard normal tensor less its mean over the copies. Its covariance is the projection on that space.
    log_prob(x) = -(|x|^2 + d log(2 pi)) / 2,  d = sum over pixels and channels of (N - 1).  x is not projected:
    only points of the space have a density.

    >>> noise = OrthogonalNormal(Patches((3, 1, 1), (2, 1), (1, 1)))
    >>> noise.dimension, noise.event_shape.as_list()
    (1, [2, 1, 2])
    """

    def _sample_n(self, n, seed=None):
        return self._centred_normal(n, stateless_seed(seed))


class OrthogonalUniform(_Orthogonal):
    """Uniform on a ball, for each pixel and channel, in the space of copies that sum to zero.

    A direction (a centred normal, normalised) times an amplitude radius * u^(1/d), d = N - 1, as in the paper; the
    radius sqrt(d + 2) makes the covariance the projection, as for `OrthogonalNormal`.
    log_prob(x) = -sum over pixels and channels of log volume(ball of dimension d) inside, -inf outside.

    >>> OrthogonalUniform(Patches((3, 1, 1), (2, 1), (1, 1))).sample(seed=1).shape.as_list()
    [2, 1, 2]
    """

    def _sample_n(self, n, seed=None):
        direction_seed, amplitude_seed = tfp.random.split_seed(stateless_seed(seed), 2)
        direction = self._centred_normal(n, direction_seed)
        shape = tf.concat([[n], tf.constant((*self.prefix, *self.patches.image_shape), tf.int32)], axis=0)
        uniform = tf.random.stateless_uniform(shape, amplitude_seed, dtype=self.dtype)
        dimension = self._dimension_per_pixel()
        amplitude = self._radius() * uniform ** (1 / tf.maximum(dimension, 1))
        length = tf.sqrt(self.patches.overlap_sum(tf.square(direction)))
        factor = tf.where(dimension > 0, tf.math.divide_no_nan(amplitude, length), tf.zeros([], self.dtype))
        return direction * self.patches.extract(factor)

    def _log_prob(self, x):
        length = tf.sqrt(self.patches.overlap_sum(tf.square(x)))
        outside = tf.reduce_sum(
            tf.cast(length > self._radius() * (1 + 1e-5), self.dtype),
            axis=list(range(-1 - self.patches.ndims - len(self.prefix), 0)),
        )
        return tf.where(outside > 0, tf.cast(-math.inf, self.dtype), -self._log_volume())

    def _entropy(self):
        return self._log_volume()

    def _dimension_per_pixel(self):
        return tf.constant(self.patches.overlap_counts[..., None] - 1, self.dtype)

    def _radius(self):
        return tf.sqrt(tf.maximum(self._dimension_per_pixel(), 0) + 2)

    def _log_volume(self):
        volumes = [
            0.5 * d * math.log(math.pi * (d + 2)) - math.lgamma(0.5 * d + 1)
            for d in (self.patches.overlap_counts - 1).flatten()
            if d > 0
        ]
        return tf.constant(math.prod(self.prefix) * self.patches.channels * math.fsum(volumes), self.dtype)


def orthogonal_noise(kind: str, patches: Patches, dtype: tf.DType | str) -> Augmentation:
    """`OrthogonalNormal` or `OrthogonalUniform`, by the name that layers take."""
    return choose_noise(kind, {"normal": OrthogonalNormal, "uniform": OrthogonalUniform})(patches, dtype)
