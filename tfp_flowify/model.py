"""A network of flow layers as a Keras model: trained with fit, saved, exported, and a density of its data."""

import contextlib
import random

import keras
import tensorflow as tf

from tfp_flowify.adapt import Adapter
from tfp_flowify.density import Density
from tfp_flowify.distributions import DiagonalNormal, FlowDistribution
from tfp_flowify.distributions.augmentation import stateless_seed
from tfp_flowify.distributions.flow import draw
from tfp_flowify.endpoints import Endpoints
from tfp_flowify.export import export_flow
from tfp_flowify.inputs import InputCheck
from tfp_flowify.layers.arguments import one_of
from tfp_flowify.layers.base import FlowLayer, Inverse, register
from tfp_flowify.layers.conditioners import training_mode
from tfp_flowify.layers.network import is_graph, network_bijector
from tfp_flowify.optimizer import FusedAdam
from tfp_flowify.summary import flow_summary


@register
class FlowModel(Density, keras.Model):
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
        network = _as_network(network)
        kwargs["dtype"] = kwargs.get("dtype") or _policy(network)
        super().__init__(**kwargs)
        self.autocast = False  # The flow runs in full precision; only the networks inside may not.
        self.network = network
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
        self._likelihood_weight, self._supervised = 1.0, False
        self._output_is_used, self._density_only = False, False
        if self.network.built:
            self.build(self.network.input_shape)

    def build(self, input_shape):
        if self._endpoints is not None:
            return
        if not self.network.built:
            self.network.build(input_shape)
        if len(self.network.inputs) != 1:
            raise ValueError(f"A flow has one input. Received: a network with {len(self.network.inputs)}.")
        bijector = network_bijector(self.network, self.inverse)
        if bijector.dtype not in (None, tf.as_dtype(self.variable_dtype)):
            raise TypeError(
                f"The layers of {self.name} work in {bijector.dtype.name}, the flow in {self.variable_dtype}. Give all "
                "the same dtype, or leave out that of the flow."
            )
        self._bases = None if self.base == "standard" else [self._make_base(shape) for shape in bijector.outputs]
        distribution = FlowDistribution(bijector, self._bases, dtype=self.variable_dtype, name=self.name)
        self._endpoints = Endpoints(distribution, self.network)
        self._check = InputCheck(distribution.event_shape, bijector.levels)
        self.built = True

    def call(self, x, training=None):
        return x if self._density_only else self.network(x, training=training)

    def compute_output_shape(self, input_shape):
        return self.network.compute_output_shape(input_shape)

    def summary(self, print_fn=print, **kwargs):
        """Prints the layers with their shapes and weights, and where dimensions are added and dropped."""
        print_fn(flow_summary(self))

    # Training.

    def adapt(self, x, network=True, seed=None):
        """Sets scales and shifts by those of data, in one pass: where a fresh flow should start.

        Dense layers and convolutions then give outputs of mean zero and unit scale, and drop the directions in which
        the data vary least; `Normalization` layers know the data; and the densities of what is dropped, and of the
        output, have the right mean and deviation. What is frozen stays as it is.

        Args:
          x: some hundred examples: an array or a tensor.
          network: False leaves the network as it is, say because it is trained, and sets the densities only.
          seed: of the noise.
        """
        x = self._admit(x)
        bijector, adapter = self.distribution.bijector, Adapter(network and self.network.trainable)
        parts = adapter.forward(bijector, [x, *draw(bijector.noise, [len(x)], stateless_seed(seed))])
        for base, z in zip(self._bases or [], parts, strict=False):
            adapter.set_base(base, z)

    def compile(
        self, optimizer="adam", loss=None, likelihood_weight=1.0, metrics=None, weighted_metrics=None, **kwargs
    ):
        """Sets up training.

        Args:
          optimizer: as in Keras; "adam" is `FusedAdam`.
          loss: of the network's output, with labels y given to `fit`; None to learn the density alone.
          likelihood_weight: the weight of the negative log-likelihood beside that loss.
          metrics, weighted_metrics: of the network's output, beside `nll` and `bits_per_dim`.
          **kwargs: as in Keras: `jit_compile` and so on.
        """
        if likelihood_weight < 0:
            raise ValueError(f"likelihood_weight is not negative. Received: likelihood_weight={likelihood_weight}")
        optimizer = FusedAdam() if optimizer == "adam" else optimizer
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, weighted_metrics=weighted_metrics, **kwargs)
        self._likelihood_weight, self._supervised = float(likelihood_weight), loss is not None
        self._output_is_used = bool(self._supervised or metrics or weighted_metrics)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self._supervised and y is None:
            raise ValueError("The flow was compiled with a loss, so fit and evaluate need labels: fit(x, y).")
        self._check.batch(x)
        with training_mode(training):
            distribution = self.distribution
            log_prob = distribution.log_prob(tf.cast(x, distribution.dtype), seed=self._next_seed())
        weight = sample_weight if tf.is_tensor(sample_weight) else None  # Others are for several outputs.
        self._nll.update_state(-log_prob, weight)
        self._bits.update_state(self._endpoints.to_bits(log_prob), weight)
        loss = self._likelihood_weight * self._likelihood_loss(log_prob, log_prob, weight)
        if self._supervised or self.losses:
            loss += tf.cast(super().compute_loss(x, y, y_pred, sample_weight, training), loss.dtype)
        return loss

    def train_step(self, data):
        with self._without_unused_network():
            return super().train_step(data)

    def test_step(self, data):
        with self._without_unused_network():
            return super().test_step(data)

    @contextlib.contextmanager
    def _without_unused_network(self):
        """Keras' steps call the model for the loss of its output; where there is none, that would be wasted work."""
        self._density_only = not self._output_is_used
        try:
            yield
        finally:
            self._density_only = False

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        **kwargs,
    ):
        """Trains as any Keras model; data are checked first. Without a loss in `compile`, labels are not used."""
        with self.distribute_strategy.scope():
            self._build_from(x)
            if self.compiled and not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)  # Else Keras traces the first step twice.
        if isinstance(validation_data, list | tuple):
            validation_data = (self._check.data(validation_data[0]), *validation_data[1:])
        elif validation_data is not None:
            validation_data = self._check.data(validation_data)
        return super().fit(
            self._check.data(x),
            y,
            batch_size,
            epochs,
            verbose,
            callbacks,
            validation_split,
            validation_data,
            **kwargs,
        )

    def evaluate(self, x=None, *args, **kwargs):
        """The losses and metrics on data, as for any Keras model; one draw of the noise for each example."""
        with self.distribute_strategy.scope():
            self._build_from(x)
        return super().evaluate(self._check.data(x), *args, **kwargs)

    # Saving.

    def export(self, filepath, num_draws=1):
        """Writes a SavedModel that runs with TensorFlow alone.

        Its signatures are `log_prob(x, seed)`, `bits_per_dim(x, seed)`, `sample(n, temperature, seed)`,
        `encode(x, seed)`, `decode(z, residual_0, ...)` and `predict(x)`, for any batch size. A seed is a pair of
        int32; that of a whole number k here is (0, k) there. Nothing is cut into batches there.

        Args:
          filepath: a folder.
          num_draws: draws of the noise in `log_prob` and `bits_per_dim`.
        """
        functions = self._functions
        variables = [variable.value for variable in self.network.variables + self.inverse.variables]
        export_flow(functions, variables, filepath, num_draws)

    def get_config(self):
        network = keras.saving.serialize_keras_object(self.network)
        frozen = [i for i, part in enumerate(self.inverse.parts) if not part.trainable]
        own = {"network": network, "base": self.base, "seed": self.seed, "frozen_parts": frozen}
        return {**super().get_config(), **own, "inverse_trainable": self.inverse.trainable}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["network"] = keras.saving.deserialize_keras_object(config["network"])
        config["dtype"] = keras.saving.deserialize_keras_object(config["dtype"])
        frozen, inverse_trainable = config.pop("frozen_parts", []), config.pop("inverse_trainable", True)
        flow = cls(**config)
        flow.inverse.trainable = inverse_trainable
        for i in frozen if flow.built else []:
            flow.inverse.parts[i].trainable = False
        return flow

    def get_compile_config(self):
        config = super().get_compile_config()
        return {**config, "likelihood_weight": self._likelihood_weight} if config else {}

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    # Inside.

    def _build_from(self, x):
        if self._endpoints is not None:
            return
        spec = x.element_spec if isinstance(x, tf.data.Dataset) else x
        spec = spec[0] if isinstance(spec, tuple) else spec
        if getattr(spec, "shape", None) is None or None in tuple(spec.shape)[1:]:
            raise ValueError(
                f"{self.name} is not built, and its data do not tell their shape. Start its layers with "
                "keras.Input(shape)."
            )
        self.build((None, *spec.shape[1:]))

    def _make_base(self, shape):
        """The density of an output, with weights of the inverse."""
        count = len(self.inverse.weights)
        loc, log_scale = (self.inverse.weight(f"base_{name}_{count}", shape) for name in ("loc", "log_scale"))
        return DiagonalNormal(loc, log_scale)

    def _next_seed(self):
        """A new seed for each step and each replica."""
        number = tf.convert_to_tensor(self._noise_seed)
        self._noise_seed.assign_add(1)
        replica = tf.distribute.get_replica_context()
        index = replica.replica_id_in_sync_group if replica and replica.num_replicas_in_sync > 1 else 0
        return tf.stack([tf.cast(index, tf.int32), tf.cast(number % (2**31 - 1), tf.int32)])


