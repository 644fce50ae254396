"""The compiled functions of a flow, for any batch size: a `FlowModel` calls them and exports them."""

import functools
import math
from collections.abc import Callable, Iterable

import tensorflow as tf

from tfp_flowify.augmentation import draw
from tfp_flowify.core.checks import as_list
from tfp_flowify.core.types import PathLike
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.model.door import Door
from tfp_flowify.model.entries import TEMPERATURES, Range

#: Draws of the noise that are computed at once.
CHUNK = 16

#: So many numbers are drawn at once, at most: sizes are counted in int32.
MOST_NUMBERS = 2**31 - 1


class FlowFunctions:
    """The functions of a flow over its network, each traced once. Data that the flow does not take make them fail.

    Seeds are pairs of int32. The parts of `encode` and `decode` are the outputs of the network, then what it dropped,
    with the names in `part_names`. All take the leaves of a condition, a dict: {} for a flow without one; with a row
    for each example, or one for all.

    Args:
      distribution: The flow.
      run_network: The ordinary network, a function of (x, vectors of the condition or None).
      door: What data and conditions the flow takes.
    """

    def __init__(self, distribution: FlowDistribution, run_network: Callable, door: Door):
        self.distribution, self.run_network, self.door = distribution, run_network, door
        self.check, self.condition = door.check, door.condition
        bijector, self.dtype = distribution.bijector, distribution.dtype
        outputs = ["z"] if len(bijector.outputs) == 1 else [f"z_{i}" for i in range(len(bijector.outputs))]
        self.part_names = outputs + [f"residual_{i}" for i in range(len(bijector.residuals))]
        self.x = tf.TensorSpec([None, *distribution.event_shape], self.dtype, name="x")
        self.seed = tf.TensorSpec([2], tf.int32, name="seed")
        self.parts = [
            tf.TensorSpec([None, *shape], self.dtype, name=name)
            for shape, name in zip(bijector.shapes_out, self.part_names, strict=True)
        ]
        self.draw_specs = [
            tf.TensorSpec([], tf.int32, name="n"),
            tf.TensorSpec([], self.dtype, name="temperature"),
            self.seed,
        ]
        self.given = self.condition.specs if self.condition else {}
        self.encode = _compiled(self._encode, [self.x, self.given, self.seed])
        self.decode = _compiled(self._decode, [self.parts, self.given])
        self.reconstruct = _compiled(self._reconstruct, [self.x, self.given])
        self.predict = _compiled(self._predict, [self.x, self.given])
        self.sample = _compiled(self._sample, [*self.draw_specs, self.given])
        self.sample_mean = _compiled(self._sample_mean, [*self.draw_specs, self.given])
        self.sample_alike = _compiled(self._sample_alike, [self.x, self.given, *self.draw_specs[1:]])
        self.draws = tf.TensorSpec([], tf.int32, name="num_draws")
        self._score = _compiled(self._score_apart, [self.x, self.given, self.seed, self.draws])
        self._log_prob = {}

    def log_prob(self, num_draws: int = 1) -> Callable:
        """The function (x, leaves, seed) -> log-likelihoods from that many draws of the noise.

        Numbers of draws share a trace where as many are computed at once.
        """
        at_once = self.draws_at_once(num_draws)
        if at_once not in self._log_prob:

            def log_prob(x, leaves, seed, num_draws):
                vectors, draws = self._vectors(leaves, tf.shape(x)[0]), num_draws if at_once > 1 else 1
                return self.distribution.score(self.check.asserted(x), draws, seed, at_once, condition=vectors)

            self._log_prob[at_once] = _compiled(log_prob, [self.x, self.given, self.seed, self.draws])
        return functools.partial(self._log_prob[at_once], num_draws=num_draws)

    def draws_at_once(self, num_draws: int) -> int:
        """How many of so many draws of the noise `log_prob` holds at once."""
        return 1 if self.distribution.is_exact else min(num_draws, CHUNK)

    def score(self, num_draws: int) -> Callable:
        """The function (x, leaves, seed) -> [log-likelihoods, log-densities of the output]."""
        return functools.partial(self._score, num_draws=num_draws)

    def _score_apart(self, x, leaves, seed, num_draws):
        vectors = self._vectors(leaves, tf.shape(x)[0])
        return self.distribution.score_apart(self.check.asserted(x), num_draws, seed, vectors)

    def _vectors(self, leaves, count):
        """The condition as layers see it, or None."""
        if self.condition is None:
            return None
        return self.condition.embed(self.condition.asserted(leaves, count), count, self.dtype)

    def _context(self, leaves, count):
        return self.distribution.prepare(condition=self._vectors(leaves, count))

    def _encode(self, x, leaves, seed):
        bijector = self.distribution.bijector
        noise = draw(bijector.noise, tf.shape(x)[:1], seed)
        context = self._context(leaves, tf.shape(x)[0])
        return bijector.forward_and_log_det([self.check.asserted(x), *noise], context)[0]

    def _decode(self, parts, leaves):
        parts = [tf.ensure_shape(part, spec.shape) for part, spec in zip(parts, self.parts, strict=True)]
        named, count = zip(parts, self.part_names, strict=True), tf.shape(parts[0])[0]
        parts = [tf.debugging.assert_all_finite(p, f"{n} is not finite.") for p, n in named]
        same = tf.reduce_all([tf.shape(part)[0] == count for part in parts])
        message = f"{', '.join(self.part_names)} have a row for each example, all of them as many."
        with tf.control_dependencies([tf.debugging.Assert(same, [message])]):
            return self._back(parts, self._context(leaves, count))

    def _reconstruct(self, x, leaves):
        context = self._context(leaves, tf.shape(x)[0])
        outputs = as_list(self.distribution.bijector.without_noise(self.check.asserted(x), context))
        return self._back([*outputs, *self.distribution.mean_residuals(tf.shape(x)[0])], context)

    def _back(self, parts, context):
        return self.distribution.bijector.inverse_and_log_det(parts, context)[0][0]

    def _predict(self, x, leaves):
        return self.run_network(self.check.asserted(x), self._vectors(leaves, tf.shape(x)[0]))

    def _sample(self, n, temperature, seed, leaves):
        n, temperature = self._few(n), self._positive(temperature)
        return self.distribution.generate(n, seed, temperature, condition=self._vectors(leaves, n))

    def _sample_alike(self, x, leaves, temperature, seed):
        count, temperature = tf.shape(x)[0], self._positive(temperature)
        vectors = self._vectors(leaves, count)
        context = self.distribution.prepare(condition=vectors)
        outputs = as_list(self.distribution.bijector.without_noise(self.check.asserted(x), context))
        return self.distribution.generate(count, seed, temperature, condition=vectors, outputs=outputs)

    def _sample_mean(self, n, temperature, seed, leaves):
        n, temperature = self._few(n), self._positive(temperature)
        return self.distribution.generate(n, seed, temperature, mean=True, condition=self._vectors(leaves, n))

    def _few(self, n):
        """The same number; a graph fails where it is negative, or there would be too many examples to hold."""
        most = MOST_NUMBERS // max(1, math.prod(self.check.event_shape))
        return Range(0, most, whole=True).asserted(n, f"sample draws 0 ... {most} examples at once")

    def _positive(self, temperature):
        return TEMPERATURES.asserted(temperature, "The temperature is a positive number")


