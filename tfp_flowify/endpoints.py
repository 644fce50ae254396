"""What a flow does, as compiled functions of any batch size: those a `FlowModel` calls and those it exports."""

import math

import tensorflow as tf

from tfp_flowify.bijectors.checks import as_list, bundle
from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.distributions.flow import draw

#: Draws of the noise that are computed at once.
CHUNK = 16


class Endpoints:
    """The functions of a flow over its network, traced once.

    Seeds are pairs of whole numbers. The parts of `encode` and `decode` are the outputs of the network, then what it
    dropped, with the names in `part_names`.
    """

    def __init__(self, distribution: FlowDistribution, network):
        self.distribution, self.network = distribution, network
        bijector, self.dtype = distribution.bijector, distribution.dtype
        outputs = ["z"] if len(bijector.outputs) == 1 else [f"z_{i}" for i in range(len(bijector.outputs))]
        self.part_names = outputs + [f"residual_{i}" for i in range(len(bijector.residuals))]
        shapes = bijector.outputs + distribution.residual_shapes
        self.x = tf.TensorSpec([None, *distribution.event_shape], self.dtype, name="x")
        self.seed = tf.TensorSpec([2], tf.int32, name="seed")
        self.parts = [
            tf.TensorSpec([None, *shape], self.dtype, name=name)
            for shape, name in zip(shapes, self.part_names, strict=True)
        ]
        scalar = [tf.TensorSpec([], tf.int32, name="n"), tf.TensorSpec([], self.dtype, name="temperature")]
        self.encode = tf.function(self._encode, autograph=False, input_signature=[self.x, self.seed])
        self.decode = tf.function(self._decode, autograph=False, input_signature=[self.parts])
        self.reconstruct = tf.function(self._reconstruct, autograph=False, input_signature=[self.x])
        self.predict = tf.function(self._predict, autograph=False, input_signature=[self.x])
        self.sample = tf.function(self._sample, autograph=False, input_signature=[*scalar, self.seed])
        self.sample_mean = tf.function(self._sample_mean, autograph=False, input_signature=[*scalar, self.seed])
        self._log_prob = {}

    def log_prob(self, num_draws: int = 1):
        """The function (x, seed) -> log-likelihoods from that many draws of the noise."""
        if num_draws not in self._log_prob:

            def log_prob(x, seed):
                return self.distribution.log_prob(x, num_draws=num_draws, seed=seed, chunk_size=CHUNK)

            self._log_prob[num_draws] = tf.function(log_prob, autograph=False, input_signature=[self.x, self.seed])
        return self._log_prob[num_draws]

    def to_bits(self, log_prob):
        """Bits per dimension of log-likelihoods in nats."""
        return -log_prob / (math.prod(self.x.shape[1:]) * math.log(2))

    def _encode(self, x, seed):
        bijector = self.distribution.bijector
        noise = draw(bijector.noise, tf.shape(x)[:1], seed)
        with self.distribution.prepared():
            return as_list(bijector.forward_and_log_det(bundle([x, *noise]))[0])

    def _decode(self, parts):
        with self.distribution.prepared():
            return as_list(self.distribution.bijector.inverse_and_log_det(bundle(parts))[0])[0]

    def _reconstruct(self, x):
        means = [d.mean() for d in self.distribution.bijector.residuals]
        residuals = [tf.repeat(mean[None], tf.shape(x)[0], axis=0) for mean in means]
        with self.distribution.prepared():
            return self._decode([*as_list(self.distribution.network(x)), *residuals])

    def _predict(self, x):
        return self.network(x, training=False)

    def _sample(self, n, temperature, seed):
        return self.distribution.sample(n, seed=seed, temperature=temperature)

    def _sample_mean(self, n, temperature, seed):
        return self.distribution.sample(n, seed=seed, temperature=temperature, mean=True)
