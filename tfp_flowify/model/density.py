"""The questions that a flow answers: likelihoods, samples, the way to its parts and back."""

import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import as_list, whole_number
from tfp_flowify.core.seeds import numbered, stateless_seed
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.model.functions import CHUNK, FlowFunctions
from tfp_flowify.model.inputs import check_parts_of_encode, data_of


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
    def noise_shapes(self) -> list:
        """Event shapes of the noise that the layers add, in their order."""
        return self.distribution.noise_shapes

    @property
    def residual_shapes(self) -> list:
        """Event shapes of what the layers drop, in their order."""
        return self.distribution.residual_shapes

    def log_prob(self, x, num_draws=1, seed=None, batch_size=1024):
        """Log-likelihoods in nats: exact where the flow adds no noise, else a bound from draws of it.

        Args:
          x: A batch of examples, or a `tf.data.Dataset` of batches (its labels are ignored).
          num_draws: More draws make the bound tighter.
          seed: Seed for the noise draws; the same seed gives the same draws.
          batch_size: Number of examples, times draws up to 16, that are held in memory at once.
        """
        num_draws, batch_size = whole_number("num_draws", num_draws), whole_number("batch_size", batch_size)
        size = max(1, batch_size // min(num_draws, CHUNK))
        return self._in_batches(self._functions.log_prob(num_draws), x, size, seed)[0]

    def bits_per_dim(self, x, num_draws=1, seed=None, batch_size=1024):
        """Negative log-likelihoods in bits for each dimension of the data. Arguments as for `log_prob`."""
        return bits_per_dim(self.log_prob(x, num_draws, seed, batch_size), self._check.event_shape)

    def sample(self, n, temperature=1.0, mean=False, seed=None, batch_size=1024):
        """Draws examples.

        Args:
          n: Number of examples.
          temperature: Scales what is drawn; less than one gives more typical examples.
          mean: Whether to put what the network drops at its mean, so that only its output is drawn. With the same seed
            the output is the same.
          seed: Seed for the draws; the same seed gives the same examples.
          batch_size: Number of examples that are held in memory at once.
        """
        function = self._functions.sample_mean if mean else self._functions.sample
        if tf.is_tensor(n) and not tf.executing_eagerly():
            return function(n, temperature, stateless_seed(seed))
        n, batch_size = whole_number("n", n, least=0), whole_number("batch_size", batch_size)
        if not tf.is_tensor(temperature) and not 0 < temperature < np.inf:
            raise ValueError(f"The temperature is a positive number. Received: temperature={temperature}")
        sizes = [min(batch_size, n - start) for start in range(0, n, batch_size)] or [0]
        seeds = numbered(seed, "batches")
        return tf.concat([function(size, temperature, s) for size, s in zip(sizes, seeds, strict=False)], axis=0)

    def encode(self, x, seed=None, batch_size=1024) -> list:
        """The output of the flow and all that it dropped, for `decode` to go back from, up to rounding.

        The noise is drawn. The parts have the shapes `network.output_shape`, then `residual_shapes`. Arguments as for
        `log_prob`.
        """
        return self._in_batches(self._functions.encode, x, whole_number("batch_size", batch_size), seed)

    def decode(self, parts, batch_size=1024):
        """The examples that `encode` made these parts of."""
        functions = self._functions
        parts = check_parts_of_encode(functions.part_names, functions.parts, parts)
        if not tf.executing_eagerly():
            return functions.decode(parts)
        starts = range(0, len(parts[0]), whole_number("batch_size", batch_size))
        return tf.concat([functions.decode([p[i : i + batch_size] for p in parts]) for i in starts], axis=0)

    def reconstruct(self, x, batch_size=1024):
        """Reconstructs examples from the output of the network alone, with what was dropped at its mean."""
        functions = self._functions
        return self._in_batches(lambda x, _: functions.reconstruct(x), x, whole_number("batch_size", batch_size))[0]

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

    def _in_batches(self, function, x, size, seed=None) -> list:
        """The results of function(batch, seed) on all batches of x, joined: a list, also of one."""
        if not tf.executing_eagerly():
            return as_list(function(tf.cast(x, self._functions.dtype), stateless_seed(seed)))
        batches = self._batches(x, size)
        results = [as_list(function(b, s)) for b, s in zip(batches, numbered(seed, "batches"), strict=False)]
        if not results:
            raise ValueError(f"{self.name} was given an empty dataset.")
        return [tf.concat(parts, axis=0) for parts in zip(*results, strict=True)]

    def _batches(self, x, size):
        """Checked batches of an array or a dataset, each cast to the type of the flow as its turn comes."""
        elements = map(data_of, self._check.data(x)) if isinstance(x, tf.data.Dataset) else [self._check.array(x)]
        for element in elements:
            for start in range(0, len(element), size):
                yield tf.cast(element[start : start + size], self._functions.dtype)