class _NegativeMean(keras.losses.Loss):
    """-y_pred, averaged as Keras averages losses: over examples, weights and replicas."""

    def call(self, y_true, y_pred):
        return -y_pred


def _as_network(network):
    """A Keras model of the layers that a flow is made of."""
    if isinstance(network, FlowModel) or (isinstance(network, keras.Model) and not _may_be_graph(network)):
        raise TypeError(
            f"A flow is made of a list of layers, or a functional or sequential Keras model of them. Received: "
            f"{type(network).__name__} {network.name!r}. Stochastic(model) takes any model as a layer."
        )
    if isinstance(network, keras.Model):
        return network
    if not isinstance(network, list | tuple) or not network:
        raise TypeError(f"A flow is made of a list of layers, or a Keras model of them. Received: {network!r}")
    for layer in network:
        if not isinstance(layer, FlowLayer | keras.Model | keras.layers.InputLayer | keras.KerasTensor):
            raise TypeError(
                f"A flow is made of layers of tfp_flowify.layers. Received: {layer!r}. "
                "Use the layer of the same name there, or Stochastic(layer), which takes any."
            )
    sequential = keras.Sequential(list(network))
    sequential.dtype_policy = _policy(sequential)
    return sequential


def _may_be_graph(network):
    return is_graph(network) or isinstance(network, keras.Sequential)


def _policy(network):
    """The dtype policy of the layers."""
    return next((layer.dtype_policy for layer in network.layers if isinstance(layer, FlowLayer)), network.dtype_policy)
