"""Fan-out and sum: what turns chains into graphs, and the residual block."""

import math

import numpy as np
import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal, standard_noise
from tfp_flowify.bijectors.base import FlowBijector, check_layer
from tfp_flowify.bijectors.conditional import Funnel
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.bijectors.graph import Graph, Node
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import Shape, TensorFunction, TensorLike
from tfp_flowify.transforms import Transform


class Duplicate(FlowBijector):
    """N copies of a tensor, with noise orthogonal to the repetition.

        forward: [x, noise] -> z_i = x + sqrt(N) a (Q noise)_i,  i = 1 ... N
        inverse: x = mean of the z_i,  noise = Q^T (z - x) / (sqrt(N) a)
        log_det = (entries of x) ((N / 2) log N + (N - 1) log a)

    Q (N, N - 1) is a fixed orthonormal basis of the vectors that sum to zero.
    Shapes: [shape, (*shape, N - 1)] -> N times shape.  Mirror of `Sum`.

    Args:
      shape: Event shape of x.
      copies: Number of copies, N.
      log_noise_scale: log a, a scalar.
      noise: "normal" or "uniform".

    >>> [part.numpy().tolist() for part in Duplicate((2,)).without_noise([1.0, 2.0])]
    [[1.0, 2.0], [1.0, 2.0]]
    """

    def __init__(
        self,
        shape: Shape,
        copies: int = 2,
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        if copies < 2:
            raise ValueError(f"Duplicate makes two copies or more. Received: copies={copies}")
        self.copies, self._basis = copies, zero_sum_basis(copies)
        self.log_noise_scale = parameter(log_noise_scale, "Duplicate log_noise_scale", (), dtype)
        dtype = self.log_noise_scale.dtype
        super().__init__(
            inputs=[shape],
            outputs=[shape] * copies,
            noise=[standard_noise(noise, (*shape, copies - 1), dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, noise = parts
        spread = tf.tensordot(noise, self._factor() * tf.constant(self._basis.T, x.dtype), axes=1)
        return tf.unstack(x[..., None] + spread, axis=-1), self._log_det()

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        copies = tf.stack(parts, axis=-1)
        noise = tf.tensordot(copies, tf.constant(self._basis, copies.dtype) / self._factor(), axes=1)
        return [tf.reduce_mean(copies, axis=-1), noise], -self._log_det()

    def _factor(self):
        return math.sqrt(self.copies) * tf.exp(tf.convert_to_tensor(self.log_noise_scale))

    def _log_det(self):
        log_scale = tf.convert_to_tensor(self.log_noise_scale)
        per_entry = 0.5 * self.copies * math.log(self.copies) + (self.copies - 1) * log_scale
        return math.prod(self.inputs[0]) * per_entry


class Sum(FlowBijector):
    """The sum of N branches; what it loses are the differences.

        forward: x_1 ... x_N -> [z = sum of the x_i, residual = Q^T x]
        inverse: x = z / N + Q residual
        log_det = (entries of z) (log N) / 2

    Q (N, N - 1) is a fixed orthonormal basis of the vectors that sum to zero. In `Funnel`, the residual has a density
    given the sum. Shapes: N times shape -> [shape, (*shape, N - 1)].  Mirror of `Duplicate`.

    >>> Sum((2,)).without_noise([[1.0, 2.0], [3.0, 4.0]]).numpy().tolist()
    [4.0, 6.0]
    """

    def __init__(
        self, shape: Shape, branches: int = 2, dtype: tf.DType | str = tf.float32, name: str | None = None
    ) -> None:
        if branches < 2:
            raise ValueError(f"Sum adds two branches or more. Received: branches={branches}")
        self.branches, self._basis = branches, zero_sum_basis(branches)
        super().__init__(
            inputs=[shape] * branches,
            outputs=[shape],
            residuals=[StandardNormal((*shape, branches - 1), dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        stacked = tf.stack(parts, axis=-1)
        residual = tf.tensordot(stacked, tf.constant(self._basis, stacked.dtype), axes=1)
        return [tf.reduce_sum(stacked, axis=-1), residual], self._log_det(stacked.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        total, residual = parts
        differences = tf.tensordot(residual, tf.constant(self._basis.T, total.dtype), axes=1)
        stacked = total[..., None] / self.branches + differences
        return tf.unstack(stacked, axis=-1), -self._log_det(total.dtype)

    def _log_det(self, dtype):
        return tf.constant(0.5 * math.prod(self.outputs[0]) * math.log(self.branches), dtype)


class Residual(Graph):
    """A residual block, z = x + f(x): `Duplicate`, a branch with its own flow, `Sum`.

        forward: [x, noise, *noise of f] -> [z, *residuals of f, residual],  log_det = the sum of the three.

    Args:
      branch: A bijector whose input and output have the same shape.
      shortcut: A bijector for the other side; None for the identity.
      conditioner, transform: Whiten what the sum loses given z, see `Funnel`; the parameters of (*shape, 1) values.
      log_noise_scale, noise: See `Duplicate`.
      dtype: Type of the block, where neither side has one; float32 if left out.

    >>> from tfp_flowify.bijectors import Linear
    >>> block = Residual(Linear.from_weights([[1.0, 0.0], [0.0, 2.0]]))
    >>> block.without_noise([1.0, 1.0]).numpy().round(5).tolist()
    [2.0, 3.0]
    """

    def __init__(
        self,
        branch: FlowBijector,
        shortcut: FlowBijector | None = None,
        conditioner: TensorFunction | InContext | None = None,
        transform: Transform | None = None,
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        dtype: tf.DType | str | None = None,
        name: str | None = None,
    ) -> None:
        check_layer(branch, "Residual")
        shape, shape_out = branch.inputs[0], branch.outputs[0]
        dtype = branch.dtype or getattr(shortcut, "dtype", None) or dtype or tf.float32
        other = (shape, shape) if shortcut is None else (shortcut.inputs[0], shortcut.outputs[0])
        if other != (shape, shape_out):
            raise ValueError(
                f"The sides of a residual block must fit: branch {shape} -> {shape_out}, "
                f"{'identity' if shortcut is None else 'shortcut'} {other[0]} -> {other[1]}. Use a shortcut that fits."
            )
        total = Sum(shape_out, dtype=dtype)
        super().__init__(
            [
                Node(Duplicate(shape, 2, log_noise_scale, noise, dtype), ("x",), ("side", "main")),
                *([] if shortcut is None else [Node(shortcut, ("side",), ("side",))]),
                Node(branch, ("main",), ("main",)),
                Node(Funnel(total, conditioner, transform) if conditioner else total, ("side", "main"), ("z",)),
            ],
            inputs={"x": shape},
            outputs=("z",),
            name=name,
        )


def zero_sum_basis(size: int) -> np.ndarray:
    """An orthonormal basis (size, size - 1) of the vectors that sum to zero.

    It is a Householder reflection, the one that turns the first unit vector into (1, ..., 1) / sqrt(size), without its
    first column.
    """
    normal = np.eye(size)[0] - 1 / math.sqrt(size)
    return (np.eye(size) - 2 * np.outer(normal, normal) / (normal @ normal))[:, 1:]
