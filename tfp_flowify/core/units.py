"""Units of likelihoods."""

import math


def bits_per_dim(log_prob, event_shape):
    """Negative log-likelihoods in bits for each dimension of the data, of log-likelihoods in nats.

    >>> round(bits_per_dim(-math.log(4), (2,)), 6)
    1.0
    """
    return -log_prob / (math.prod(event_shape) * math.log(2))
