"""What a flow is asked for: likelihoods, samples, the way to its parts and back."""

import numbers

import numpy as np
import tensorflow as tf

from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.distributions.augmentation import stateless_seed
from tfp_flowify.endpoints import CHUNK, Endpoints
from tfp_flowify.inputs import InputCheck, check_parts_of_encode


class Density:
    """Mixin for a model with a distribution: its methods on arrays and tensors, in batches, with inputs checked.

    A seed is a whole number or a pair of them, and gives the same numbers each time. Each batch has a seed of its own,
    the first the given one, so that numbers beyond the first batch depend on `batch_size`.
    """

    _endpoints: Endpoints | None = None
    _check: InputCheck

    @property
    def distribution(self) -> FlowDistribution:
        """The flow as a distribution of TFP."""
        return self._functions.distribution

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
          x: a batch of examples.
          num_draws: more draws make the bound tighter.
          seed: of the draws.
          batch_size: examples, times draws up to 16, that are held in memory at once.
        """
        num_draws, batch_size = _count("num_draws", num_draws), _count("batch_size", batch_size)
        x, function = self._admit(x), self._functions.log_prob(num_draws)
        if not tf.executing_eagerly():
            return function(x, stateless_seed(seed))
        size = max(1, batch_size // min(num_draws, CHUNK))
        batches = [x[i : i + size] for i in range(0, len(x), size)]
        return tf.concat([function(batch, s) for batch, s in zip(batches, _seeds(seed), strict=False)], axis=0)

    def bits_per_dim(self, x, num_draws=1, seed=None, batch_size=1024):
        """Negative log-likelihoods in bits for each dimension of the data. Arguments as for `log_prob`."""
        return self._functions.to_bits(self.log_prob(x, num_draws, seed, batch_size))

    def sample(self, n, temperature=1.0, mean=False, seed=None, batch_size=1024):
        """Draws examples.

        Args:
          n: how many.
          temperature: scales what is drawn; less than one gives more typical examples.
          mean: puts what the network drops at its mean, so that only its output is drawn. With the same seed the output
            is the same.
          seed: of the draws.
          batch_size: examples that are held in memory at once.
        """
        function = self._functions.sample_mean if mean else self._functions.sample
        if tf.is_tensor(n) and not tf.executing_eagerly():
            return function(n, temperature, stateless_seed(seed))
        n, batch_size = _count("n", n, least=0), _count("batch_size", batch_size)
        if not tf.is_tensor(temperature) and not 0 < temperature < np.inf:
            raise ValueError(f"The temperature is a positive number. Received: temperature={temperature}")
        sizes = [min(batch_size, n - start) for start in range(0, n, batch_size)] or [0]
        return tf.concat([function(size, temperature, s) for size, s in zip(sizes, _seeds(seed), strict=False)], axis=0)

    def encode(self, x, seed=None) -> list:
        """The output of the flow and all that it dropped, for `decode` to go back from, up to rounding.

        The noise is drawn. The parts have the shapes `network.output_shape`, then `residual_shapes`.
        """
        return self._functions.encode(self._admit(x), stateless_seed(seed))

    def decode(self, parts):
        """The examples that `encode` made these parts of."""
        functions = self._functions
        return functions.decode(check_parts_of_encode(functions.part_names, functions.parts, parts))

    def reconstruct(self, x):
        """What the output of the network knows of x: back from it, with what was dropped at its mean."""
        return self._functions.reconstruct(self._admit(x))

    @property
    def _functions(self) -> Endpoints:
        if self._endpoints is None:
            raise ValueError(
                f"{self.name} is not built: it does not know the shape of its data. Start its layers with "
                "keras.Input(shape), or call build((None, *shape)) or fit first."
            )
        return self._endpoints

    def _admit(self, x):
        functions = self._functions
        if isinstance(x, tf.data.Dataset):
            raise ValueError(f"{self.name} takes an array or a tensor here, not a dataset: take some of its batches.")
        x = tf.convert_to_tensor(x) if tf.is_tensor(x) else np.asarray(x)
        if tf.executing_eagerly():
            self._check.array(x)
        return tf.cast(x, functions.dtype)


def _count(name, value, least=1) -> int:
    value = value.numpy() if tf.is_tensor(value) else value
    if not isinstance(value, numbers.Real) or int(value) != value or value < least:
        raise ValueError(f"{name} is a whole number, at least {least}. Received: {name}={value}")
    return int(value)


def _seeds(seed):
    """Seeds for one batch after the other, the first as given."""
    seed, i = stateless_seed(seed), 0
    while True:
        yield seed if i == 0 else tf.random.experimental.stateless_fold_in(seed, i)
        i += 1
