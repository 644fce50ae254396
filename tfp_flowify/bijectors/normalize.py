"""Layers that take length, mean or a factor out of vectors: normalization, and products."""

import math

import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal, standard_noise
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import parameter, sum_over
from tfp_flowify.core.types import Shape, TensorLike

#: A vector of equal entries counts as one that deviates by the root of this.
TINY = 1e-30


class Normalize(FlowBijector):
    """Vectors of mean zero and length sqrt(n): layer normalization, which forgets two numbers of each vector.

    With mu the mean of x and sigma its deviation:

        forward: [x, (e, f)] -> [z = (x - mu) rho / sigma + b f, (mu, log sigma)],
                 rho = exp(a' e) sigma / sqrt(sigma^2 + epsilon)
        log_det = log a' + log b + (n - 1) log(rho / sigma)

    Directions go into directions; length and mean are dropped, and noise takes their place, so that z fills the space.
    Without `centre` there is no mean, as in root mean square normalization: mu = 0, sigma^2 the mean of x^2, no f, and
    log_det = log a' + n log(rho / sigma).  Shapes: [(..., n), (..., 2)] -> [(..., n), (..., 2)], or 1 for 2.

    Args:
      features: n, at least 2, or 3 with `centre`.
      centre: Whether the mean is taken out.
      epsilon: As in Keras.
      log_noise_scale: (log a', log b), or (log a',).
      noise: "normal" or "uniform".

    >>> Normalize(4).without_noise([1.0, 1.0, 3.0, 3.0]).numpy().round(3).tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        features: int,
        centre: bool = True,
        epsilon: float = 1e-6,
        log_noise_scale: TensorLike | None = None,
        noise: str = "normal",
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        self.features, self.centre, self.epsilon, lost = int(features), bool(centre), float(epsilon), 1 + bool(centre)
        if self.features <= lost:
            raise ValueError(
                f"Normalize forgets {lost} number(s) of each vector, and nothing would be left. Received: "
                f"features={features}. It takes more than {lost}."
            )
        scale = [0.0] * lost if log_noise_scale is None else log_noise_scale
        self.log_noise_scale = parameter(scale, "Normalize log_noise_scale", (lost,), dtype)
        dtype = self.log_noise_scale.dtype
        super().__init__(
            inputs=[(self.features,)],
            outputs=[(self.features,)],
            noise=[standard_noise(noise, (lost,), dtype)],
            residuals=[StandardNormal((lost,), dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, noise = parts
        noise = noise * tf.exp(tf.convert_to_tensor(self.log_noise_scale))
        mean, centred, log_sigma = self._split(x)
        log_ratio = noise[..., :1] - self._log_root(log_sigma)
        z = centred * tf.exp(log_ratio)
        if self.centre:
            return [z + noise[..., 1:], tf.concat([mean, log_sigma], axis=-1)], self._log_det(log_ratio)
        return [z, log_sigma], self._log_det(log_ratio)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z, dropped = parts
        shift, centred, log_rho = self._split(z)
        log_sigma = dropped[..., -1:]
        log_ratio = log_rho - log_sigma
        noise = log_ratio + self._log_root(log_sigma)
        x = centred * tf.exp(-log_ratio)
        if self.centre:
            x, noise = x + dropped[..., :1], tf.concat([noise, shift], axis=-1)
        return [x, noise * tf.exp(-tf.convert_to_tensor(self.log_noise_scale))], -self._log_det(log_ratio)

    def _split(self, x):
        """The mean of vectors, the vectors without it, and the log of their deviation."""
        mean = tf.reduce_mean(x, axis=-1, keepdims=True) if self.centre else tf.zeros([], x.dtype)
        centred = x - mean
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return mean, centred, 0.5 * tf.math.log(tf.maximum(variance, TINY))

    def _log_root(self, log_sigma):
        """log sqrt(sigma^2 + epsilon)."""
        return 0.5 * tf.math.log(tf.exp(2 * log_sigma) + self.epsilon)

    def _log_det(self, log_ratio):
        directions = self.features - self.centre
        return directions * log_ratio[..., 0] + tf.reduce_sum(tf.convert_to_tensor(self.log_noise_scale))


class Multiply(FlowBijector):
    """The product of two tensors; what it loses is one of the factors.

        forward: [x, factor] -> [z = x factor, factor],  log_det = sum of log |factor| over the entries of x
        inverse: x = z / factor

    Exact where no factor is zero: gates are positive, and where factors come from noise, zero has no weight. In
    `Funnel`, the factor has a density given the product. As in squeeze-and-excitation, the factor may have sides of
    one, along which it is the same for all entries.

    Args:
      shape: Event shape of x.
      factor: Event shape of the factor: that of x, or with some sides of one; that of x if left out.

    >>> Multiply((2,)).without_noise([[2.0, 3.0], [4.0, 5.0]]).numpy().tolist()
    [8.0, 15.0]
    """

    def __init__(
        self, shape: Shape, factor: Shape | None = None, dtype: tf.DType | str = tf.float32, name: str | None = None
    ) -> None:
        shape, factor = tuple(shape), tuple(shape if factor is None else factor)
        fits = len(shape) == len(factor) and all(b in (1, a) for a, b in zip(shape, factor, strict=True))
        if not fits:
            raise ValueError(f"A factor has the shape of x, or sides of one in it. Received: {factor} for {shape}")
        self._repeats = math.prod(shape) // math.prod(factor)
        super().__init__(
            inputs=[shape, factor],
            outputs=[shape],
            residuals=[StandardNormal(factor, dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, factor = parts
        return [x * factor, factor], self._log_det(factor)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z, factor = parts
        return [z / factor, factor], -self._log_det(factor)

    def _log_det(self, factor):
        return self._repeats * sum_over(tf.math.log(tf.abs(factor)), self.inputs[1])
