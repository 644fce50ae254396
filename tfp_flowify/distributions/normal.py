"""A normal distribution with parameters: the base of a flow, if it is not standard."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.augmentation import Unbatched
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.seeds import stateless_seed
from tfp_flowify.core.types import TensorLike
from tfp_flowify.core.variables import AllVariables
from tfp_flowify.math.limits import floored

tfd = tfp.distributions


class DiagonalNormal(AllVariables, Unbatched):
    """Independent normals, each entry with a mean and a deviation of its own.

    log_prob(x) = sum of -((x - loc) / scale)^2 / 2 - log_scale - log(2 pi) / 2.

    Args:
      loc, log_scale: Of the shape of the event. A log_scale below -7 counts as -7: else data that are constant would
        have a density without bound.

    >>> DiagonalNormal(tf.ones([3]), tf.zeros([3])).mean().numpy().tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, loc: TensorLike, log_scale: TensorLike, name: str = "DiagonalNormal") -> None:
        parameters = {"loc": loc, "log_scale": log_scale, "name": name}
        self.loc = parameter(loc, "DiagonalNormal loc")
        self.log_scale = parameter(log_scale, "DiagonalNormal log_scale", self.loc.shape)
        super().__init__(
            dtype=tf.as_dtype(self.loc.dtype),
            reparameterization_type=tfd.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=False,
            parameters=parameters,
            name=name,
        )

    def _log_prob(self, x):
        log_scale = self._log_scale()
        whitened = (x - tf.convert_to_tensor(self.loc)) * tf.exp(-log_scale)
        scores = -0.5 * tf.square(whitened) - log_scale - 0.5 * math.log(2 * math.pi)
        return tf.reduce_sum(scores, axis=list(range(-len(self.loc.shape), 0)))

    def _sample_n(self, n, seed=None):
        shape = tf.concat([[n], self._event_shape_tensor()], axis=0)
        draws = tf.random.stateless_normal(shape, stateless_seed(seed), dtype=self.dtype)
        return draws * tf.exp(self._log_scale()) + tf.convert_to_tensor(self.loc)

    def _log_scale(self):
        return floored(tf.convert_to_tensor(self.log_scale))

    def _mean(self):
        return tf.convert_to_tensor(self.loc)

    def _mode(self):
        return self._mean()

    def _stddev(self):
        return tf.exp(self._log_scale())

    def _variance(self):
        return tf.square(self._stddev())

    def _entropy(self):
        return tf.reduce_sum(self._log_scale() + 0.5 * (1 + math.log(2 * math.pi)))

    def _event_shape(self):
        return tf.TensorShape(self.loc.shape)
