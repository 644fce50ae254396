"""A network read backwards, as TFP's `TransformedDistribution` wants it."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import as_list, bundle
from tfp_flowify.core.private import BijectorCacheWithGreedyAttrs
from tfp_flowify.core.types import TensorLike


class Inverted(FlowBijector):
    """[z, *residuals] -> [x, *noise]: the inverse of a network, with one pass for a value and its log-det.

    To score [x, *noise], TFP first asks for its preimage [z, *residuals] and then for the log-det there. The second
    question is answered from what the first one found, by TFP's own cache; any other gets a fresh answer.
    """

    _cache = BijectorCacheWithGreedyAttrs("_forward_pair", "_inverse_pair")

    def __init__(self, bijector: FlowBijector) -> None:
        self.bijector = bijector
        super().__init__(
            inputs=bijector.shapes_out,
            outputs=bijector.shapes_in,
            dtype=bijector.dtype,
            name=f"Inverted_{bijector.name}",
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return self.bijector.inverse_and_log_det(parts, context)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return self.bijector.forward_and_log_det(parts, context)

    def forward_log_det_jacobian(
        self,
        x: TensorLike,
        event_ndims: int | Sequence[int] | None = None,
        name: str = "forward_log_det_jacobian",
        **kwargs: Any,
    ) -> tf.Tensor:
        return tfp.bijectors.Bijector.forward_log_det_jacobian(self, x, event_ndims, name, **kwargs)

    def _forward_pair(self, x, condition=None):
        z, log_det = self._forward_pass(as_list(x), Context(condition=condition))
        return bundle(z), {"ildj": -log_det}

    def _inverse_pair(self, z, condition=None):
        x, log_det = self._inverse_pass(as_list(z), Context(condition=condition))
        return bundle(x), {"ildj": log_det}
