"""The flow as a distribution over data: a bijection on the augmented space, with the noise integrated out."""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.augmentation import Code, StandardNormal, Unbatched, draw
from tfp_flowify.bijectors.base import FlowBijector, check_layer
from tfp_flowify.bijectors.context import Context, layers_to_prepare, prepare
from tfp_flowify.bijectors.given import Given
from tfp_flowify.bijectors.graph import Graph, Node
from tfp_flowify.core.checks import as_list, as_shape, check_parts, event_shapes
from tfp_flowify.core.private import untracked
from tfp_flowify.core.seeds import fold_in, salted, stateless_seed
from tfp_flowify.core.types import Seed, Shape, TensorLike
from tfp_flowify.core.variables import AllVariables
from tfp_flowify.distributions.bases import ConditionalNormal, FlowBase, PlainBase
from tfp_flowify.distributions.given import GivenFlow, condition_rows
from tfp_flowify.distributions.importance import log_mean_weight
from tfp_flowify.distributions.inverted import Inverted
from tfp_flowify.distributions.redraw import draw_until_preimage

tfd = tfp.distributions


class FlowDistribution(AllVariables, Unbatched):
    """The density of data x under a bijector `net: [x, *noise] <-> [z, *residuals]`.

        log p(x) >= E_q [ log p(z) + sum of log p(residual) + log_det - log q(noise) ]

    with equality where no noise enters but a `Code` (`is_exact`). `log_prob(x)` is one draw from the right side: its
    mean is the bound. `log_prob(x, num_draws=k)` is the importance-weighted bound, the log of the mean of k such
    terms' exponentials: it rises with k, for normal noise towards log p(x).

    `sample(shape, seed=, temperature=, mean=)` draws z and residuals and goes back; `temperature` scales the normal
    ones, `mean=True` puts residuals at their mean, which with the same seed leaves z the same. Where the network does
    not reach the whole space, draws without a preimage are drawn again.

    A **conditional** flow, log p(x | c), has layers that read a condition c, or a base that does. Its methods then take
    `condition=c`, and `given(c)` is the distribution of x at c.

    Args:
      bijector: The network, with one input.
      base: The distribution of z; standard normal if left out. A list where the network has several outputs. It may be
        another flow, or a `ConditionalNormal`.
      dtype: Type of the data, where the network takes any; float32 if left out.
      condition_shape: Shape of the condition of one example; None for a flow without a condition.

    >>> from tfp_flowify.bijectors import Linear, LeakyReLU, Sequential
    >>> net = Sequential([Linear.create(2, 3, seed=0), LeakyReLU(0.5), Linear.create(3, 1, seed=1)])
    >>> flow = FlowDistribution(net)
    >>> flow.is_exact, flow.noise_shapes, flow.residual_shapes
    (False, [(1,)], [(2,)])
    >>> flow.log_prob(flow.sample(5, seed=1), num_draws=10, seed=2).shape.as_list()
    [5]
    """

    def __init__(
        self,
        bijector: FlowBijector,
        base: tfd.Distribution | ConditionalNormal | list | tuple | None = None,
        dtype: tf.DType | str | None = None,
        condition_shape: Shape | None = None,
        name: str = "Flow",
    ) -> None:
        parameters = {
            "bijector": bijector,
            "base": base,
            "dtype": dtype,
            "condition_shape": condition_shape,
            "name": name,
        }
        check_layer(bijector, "FlowDistribution")
        if len(bijector.inputs) != 1:
            raise ValueError(f"A flow has one input. Received: {bijector.name} with inputs {bijector.inputs}")
        if bijector.output_levels is not None:
            raise ValueError(
                f"The output of {bijector.name} is whole numbers, which have no density. Put "
                f"Dequantize({bijector.output_levels}) behind it."
            )
        self.bijector = bijector
        self.condition_shape = condition_shape if condition_shape is None else as_shape(condition_shape)
        self._layers_to_prepare = untracked(self, layers_to_prepare(bijector))
        dtype = bijector.dtype or tf.as_dtype(dtype or tf.float32)
        bases = [StandardNormal(shape, dtype) for shape in bijector.outputs] if base is None else as_list(base)
        _check_base(bases, bijector.outputs, dtype, self.condition_shape)
        # Distributions inside a tracked list cannot be written to a SavedModel; their variables must be.
        self._bases = untracked(self, [self._as_base(base) for base in bases])
        self._base_variables = [variable for base in bases for variable in base.variables]
        super().__init__(
            dtype=dtype,
            reparameterization_type=_reparameterization(bijector, bases),
            validate_args=False,
            allow_nan_stats=False,
            parameters=parameters,
            name=name,
        )

    @property
    def is_exact(self) -> bool:
        """Whether `log_prob` is the log-density itself, not a bound that depends on draws.

        Where the network does not reach the whole space (`bijector.is_onto`), that density integrates to less than one.
        """
        return all(isinstance(noise, Code) for noise in self.bijector.noise) and all(b.is_exact for b in self._bases)

    @property
    def noise_shapes(self) -> list:
        """Event shapes of the noise that the layers add, in their order."""
        return event_shapes(self.bijector.noise)

    @property
    def residual_shapes(self) -> list:
        """Event shapes of what the layers drop, in their order."""
        return event_shapes(self.bijector.residuals)

    @property
    def joint(self) -> tfd.TransformedDistribution:
        """The distribution of [x, *noise], an ordinary one of TFP: exact, but for a base that is a flow with noise.

        Of a conditional flow, `given(c).joint`.
        """
        if self.condition_shape is not None:
            raise ValueError(f"{self.name} depends on a condition. Use given(condition).joint, for one condition.")
        parts = [*(base.given(None) for base in self._bases), *self.bijector.residuals]
        base = parts[0] if len(parts) == 1 else tfd.JointDistributionSequential(parts)
        return tfd.TransformedDistribution(base, Inverted(self.bijector))

    def given(self, condition: TensorLike) -> "GivenFlow":
        """The distribution of x given a condition, with the leading axes of the condition as its batch shape.

        Args:
          condition: (..., *condition_shape). Densities and samples can be differentiated with respect to it.

        >>> from tfp_flowify.bijectors import ConditionalTransform
        >>> shift = ConditionalTransform((2,), lambda c: tf.concat([c, 0 * c], axis=-1))
        >>> flow = FlowDistribution(shift, condition_shape=(2,)).given(tf.zeros([5, 2]))
        >>> flow.batch_shape, flow.sample(3, seed=1).shape, flow.log_prob([0.0, 0.0]).shape
        (TensorShape([5]), TensorShape([3, 5, 2]), TensorShape([5]))
        """
        return GivenFlow(self, condition)

    def at(self, condition: TensorLike) -> "FlowDistribution":
        """The flow at one value of the condition, without leading axes: a flow that takes none."""
        condition = self.admit_condition(condition)
        bases = [base.given(condition) for base in self._bases]
        return FlowDistribution(Given(self.bijector, condition), bases, self.dtype, name=self.name)

    def admit_condition(self, condition: TensorLike | None) -> tf.Tensor | None:
        """The condition as a tensor (..., *condition_shape); an error where it is missing, superfluous or misshapen."""
        if self.condition_shape is None:
            if condition is not None:
                raise ValueError(f"{self.name} takes no condition: it was made without a condition_shape.")
            return None
        wanted = f"a condition of shape (..., {', '.join(map(str, self.condition_shape))})"
        if condition is None:
            raise ValueError(f"{self.name} is a density given a condition: give {wanted}, as condition=...")
        condition = tf.convert_to_tensor(condition, dtype_hint=self.dtype)
        start = condition.shape.rank - len(self.condition_shape)
        if start < 0 or not condition.shape[start:].is_compatible_with(self.condition_shape):
            raise ValueError(f"{self.name} takes {wanted}. Received: shape={tuple(condition.shape)}")
        return tf.cast(condition, self.dtype)

    def standardized(self) -> FlowBijector:
        """The flow as one bijector [x, *noise] <-> parts that are all standard: the network, and behind it its base.

        For a base that is standard normal, a `ConditionalNormal`, or a flow of such.
        """
        names = [f"z{i}" for i in range(len(self._bases))]
        nodes = [Node(self.bijector, ("x",), tuple(names))]
        for name, base in zip(names, self._bases, strict=True):
            layer = base.as_layer()
            nodes += [] if layer is None else [Node(layer, (name,), (name,))]
        return Graph(nodes, {"x": self.bijector.inputs[0]}, names, name=self.name)

    def prepare(self, training: bool = False, condition: TensorLike | None = None) -> Context:
        """A context for passes through the bijector: all that layers compute from their weights, computed once.

        Args:
          training: Whether networks inside layers run in training mode.
          condition: (n, *condition_shape), for a conditional flow.
        """
        return prepare(self._layers_to_prepare, training, condition)

    def without_noise(self, x: TensorLike, condition: TensorLike | None = None) -> tf.Tensor | list[tf.Tensor]:
        """The ordinary network: noise zero, residuals ignored.

        Args:
          x: Data, (..., *event_shape).
          condition: For a conditional flow: of the leading axes of the data, or broadcast to them.
        """
        x, condition = self._admit(x), self.admit_condition(condition)
        if condition is not None:
            batch = tf.shape(x)[: x.shape.rank - self.event_shape.rank]
            condition = tf.broadcast_to(condition, tf.concat([batch, self.condition_shape], axis=0))
        return self.bijector.without_noise(x, self.prepare(condition=condition))

    def log_prob(
        self,
        value: TensorLike,
        name: str = "log_prob",
        num_draws: int = 1,
        seed: Seed = None,
        chunk_size: int = 16,
        condition: TensorLike | None = None,
    ) -> tf.Tensor:
        """The log-density where the flow is exact, else a bound from `num_draws` draws of the noise.

        Args:
          value: Data, (..., *event_shape).
          num_draws: More draws make the bound tighter, at their cost in time.
          seed: Seed for the noise draws; the same seed gives the same numbers.
          chunk_size: Number of draws that are held in memory at once; for a gradient, all are.
          condition: For a conditional flow; its leading axes are broadcast against those of the data.
        """
        num_draws, chunk_size = int(num_draws), int(chunk_size)
        if num_draws < 1 or chunk_size < 1:
            raise ValueError(f"Received: num_draws={num_draws}, chunk_size={chunk_size}; both are at least 1.")
        arguments = {"num_draws": num_draws, "seed": seed, "chunk_size": min(chunk_size, num_draws)}
        return super().log_prob(self._admit(value), name=name, condition=self.admit_condition(condition), **arguments)

    def prob(self, value: TensorLike, name: str = "prob", **kwargs: Any) -> tf.Tensor:
        """The exponential of `log_prob`, with the same arguments."""
        return tf.exp(self.log_prob(value, name, **kwargs))

    def _log_prob(self, x, num_draws=1, seed=None, chunk_size=1, condition=None):
        # One batch axis, whatever x has: the Keras layers inside may take no other.
        batch = tf.shape(x)[: x.shape.rank - self.event_shape.rank]
        if condition is not None:
            axes = tf.shape(condition)[: condition.shape.rank - len(self.condition_shape)]
            batch = tf.broadcast_dynamic_shape(batch, axes)
            condition = condition_rows(condition, batch, self.condition_shape)
            x = tf.broadcast_to(x, tf.concat([batch, self.event_shape], axis=0))
        points = tf.reshape(x, [-1, *self.event_shape])
        log_prob = self.score(points, num_draws, stateless_seed(seed), chunk_size, condition=condition)
        return tf.reshape(log_prob, batch)

    def score(
        self,
        points: tf.Tensor,
        num_draws: int | tf.Tensor,
        seed: tf.Tensor,
        chunk_size: int = 1,
        training: bool = False,
        condition: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Computes `log_prob` for points (n, *event_shape) that are known to be right.

        Args:
          points: Data with one batch axis, in the type of the flow.
          num_draws, chunk_size: See `log_prob`; more draws than one may be a tensor, an int32.
          seed: A pair of int32.
          training: Whether networks inside layers run in training mode.
          condition: (n, *condition_shape), a row for each point; None for a flow without a condition.
        """
        context = self.prepare(training, condition)
        if self.is_exact or (isinstance(num_draws, int) and num_draws == 1):
            return self._log_weight(points, seed, context)
        return self._importance_weighted(points, num_draws, seed, chunk_size, context)

    def score_apart(
        self, points: tf.Tensor, num_draws: int | tf.Tensor, seed: tf.Tensor, condition: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes `log_prob` and apart from it the log-density of the network's output, in the mean over draws.

        The difference of the two is what remains: the log-density of x given the output. Arguments as for `score`.
        """
        context, seed = self.prepare(condition=condition), salted(seed, "draws apart")
        num_draws = 1 if self.is_exact else num_draws
        weights, outputs = tf.map_fn(
            lambda i: self._log_weight_apart(points, fold_in(seed, i), context),
            tf.range(num_draws),
            fn_output_signature=(self.dtype, self.dtype),
        )
        log_prob = tf.reduce_logsumexp(weights, axis=0) - tf.math.log(tf.cast(num_draws, self.dtype))
        return log_prob, tf.reduce_mean(outputs, axis=0)

    def _log_weight(self, points, seed, context):
        """log p(x, noise) - log q(noise) for one draw of the noise a point."""
        return self._log_weight_apart(points, seed, context)[0]

    def _log_weight_apart(self, points, seed, context):
        """The same, and that part of it which is the log-density of the output."""
        noise = draw(self.bijector.noise, tf.shape(points)[:1], seed)
        parts, log_det = self.bijector.forward_and_log_det([points, *noise], context)
        outputs, residuals = parts[: len(self._bases)], parts[len(self._bases) :]
        seeds = self._seeds_of_bases(seed)
        output = sum(base.score(z, context, s) for base, z, s in zip(self._bases, outputs, seeds, strict=True))
        scores = [d.log_prob(residual) for d, residual in zip(self.bijector.residuals, residuals, strict=True)]
        drawn = sum(d.log_prob(n) for d, n in zip(self.bijector.noise, noise, strict=True))
        return log_det + sum(scores, start=output) - drawn, output

    def _seeds_of_bases(self, seed):
        """A seed for each base that may draw noise of its own."""
        return [fold_in(salted(seed, "base"), i) if base.draws else None for i, base in enumerate(self._bases)]

    def _importance_weighted(self, points, num_draws, seed, chunk_size, context):
        """The log of the mean of `num_draws` weights, `chunk_size` at a time."""
        seed = salted(seed, "chunks of draws")
        copies = tf.tile(points, [chunk_size] + [1] * self.event_shape.rank)
        if context.condition is not None:
            repeats = [chunk_size, *[1] * len(self.condition_shape)]
            context = context.replace(condition=tf.tile(context.condition, repeats))
        return log_mean_weight(
            lambda i: self._log_weight(copies, fold_in(seed, i), context), points, num_draws, chunk_size
        )

    def sample(
        self,
        sample_shape: Shape | int | tf.Tensor = (),
        seed: Seed = None,
        name: str = "sample",
        condition: TensorLike | None = None,
        **kwargs: Any,
    ) -> tf.Tensor:
        """Draws (*sample_shape, *event_shape); with a condition, what `given(condition)` draws.

        Args:
          sample_shape: How many; a number or a shape.
          seed: Seed for the draws; the same seed gives the same samples.
          name: As in TFP.
          condition: For a conditional flow; its leading axes stand behind those of `sample_shape`.
          **kwargs: `temperature` and `mean`, see above.
        """
        if self.admit_condition(condition) is None:
            return super().sample(sample_shape, seed, name, **kwargs)
        return self.given(condition).sample(sample_shape, seed, name, **kwargs)

    def _sample_n(self, n, seed=None, temperature=1.0, mean=False):
        return self.generate(n, stateless_seed(seed), temperature, mean)

    def generate(
        self,
        n: int | tf.Tensor,
        seed: tf.Tensor,
        temperature: float | tf.Tensor = 1.0,
        mean: bool = False,
        condition: tf.Tensor | None = None,
        outputs: list[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Draws n examples, for a seed that is a pair of int32 and n rows of the condition, where there is one.

        The other arguments are those of `sample`; `outputs`, where given, are those of the network, a list, so that
        only what it drops is drawn.
        """
        context = self.prepare(condition=condition)

        def draw_once(seed):
            return self._generate(n, seed, temperature, mean, context, outputs)

        if self.bijector.is_onto:
            return draw_once(seed)[0]
        return draw_until_preimage(draw_once, seed, self.event_shape.rank)

    def _generate(self, n, seed, temperature, mean, context, outputs):
        """Samples, and for each whether all parts, the noise too, have a preimage."""
        seeds = tfp.random.split_seed(seed, 2)
        latents = _draw(self._bases, n, context, seeds[0], temperature) if outputs is None else outputs
        dropped = [PlainBase(d) for d in self.bijector.residuals]
        residuals = self.mean_residuals(n) if mean else _draw(dropped, n, context, seeds[1], temperature)
        parts, _ = self.bijector.inverse_and_log_det(latents + residuals, context)
        finite = [tf.reduce_all(tf.math.is_finite(part), axis=list(range(1, part.shape.rank))) for part in parts]
        return parts[0], tf.reduce_all(tf.stack(finite), axis=0)

    def mean_residuals(self, n: int | tf.Tensor) -> list[tf.Tensor]:
        """The mean of what the network drops, n times."""
        return [tf.repeat(d.mean()[None], n, axis=0) for d in self.bijector.residuals]

    @staticmethod
    def _as_base(base):
        if isinstance(base, FlowDistribution):
            return FlowBase(base)
        return base if isinstance(base, ConditionalNormal) else PlainBase(base)

    def _admit(self, x):
        return check_parts(self, x, self.bijector.inputs, self.dtype)[0]

    @property
    def takes_integers(self) -> bool:
        return self.bijector.takes_integers

    def _event_shape(self):
        return tf.TensorShape(self.bijector.inputs[0])


def _draw(bases, n, context, seed, temperature) -> list:
    """n draws from each base at a temperature, which scales normal ones; a uniform one stays what it is."""
    return [base.draw(n, context, fold_in(seed, i), temperature) for i, base in enumerate(bases)]


def _check_base(bases, shapes, dtype, condition_shape):
    given = [(tuple(base.event_shape), tuple(base.batch_shape), base.dtype) for base in bases]
    if given != [(shape, (), dtype) for shape in shapes]:
        raise ValueError(
            f"The base must have the event shapes {shapes} of the network, no batch shape and the type {dtype.name}. "
            f"Received: event shape, batch shape and type {given}"
        )
    wanted = {b.condition_shape for b in bases if isinstance(b, FlowDistribution)} - {None, condition_shape}
    if wanted:
        raise ValueError(f"The base takes a condition of {wanted.pop()}, the flow has one of {condition_shape}.")


def _reparameterization(bijector, bases):
    """Whether the gradient of a sample is that of its distribution: no choices, no rounding, no drawing again."""
    smooth = bijector.is_onto and not bijector.takes_integers
    parts = [*bases, *bijector.residuals]
    if smooth and all(d.reparameterization_type == tfd.FULLY_REPARAMETERIZED for d in parts):
        return tfd.NOT_REPARAMETERIZED if any(isinstance(d, Code) for d in parts) else tfd.FULLY_REPARAMETERIZED
    return tfd.NOT_REPARAMETERIZED
