"""What fills added dimensions and what dropped ones are scored under: fixed, parameter-free distributions.

What a layer adds by choice is standard: mean zero and unit variance in every direction of its support, so that the one
trainable scale of the layer means the same for all kinds. `Code` lives on [0, 1], and dequantisation on [-1/2, 1/2].
"""

import math
import numbers

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.distributions.unbatched import Unbatched
from tfp_flowify.math.patches import Patches

tfd = tfp.distributions

SQRT3 = math.sqrt(3)  # A uniform on [-sqrt(3), sqrt(3)] has variance one.


class Augmentation(Unbatched):
    """A distribution with no parameters, a fixed event shape and no batch shape.

    `dimension` is the dimension of the support: less than the number of entries for noise on a subspace.

    >>> StandardNormal((2,)).tile((3,)).event_shape.as_list()
    [3, 2]
    """

    def __init__(self, event_shape, dtype=tf.float32, dimension=None, name=None):
        self._fixed_event_shape = tuple(event_shape)
        self.dimension = math.prod(self._fixed_event_shape) if dimension is None else dimension
        super().__init__(
            dtype=tf.as_dtype(dtype),
            reparameterization_type=tfd.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=False,
            name=name or type(self).__name__,
        )

    def tile(self, prefix) -> "Augmentation":
        """Independent copies, one for each index of the shape `prefix`: event shape `prefix + event_shape`."""
        raise NotImplementedError(f"{type(self).__name__} must define tile(prefix).")

    def _event_shape(self):
        return tf.TensorShape(self._fixed_event_shape)

    def _mean(self):
        return tf.zeros(self._fixed_event_shape, self.dtype)

    def _sample_shape(self, n):
        return tf.concat([[n], self._fixed_event_shape], axis=0) if self._fixed_event_shape else [n]

    def _sum_event(self, x):
        return tf.reduce_sum(x, axis=list(range(-len(self._fixed_event_shape), 0)))


class _Gaussian(Augmentation):
    """The standard normal on all of the event, or on a subspace of `dimension` dimensions."""

    def _log_prob(self, x):
        return -0.5 * (self._sum_event(tf.square(x)) + self.dimension * math.log(2 * math.pi))

    def _entropy(self):
        return tf.constant(0.5 * self.dimension * (1 + math.log(2 * math.pi)), self.dtype)


class StandardNormal(_Gaussian):
    """Independent standard normals.

    log_prob(x) = -(|x|^2 + d log(2 pi)) / 2,  d the number of entries.

    >>> StandardNormal((2, 3)).log_prob(tf.zeros([5, 2, 3])).shape.as_list()
    [5]
    """

    def tile(self, prefix):
        return StandardNormal((*prefix, *self._fixed_event_shape), self.dtype)

    def _sample_n(self, n, seed=None):
        return tf.random.stateless_normal(self._sample_shape(n), stateless_seed(seed), dtype=self.dtype)


class SignedNormal(StandardNormal):
    """Standard normals whose signs came from a `Code`: what is positive by nature, unfolded to the line.

    No density may depend on such a sign, so only functions that are odd, T(-x) = -T(x), may whiten it.

    >>> SignedNormal((2,)).tile((3,)).event_shape.as_list()
    [3, 2]
    """

    def tile(self, prefix):
        return SignedNormal((*prefix, *self._fixed_event_shape), self.dtype)


class StandardUniform(Augmentation):
    """Independent uniforms on [low, high]; the default has mean zero and variance one.

    log_prob(x) = -d log(high - low) inside, -inf outside.

    >>> float(StandardUniform((2,), low=-0.5, high=0.5).log_prob([0.1, 0.2]))
    0.0
    """

    def __init__(self, event_shape, dtype=tf.float32, low=-SQRT3, high=SQRT3, name=None):
        self.low, self.high = low, high
        super().__init__(event_shape, dtype, name=name)

    def tile(self, prefix):
        return type(self)((*prefix, *self._fixed_event_shape), self.dtype, self.low, self.high)

    def _mean(self):
        return tf.fill(self._fixed_event_shape, tf.cast((self.low + self.high) / 2, self.dtype))

    def _sample_n(self, n, seed=None):
        return tf.random.stateless_uniform(self._sample_shape(n), stateless_seed(seed), self.low, self.high, self.dtype)

    def _log_prob(self, x):
        outside = self._sum_event(tf.cast((x < self.low) | (x > self.high), self.dtype))
        inside = tf.constant(-self.dimension * math.log(self.high - self.low), self.dtype)
        return tf.where(outside > 0, tf.cast(-math.inf, self.dtype), inside)

    def _entropy(self):
        return tf.constant(self.dimension * math.log(self.high - self.low), self.dtype)


class Code(StandardUniform):
    """A uniform on [0, 1] that carries a discrete choice: a sign, the index of a maximum.

    The joint density does not depend on its value, so it costs no exactness: a flow whose only noise is `Code`
    has an exact likelihood. Which part of [0, 1] it lies in after the layer says which choice was made.

    >>> float(Code((2,)).log_prob([0.2, 0.9]))
    0.0
    """

    def __init__(self, event_shape, dtype=tf.float32, low=0.0, high=1.0, name=None):
        super().__init__(event_shape, dtype, low, high, name)


class _Orthogonal(Augmentation):
    """Patch-shaped noise that sums to zero over the copies of each pixel.

    A pixel in N patches has N copies and N - 1 directions of noise, for each channel.
    """

    def __init__(self, patches: Patches, dtype=tf.float32, prefix=(), name=None):
        self.patches, self.prefix = patches, tuple(prefix)
        super().__init__((*prefix, *patches.shape), dtype, math.prod(prefix) * patches.noise_dimension, name)

    def tile(self, prefix):
        return type(self)(self.patches, self.dtype, (*prefix, *self.prefix))

    def _centred_normal(self, n, seed):
        normal = tf.random.stateless_normal(self._sample_shape(n), seed, dtype=self.dtype)
        normal = normal if self.patches.mask.all() else normal * self.patches.mask
        return normal - self.patches.extract(self.patches.overlap_mean(normal))


class OrthogonalNormal(_Orthogonal, _Gaussian):
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
            axis=list(range(-3 - len(self.prefix), 0)),
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


def stateless_seed(seed):
    """A seed for TensorFlow's stateless functions: of a number always the same one, of None a new one.

    TFP's own `sanitize_seed` gives a new one for a number too, each time it is called.
    """
    if tf.is_tensor(seed) and seed.shape.rank == 0:
        return tf.stack([0, tf.cast(seed, tf.int32)])
    if isinstance(seed, numbers.Integral):
        return tf.constant([int(seed) >> 31 & 0x7FFFFFFF, int(seed) & 0x7FFFFFFF], tf.int32)
    return tfp.random.sanitize_seed(seed)


def standard_noise(kind: str, event_shape, dtype) -> Augmentation:
    """`StandardNormal` or `StandardUniform`, by the name that layers take."""
    kinds = {"normal": StandardNormal, "uniform": StandardUniform}
    return _choose(kind, kinds)(event_shape, dtype)


def orthogonal_noise(kind: str, patches: Patches, dtype) -> Augmentation:
    """`OrthogonalNormal` or `OrthogonalUniform`, by the name that layers take."""
    kinds = {"normal": OrthogonalNormal, "uniform": OrthogonalUniform}
    return _choose(kind, kinds)(patches, dtype)


def _choose(kind, kinds):
    if kind not in kinds:
        raise ValueError(f"noise must be one of {sorted(kinds)}. Received: noise={kind!r}")
    return kinds[kind]
