"""One part made standard normal given another by a whole flow: the density of what a block drops."""

import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal
from tfp_flowify.bijectors.base import FlowBijector, check_layer
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.core.types import Shape, TensorFunction


class WhitenByFlow(FlowBijector):
    """[given, x, *noise] -> [given, *residuals], by a flow of x whose condition is made of `given`.

        residuals = net([x, *noise]; condition = embed(given)),  log_det = that of the net

    `Whiten` is the same with a function of each entry; here the density of x given the other part is that of any
    conditional flow.

    Args:
      given: Event shape of the part that is kept.
      net: A bijector [x, *noise] <-> [*outputs, *residuals] that may read its condition. All that it gives is scored
        under the standard normal, or under what its residuals say.
      embed: A function of `given`, (n, ...), that gives the condition of the net, (n, ...); None to take it as it is.

    >>> from tfp_flowify.bijectors import ConditionalTransform
    >>> shift = ConditionalTransform((1,), lambda c: tf.concat([c, 0 * c], axis=-1))  # loc and log-scale
    >>> whiten = WhitenByFlow((1,), shift)
    >>> [part.numpy().tolist() for part in whiten.forward([[[2.0]], [[5.0]]])]
    [[[2.0]], [[3.0]]]
    """

    def __init__(
        self, given: Shape, net: FlowBijector, embed: TensorFunction | InContext | None = None, name: str | None = None
    ) -> None:
        check_layer(net, "WhitenByFlow")
        if len(net.inputs) != 1:
            raise ValueError(f"WhitenByFlow takes a net of one input. Received: {net.name} with {len(net.inputs)}")
        if net.levels is not None:
            raise ValueError(f"{net.name} takes whole numbers; what a block drops are real ones.")
        self.net, self.embed = net, embed
        super().__init__(
            inputs=[given, *net.inputs],
            outputs=[given],
            noise=net.noise,
            residuals=[*(StandardNormal(shape, net.dtype) for shape in net.outputs), *net.residuals],
            dtype=net.dtype,
            name=name,
        )
        self.is_onto = net.is_onto

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        given, *rest = parts
        residuals, log_det = self.net.forward_and_log_det(rest, self.context_for(given, context))
        return [given, *residuals], log_det

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        given, *residuals = parts
        rest, log_det = self.net.inverse_and_log_det(residuals, self.context_for(given, context))
        return [given, *rest], log_det

    def context_for(self, given: tf.Tensor, context: Context) -> Context:
        """The context of the net: that of the pass, with its own condition."""
        return context.replace(condition=given if self.embed is None else context.run(self.embed, given))
