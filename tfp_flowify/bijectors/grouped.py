"""Linear layers of groups: features that fall into groups, each with a matrix of its own."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context, Prepared
from tfp_flowify.bijectors.graph import Sequential
from tfp_flowify.bijectors.linear import Diagonal
from tfp_flowify.bijectors.orthogonal import PLAIN, skew_symmetric
from tfp_flowify.bijectors.parts import Split, Widen
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import TensorLike
from tfp_flowify.math.expm import expm
from tfp_flowify.math.limits import bounded

tfb = tfp.bijectors


class GroupedExpm(Prepared, FlowBijector):
    """z_g = Q_g x_g for each group g, Q_g = start_g exp(A_g), A_g skew-symmetric;  log_det = 0.

    Shapes: (..., groups, n) -> (..., groups, n).

    Args:
      skew: (groups, n (n - 1) / 2), the entries of A_g below the diagonal.
      start: (groups, n, n), orthogonal matrices.

    >>> GroupedExpm(tf.zeros([2, 1]), tf.eye(2, batch_shape=[2])).forward([[1.0, 2.0], [3.0, 4.0]]).numpy().tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    def __init__(self, skew: TensorLike, start: TensorLike, name: str | None = None) -> None:
        self.skew = parameter(skew, "GroupedExpm skew", (None, None))
        self.start = parameter(start, "GroupedExpm start", (None, None, None))
        groups, size, _ = self.start.shape
        if tuple(self.skew.shape) != (groups, size * (size - 1) // 2):
            raise ValueError(
                f"GroupedExpm of {groups} matrices of size {size} takes skew of shape "
                f"{(groups, size * (size - 1) // 2)}. Received: shape={tuple(self.skew.shape)}"
            )
        self.groups, self.size = groups, size
        super().__init__(inputs=[(groups, size)], outputs=[(groups, size)], dtype=self.start.dtype, name=name)

    @property
    def batch_key(self) -> int:
        return id(self)

    @classmethod
    def prepare_batch(cls, layers: list["GroupedExpm"]) -> list[tf.Tensor]:
        return [tf.convert_to_tensor(layer.start) @ expm(skew_symmetric(layer.skew)) for layer in layers]

    def matrix(self, context: Context = PLAIN) -> tf.Tensor:
        """All Q_g, (groups, n, n)."""
        return context.prepared_for(self)

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return [tf.einsum("...gn,gmn->...gm", parts[0], self.matrix(context))], tf.zeros([], self.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return [tf.einsum("...gm,gmn->...gn", parts[0], self.matrix(context))], tf.zeros([], self.dtype)


class GroupedLinear(Sequential):
    """A linear layer for each group of channels of a patch: depthwise and grouped convolutions.

    A patch (cells * channels,), in the layout of a Keras kernel, is taken apart into groups of neighbouring channels,
    each with all cells; z_g = V_g S_g U_g x_g + b_g, as in `Linear`; the units of all groups stand in a row.

        forward: [x, *noise] -> [z, *residual],  log_det = sum of all log s, and of log a
        Shapes: [(..., groups n), (..., groups, m - n)] -> (..., groups m) for more units, and
        (..., groups n) -> [(..., groups m), (..., groups, n - m)] for fewer.

    Args:
      cells: Number of cells of a patch.
      right: U, orthogonal matrices of size n = cells * channels / groups.
      log_singular: (groups, min(n, m)).
      left: V, orthogonal matrices of size m.
      bias: (groups * m,), or None.
      log_noise_scale: log a for more units, a scalar or (m - n,).
      noise: "normal" or "uniform".

    >>> eyes = [GroupedExpm(tf.zeros([2, s * (s - 1) // 2]), tf.eye(s, batch_shape=[2])) for s in (3, 1)]
    >>> layer = GroupedLinear(3, eyes[0], tf.zeros([2, 1]), eyes[1])
    >>> layer.without_noise([1.0, 10.0, 2.0, 20.0, 3.0, 30.0]).numpy().tolist()
    [1.0, 10.0]
    """

    def __init__(
        self,
        cells: int,
        right: GroupedExpm,
        log_singular: TensorLike,
        left: GroupedExpm,
        bias: TensorLike | None = None,
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        name: str | None = None,
    ) -> None:
        groups, features, units = right.groups, right.size, left.size
        self.right, self.left, self.bias = right, left, bias
        self.log_singular = parameter(log_singular, "GroupedLinear log_singular", (groups, min(features, units)))
        channels = features // cells
        layers = [
            tfb.Reshape((cells, groups, channels), (groups * features,)),
            tfb.Transpose([1, 0, 2]),
            tfb.Reshape((groups, features), (groups, cells, channels)),
            right,
        ]
        if units < features:
            layers.append(Split(features, units, right.dtype))
        layers.append(Diagonal(self.log_singular, is_bounded=True))
        if units > features:
            layers.append(Widen(features, units, log_noise_scale, noise, right.dtype))
        layers += [left, tfb.Reshape((groups * units,), (groups, units))]
        if bias is not None:
            layers.append(Diagonal(shift=bias))
        super().__init__(layers, event_shape=(groups * features,), name=name)

    @property
    def kernel(self) -> tf.Tensor:
        """The matrices of the ordinary layer, (groups, n, m)."""
        rank = min(self.right.size, self.left.size)
        singular = tf.exp(bounded(tf.convert_to_tensor(self.log_singular)))
        right, left = self.right.matrix()[:, :rank], self.left.matrix()[:, :, :rank]
        return tf.einsum("gkn,gk,gmk->gnm", right, singular, left)
