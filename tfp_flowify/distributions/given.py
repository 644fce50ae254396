"""A conditional flow at given conditions, as a distribution with a batch shape."""

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.core.seeds import stateless_seed
from tfp_flowify.core.types import Shape, TensorLike
from tfp_flowify.core.variables import AllVariables

if TYPE_CHECKING:
    from tfp_flowify.distributions.flow import FlowDistribution

tfd = tfp.distributions


class GivenFlow(AllVariables, tfd.Distribution):
    """A conditional flow at some values of its condition: an ordinary distribution of TFP.

    It is what `FlowDistribution.given(condition)` and `FlowModel.given(condition)` return.

    `log_prob(x, num_draws=, seed=, chunk_size=)` and `sample(shape, seed=, temperature=, mean=)` are those of the flow.

    Args:
      flow: A conditional flow.
      condition: (..., *condition_shape); its leading axes are the batch shape.

    >>> from tfp_flowify import FlowDistribution
    >>> from tfp_flowify.bijectors import ConditionalTransform
    >>> shift = ConditionalTransform((1,), lambda c: tf.concat([c, 0 * c], axis=-1))
    >>> GivenFlow(FlowDistribution(shift, condition_shape=(1,)), tf.zeros([5, 1]))[:2].batch_shape.as_list()
    [2]
    """

    def __init__(self, flow: "FlowDistribution", condition: TensorLike, name: str | None = None) -> None:
        parameters = {"flow": flow, "condition": condition, "name": name}
        self.flow, self.condition = flow, flow.admit_condition(condition)
        super().__init__(
            dtype=flow.dtype,
            reparameterization_type=flow.reparameterization_type,
            validate_args=False,
            allow_nan_stats=False,
            parameters=parameters,
            name=name or f"Given{flow.name}",
        )

    @property
    def is_exact(self) -> bool:
        """Whether `log_prob` is the log-density itself, not a bound that depends on draws."""
        return self.flow.is_exact

    @property
    def joint(self) -> tfd.TransformedDistribution:
        """The distribution of [x, *noise] given one condition, without a batch shape."""
        if self.batch_shape.rank:
            raise ValueError(f"A joint is for one condition. Received: a batch of {tuple(self.batch_shape)}")
        return self.flow.at(self.condition).joint

    def log_prob(self, value: TensorLike, name: str = "log_prob", **kwargs: Any) -> tf.Tensor:
        """See `FlowDistribution.log_prob`; the batch shape is broadcast against leading axes of the data."""
        return self.flow.log_prob(value, name=name, condition=self.condition, **kwargs)

    def prob(self, value: TensorLike, name: str = "prob", **kwargs: Any) -> tf.Tensor:
        """The exponential of `log_prob`."""
        return tf.exp(self.log_prob(value, name, **kwargs))

    def _log_prob(self, x, **kwargs):
        return self.log_prob(x, **kwargs)

    def _sample_n(self, n, seed=None, temperature=1.0, mean=False):
        batch, shape = tf.concat([[n], self.batch_shape_tensor()], axis=0), self.flow.condition_shape
        rows = condition_rows(self.condition, batch, shape)
        x = self.flow.generate(tf.shape(rows)[0], stateless_seed(seed), temperature, mean, condition=rows)
        return tf.reshape(x, tf.concat([batch, self.event_shape], axis=0))

    def _event_shape(self):
        return self.flow.event_shape

    def _event_shape_tensor(self):
        return self.flow.event_shape_tensor()

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {"condition": tfp.util.ParameterProperties(event_ndims=lambda given: len(given.flow.condition_shape))}


def condition_rows(condition: tf.Tensor, batch: tf.Tensor, shape: Shape) -> tf.Tensor:
    """A condition broadcast to the leading axes `batch`, as rows."""
    return tf.reshape(tf.broadcast_to(condition, tf.concat([batch, shape], axis=0)), [-1, *shape])
