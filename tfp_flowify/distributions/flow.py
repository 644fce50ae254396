"""The flow as a distribution over data: a bijection on the augmented space, with the noise integrated out."""

import math

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.base import check_layer
from tfp_flowify.bijectors.checks import as_list, bundle, check_parts, event_shapes
from tfp_flowify.bijectors.inverted import Inverted
from tfp_flowify.bijectors.prepared import prepared_once, to_prepare
from tfp_flowify.bijectors.variables import AllVariables
from tfp_flowify.distributions.augmentation import Code, StandardNormal, StandardUniform, stateless_seed
from tfp_flowify.distributions.normal import DiagonalNormal
from tfp_flowify.distributions.unbatched import Unbatched

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

    Args:
      bijector: the network, with one input.
      base: the distribution of z; standard normal if left out. A list where the network has several outputs.
      dtype: of the data, where the network takes any; float32 if left out.

    >>> from tfp_flowify.bijectors import Linear, LeakyReLU, Sequential
    >>> net = Sequential([Linear.create(2, 3, seed=0), LeakyReLU(0.5), Linear.create(3, 1, seed=1)])
    >>> flow = FlowDistribution(net)
    >>> flow.is_exact, flow.noise_shapes, flow.residual_shapes
    (False, [(1,)], [(2,)])
    >>> flow.log_prob(flow.sample(5, seed=1), num_draws=10, seed=2).shape.as_list()
    [5]
    """

    def __init__(self, bijector, base=None, dtype=None, name="Flow"):
        parameters = {"bijector": bijector, "base": base, "dtype": dtype, "name": name}
        check_layer(bijector, "FlowDistribution")
        if len(bijector.inputs) != 1:
            raise ValueError(f"A flow has one input. Received: {bijector.name} with inputs {bijector.inputs}")
        self.bijector = bijector
        self._to_prepare = self._no_dependency(to_prepare(bijector))
        dtype = bijector.dtype or tf.as_dtype(dtype or tf.float32)
        bases = [StandardNormal(shape, dtype) for shape in bijector.outputs] if base is None else as_list(base)
        _check_base(bases, bijector.outputs, dtype)
        # Distributions inside a tracked list cannot be written to a SavedModel; their variables must be.
        self._bases = self._no_dependency(bases)
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
        return all(isinstance(noise, Code) for noise in self.bijector.noise)

    @property
    def noise_shapes(self) -> list:
        return event_shapes(self.bijector.noise)

    @property
    def residual_shapes(self) -> list:
        return event_shapes(self.bijector.residuals)

    @property
    def joint(self) -> tfd.TransformedDistribution:
        """The distribution of [x, *noise]: exact, and an ordinary one of TFP."""
        parts = self._part_distributions()
        base = parts[0] if len(parts) == 1 else tfd.JointDistributionSequential(parts)
        return tfd.TransformedDistribution(base, Inverted(self.bijector))

    def prepared(self):
        """A context in which all passes share what layers make of their weights: rotations, tables of splines."""
        return prepared_once(self._to_prepare)

    def network(self, x):
        """The ordinary network: noise zero, residuals ignored."""
        return self.bijector.network(self._admit(x))

    def log_prob(self, value, name="log_prob", num_draws=1, seed=None, chunk_size=16):
        """The log-density where the flow is exact, else a bound from `num_draws` draws of the noise.

        Args:
          value: data, (..., *event_shape).
          num_draws: more draws make the bound tighter, at their cost in time.
          seed: of the draws; the same seed gives the same numbers.
          chunk_size: how many draws are held in memory at once; for a gradient, all are.
        """
        num_draws, chunk_size = int(num_draws), int(chunk_size)
        if num_draws < 1 or chunk_size < 1:
            raise ValueError(f"Received: num_draws={num_draws}, chunk_size={chunk_size}; both are at least 1.")
        return super().log_prob(
            self._admit(value), name=name, num_draws=num_draws, seed=seed, chunk_size=min(chunk_size, num_draws)
        )

    def _log_prob(self, x, num_draws=1, seed=None, chunk_size=1):
        seed = stateless_seed(seed)
        # One batch axis, whatever x has: the Keras layers inside may take no other.
        points = tf.reshape(x, [-1, *self.event_shape])
        with self.prepared():
            if num_draws == 1 or self.is_exact:
                log_prob = self._log_weight(points, seed)
            else:
                log_prob = self._importance_weighted(points, num_draws, seed, chunk_size)
        return tf.reshape(log_prob, tf.shape(x)[: x.shape.rank - self.event_shape.rank])

    def _log_weight(self, points, seed):
        """log p(x, noise) - log q(noise) for one draw of the noise a point."""
        count = tf.shape(points)[0]
        noise = draw(self.bijector.noise, [count], seed)
        parts, log_det = self.bijector.forward_and_log_det(bundle([points, *noise]))
        scores = [d.log_prob(part) for d, part in zip(self._part_distributions(), as_list(parts), strict=True)]
        return log_det + sum(scores) - sum(d.log_prob(n) for d, n in zip(self.bijector.noise, noise, strict=True))

    def _importance_weighted(self, points, num_draws, seed, chunk_size):
        """The log of the mean of `num_draws` weights, `chunk_size` at a time."""
        count, chunks = tf.shape(points)[0], -(-num_draws // chunk_size)
        copies = tf.tile(points, [chunk_size] + [1] * self.event_shape.rank)

        def add_chunk(i, highest, total):
            """Adds weights exp(log_weight - highest); written out, since a sum of none must not make NaN gradients."""
            weights = self._log_weight(copies, tf.random.experimental.stateless_fold_in(seed, i))
            surplus = i * chunk_size + tf.range(chunk_size) >= num_draws
            weights = tf.reshape(weights, [chunk_size, count])
            weights = tf.where(surplus[:, None], tf.cast(-math.inf, self.dtype), weights)
            new = tf.maximum(highest, tf.stop_gradient(tf.reduce_max(weights, axis=0)))
            shift = tf.where(tf.math.is_finite(new), new, tf.zeros_like(new))
            return i + 1, new, total * tf.exp(highest - shift) + tf.reduce_sum(tf.exp(weights - shift), axis=0)

        nothing = tf.fill([count], tf.cast(-math.inf, self.dtype))
        batch = points.shape[:1]
        _, highest, total = tf.while_loop(
            lambda i, *_: i < chunks,
            add_chunk,
            (tf.constant(0), nothing, tf.zeros([count], self.dtype)),
            shape_invariants=(tf.TensorShape([]), batch, batch),
            parallel_iterations=1,
            maximum_iterations=chunks,
        )
        some = total > 0
        return tf.where(some, highest + tf.math.log(tf.where(some, total, 1) / num_draws), nothing)

    def _sample_n(self, n, seed=None, temperature=1.0, mean=False):
        seed = stateless_seed(seed)
        with self.prepared():
            if self.bijector.is_onto:
                return self._generate(n, seed, temperature, mean)[0]
            return self._generate_with_preimage(n, seed, temperature, mean)

    def _generate(self, n, seed, temperature, mean):
        """Samples, and for each whether all parts, the noise too, have a preimage."""
        seeds = tfp.random.split_seed(seed, 2)
        latents = draw(self._bases, [n], seeds[0], temperature)
        if mean:
            residuals = [tf.repeat(d.mean()[None], n, axis=0) for d in self.bijector.residuals]
        else:
            residuals = draw(self.bijector.residuals, [n], seeds[1], temperature)
        parts = as_list(self.bijector.inverse_and_log_det(bundle(latents + residuals))[0])
        finite = [tf.reduce_all(tf.math.is_finite(part), axis=list(range(1, part.shape.rank))) for part in parts]
        return parts[0], tf.reduce_all(tf.stack(finite), axis=0)

    def _generate_with_preimage(self, n, seed, temperature, mean, rounds=100):
        """Draws again, up to a limit, what came out as NaN: then the samples follow the density, normalised."""

        def redraw(i, x, good):
            again, good_again = self._generate(n, tf.random.experimental.stateless_fold_in(seed, i), temperature, mean)
            keep = good[(..., *[None] * self.event_shape.rank)]
            return i + 1, tf.where(keep, x, again), good | good_again

        x, good = self._generate(n, seed, temperature, mean)
        _, x, good = tf.while_loop(
            lambda i, _, good: ~tf.reduce_all(good), redraw, (tf.constant(0), x, good), maximum_iterations=rounds
        )
        message = (
            f"Some samples found no preimage in {rounds} rounds: layers that reach only part of the space (tanh, "
            "sigmoid, softplus, ELU, Abs) get values outside it. Train the flow first, put an invertible function "
            "onto the whole line in their place, or use Stochastic."
        )
        if tf.executing_eagerly():
            if not np.all(good):
                raise ValueError(message)
            return x
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(good), [message])]):
            return tf.identity(x)

    def _part_distributions(self):
        return [*self._bases, *self.bijector.residuals]

    def _admit(self, x):
        return check_parts(self, x, self.bijector.inputs, self.dtype)[0]

    @property
    def takes_integers(self) -> bool:
        return self.bijector.takes_integers

    def _event_shape(self):
        return tf.TensorShape(self.bijector.inputs[0])


def draw(distributions, sample_shape, seed, temperature=1.0) -> list:
    """One draw from each distribution. Temperature scales normal ones; a uniform one stays what it is."""
    seeds = [tf.random.experimental.stateless_fold_in(seed, i) for i in range(len(distributions))]
    draws = [d.sample(sample_shape, seed=s) for d, s in zip(distributions, seeds, strict=True)]
    if not tf.is_tensor(temperature) and temperature == 1:
        return draws
    return [_scale(d, x, temperature) for d, x in zip(distributions, draws, strict=True)]


def _scale(distribution, x, temperature):
    if isinstance(distribution, StandardUniform):
        return x
    if isinstance(distribution, StandardNormal | DiagonalNormal):
        mean = distribution.mean()
        return mean + (x - mean) * tf.cast(temperature, x.dtype)
    raise ValueError(f"A temperature is for a normal base. Received: {distribution.name}")


def _check_base(bases, shapes, dtype):
    given = [(tuple(base.event_shape), tuple(base.batch_shape), base.dtype) for base in bases]
    if given != [(shape, (), dtype) for shape in shapes]:
        raise ValueError(
            f"The base must have the event shapes {shapes} of the network, no batch shape and the type {dtype.name}. "
            f"Received: event shape, batch shape and type {given}"
        )


def _reparameterization(bijector, bases):
    """Whether the gradient of a sample is that of its distribution: no choices, no rounding, no drawing again."""
    smooth = bijector.is_onto and not bijector.takes_integers
    parts = [*bases, *bijector.residuals]
    if smooth and all(d.reparameterization_type == tfd.FULLY_REPARAMETERIZED for d in parts):
        return tfd.NOT_REPARAMETERIZED if any(isinstance(d, Code) for d in parts) else tfd.FULLY_REPARAMETERIZED
    return tfd.NOT_REPARAMETERIZED
