"""Distributions without parameters: they fill added dimensions, and score dropped ones.

Noise that a layer adds is standard: mean zero and unit variance in every direction of its support, so that the one
trainable scale of the layer means the same for all kinds. `Code` lives on [0, 1], and dequantisation on [-1/2, 1/2].
"""

import math
from collections.abc import Iterable
from typing import Self

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.augmentation.unbatched import Unbatched
from tfp_flowify.core.seeds import fold_in, stateless_seed
from tfp_flowify.core.types import Shape

tfd = tfp.distributions

SQRT3 = math.sqrt(3)  # A uniform on [-sqrt(3), sqrt(3)] has variance one.


class Augmentation(Unbatched):
    """A distribution with no parameters, a fixed event shape and no batch shape.

    `dimension` is the dimension of the support: less than the number of entries for noise on a subspace.

    >>> StandardNormal((2,)).tile((3,)).event_shape.as_list()
    [3, 2]
    """

    def __init__(
        self,
        event_shape: Shape,
        dtype: tf.DType | str = tf.float32,
        dimension: int | None = None,
        name: str | None = None,
    ) -> None:
        self._fixed_event_shape = tuple(event_shape)
        self.dimension = math.prod(self._fixed_event_shape) if dimension is None else dimension
        super().__init__(
            dtype=tf.as_dtype(dtype),
            reparameterization_type=tfd.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=False,
            name=name or type(self).__name__,
        )

    def tile(self, prefix: Shape) -> "Augmentation":
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


class Gaussian(Augmentation):
    """The standard normal on all of the event, or on a subspace of `dimension` dimensions."""

    def _log_prob(self, x):
        return -0.5 * (self._sum_event(tf.square(x)) + self.dimension * math.log(2 * math.pi))

    def _entropy(self):
        return tf.constant(0.5 * self.dimension * (1 + math.log(2 * math.pi)), self.dtype)


class StandardNormal(Gaussian):
    """Independent standard normals.

    log_prob(x) = -(|x|^2 + d log(2 pi)) / 2,  d the number of entries.

    >>> StandardNormal((2, 3)).log_prob(tf.zeros([5, 2, 3])).shape.as_list()
    [5]
    """

    def tile(self, prefix: Shape) -> "StandardNormal":
        return StandardNormal((*prefix, *self._fixed_event_shape), self.dtype)

    def _sample_n(self, n, seed=None):
        return tf.random.stateless_normal(self._sample_shape(n), stateless_seed(seed), dtype=self.dtype)


class SignedNormal(StandardNormal):
    """Standard normals whose signs came from a `Code`: what is positive by nature, unfolded to the line.

    No density may depend on such a sign, so only functions that are odd, T(-x) = -T(x), may whiten it.

    >>> SignedNormal((2,)).tile((3,)).event_shape.as_list()
    [3, 2]
    """

    def tile(self, prefix: Shape) -> "SignedNormal":
        return SignedNormal((*prefix, *self._fixed_event_shape), self.dtype)


class StandardUniform(Augmentation):
    """Independent uniforms on [low, high]; the default has mean zero and variance one.

    log_prob(x) = -d log(high - low) inside, -inf outside.

    >>> float(StandardUniform((2,), low=-0.5, high=0.5).log_prob([0.1, 0.2]))
    0.0
    """

    def __init__(
        self,
        event_shape: Shape,
        dtype: tf.DType | str = tf.float32,
        low: float = -SQRT3,
        high: float = SQRT3,
        name: str | None = None,
    ) -> None:
        self.low, self.high = low, high
        super().__init__(event_shape, dtype, name=name)

    def tile(self, prefix: Shape) -> Self:
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
    """A uniform number on [0, 1] that carries a discrete choice: a sign, or the index of a maximum.

    The joint density does not depend on its value, so it costs no exactness: a flow whose only noise is `Code`
    has an exact likelihood. Which part of [0, 1] it lies in after the layer says which choice was made.

    >>> float(Code((2,)).log_prob([0.2, 0.9]))
    0.0
    """

    def __init__(
        self,
        event_shape: Shape,
        dtype: tf.DType | str = tf.float32,
        low: float = 0.0,
        high: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(event_shape, dtype, low, high, name)


def standard_noise(kind: str, event_shape: Shape, dtype: tf.DType | str) -> Augmentation:
    """`StandardNormal` or `StandardUniform`, by the name that layers take."""
    return choose_noise(kind, {"normal": StandardNormal, "uniform": StandardUniform})(event_shape, dtype)


def choose_noise(kind: str, kinds: dict) -> type:
    """The class of that name, or an error that lists the names."""
    if kind not in kinds:
        raise ValueError(f"noise must be one of {sorted(kinds)}. Received: noise={kind!r}")
    return kinds[kind]


def draw(
    distributions: Iterable[tfd.Distribution], sample_shape: Shape | tf.Tensor, seed: tf.Tensor
) -> list[tf.Tensor]:
    """One independent draw from each distribution."""
    return [d.sample(sample_shape, seed=fold_in(seed, i)) for i, d in enumerate(distributions)]
