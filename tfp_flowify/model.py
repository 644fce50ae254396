"""A network of flow layers as a Keras model: trained with fit, saved, exported, and a density of its data."""

import contextlib
import random

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify.adapt import adapt_base, adapt_bijector
from tfp_flowify.distributions import DiagonalNormal, FlowDistribution
from tfp_flowify.distributions.augmentation import stateless_seed
from tfp_flowify.distributions.flow import draw
from tfp_flowify.endpoints import Endpoints
from tfp_flowify.export import export_flow
from tfp_flowify.inputs import InputCheck
from tfp_flowify.layers.arguments import one_of
from tfp_flowify.layers.base import FlowLayer, Inverse, register
from tfp_flowify.layers.network import network_bijector
from tfp_flowify.summary import flow_summary


@register
class FlowModel(keras.Model):
    """A normalizing flow made of a network of flow layers.

    Called on data it is the network. It has the density of its data, and is trained by maximum likelihood:

        flow.compile("adam")
        flow.fit(x)

    With a loss it learns a task as well: `compile("adam", loss=..., likelihood_weight=...)`, `fit(x, y)`. To train only
    the densities of what the network drops, set `flow.network.trainable = False` before `compile`.

    Args:
      network: a list of layers from `tfp_flowify.layers`, or a Keras functional model of them. With a `keras.Input`
        first it is built at once; else by `build`, or by `fit` from its data.
      base: the density of the network's output: "normal", with a mean and a deviation for each entry that are trained;
        or "standard".
      seed: of the noise in training; `keras.utils.set_random_seed` sets it too.

    >>> from tfp_flowify import layers
    >>> flow = FlowModel([keras.Input([3]), layers.Dense(5), layers.LeakyReLU(), layers.Dense(2)])
    >>> flow.noise_shapes, flow.residual_shapes
    ([(2,)], [(3,)])
    >>> x = flow.sample(10, seed=1)
    >>> flow.log_prob(x, seed=2).shape.as_list()
    [10]
    """

    def __init__(self, network, base="normal", seed=None, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False  # The flow runs in full precision; only the networks inside may not.
        self.network = _as_network(network)
        self.inverse = Inverse(name="inverse", dtype=self.dtype_policy)
        self.base, self.seed = one_of("base", base, ("normal", "standard")), seed
        # A weight, so that it is saved: training goes on with the noise that would have come.
        self._noise_seed = self.add_weight(
            name="noise_seed",
            shape=(),
            dtype="int64",
            initializer=keras.initializers.Constant(random.randrange(2**31) if seed is None else seed),
            trainable=False,
            aggregation="only_first_replica",
        )
        self._nll = keras.metrics.Mean(name="nll", dtype=self.variable_dtype)
        self._bits = keras.metrics.Mean(name="bits_per_dim", dtype=self.variable_dtype)
        self._likelihood_loss = _NegativeMean(name="nll", dtype=self.variable_dtype)
        self._likelihood_weight, self._supervised, self._density_only = 1.0, False, False
        if self.network.built:
            self.build(self.network.input_shape)

    def build(self, input_shape):
        if not self.network.built:
            self.network.build(input_shape)
        if len(self.network.inputs) != 1:
            raise ValueError(f"A flow has one input. Received: a network with {len(self.network.inputs)}.")
        bijector = network_bijector(self.network, self.inverse)
        self._bases = None if self.base == "standard" else [self._make_base(shape) for shape in bijector.outputs]
        distribution = FlowDistribution(bijector, self._bases, dtype=self.variable_dtype, name=self.name)
        self._score = _Score(distribution, name="score")
        self._endpoints = Endpoints(distribution, self.network)
        self._check = InputCheck(distribution.event_shape, distribution.bijector.levels)
        self.built = True

    # The network.

    def call(self, x, training=None):
        return x if self._density_only else self.network(x, training=training)

    def compute_output_shape(self, input_shape):
        return self.network.compute_output_shape(input_shape)

    # The density.

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

    def log_prob(self, x, num_draws=1, seed=None, batch_size=512):
        """Log-likelihoods in nats: exact where the flow adds no noise, else a bound from draws of it.

        Args:
          x: a batch of examples.
          num_draws: more draws make the bound tighter.
          seed: a whole number or a pair; the same one gives the same numbers.
          batch_size: examples times draws that are held in memory at once.
        """
        functions = self._functions
        if num_draws < 1 or batch_size < 1:
            raise ValueError(f"num_draws and batch_size are at least 1. Received: {num_draws}, {batch_size}")
        if tf.is_tensor(x) and not tf.executing_eagerly():
            return functions.log_prob(num_draws)(tf.cast(x, functions.dtype), stateless_seed(seed))
        x = self._admit(x)
        function = functions.log_prob(num_draws, max(1, batch_size // len(x)))
        starts = range(0, len(x), batch_size)
        return tf.concat([function(x[i : i + batch_size], s) for i, s in zip(starts, _seeds(seed), strict=False)], 0)

    def bits_per_dim(self, x, num_draws=1, seed=None, batch_size=512):
        """Negative log-likelihoods in bits for each dimension of the data. Arguments as for `log_prob`."""
        return self._functions.to_bits(self.log_prob(x, num_draws, seed, batch_size))

    def sample(self, n, temperature=1.0, mean=False, seed=None, batch_size=512):
        """Draws examples.

        Args:
          n: how many.
          temperature: scales what is drawn; less than one gives more typical examples.
          mean: puts what the network drops at its mean, so that only its output is drawn. With the same seed the output
            is the same.
          seed: a whole number or a pair; the same one gives the same examples.
          batch_size: examples that are held in memory at once.
        """
        if int(n) != n or n < 0:
            raise ValueError(f"sample takes how many examples to draw. Received: n={n}")
        if not temperature > 0 or not np.isfinite(temperature):
            raise ValueError(f"The temperature is a positive number. Received: temperature={temperature}")
        function = self._functions.sample_mean if mean else self._functions.sample
        sizes = [min(batch_size, n - start) for start in range(0, n, batch_size)] or [0]
        return tf.concat([function(size, temperature, s) for size, s in zip(sizes, _seeds(seed), strict=False)], 0)

    def encode(self, x, seed=None) -> list:
        """The output of the flow and all that it dropped, for `decode` to go back from exactly.

        The noise is drawn. The parts have the shapes `network.output_shape`, then `residual_shapes`.
        """
        return self._functions.encode(self._admit(x), stateless_seed(seed))

    def decode(self, parts):
        """The examples that `encode` made these parts of."""
        return self._functions.decode(self._admit_parts(parts))

    def reconstruct(self, x):
        """What the output of the network knows of x: back from it, with what was dropped at its mean."""
        return self._functions.reconstruct(self._admit(x))

    # Training.

    def adapt(self, x, network=True, seed=None):
        """Sets scales and shifts by those of data, in one pass: where a fresh flow should start.

        Dense layers and convolutions then give outputs of mean zero and unit scale, `Normalization` layers know the
        data, and the densities of what is dropped have the right mean and deviation.

        Args:
          x: some hundred examples.
          network: False leaves the network as it is, say because it is trained, and sets the densities only.
          seed: of the noise.
        """
        x = self._admit(x)
        noise = draw(self.distribution.bijector.noise, [len(x)], stateless_seed(seed))
        parts = adapt_bijector(self.distribution.bijector, [x, *noise], network)
        for base, z in zip(self._bases or [], parts, strict=False):
            adapt_base(base, z)

    def compile(self, optimizer="adam", loss=None, likelihood_weight=1.0, **kwargs):
        """Sets up training.

        Args:
          optimizer: as in Keras.
          loss: of the network's output, with labels y given to `fit`; None to learn the density alone.
          likelihood_weight: the weight of the negative log-likelihood beside that loss.
          **kwargs: as in Keras: `metrics` of the network's output, `jit_compile` and so on.
        """
        if likelihood_weight < 0:
            raise ValueError(f"likelihood_weight is not negative. Received: likelihood_weight={likelihood_weight}")
        super().compile(optimizer=optimizer, loss=loss, **kwargs)
        self._likelihood_weight, self._supervised = float(likelihood_weight), loss is not None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self._supervised and y is None:
            raise ValueError("The flow was compiled with a loss, so fit and evaluate need labels: fit(x, y).")
        log_prob = self._score(x, self._next_seed(), training=training)
        self._nll.update_state(-log_prob, sample_weight)
        self._bits.update_state(self._endpoints.to_bits(log_prob), sample_weight)
        loss = self._likelihood_weight * self._likelihood_loss(log_prob, log_prob, sample_weight)
        if self._supervised or self.losses:
            loss += super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss

    def train_step(self, data):
        with self._without_unused_network():
            return super().train_step(data)

    def test_step(self, data):
        with self._without_unused_network():
            return super().test_step(data)

    @contextlib.contextmanager
    def _without_unused_network(self):
        """Keras' steps call the model for the loss of its output; without such a loss that would be wasted work."""
        self._density_only = not self._supervised
        try:
            yield
        finally:
            self._density_only = False

    def fit(self, x=None, y=None, *args, validation_data=None, **kwargs):
        """Trains as any Keras model; data are checked first. Without a loss in `compile`, labels are not used."""
        self._build_from(x)
        if self.compiled and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)  # Else Keras traces the first step twice.
        if isinstance(validation_data, list | tuple):
            validation_data = (self._check.data(validation_data[0]), *validation_data[1:])
        elif validation_data is not None:
            validation_data = self._check.data(validation_data)
        return super().fit(self._check.data(x), y, *args, validation_data=validation_data, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """The losses and metrics on data, as for any Keras model; one draw of the noise for each example."""
        self._build_from(x)
        return super().evaluate(self._check.data(x), *args, **kwargs)

    # Saving.

    def export(self, filepath, num_draws=1):
        """Writes a SavedModel that runs with TensorFlow alone.

        Its signatures are `log_prob(x, seed)`, `bits_per_dim(x, seed)`, `sample(n, temperature, seed)`,
        `encode(x, seed)`, `decode(z, residual_0, ...)` and `predict(x)`, for any batch size. A seed is a pair of
        int32; that of a whole number k here is (0, k) there.

        Args:
          filepath: a folder.
          num_draws: draws of the noise in `log_prob` and `bits_per_dim`.
        """
        variables = [variable.value for variable in self.network.variables + self.inverse.variables]
        export_flow(self._functions, variables, filepath, num_draws)

    def get_config(self):
        network = keras.saving.serialize_keras_object(self.network)
        own = {"network": network, "base": self.base, "seed": self.seed, "inverse_trainable": self.inverse.trainable}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        network = keras.saving.deserialize_keras_object(config.pop("network"))
        inverse_trainable = config.pop("inverse_trainable", True)
        flow = cls(network, **config)
        flow.inverse.trainable = inverse_trainable
        return flow

    def get_compile_config(self):
        config = super().get_compile_config()
        return {**config, "likelihood_weight": self._likelihood_weight} if config else {}

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def summary(self, print_fn=print, **kwargs):
        """Prints the layers with their shapes and weights, and where dimensions are added and dropped."""
        print_fn(flow_summary(self))

    # Inside.

    @property
    def _functions(self) -> Endpoints:
        if not self.built:
            raise ValueError(
                f"{self.name} is not built: it does not know the shape of its data. Start its layers with "
                "keras.Input(shape), or call build((None, *shape)) or fit first."
            )
        return self._endpoints

    def _build_from(self, x):
        if self.built:
            return
        spec = x.element_spec if isinstance(x, tf.data.Dataset) else x
        spec = spec[0] if isinstance(spec, tuple) else spec
        if getattr(spec, "shape", None) is None or None in tuple(spec.shape)[1:]:
            raise ValueError(
                f"{self.name} is not built, and its data do not tell their shape. Start its layers with "
                "keras.Input(shape)."
            )
        self.build((None, *spec.shape[1:]))

    def _admit(self, x):
        functions = self._functions
        x = x if tf.is_tensor(x) else np.asarray(x)
        if tf.executing_eagerly():
            self._check.array(x)
        return tf.cast(x, functions.dtype)

    def _admit_parts(self, parts):
        functions, parts = self._functions, list(parts) if isinstance(parts, list | tuple) else [parts]
        wanted = ", ".join(str((None, *spec.shape[1:])) for spec in functions.parts)
        shapes = [tuple(np.shape(part)) for part in parts]
        fits = len(parts) == len(functions.parts) and all(
            spec.shape.is_compatible_with(shape) and shape[0] == shapes[0][0]
            for spec, shape in zip(functions.parts, shapes, strict=True)
        )
        if not fits:
            raise ValueError(f"decode takes what encode gives, parts of {wanted}. Received: shapes {shapes}")
        parts = [tf.cast(part, functions.dtype) for part in parts]
        bad = [name for name, p in zip(functions.part_names, parts, strict=True) if not np.isfinite(p).all()]
        if bad:
            raise ValueError(f"decode takes finite numbers. Received: NaN or infinite entries in {', '.join(bad)}.")
        return parts

    def _next_seed(self):
        """A new seed for each step and each replica."""
        number = tf.convert_to_tensor(self._noise_seed)
        self._noise_seed.assign_add(1)
        replica = tf.distribute.get_replica_context()
        index = replica.replica_id_in_sync_group if replica and replica.num_replicas_in_sync > 1 else 0
        return tf.stack([tf.cast(index, tf.int32), tf.cast(number % (2**31 - 1), tf.int32)])

    def _make_base(self, shape):
        """The density of an output, with weights of the inverse."""
        count = len(self.inverse.weights)
        loc, log_scale = (self.inverse.weight(f"base_{name}_{count}", shape) for name in ("loc", "log_scale"))
        return DiagonalNormal(loc, log_scale)


class _Score(keras.layers.Layer):
    """log_prob as a layer, so that networks inside know whether they are being trained."""

    def __init__(self, distribution, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.distribution = distribution

    def call(self, x, seed, training=None):
        return self.distribution.log_prob(tf.cast(x, self.distribution.dtype), seed=seed)


class _NegativeMean(keras.losses.Loss):
    """-y_pred, averaged as Keras averages losses: over examples, weights and replicas."""

    def call(self, y_true, y_pred):
        return -y_pred


def _as_network(network):
    """A Keras model of the layers that a flow is made of."""
    if isinstance(network, keras.Model):
        return network
    network = list(network)
    for layer in network:
        if not isinstance(layer, FlowLayer | keras.Model | keras.layers.InputLayer | keras.KerasTensor):
            raise TypeError(
                f"A flow is made of layers of tfp_flowify.layers. Received: {layer!r}. "
                "Use the layer of the same name there, or Stochastic(layer), which takes any."
            )
    return keras.Sequential(network)


def _seeds(seed):
    """Seeds for one batch after the other, the first as given."""
    seed, i = stateless_seed(seed), 0
    while True:
        yield seed if i == 0 else tf.random.experimental.stateless_fold_in(seed, i)
        i += 1
