"""The questions that a flow answers: likelihoods, samples, the way to its parts and back."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import as_list, whole_number
from tfp_flowify.core.memory import check_memory
from tfp_flowify.core.seeds import numbered, stateless_seed
from tfp_flowify.core.types import Examples, RawCondition, Seed, TensorLike
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.distributions import FlowDistribution, GivenFlow
from tfp_flowify.model.entries import checked_temperature, dense
from tfp_flowify.model.functions import FlowFunctions
from tfp_flowify.model.inputs import check_parts_of_encode, data_of, is_endless


class Density:
    """Mixin for a model with a distribution: its methods on arrays, tensors and datasets, in batches, checked.

    A seed is a whole number or a pair of them, and gives the same numbers each time. Each batch has a seed of its own,
    the first the given one, so that numbers beyond the first batch depend on `batch_size`.
    """

    _flow_functions: FlowFunctions | None = None

    @property
    def distribution(self) -> FlowDistribution:
        """The flow as a distribution of TFP."""
        return self._functions.distribution

    @property
    def event_shape(self) -> tuple:
        """The shape of one example."""
        return self._check.event_shape

    @property
    def levels(self) -> int | None:
        """The number of levels of its data, where they are whole numbers 0 ... levels - 1; else None."""
        return self._check.levels

    @property
    def is_exact(self) -> bool:
        """Whether `log_prob` is the log-density itself, not a bound that depends on draws of noise."""
        return self.distribution.is_exact

    @property
    def takes_condition(self) -> bool:
        """Whether it is a density given a condition."""
        return self._door.condition is not None

    @property
    def noise_shapes(self) -> list:
        """Event shapes of the noise that the layers add, in their order."""
        return self.distribution.noise_shapes

    @property
    def residual_shapes(self) -> list:
        """Event shapes of what the layers drop, in their order."""
        return self.distribution.residual_shapes

    def log_prob(
        self,
        x: Examples,
        num_draws: int = 1,
        seed: Seed = None,
        batch_size: int = 1024,
        *,
        condition: RawCondition = None,
    ) -> tf.Tensor:
        """Log-likelihoods in nats: exact where the flow adds no noise, else a bound from draws of it.

        Args:
          x: A batch of examples, or a `tf.data.Dataset` of batches (its labels are ignored).
          num_draws: More draws make the bound tighter.
          seed: Seed for the noise draws; the same seed gives the same draws.
          batch_size: Number of examples, times draws up to 16, that are held in memory at once.
          condition: For a conditional flow: one for each example, or one for all of them, with or without a batch axis.
            In a dataset it comes with the data.
        """
        num_draws, batch_size = whole_number("num_draws", num_draws), whole_number("batch_size", batch_size)
        size = max(1, batch_size // self._functions.draws_at_once(num_draws))
        return self._in_batches(self._functions.log_prob(num_draws), x, condition, size, seed)[0]

    def bits_per_dim(
        self,
        x: Examples,
        num_draws: int = 1,
        seed: Seed = None,
        batch_size: int = 1024,
        *,
        condition: RawCondition = None,
    ) -> tf.Tensor:
        """Negative log-likelihoods in bits for each dimension of the data. Arguments as for `log_prob`."""
        log_prob = self.log_prob(x, num_draws, seed, batch_size, condition=condition)
        return bits_per_dim(log_prob, self._check.event_shape)

    def score(
        self,
        x: Examples,
        num_draws: int = 10,
        seed: Seed = None,
        batch_size: int = 1024,
        *,
        condition: RawCondition = None,
        typical: Examples | None = None,
    ) -> dict:
        """Log-likelihoods taken apart: what the output of the network says, and what the rest of the data say.

        As a score of anomaly each has its weak side. The likelihood itself is known to mislead: a flow of photographs
        may give house numbers a higher one (Nalisnick et al. 2019), since it counts all details, and simple data
        are likely. The output alone does not see what the network ignores. So look at all of them on data of yours.

        Args:
          x, num_draws, seed, batch_size, condition: As for `log_prob`.
          typical: Examples to compare with, such as training data, or the mean of their log-likelihoods. For a
            conditional flow, that mean, or a dataset of examples with their conditions.

        Returns:
          A dict of arrays, a number for each example: "log_prob", log p(x) in nats; "output", log p(z) of the output z;
          "rest", log p(x | z), the difference; and where `typical` is given, "distance": how far log p(x) is from its
          typical mean, above or below.
        """
        num_draws, batch_size = whole_number("num_draws", num_draws), whole_number("batch_size", batch_size)
        total, output = self._in_batches(self._functions.score(num_draws), x, condition, batch_size, seed)
        scores = {"log_prob": total, "output": output, "rest": total - output}
        if typical is not None:
            if isinstance(typical, tf.data.Dataset) or np.ndim(typical):
                typical = tf.reduce_mean(self.log_prob(typical, num_draws, seed, batch_size))
            typical = dense(typical, "typical is examples, or a number", "typical")
            if not np.isfinite(typical):
                raise ValueError(f"typical has a finite mean. Received: typical={typical}")
            scores["distance"] = tf.abs(total - tf.cast(typical, total.dtype))
        return scores

    def sample_alike(
        self,
        x: Examples,
        n: int = 1,
        temperature: float | tf.Tensor = 1.0,
        seed: Seed = None,
        batch_size: int = 1024,
        *,
        condition: RawCondition = None,
    ) -> tf.Tensor:
        """Draws examples that the network takes for the same: with the output that it gives for x, and all else drawn.

        They show what the network ignores. Where the flow was made by blocks, their outputs are the same up to the
        noise of the block, and as far as the density of x given the output is learned. The shape is (n, *x.shape).

        Args:
          x: A batch of examples.
          n: Number of draws for each.
          temperature, seed, batch_size, condition: As for `sample`.
        """
        n, size = whole_number("n", n), whole_number("batch_size", batch_size)
        scale = checked_temperature(temperature, self._functions.dtype)

        def function(batch, leaves, batch_seed):
            return self._functions.sample_alike(batch, leaves, scale, batch_seed)

        seeds = itertools.islice(numbered(seed, "draws alike"), n)
        return tf.stack([self._in_batches(function, x, condition, size, each)[0] for each in seeds])

    def sample(
        self,
        n: int | tf.Tensor,
        temperature: float | tf.Tensor = 1.0,
        mean: bool = False,
        seed: Seed = None,
        batch_size: int = 1024,
        *,
        condition: RawCondition = None,
    ) -> tf.Tensor:
        """Draws examples.

        Args:
          n: Number of examples.
          temperature: Scales what is drawn; less than one gives more typical examples.
          mean: Whether to put what the network drops at its mean, so that only its output is drawn. With the same seed
            the output is the same.
          seed: Seed for the draws; the same seed gives the same examples.
          batch_size: Number of examples that are held in memory at once.
          condition: For a conditional flow: one for each example, or one for all of them, with or without a batch axis.
        """
        functions = self._functions
        function = functions.sample_mean if mean else functions.sample
        functions.door.refuse(condition)
        if tf.is_tensor(n) and not tf.executing_eagerly():
            leaves = functions.condition.checked(condition) if functions.condition else {}
            return function(n, temperature, stateless_seed(seed), leaves)
        n, batch_size = whole_number("n", n, least=0), whole_number("batch_size", batch_size)
        temperature = checked_temperature(temperature, functions.dtype)
        needed = n * math.prod(self.event_shape) * functions.dtype.size
        check_memory(f"{n:,} examples of shape {self.event_shape}", needed, "Draw fewer at a time.")
        leaves = functions.condition.checked(condition, n) if functions.condition else {}
        drawn = []
        for start, batch_seed in zip(range(0, max(n, 1), batch_size), numbered(seed, "batches"), strict=False):
            size = min(batch_size, n - start)
            rows = {name: c if c.shape[0] == 1 else c[start : start + size] for name, c in leaves.items()}
            drawn.append(function(size, temperature, batch_seed, rows))
        return tf.concat(drawn, axis=0)

    def given(self, condition: RawCondition) -> GivenFlow:
        """The distribution of x given a condition: an ordinary one of TFP, with the conditions as its batch.

        `flow.given(c).sample(1000)` has the shape (1000, len(c), *event_shape), and `log_prob(x)` broadcasts as TFP
        does. Both can be differentiated with respect to c. In a loop, wrap what you ask of it in a `tf.function`. Its
        `trainable_variables` are all of the flow but those of the condition network, which has run already.

        Args:
          condition: As for `log_prob`, with any leading axes, or none for one condition.
        """
        functions = self._functions
        if functions.condition is None:
            functions.door.refuse(condition)
            raise ValueError(f"{self.name} takes no condition: its distribution is {self.name}.distribution.")
        leaves = functions.condition.leaves(condition)
        for name, value in leaves.items() if tf.executing_eagerly() else ():
            functions.condition.check_numbers(name, np.asarray(functions.condition.dense(name, value)))
        return self.distribution.given(functions.condition.embed_all(leaves, functions.dtype))

    def encode(self, x: Examples, seed: Seed = None, batch_size: int = 1024, *, condition: RawCondition = None) -> list:
        """The output of the flow and all that it dropped, for `decode` to go back from, up to rounding.

        The noise is drawn. The parts have the shapes `network.output_shape`, then `residual_shapes`. Arguments as for
        `log_prob`.
        """
        return self._in_batches(self._functions.encode, x, condition, whole_number("batch_size", batch_size), seed)

    def decode(
        self, parts: TensorLike | Sequence[TensorLike], batch_size: int = 1024, *, condition: RawCondition = None
    ) -> tf.Tensor:
        """The examples that `encode` made these parts of, with the same condition."""
        functions = self._functions
        functions.door.refuse(condition)
        parts = check_parts_of_encode(functions.part_names, functions.parts, parts)
        if not tf.executing_eagerly():
            return functions.decode(parts, functions.condition.checked(condition) if functions.condition else {})
        leaves = functions.door.for_each(condition, len(parts[0])) if functions.condition else {}
        size = whole_number("batch_size", batch_size)
        pieces = [
            functions.decode([p[i : i + size] for p in parts], {name: c[i : i + size] for name, c in leaves.items()})
            for i in range(0, len(parts[0]), size)
        ]
        return tf.concat(pieces, axis=0)

    def reconstruct(self, x: Examples, batch_size: int = 1024, *, condition: RawCondition = None) -> tf.Tensor:
        """Reconstructs examples from the output of the network alone, with what was dropped at its mean."""
        function = self._functions.reconstruct
        size = whole_number("batch_size", batch_size)
        return self._in_batches(lambda x, leaves, _: function(x, leaves), x, condition, size)[0]

    @property
    def _functions(self) -> FlowFunctions:
        if self._flow_functions is None:
            raise ValueError(
                f"{self.name} is not built: it does not know the shape of its data. Start its layers with "
                "keras.Input(shape), or call build((None, *shape)), adapt or fit first."
            )
        return self._flow_functions

    @property
    def _check(self):
        return self._functions.check

    @property
    def _door(self):
        return self._functions.door

    def _in_batches(self, function, x, condition, size, seed=None) -> list:
        """The results of function(batch, leaves, seed) on all batches of x, joined: a list, also of one."""
        functions = self._functions
        functions.door.refuse(condition)
        if not tf.executing_eagerly():
            leaves = functions.condition.checked(condition) if functions.condition else {}
            return as_list(function(tf.cast(x, functions.dtype), leaves, stateless_seed(seed)))
        if isinstance(x, tf.data.Dataset) and is_endless(x):
            raise ValueError(f"{self.name} was given a dataset without an end. Take a number of batches: x.take(n).")
        batches = self._batches(x, condition, size)
        results = [as_list(function(*b, s)) for b, s in zip(batches, numbered(seed, "batches"), strict=False)]
        if not results:
            raise ValueError(f"{self.name} was given an empty dataset.")
        return [tf.concat(parts, axis=0) for parts in zip(*results, strict=True)]

    def _batches(self, x, condition, size):
        """Checked batches of an array or a dataset and of the condition; data are cast as their turn comes."""
        door = self._door
        if isinstance(x, tf.data.Dataset):
            door.refuse_beside_dataset(condition)
            elements = ((b, leaves or {}) for b, leaves in map(door.batch, map(data_of, door.inputs(x))))
        else:
            elements = [door.asked(x, condition)]
        for data, leaves in elements:
            for start in range(0, len(data), size):
                rows = {name: value[start : start + size] for name, value in leaves.items()}
                yield tf.cast(data[start : start + size], self._functions.dtype), rows
