"""A network of flow layers as a Keras model: trained with fit, saved, exported, and a density of its data."""

import random
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify.augmentation import draw
from tfp_flowify.core.moments import some_rows
from tfp_flowify.core.private import layers_inside
from tfp_flowify.core.seeds import salted
from tfp_flowify.distributions import DiagonalNormal, FlowDistribution
from tfp_flowify.layers.arguments import check_full_precision, one_of
from tfp_flowify.layers.base import FlowLayer, register
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.graph import is_graph, model_bijector, way_out
from tfp_flowify.model.adapt import Adapter
from tfp_flowify.model.density import Density
from tfp_flowify.model.functions import FlowFunctions, export_functions
from tfp_flowify.model.inputs import InputCheck, data_of, is_array
from tfp_flowify.model.summary import flow_summary
from tfp_flowify.model.training import Training

#: So many examples, at most, are taken to adapt to.
ENOUGH = 2000


@register
class FlowModel(Density, Training, keras.Model):
    """A normalizing flow made of a network of flow layers.

    Called on data it is the network. It has the density of its data, and is trained by maximum likelihood:

        flow.compile("adam")
        flow.fit(x)

    With a loss it learns a task as well: `compile("adam", loss=..., likelihood_weight=...)`, `fit(x, y)`. To train only
    the densities of what the network drops, set `flow.network.trainable = False` before `compile`.

    Attributes:
      network: The ordinary network, a Keras model with the weights of its layers.
      densities: The weights that the flow adds: scales of noise, densities of what is dropped and of the output.
      distribution: The flow as a distribution of TFP.

    Args:
      network: A list of layers from `tfp_flowify.layers`, or a Keras functional model of them. With a `keras.Input`
        first it is built at once; else by `build`, `adapt` or `fit`.
      base: The density of the network's output: "normal", with a mean and a deviation for each entry that are trained;
        or "standard".
      seed: Seed for the noise in training; `keras.utils.set_random_seed` sets it too.

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
        check_full_precision(self)
        self.autocast = False  # The flow runs in full precision; only the networks inside may not.
        self.network = network
        self.densities = Densities(name="densities", dtype=self.dtype_policy)
        self.base, self.seed = one_of("base", base, ("normal", "standard")), seed
        self._set_up_training(random.randrange(2**31) if seed is None else seed)
        if self.network.built:
            self.build(self.network.input_shape)

    def build(self, input_shape):
        if self._flow_functions is not None:
            return
        if not self.network.built:
            self.network.build(input_shape)
        if len(self.network.inputs) != 1:
            raise ValueError(f"A flow has one input. Received: a network with {len(self.network.inputs)}.")
        bijector = model_bijector(self.network, self.densities)
        if bijector.dtype not in (None, tf.as_dtype(self.variable_dtype)):
            raise TypeError(
                f"The layers of {self.name} work in {bijector.dtype.name}, the flow in {self.variable_dtype}. Give all "
                "the same dtype, or leave out that of the flow."
            )
        self._bases = None if self.base == "standard" else [self._make_base(*o) for o in enumerate(bijector.outputs)]
        distribution = FlowDistribution(bijector, self._bases, dtype=self.variable_dtype, name=self.name)
        check = InputCheck(distribution.event_shape, bijector.levels)
        self._flow_functions = FlowFunctions(distribution, self.network, check)
        self.built = True

    def _make_base(self, number, shape):
        """The density of an output."""
        loc, log_scale = (self.densities.add(f"base_{name}_{number}", shape) for name in ("loc", "log_scale"))
        return DiagonalNormal(loc, log_scale)

    def build_from(self, x):
        """Builds the flow for data like x, an array or a dataset; does nothing where it is built."""
        if self._flow_functions is not None:
            return
        spec = data_of(x.element_spec) if isinstance(x, tf.data.Dataset) else np.asarray(x) if is_array(x) else x
        if getattr(spec, "shape", None) is None or len(spec.shape) < 2 or None in tuple(spec.shape)[1:]:
            raise ValueError(
                f"{self.name} is not built, and its data do not tell their shape. Start its layers with "
                "keras.Input(shape)."
            )
        with self.distribute_strategy.scope():
            self.build((None, *spec.shape[1:]))

    def call(self, x, training=None):
        if tf.executing_eagerly() and tf.is_tensor(x):
            self._check.array(x)
        return self.network(x, training=training)

    def compute_output_shape(self, input_shape):
        return self.network.compute_output_shape(input_shape)

    def adapt(self, x, densities_only=False, seed=None):
        """Sets scales and shifts by those of data, in one pass: where a fresh flow should start.

        Dense layers and convolutions then give outputs of mean zero and unit scale, and drop the directions in which
        the data vary least; `Normalization` layers know the data; and the densities of what is dropped, and of the
        output, have the right mean and deviation. What is frozen stays as it is.

        Args:
          x: Some hundred examples: an array or a tensor, of which 2,000 are taken at most, evenly spaced; or a
            `tf.data.Dataset` of batches, of which the first are taken.
          densities_only: Whether to leave the network as it is, say because it is trained.
          seed: Seed for the noise.
        """
        self.build_from(x)
        if isinstance(x, tf.data.Dataset):
            x = _first_examples(self._check.data(x))
        self._check.warn_of_no_density(x)
        x = tf.cast(some_rows(self._check.array(x), ENOUGH), self.variable_dtype)
        bijector, adapter = self.distribution.bijector, Adapter(self._frozen(), densities_only, self.densities)
        noise = draw(bijector.noise, [len(x)], salted(seed, "adapt"))
        parts = adapter.forward(bijector, [x, *noise])
        for base, z in zip(self._bases or [], parts, strict=False):
            adapter.set_base(base, z)
        adapter.warn_of_small_units()

    def _frozen(self) -> list:
        """The variables of all layers that are frozen."""
        return [v for layer in layers_inside(self) if not layer.trainable for v in layer.variables]

    def summary(
        self,
        line_length=None,
        positions=None,
        print_fn=None,
        expand_nested=False,
        show_trainable=False,
        layer_range=None,
    ):
        """Prints Keras' summary of the network, and a table of where dimensions are added and dropped.

        Arguments are those of Keras, for its summary of the network.
        """
        self.network.summary(line_length, positions, print_fn, expand_nested, show_trainable, layer_range)
        (print_fn or print)(flow_summary(self))

    # Saving.

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """Saves the flow with its weights and its optimizer to a `.keras` file, as any Keras model."""
        if Path(filepath).suffix in (".h5", ".hdf5"):
            raise ValueError(
                f"A flow is saved to a .keras file: it could not be loaded again from HDF5. Received: {filepath}"
            )
        super().save(filepath, overwrite, zipped, **kwargs)

    def export(self, filepath, format="tf_saved_model", verbose=None, input_signature=None, *, num_draws=1):
        """Writes a SavedModel that runs with TensorFlow alone.

        Its signatures are `log_prob(x, seed)`, `bits_per_dim(x, seed)`, `sample(n, temperature, seed)`,
        `encode(x, seed)`, `decode(z, residual_0, ...)` and `predict(x)`, for any batch size. A seed is a pair of
        int32; that of a whole number k here is (0, k) there. Nothing is cut into batches there.

        Args:
          filepath: A folder.
          format: "tf_saved_model".
          verbose: Whether to print the path of the folder.
          input_signature: None; the signatures are those above.
          num_draws: Draws of the noise in `log_prob` and `bits_per_dim`.
        """
        if format != "tf_saved_model" or input_signature is not None:
            raise ValueError(
                "A flow is exported with format='tf_saved_model' and signatures of its own. Received: "
                f"format={format!r}, input_signature={input_signature}. flow.network.export(...) exports the network."
            )
        variables = [variable.value for variable in self.network.variables + self.densities.variables]
        export_functions(self._functions, variables, filepath, num_draws)
        if verbose:
            print(f"Saved the signatures of {self.name} at {filepath}.")

    def get_config(self):
        network = keras.saving.serialize_keras_object(self.network)
        frozen = [i for i, layer in enumerate(self._density_layers()) if not layer.trainable]
        own = {"network": network, "base": self.base, "seed": self.seed, "frozen_densities": frozen}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        config["network"] = keras.saving.deserialize_keras_object(config["network"], custom_objects)
        config["dtype"] = keras.saving.deserialize_keras_object(config["dtype"])
        frozen = config.pop("frozen_densities", [])
        flow = cls(**config)
        layers = flow._density_layers()
        for i in frozen:
            layers[i].trainable = False
        return flow

    def _density_layers(self) -> list:
        return [self.densities, *layers_inside(self.densities)]


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
            raise TypeError(f"A flow is made of layers of tfp_flowify.layers. Received: {layer!r}. {way_out(layer)}")
    sequential = keras.Sequential(list(network))
    sequential.dtype_policy = _policy(sequential)
    return sequential


def _may_be_graph(network):
    return is_graph(network) or isinstance(network, keras.Sequential)


def _policy(network):
    """The dtype policy of the layers."""
    return next((layer.dtype_policy for layer in network.layers if isinstance(layer, FlowLayer)), network.dtype_policy)


def _first_examples(dataset):
    batches, count = [], 0
    for element in dataset:
        batches.append(data_of(element))
        count += len(batches[-1])
        if count >= ENOUGH:
            break
    if not batches:
        raise ValueError("adapt was given an empty dataset.")
    return tf.concat(batches, axis=0)
