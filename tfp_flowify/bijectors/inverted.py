"""A network read backwards, as TFP's `TransformedDistribution` wants it."""

import tensorflow_probability as tfp
from tensorflow_probability.python.internal import cache_util  # Private; the reason why TFP is pinned.

from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.checks import as_list, bundle


class Inverted(FlowBijector):
    """[z, *residuals] -> [x, *noise]: the inverse of a network, with one pass for a value and its log-det.

    To score [x, *noise], TFP first asks for its preimage [z, *residuals] and then for the log-det there. The second
    question is answered from what the first one found, by TFP's own cache; any other gets a fresh answer.
    """

    _cache = cache_util.BijectorCacheWithGreedyAttrs("_forward_pair", "_inverse_pair")

    def __init__(self, bijector: FlowBijector):
        self.bijector = bijector
        super().__init__(
            inputs=bijector._out_shapes,
            outputs=bijector._in_shapes,
            dtype=bijector.dtype,
            name=f"Inverted_{bijector.name}",
        )

    def forward_and_log_det(self, x):
        return self.bijector.inverse_and_log_det(x)

    def inverse_and_log_det(self, z):
        return self.bijector.forward_and_log_det(z)

    def forward_log_det_jacobian(self, x, event_ndims=None, name="forward_log_det_jacobian", **kwargs):
        return tfp.bijectors.Bijector.forward_log_det_jacobian(self, x, event_ndims, name, **kwargs)

    def _forward_pair(self, x):
        z, log_det = self._with_one_batch_axis(self.forward_and_log_det, as_list(x), "forward")
        return bundle(z), {"ildj": -log_det}

    def _inverse_pair(self, z):
        x, log_det = self._with_one_batch_axis(self.inverse_and_log_det, as_list(z), "inverse")
        return bundle(x), {"ildj": log_det}
