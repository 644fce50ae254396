"""Features cut apart, joined, added and dropped."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal, standard_noise
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import Shape, TensorLike


class Split(FlowBijector):
    """Keeps the first features and drops the others as they are.

        forward: x = [kept, dropped] -> [kept, dropped],  log_det = 0.

    Shapes: (..., n) -> [(..., kept), (..., n - kept)].  Mirror of `Widen`.

    >>> [part.numpy().tolist() for part in Split(3, 1).forward([1.0, 2.0, 3.0])]
    [[1.0], [2.0, 3.0]]
    """

    def __init__(self, features: int, kept: int, dtype: tf.DType | str = tf.float32, name: str | None = None) -> None:
        if not 0 < kept < features:
            raise ValueError(f"Split must drop features: got {features} -> {kept}. Use Widen to add them.")
        self.sizes = (kept, features - kept)
        super().__init__(
            inputs=[(features,)],
            outputs=[(kept,)],
            residuals=[StandardNormal((features - kept,), dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return tf.split(parts[0], self.sizes, axis=-1), tf.zeros([], self.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return [tf.concat(parts, axis=-1)], tf.zeros([], self.dtype)


class Select(FlowBijector):
    """Keeps some entries of an event, in any order, and drops the others as they are: slices.

        forward: x -> [kept, dropped],  log_det = 0.  The inverse puts all back in their places.

    Shapes: shape -> [(..., kept), (..., dropped)], vectors both.

    Args:
      shape: Event shape of x.
      kept: Places of the entries that are kept, in the flattened event.

    >>> [part.numpy().tolist() for part in Select((2, 2), [3, 0]).forward([[1.0, 2.0], [3.0, 4.0]])]
    [[4.0, 1.0], [2.0, 3.0]]
    """

    def __init__(
        self,
        shape: Shape,
        kept: Sequence[int] | np.ndarray,
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        size, kept = math.prod(shape), np.asarray(kept, np.int64).reshape(-1)
        if not len(set(kept.tolist())) == len(kept) or not len(kept) or kept.min() < 0 or kept.max() >= size:
            raise ValueError(f"Select keeps entries of {tuple(shape)}, each once. Received: {len(kept)} places.")
        dropped = np.setdiff1d(np.arange(size), kept)
        if not len(dropped):
            raise ValueError(f"Select must drop entries. Received: all {size} of {tuple(shape)}. Use a permutation.")
        self._order, self.sizes = np.concatenate([kept, dropped]), (len(kept), len(dropped))
        super().__init__(
            inputs=[shape],
            outputs=[(len(kept),)],
            residuals=[StandardNormal((len(dropped),), dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        leading = tf.shape(parts[0])[: parts[0].shape.rank - len(self.inputs[0])]
        flat = tf.reshape(parts[0], tf.concat([leading, [self._order.size]], axis=0))
        return tf.split(tf.gather(flat, self._order, axis=-1), self.sizes, axis=-1), tf.zeros([], self.dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        flat = tf.gather(tf.concat(parts, axis=-1), np.argsort(self._order), axis=-1)
        shape = tf.concat([tf.shape(parts[0])[:-1], self.inputs[0]], axis=0)
        return [tf.reshape(flat, shape)], tf.zeros([], self.dtype)


class Widen(FlowBijector):
    """Adds features that are noise, behind those that are there.

        forward: [x, noise] -> z = [x, a noise],  log_det = sum of log a over what is added.

    Shapes: [(..., n), (..., units - n)] -> (..., units).  Mirror of `Split`.

    Args:
      features, units: Number of features that come in, n, and that go out.
      log_noise_scale: log a, a scalar or (units - n,).
      noise: "normal" or "uniform".

    >>> Widen(1, 3).forward([[1.0], [0.2, 0.3]]).shape.as_list()
    [3]
    """

    def __init__(
        self,
        features: int,
        units: int,
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        if not 0 < features < units:
            raise ValueError(f"Widen must add features: got {features} -> {units}. Use Split to drop them.")
        self.sizes = (features, units - features)
        self.log_noise_scale = parameter(log_noise_scale, "Widen log_noise_scale", None, dtype)
        if tuple(self.log_noise_scale.shape) not in ((), self.sizes[1:]):
            raise ValueError(
                f"Widen from {features} to {units} features takes a log_noise_scale of shape () or {self.sizes[1:]}. "
                f"Received: shape={tuple(self.log_noise_scale.shape)}"
            )
        dtype = self.log_noise_scale.dtype
        super().__init__(
            inputs=[(features,)],
            outputs=[(units,)],
            noise=[standard_noise(noise, (units - features,), dtype)],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, noise = parts
        return [tf.concat([x, noise * tf.exp(self.log_scale())], axis=-1)], tf.reduce_sum(self.log_scale())

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, noise = tf.split(parts[0], self.sizes, axis=-1)
        return [x, noise * tf.exp(-self.log_scale())], -tf.reduce_sum(self.log_scale())

    def log_scale(self) -> tf.Tensor:
        """log a for each of the features that are added."""
        return tf.broadcast_to(tf.convert_to_tensor(self.log_noise_scale), self.sizes[1:])


class Concatenate(FlowBijector):
    """Joins branches along the last axis.

        forward: [x_1, ..., x_k] -> z,  log_det = 0.  The inverse cuts them apart again.

    >>> Concatenate([2, 1]).forward([[1.0, 2.0], [3.0]]).numpy().tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, sizes: Iterable[int], name: str | None = None) -> None:
        self.sizes = tuple(sizes)
        super().__init__(inputs=[(size,) for size in self.sizes], outputs=[(sum(self.sizes),)], name=name)

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return [tf.concat(parts, axis=-1)], tf.zeros([], parts[0].dtype)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return tf.split(parts[0], self.sizes, axis=-1), tf.zeros([], parts[0].dtype)
