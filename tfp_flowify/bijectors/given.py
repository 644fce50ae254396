"""A bijector at one value of its condition."""

import tensorflow as tf

from tfp_flowify.bijectors.base import FlowBijector, check_layer
from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import TensorLike


class Given(FlowBijector):
    """A layer that depends on a condition, at one value of it: an ordinary bijector.

        forward: parts -> layer(parts given the condition),  log_det that of the layer.

    Args:
      layer: A layer that reads a condition.
      condition: Its value, without leading axes, for all examples.

    >>> from tfp_flowify.bijectors import ConditionalTransform
    >>> shift = ConditionalTransform((1,), lambda c: tf.concat([c, 0 * c], axis=-1))
    >>> Given(shift, [2.0]).forward([[5.0], [6.0]]).numpy().tolist()
    [[3.0], [4.0]]
    """

    def __init__(self, layer: FlowBijector, condition: TensorLike, name: str | None = None) -> None:
        check_layer(layer, "Given")
        self.layer, self.condition = layer, parameter(condition, "Given condition", None, layer.dtype)
        super().__init__(
            layer.inputs, layer.outputs, layer.noise, layer.residuals, layer.dtype, name or f"Given_{layer.name}"
        )
        self.is_onto, self.levels, self.output_levels = layer.is_onto, layer.levels, layer.output_levels
        self.only_moves, self.keeps_signs = layer.only_moves, layer.keeps_signs

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return self.layer.forward_and_log_det(parts, self._at(parts, context))

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return self.layer.inverse_and_log_det(parts, self._at(parts, context))

    def _at(self, parts, context):
        condition = tf.convert_to_tensor(self.condition)
        return context.replace(condition=tf.repeat(condition[None], tf.shape(parts[0])[0], axis=0))
