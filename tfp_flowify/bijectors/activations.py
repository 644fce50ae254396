"""Invertible activations, entry by entry.

TFP's own `Tanh` and `Softplus` are used as they are. Like `Sigmoid`, `ELU`, `SELU` and `Abs` they reach only part of
the line: what later layers put outside has no preimage (the inverse is NaN there), so the density integrates to less
than one and stays a lower bound. `FlowDistribution.sample` draws such points again.
"""

import math

import numpy as np
import tensorflow as tf

from tfp_flowify import transforms
from tfp_flowify.bijectors.base import Elementwise
from tfp_flowify.bijectors.context import Context, Prepared
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import TensorLike
from tfp_flowify.math.spline import Table, spline_table


class PReLU(Elementwise):
    """z = x where x >= 0, slope x elsewhere;  log_det = sum of log slope where x < 0.  Onto.

    Args:
      log_slope: Log of the slope: a number for all entries, or a tensor of the shape of the event, say (channels,).

    >>> PReLU(tf.math.log([0.5, 0.25])).forward([-2.0, -2.0]).numpy().tolist()
    [-1.0, -0.5]
    """

    def __init__(self, log_slope: TensorLike, name: str | None = None) -> None:
        self.log_slope = log_slope if isinstance(log_slope, float) else parameter(log_slope, "PReLU log_slope")
        dtype = None if isinstance(log_slope, float) else self.log_slope.dtype
        super().__init__(() if isinstance(log_slope, float) else self.log_slope.shape, dtype, name)

    def forward_and_log_slope(self, x: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        log_slope = self._log_slope_at(x)
        return x * tf.exp(log_slope), log_slope

    def inverse_and_log_slope(self, z: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        log_slope = -self._log_slope_at(z)
        return z * tf.exp(log_slope), log_slope

    def _log_slope_at(self, x):
        return tf.where(x < 0, tf.convert_to_tensor(self.log_slope, x.dtype), tf.zeros([], x.dtype))


class LeakyReLU(PReLU):
    """z = x where x >= 0, negative_slope x elsewhere, with a fixed slope.

    >>> LeakyReLU(0.5).forward([-2.0, 2.0]).numpy().tolist()
    [-1.0, 2.0]
    """

    def __init__(self, negative_slope: float = 0.3, name: str | None = None) -> None:
        if not 0 < negative_slope < math.inf:
            raise ValueError(
                f"LeakyReLU is invertible for a positive slope. Received: negative_slope={negative_slope}. "
                "Use ReLU for slope zero, Abs for -1."
            )
        super().__init__(math.log(negative_slope), name)


class ELU(Elementwise):
    """z = scale x where x > 0, scale alpha (exp(x) - 1) elsewhere;  onto (-scale alpha, inf).

    log_det = sum of log scale, and x + log alpha where x <= 0.

    >>> ELU().forward([0.0, 2.0]).numpy().tolist()
    [0.0, 2.0]
    """

    is_onto = False

    def __init__(self, alpha: float = 1.0, scale: float = 1.0, name: str | None = None) -> None:
        if not (alpha > 0 and scale > 0):
            raise ValueError(f"ELU is invertible for positive numbers. Received: alpha={alpha}, scale={scale}")
        self.alpha, self.scale = float(alpha), float(scale)
        super().__init__(name=name)

    def forward_and_log_slope(self, x: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        below = tf.minimum(x, 0)
        z = tf.where(x > 0, x, self.alpha * tf.math.expm1(below))
        log_slope = tf.where(x > 0, tf.zeros([], x.dtype), below + math.log(self.alpha))
        return self.scale * z, log_slope + math.log(self.scale)

    def inverse_and_log_slope(self, z: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        z = z / self.scale
        log_slope = tf.where(z > 0, tf.zeros([], z.dtype), tf.math.log(tf.minimum(z, 0) + self.alpha))
        x = tf.where(z > 0, z, log_slope - math.log(self.alpha))
        return x, -log_slope - math.log(self.scale)


class SELU(ELU):
    """`ELU` with the scale and alpha that keep a network self-normalising (Klambauer et al. 2017).

    >>> SELU().forward([0.0, 1.0]).numpy().round(3).tolist()
    [0.0, 1.0509999990463257]
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(alpha=1.6732632423543772, scale=1.0507009873554805, name=name)


class Sigmoid(Elementwise):
    """z = 1 / (1 + exp(-x));  onto (0, 1);  log_det = sum of -softplus(x) - softplus(-x).

    The gradient of TFP's is NaN where exp(x) is infinite, in float32 from x = 89 on.

    >>> Sigmoid().forward([0.0]).numpy().tolist()
    [0.5]
    """

    is_onto = False

    def forward_and_log_slope(self, x: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        small = tf.exp(tf.minimum(x, 0))  # Exact below zero, where TensorFlow's sigmoid is not.
        z = tf.where(x < 0, small / (1 + small), tf.math.sigmoid(x))
        return z, -tf.math.softplus(x) - tf.math.softplus(-x)

    def inverse_and_log_slope(self, z: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        log_z, log_rest = tf.math.log(z), tf.math.log1p(-z)
        return log_z - log_rest, -log_z - log_rest


class Logit(Elementwise):
    """z = log((x - low) / (high - x)), from the box (low, high) to the line.  Onto.

    log_det = sum of log(high - low) - log(x - low) - log(high - x), and -inf where x is outside of the box: there is no
    density there. The inverse stays inside.

    Args:
      low, high: The sides of the box: numbers, or arrays of one shape, say (channels,).

    >>> Logit(-1.0, 1.0).forward([0.0]).numpy().tolist()
    [0.0]
    """

    def __init__(
        self, low: TensorLike = 0.0, high: TensorLike = 1.0, dtype: tf.DType | str = tf.float32, name: str | None = None
    ) -> None:
        dtype = tf.as_dtype(dtype)
        low, high = np.broadcast_arrays(*(np.asarray(side, dtype.as_numpy_dtype) for side in (low, high)))
        if not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
            raise ValueError(f"A box has finite sides low < high. Received: low={low}, high={high}")
        self.low, self.high = low, high
        super().__init__(low.shape, dtype, name)

    def forward_and_log_slope(self, x: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        width = self.high - self.low
        share = (x - self.low) / width
        inside = (x > self.low) & (x < self.high)
        share = tf.where(inside, share, tf.constant(0.5, x.dtype))
        log_share, log_rest = tf.math.log(share), tf.math.log1p(-share)
        log_slope = -log_share - log_rest - np.log(width)
        return log_share - log_rest, tf.where(inside, log_slope, tf.constant(-math.inf, x.dtype))

    def inverse_and_log_slope(self, z: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        width = self.high - self.low
        x = self.low + width * tf.math.sigmoid(z)
        inside = tf.clip_by_value(x, np.nextafter(self.low, self.high), np.nextafter(self.high, self.low))
        return inside, tf.math.log_sigmoid(z) + tf.math.log_sigmoid(-z) + np.log(width)


class Spline(Prepared, Elementwise):
    """A trainable monotone function, the paper's activation: one for all entries, or one for each channel.

    z = spline(x) on [-bound, bound], z = x outside;  log_det = sum of the log-slopes.  Onto.

    Args:
      parameters: (3 bins - 1,) for one function, (channels, 3 bins - 1) for one a channel; zero is the identity.
      bound: The spline lives on [-bound, bound].

    >>> Spline(tf.zeros([23])).forward([0.5, 3.0]).numpy().tolist()
    [0.5, 3.0]
    """

    def __init__(self, parameters: TensorLike, bound: float = 2.0, name: str | None = None) -> None:
        self.spline_parameters = parameter(parameters, "Spline parameters")
        *shape, size = self.spline_parameters.shape
        if (size + 1) % 3:
            raise ValueError(f"A spline with k bins has 3 k - 1 parameters. Received: {size}")
        self.spline = transforms.Spline((size + 1) // 3, bound)
        super().__init__(shape, self.spline_parameters.dtype, name)

    @property
    def batch_key(self) -> tuple:
        return self.dtype, tuple(self.inputs[0]), self.spline.bins, self.spline.bound

    @classmethod
    def prepare_batch(cls, layers: list["Spline"]) -> list[Table]:
        """The tables of the splines."""
        spline, parameters = layers[0].spline, tf.stack([tf.convert_to_tensor(b.spline_parameters) for b in layers])
        tables = spline_table(parameters, spline.bins, spline.bound)
        return [Table(*parts) for parts in zip(*map(tf.unstack, tables), strict=True)]

    def forward_and_log_slope(self, x: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        return self.spline.forward(x, context.prepared_for(self))

    def inverse_and_log_slope(self, z: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        return self.spline.inverse(z, context.prepared_for(self))
