"""Bookkeeping: cutting features apart, joining them, adding and dropping them, shapes."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.base import FlowBijector, Wrapped
from tfp_flowify.bijectors.checks import parameter
from tfp_flowify.distributions.augmentation import StandardNormal, standard_noise

tfb = tfp.bijectors


class Split(FlowBijector):
    """Keeps the first features, drops the rest as they are.

        forward: x = [kept, dropped] -> [kept, dropped],  log_det = 0.

    Shapes: (..., n) -> [(..., kept), (..., n - kept)].  Mirror of `Widen`.

    >>> [part.numpy().tolist() for part in Split(3, 1).forward([1.0, 2.0, 3.0])]
    [[1.0], [2.0, 3.0]]
    """

    def __init__(self, features, kept, dtype=tf.float32, name=None):
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

    def forward_and_log_det(self, x):
        return tf.split(x, self.sizes, axis=-1), tf.zeros([], x.dtype)

    def inverse_and_log_det(self, z):
        return tf.concat(z, axis=-1), tf.zeros([], z[0].dtype)


class Widen(FlowBijector):
    """Puts noise behind the features.

        forward: [x, noise] -> z = [x, a noise],  log_det = sum of log a over what is added.

    Shapes: [(..., n), (..., units - n)] -> (..., units).  Mirror of `Split`.

    Args:
      features, units: n, and how many there are behind it.
      log_noise_scale: log a, a scalar or (units - n,).
      noise: "normal" or "uniform".

    >>> Widen(1, 3).forward([[1.0], [0.2, 0.3]]).shape.as_list()
    [3]
    """

    def __init__(self, features, units, log_noise_scale=0.0, noise="normal", dtype=tf.float32, name=None):
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

    def forward_and_log_det(self, x):
        x, noise = x
        return tf.concat([x, noise * tf.exp(self._log_scale())], axis=-1), tf.reduce_sum(self._log_scale())

    def inverse_and_log_det(self, z):
        x, noise = tf.split(z, self.sizes, axis=-1)
        return [x, noise * tf.exp(-self._log_scale())], -tf.reduce_sum(self._log_scale())

    def _log_scale(self):
        return tf.broadcast_to(tf.convert_to_tensor(self.log_noise_scale), self.sizes[1:])


class Concatenate(FlowBijector):
    """Joins branches along the last axis.

        forward: [x_1, ..., x_k] -> z,  log_det = 0.  The inverse cuts them apart again.

    >>> Concatenate([2, 1]).forward([[1.0, 2.0], [3.0]]).numpy().tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, sizes, name=None):
        self.sizes = tuple(sizes)
        super().__init__(inputs=[(size,) for size in self.sizes], outputs=[(sum(self.sizes),)], name=name)

    def forward_and_log_det(self, x):
        return tf.concat(x, axis=-1), tf.zeros([], x[0].dtype)

    def inverse_and_log_det(self, z):
        return tf.split(z, self.sizes, axis=-1), tf.zeros([], z.dtype)


class Reshape(Wrapped):
    """From one event shape to another: TFP's `Reshape`.

    >>> Reshape((2, 3), (3, 2)).forward(tf.zeros([5, 2, 3])).shape.as_list()
    [5, 3, 2]
    """

    only_moves = True

    def __init__(self, event_shape_in, event_shape_out, name=None):
        if math.prod(event_shape_in) != math.prod(event_shape_out):
            raise ValueError(
                f"Reshape keeps the number of entries: got {tuple(event_shape_in)} -> {tuple(event_shape_out)}."
            )
        super().__init__(tfb.Reshape(tuple(event_shape_out), tuple(event_shape_in)), event_shape_in, name)


class Flatten(Reshape):
    """One vector of the whole event.

    >>> Flatten((2, 3)).forward(tf.zeros([5, 2, 3])).shape.as_list()
    [5, 6]
    """

    def __init__(self, event_shape, name=None):
        super().__init__(event_shape, (math.prod(event_shape),), name)


class Permute(Wrapped):
    """Permutes the axes of an event, counted from 0: TFP's `Transpose`.

    >>> Permute((2, 3), [1, 0]).forward(tf.zeros([5, 2, 3])).shape.as_list()
    [5, 3, 2]
    """

    only_moves = True

    def __init__(self, event_shape, axes, name=None):
        if sorted(axes) != list(range(len(event_shape))):
            raise ValueError(f"axes must be an order of {list(range(len(event_shape)))}. Received: axes={list(axes)}")
        super().__init__(tfb.Transpose(perm=list(axes)), event_shape, name)