def export_functions(
    functions: FlowFunctions, variables: Iterable[tf.Variable], path: PathLike, num_draws: int = 1
) -> None:
    """Writes a SavedModel whose signatures are the functions of a flow; it needs nothing but TensorFlow to run.

    Args:
      functions: Those of the flow.
      variables: The variables that they use; each is stored once.
      path: A folder; it is made, or written over.
      num_draws: Draws of the noise for `log_prob` and `bits_per_dim`.
    """
    module = tf.Module()
    module.weights = list(variables)
    module.levels = tf.Variable(functions.check.levels or 0, trainable=False, name="levels")
    module.num_draws = tf.Variable(num_draws, trainable=False, name="num_draws")
    log_prob, names, x, seed = functions.log_prob(num_draws), functions.part_names, functions.x, functions.seed
    given, event_shape = list(functions.given.values()), functions.check.event_shape
    signatures = {
        "log_prob": _signature(lambda x, seed, **c: {"log_prob": log_prob(x, c, seed)}, [x, *given, seed]),
        "bits_per_dim": _signature(
            lambda x, seed, **c: {"bits_per_dim": bits_per_dim(log_prob(x, c, seed), event_shape)}, [x, *given, seed]
        ),
        "sample": _signature(
            lambda n, temperature, seed, **c: {"x": functions.sample(n, temperature, seed, c)},
            [*functions.draw_specs, *given],
        ),
        "encode": _signature(
            lambda x, seed, **c: dict(zip(names, functions.encode(x, c, seed), strict=True)), [x, *given, seed]
        ),
        "decode": _signature(
            lambda **parts: {"x": functions.decode([parts.pop(name) for name in names], parts)},
            [*functions.parts, *given],
        ),
        "predict": _signature(lambda x, **c: _named_outputs(functions.predict(x, c)), [x, *given]),
    }
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # They would be most of the graph.
    tf.saved_model.save(module, str(path), signatures, options)


def _compiled(function, signature):
    return tf.function(function, autograph=False, input_signature=signature)


def _signature(function, specs):
    """A concrete function whose inputs have the names of the specs."""
    return tf.function(function, autograph=False).get_concrete_function(**{spec.name: spec for spec in specs})


def _named_outputs(outputs):
    if isinstance(outputs, dict):
        return outputs
    outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
    return {"output" if len(outputs) == 1 else f"output_{i}": value for i, value in enumerate(outputs)}
