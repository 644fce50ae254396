"""The density of a network's output, asked in one way whether or not it depends on a condition."""

from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.augmentation import StandardNormal, StandardUniform
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.conditional import ConditionalTransform, Transform
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.bijectors.given import Given
from tfp_flowify.core.checks import as_shape
from tfp_flowify.core.types import Shape, TensorFunction, TensorLike
from tfp_flowify.core.variables import AllVariables
from tfp_flowify.distributions.given import GivenFlow
from tfp_flowify.distributions.inverted import Inverted
from tfp_flowify.distributions.normal import DiagonalNormal

if TYPE_CHECKING:
    from tfp_flowify.distributions.flow import FlowDistribution

tfd = tfp.distributions


class ConditionalNormal(AllVariables, tf.Module):
    """A base whose mean and deviation depend on the condition of a flow.

        z = T^-1(e; conditioner(condition)),  e standard normal;  log p(z) = log N(T(z)) + sum of the log-slopes of T

    Args:
      event_shape: Shape of the output that it is the density of.
      conditioner: A function of the condition, (n, ...), that gives `transform.size` numbers for each entry.
      transform: The scalar function T: `Standardize()`, with a mean and a log-deviation, if left out.
      dtype: Type of the output.

    >>> base = ConditionalNormal((1,), lambda c: tf.concat([c, 0 * c], axis=-1))  # mean c, deviation one
    >>> context = Context(condition=tf.constant([[2.0]]))
    >>> round(float(base.score(tf.constant([[2.0]]), context)[0]), 4)
    -0.9189
    """

    reparameterization_type, batch_shape = tfd.FULLY_REPARAMETERIZED, tf.TensorShape([])
    is_exact, draws = True, False

    def __init__(
        self,
        event_shape: Shape,
        conditioner: TensorFunction | InContext,
        transform: Transform | None = None,
        dtype: tf.DType | str = tf.float32,
        name: str = "ConditionalNormal",
    ) -> None:
        super().__init__(name=name)
        shape = as_shape(event_shape)
        self.event_shape, self.dtype = tf.TensorShape(shape), tf.as_dtype(dtype)
        self.whiten = ConditionalTransform(shape, conditioner, transform, dtype, name=name)
        self._normal = StandardNormal(shape, dtype)

    def score(self, z: tf.Tensor, context: Context, seed: tf.Tensor | None = None) -> tf.Tensor:
        """The log-density of outputs (n, *event_shape)."""
        (residual,), log_det = self.whiten.forward_and_log_det([z], context)
        return self._normal.log_prob(residual) + log_det

    def draw(
        self, n: int | tf.Tensor, context: Context, seed: tf.Tensor, temperature: float | tf.Tensor = 1.0
    ) -> tf.Tensor:
        """Draws one output for each row of the condition."""
        normal = self._normal.sample(n, seed=seed) * tf.cast(temperature, self.dtype)
        return self.whiten.inverse_and_log_det([normal], context)[0][0]

    def as_layer(self) -> ConditionalTransform:
        """The bijector that makes the output standard normal."""
        return self.whiten

    def given(self, condition: TensorLike) -> tfd.TransformedDistribution:
        """The density at one value of the condition."""
        return tfd.TransformedDistribution(self._normal, Inverted(Given(self.whiten, condition)))


class PlainBase:
    """A distribution of TFP as a base: without a batch shape, the same whatever the condition."""

    def __init__(self, distribution: tfd.Distribution) -> None:
        self.distribution = distribution
        self.draws = isinstance(distribution, GivenFlow)  # A flow at one condition may have noise.
        self.is_exact = getattr(distribution, "is_exact", True)

    def given(self, condition: TensorLike | None) -> tfd.Distribution:
        return self.distribution

    def as_layer(self) -> None:
        if not isinstance(self.distribution, StandardNormal):
            raise ValueError(f"Only normal bases can be made part of a bijector. Received: {self.distribution.name}")
        return None  # It is standard normal as it is.

    def score(self, z: tf.Tensor, context: Context, seed: tf.Tensor | None = None) -> tf.Tensor:
        return self.distribution.log_prob(z, seed=seed) if self.draws else self.distribution.log_prob(z)

    def draw(
        self, n: int | tf.Tensor, context: Context, seed: tf.Tensor, temperature: float | tf.Tensor = 1.0
    ) -> tf.Tensor:
        distribution, is_cold = self.distribution, tf.is_tensor(temperature) or temperature != 1
        if not is_cold or isinstance(distribution, StandardUniform):
            return distribution.sample([n], seed=seed)
        if self.draws:
            return distribution.sample([n], seed=seed, temperature=temperature)
        if isinstance(distribution, StandardNormal | DiagonalNormal):
            mean, x = distribution.mean(), distribution.sample([n], seed=seed)
            return mean + (x - mean) * tf.cast(temperature, x.dtype)
        if isinstance(getattr(distribution, "bijector", None), Inverted):  # A `ConditionalNormal` at one condition.
            base = PlainBase(distribution.distribution)
            return distribution.bijector.forward(base.draw(n, context, seed, temperature))
        raise ValueError(f"A temperature is for a normal base. Received: {distribution.name}")


class FlowBase:
    """Another flow as a base: it is given the same condition, where it takes one."""

    draws = True

    def __init__(self, flow: "FlowDistribution") -> None:
        self.flow, self.is_exact = flow, flow.is_exact

    def given(self, condition: TensorLike | None) -> "FlowDistribution":
        return self.flow if self.flow.condition_shape is None else self.flow.at(condition)

    def as_layer(self) -> FlowBijector:
        return self.flow.standardized()

    def score(self, z: tf.Tensor, context: Context, seed: tf.Tensor | None = None) -> tf.Tensor:
        return self.flow.score(z, 1, seed, training=context.training, condition=self._condition(context))

    def draw(
        self, n: int | tf.Tensor, context: Context, seed: tf.Tensor, temperature: float | tf.Tensor = 1.0
    ) -> tf.Tensor:
        return self.flow.generate(n, seed, temperature, condition=self._condition(context))

    def _condition(self, context):
        return None if self.flow.condition_shape is None else context.condition_for(self.flow.name)
