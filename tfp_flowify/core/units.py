"""Units of likelihoods."""

import math

import numpy as np
import tensorflow as tf

from tfp_flowify.core.types import Shape


def bits_per_dim(log_prob: tf.Tensor | np.ndarray | float, event_shape: Shape) -> tf.Tensor | np.ndarray | float:
    """Negative log-likelihoods in bits for each dimension of the data, of log-likelihoods in nats.

    >>> round(bits_per_dim(-math.log(4), (2,)), 6)
    1.0
    """
    return -log_prob / (math.prod(event_shape) * math.log(2))
