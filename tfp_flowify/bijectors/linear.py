"""Linear layers: diagonal, and full by the singular value decomposition."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import tensorflow as tf

from tfp_flowify.bijectors.base import Elementwise, FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.bijectors.graph import Sequential
from tfp_flowify.bijectors.orthogonal import Orthogonal, orthogonal, random_orthogonal
from tfp_flowify.bijectors.parts import Split, Widen
from tfp_flowify.core.checks import check_dtype, parameter
from tfp_flowify.core.types import TensorLike
from tfp_flowify.math.limits import SINGULAR_RANGE, bounded


class Diagonal(Elementwise):
    """z = sign x exp(log_scale) + shift, entry by entry;  log_det = sum(log_scale).

    Args:
      log_scale, shift: Of the shape of the event, or () for one number for all entries; one may be left out.
      sign: +1 or -1 of the same shape, fixed; +1 if left out.
      is_bounded: Whether log_scale is cut to -20 ... 20, so that training cannot take it to overflow.

    >>> Diagonal(log_scale=[0.0, 0.0], shift=[1.0, 2.0]).forward([1.0, 1.0]).numpy().tolist()
    [2.0, 3.0]
    """

    def __init__(
        self,
        log_scale: TensorLike | None = None,
        shift: TensorLike | None = None,
        sign: TensorLike | None = None,
        is_bounded: bool = False,
        name: str | None = None,
    ) -> None:
        if log_scale is None and shift is None:
            raise ValueError("Diagonal needs a log_scale, a shift or both.")
        self.log_scale = log_scale if log_scale is None else parameter(log_scale, "Diagonal log_scale")
        self.shift = (
            shift if shift is None else parameter(shift, "Diagonal shift", getattr(self.log_scale, "shape", None))
        )
        given = self.shift if log_scale is None else self.log_scale
        if shift is not None:
            check_dtype("The shift of Diagonal", self.shift, given.dtype)
        if sign is not None and not (np.shape(sign) == tuple(given.shape) and np.all(np.abs(np.asarray(sign)) == 1)):
            raise ValueError(f"sign is +1 or -1 for each entry, {tuple(given.shape)}. Received: sign={sign}")
        self.sign, self.is_bounded = sign, is_bounded
        super().__init__(given.shape, given.dtype, name)

    def forward_and_log_slope(self, x: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        return self._scale(x, 1) + (0 if self.shift is None else self.shift), self._log_slope()

    def inverse_and_log_slope(self, z: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        return self._scale(z if self.shift is None else z - self.shift, -1), -self._log_slope()

    def _scale(self, x, power):
        x = x if self.sign is None else x * tf.cast(self.sign, x.dtype)
        return x if self.log_scale is None else x * tf.exp(power * self._log_slope())

    def _log_slope(self):
        if self.log_scale is None:
            return tf.zeros([], self.dtype)
        log_scale = tf.convert_to_tensor(self.log_scale)
        return bounded(log_scale) if self.is_bounded else log_scale


class Linear(Sequential):
    """z = W x + b with W = V S U, V and U orthogonal: a dense layer in its singular value decomposition.

    With y = U x, n features and m units:

        fewer units:  [x] -> [V (s * y[:m]) + b, y[m:]],          log_det = sum log s
        more units:   [x, noise] -> [V [s * y, a noise] + b],     log_det = sum log s + sum log a
        as many:      [x] -> [V (s * y) + b],                     log_det = sum log s

    For fewer units the inverse with any residual is a right inverse, and wrapped in `Funnel` the residual is whitened
    given z. For more, the inverse is the Moore-Penrose pseudoinverse. Mate et al. 2022, section 3.1.

    Args:
      right: U, an orthogonal layer of size n: `Expm`, `Cayley` or `Householder`.
      log_singular: Logarithms of the singular values, as many as the smaller of n and m.
      left: V, an orthogonal layer of size m.
      bias: (m,), or None.
      log_noise_scale: log a for more units, a scalar or (m - n,).
      noise: "normal" or "uniform".

    >>> layer = Linear.from_weights([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], bias=[0.5, 0.5])
    >>> layer.without_noise([1.0, 1.0, 1.0]).numpy().round(5).tolist()
    [1.5, 2.5]
    """

    def __init__(
        self,
        right: Orthogonal,
        log_singular: TensorLike,
        left: Orthogonal,
        bias: TensorLike | None = None,
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        name: str | None = None,
    ) -> None:
        features, units, dtype = right.size, left.size, right.dtype
        self.right, self.left = right, left
        self.log_singular = parameter(log_singular, "Linear log_singular", (min(features, units),))
        self.bias = bias if bias is None else parameter(bias, "Linear bias", (units,))
        layers: list[FlowBijector] = [right]
        if units < features:
            layers.append(Split(features, units, dtype))
        layers.append(Diagonal(self.log_singular, is_bounded=True))
        if units > features:
            self.widen = Widen(features, units, log_noise_scale, noise, dtype)
            layers.append(self.widen)
        layers.append(left)
        if bias is not None:
            layers.append(Diagonal(shift=self.bias))
        super().__init__(layers, name=name)

    @classmethod
    def from_weights(
        cls,
        kernel: TensorLike,
        bias: TensorLike | None = None,
        orthogonal_kind: str = "expm",
        noise: str = "normal",
        log_noise_scale: float = 0.0,
        dtype: tf.DType | str | None = None,
    ) -> Self:
        """Takes over an ordinary layer, z = x @ kernel + bias: kernel (n, m) as in Keras, bias (m,).

        The parameters become trainable variables that start there exactly.
        """
        kernel = np.asarray(kernel)
        dtype = tf.as_dtype(dtype or (kernel.dtype if kernel.dtype.kind == "f" else np.float32))
        left, singular, right = decompose(kernel)
        return cls(
            orthogonal(orthogonal_kind, right, dtype),
            tf.Variable(np.log(singular), dtype=dtype, name="log_singular"),
            orthogonal(orthogonal_kind, left, dtype),
            tf.Variable(np.zeros(kernel.shape[1]) if bias is None else bias, dtype=dtype, name="bias"),
            _free_noise_scale(kernel.shape[0], kernel.shape[1], log_noise_scale, dtype),
            noise,
        )

    @classmethod
    def create(
        cls,
        features: int,
        units: int,
        orthogonal_kind: str = "expm",
        noise: str = "normal",
        seed: int | Sequence[int] | np.random.Generator | None = None,
        dtype: tf.DType | str = tf.float32,
    ) -> Self:
        """A fresh layer: random rotations, singular values one, bias zero."""
        generator = np.random.default_rng(seed)
        right, left = random_orthogonal(features, generator), random_orthogonal(units, generator)
        return cls(
            orthogonal(orthogonal_kind, right, dtype),
            tf.Variable(tf.zeros([min(features, units)], dtype), name="log_singular"),
            orthogonal(orthogonal_kind, left, dtype),
            tf.Variable(tf.zeros([units], dtype), name="bias"),
            _free_noise_scale(features, units, 0.0, dtype),
            noise,
        )

    @property
    def kernel(self) -> tf.Tensor:
        """The weight matrix of the ordinary layer, (n, m): z = x @ kernel + bias."""
        rank = min(self.right.size, self.left.size)
        singular = tf.exp(bounded(tf.convert_to_tensor(self.log_singular)))
        return tf.transpose(self.right.rows(rank)) * singular @ tf.transpose(self.left.matrix()[:, :rank])

    def whole(self, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        """The layer as one square matrix, [x, noise] @ matrix + [bias, 0] = [z, dropped], and its log-det.

        It takes n^3 operations to make, and then one product in place of two: for a layer that runs at many places.
        """
        features, units = self.right.size, self.left.size
        log_singular = bounded(tf.convert_to_tensor(self.log_singular))
        right, left = (tf.transpose(rotation.matrix(context)) for rotation in (self.right, self.left))
        kept, dropped = right[:, :units] * tf.exp(log_singular), right[:, units:]
        matrix, log_det = kept @ left[:features], tf.reduce_sum(log_singular)
        if units < features:
            matrix = tf.concat([matrix, dropped], axis=1)
        if units > features:
            log_scale = self.widen.log_scale()
            matrix = tf.concat([matrix, tf.exp(log_scale)[:, tf.newaxis] * left[features:]], axis=0)
            log_det += tf.reduce_sum(log_scale)
        return matrix, log_det


def _free_noise_scale(features, units, value, dtype):
    """Trainable scales of the noise where there is any."""
    if units <= features:
        return 0.0
    return tf.Variable(tf.fill([units - features], tf.constant(value, dtype)), name="log_noise_scale")


def decompose(kernel: TensorLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """V, s, U of W = kernel^T in float64, for a kernel of full rank; else an error that says which rank it has."""
    if np.ndim(kernel) != 2:
        raise ValueError(f"A kernel has shape (features, units). Received: shape={np.shape(kernel)}")
    left, singular, right = singular_values(kernel)
    shape = (len(right), len(left))
    threshold = singular[0] * max(shape) * np.finfo(np.float32).eps
    rank = int((singular > threshold).sum())
    if rank < min(shape):
        raise ValueError(
            f"A kernel of shape {shape} must have rank {min(shape)} to be taken over. "
            f"Received: rank {rank} (singular values {singular[0]:.3g} to {singular[-1]:.3g}). Remove the units that "
            "depend on others, add a small random matrix, or use the fallback Stochastic, which takes any function."
        )
    least, largest = SINGULAR_RANGE
    if singular[-1] < least or singular[0] > largest:
        raise ValueError(
            f"Singular values are within {least:.1g} ... {largest:.1g}. Received: a kernel of shape {shape} with "
            f"{singular[-1]:.3g} to {singular[0]:.3g}. Put a part of its scale into a Rescaling layer."
        )
    return left, singular, right


def singular_values(kernel: TensorLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """V, s, U of W = kernel^T in float64, for any finite kernel (..., features, units)."""
    kernel = np.asarray(kernel, np.float64)
    if kernel.ndim < 2 or 0 in kernel.shape:
        raise ValueError(f"A kernel has shape (features, units). Received: shape={kernel.shape}")
    if not np.all(np.isfinite(kernel)):
        raise ValueError(f"The kernel of shape {kernel.shape} must be finite. It has NaN or infinite entries.")
    right, singular, left = np.linalg.svd(kernel)
    return np.swapaxes(left, -1, -2), singular, np.swapaxes(right, -1, -2)
