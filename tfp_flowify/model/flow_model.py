"""A network of flow layers as a Keras model: trained with fit, saved, exported, and a density of its data."""

import numbers
import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.augmentation import draw
from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.moments import some_rows
from tfp_flowify.core.private import layers_inside
from tfp_flowify.core.seeds import salted
from tfp_flowify.core.types import Examples, PathLike, RawCondition, Seed, Shape, TensorLike
from tfp_flowify.distributions import ConditionalNormal, DiagonalNormal, FlowDistribution
from tfp_flowify.layers.arguments import check_full_precision, one_of
from tfp_flowify.layers.base import make_transform, register
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.graph import model_bijector
from tfp_flowify.layers.networks import conditioner_for
from tfp_flowify.model.adapt import Adapter
from tfp_flowify.model.condition import CONDITION, Condition, Embedding, condition_network
from tfp_flowify.model.density import Density
from tfp_flowify.model.door import Door
from tfp_flowify.model.functions import FlowFunctions, export_functions
from tfp_flowify.model.inputs import InputCheck, data_of, is_array
from tfp_flowify.model.network import as_network, base_of, check_inputs, policy_of
from tfp_flowify.model.summary import flow_summary
from tfp_flowify.model.training import Training

#: So many examples, at most, are taken to adapt to.
ENOUGH = 2000

#: Densities of the output by name.
BASES = ("normal", "spline", "standard")


@register
class FlowModel(Density, Training, keras.Model):
    """A normalizing flow made of a network of flow layers.

    Called on data it is the network. It has the density of its data, and is trained by maximum likelihood:

        flow.compile("adam")
        flow.fit(x)

    With a loss it learns a task as well: `compile("adam", loss=..., likelihood_weight=...)`, `fit(x, y)`. To train only
    the densities of what the network drops, set `flow.network.trainable = False` before `compile`.

    With a condition it is the density of x given that, log p(x | condition):

        flow = FlowModel(layers, condition=(3,))
        flow.fit([x, c])
        flow.sample(100, condition=c[0])
        flow.given(c).log_prob(x)

    Attributes:
      network: The ordinary network, a Keras model with the weights of its layers. Where layers read the condition, it
        has two inputs: x, and the vector that `condition_network` gives.
      densities: The weights that the flow adds: scales of noise, densities of what is dropped and of the output.
      condition_network: The Keras model from conditions to vectors; None without a condition.
      distribution: The flow as a distribution of TFP.

    Args:
      network: A list of layers from `tfp_flowify.layers`, or a Keras functional model of them. With a `keras.Input`
        first it is built at once; else by `build`, `adapt` or `fit`.
      base: The density of the network's output: "normal", with a mean and a deviation for each entry that are trained,
        and depend on the condition where there is one; "spline", a normal bent by a spline, both given the condition;
        "standard"; or another `FlowModel` of such outputs. If that one takes a condition, it is given the vector that
        the condition network gives.
      seed: Seed for the noise in training; `keras.utils.set_random_seed` sets it too.
      condition: What the density is conditioned on: the shape of it for one example; a dict of shapes; or a Keras model
        of raw conditions that gives a vector, which is trained along. Densities, couplings and the base depend on it.
      pretrained: Whether the network has weights of its own already, so that `adapt` leaves it as it is.
      notes: Lines about the flow that `summary` shows.

    >>> from tfp_flowify import layers
    >>> flow = FlowModel([keras.Input([3]), layers.Dense(5), layers.LeakyReLU(), layers.Dense(2)])
    >>> flow.noise_shapes, flow.residual_shapes
    ([(2,)], [(3,)])
    >>> x = flow.sample(10, seed=1)
    >>> flow.log_prob(x, seed=2).shape.as_list()
    [10]
    """

    def __init__(
        self,
        network: keras.Model | Sequence,
        base: "str | FlowModel" = "normal",
        seed: int | None = None,
        condition: keras.Model | Shape | dict[str, Shape] | None = None,
        *,
        pretrained: bool = False,
        notes: Sequence[str] = (),
        **kwargs: Any,
    ):
        given = None if condition is None else Condition(condition_network(condition, policy_of(network)))
        size = None if given is None else given.size
        network = as_network(network, size)
        kwargs["dtype"] = kwargs.get("dtype") or policy_of(network)
        super().__init__(**kwargs)
        check_full_precision(self)
        self.autocast = False  # The flow runs in full precision; only the networks inside may not.
        self.network = network
        self.condition_network, self._condition = given and given.network, given
        self.densities = Densities(size, name="densities", dtype=self.dtype_policy)
        self.base, self.seed = base if isinstance(base, FlowModel) else one_of("base", base, BASES), seed
        self.pretrained, self.notes = bool(pretrained), tuple(notes)
        if seed is not None and not isinstance(seed, numbers.Integral):
            raise TypeError(f"seed is a whole number. Received: seed={seed!r}")
        self._set_up_training(random.randrange(2**31) if seed is None else seed)
        if self.network.built:
            self.build(self.network.input_shape)

    def build(self, input_shape: Shape | Sequence[Shape] | dict[str, Any]) -> None:
        if self._flow_functions is not None:
            return
        if not self.network.built:
            self.network.build(self._shape_of_data(input_shape))
        check_inputs(self.network, self._condition)
        bijector = model_bijector(self.network, self.densities, *self.network.inputs[1:])
        if bijector.dtype not in (None, tf.as_dtype(self.variable_dtype)):
            raise TypeError(
                f"The layers of {self.name} work in {bijector.dtype.name}, the flow in {self.variable_dtype}. Give all "
                "the same dtype, or leave out that of the flow."
            )
        self._bases = self._make_bases(bijector.outputs)
        distribution = FlowDistribution(
            bijector,
            self._bases,
            dtype=self.variable_dtype,
            condition_shape=self._condition and (self._condition.size,),
            name=self.name,
        )
        check = InputCheck(distribution.event_shape, bijector.levels, distribution.dtype)
        door = Door(check, self._condition)
        self._flow_functions = FlowFunctions(distribution, self._run_network, door)
        self._warn_if_nothing_reads_the_condition()
        self.built = True

    def _warn_if_nothing_reads_the_condition(self):
        base_reads = self.base.takes_condition if isinstance(self.base, FlowModel) else self.base != "standard"
        reads = len(self.network.inputs) == 2 or base_reads
        parts = [self.densities, *(part for part in layers_inside(self.densities) if isinstance(part, Densities))]
        if self._condition is None or reads or any(part.conditioners for part in parts):
            return
        warnings.warn(
            f"Nothing in {self.name} depends on the condition: no layer reads it, nothing is dropped, and the base "
            'does not either. Use base="normal", SplineCoupling or ConditionalAffine.',
            stacklevel=4,
        )

    def _make_bases(self, shapes):
        """The densities of the outputs; None for standard normal ones."""
        if isinstance(self.base, FlowModel):
            return [base_of(self.base, self._condition, shapes)]
        return None if self.base == "standard" else [self._make_base(*output) for output in enumerate(shapes)]

    def _make_base(self, number, shape):
        if self._condition is not None:
            transform = make_transform("affine" if self.base == "normal" else "affine+spline")
            network = conditioner_for(None, shape, transform.size, self.dtype_policy, condition=self._condition.size)
            return ConditionalNormal(shape, self.densities.add_conditioner(network), transform, self.variable_dtype)
        if self.base == "spline":
            raise ValueError('base="spline" is for a condition. Without one, put Spline(per_channel=True) last.')
        loc, log_scale = (self.densities.add(f"base_{name}_{number}", shape) for name in ("loc", "log_scale"))
        return DiagonalNormal(loc, log_scale)

    def build_from(self, x: Examples | dict[str, Any]) -> None:
        """Builds the flow for data like x, an array or a dataset; does nothing where it is built."""
        if self._flow_functions is not None:
            return
        spec = data_of(x.element_spec) if isinstance(x, tf.data.Dataset) else x
        if self._condition is not None and isinstance(spec, dict | list | tuple):
            spec = spec.get("x") if isinstance(spec, dict) else spec[0]
        spec = np.asarray(spec) if is_array(spec) else spec
        if getattr(spec, "shape", None) is None or len(spec.shape) < 2 or None in tuple(spec.shape)[1:]:
            raise ValueError(
                f"{self.name} is not built, and its data do not tell their shape. Start its layers with "
                "keras.Input(shape)."
            )
        with self.distribute_strategy.scope():
            self.build((None, *spec.shape[1:]))

    def call(self, inputs: TensorLike | dict[str, Any], training: bool | None = None) -> tf.Tensor | list:
        if tf.executing_eagerly() and all(map(tf.is_tensor, tf.nest.flatten(inputs))):
            self._door.inputs(inputs)
        x, leaves = self._door.batch(inputs)
        return self._run_network(x, self._vectors(x, leaves, training), training)

    def _vectors(self, x, leaves, training=False):
        """The condition of a batch as layers see it; None without a condition."""
        if leaves is None:
            return None
        return self._condition.embed(leaves, tf.shape(x)[0], self.variable_dtype, training=training)

    def _run_network(self, x, vectors=None, training=False):
        return self.network(x if len(self.network.inputs) == 1 else [x, vectors], training=training)

    def compute_output_shape(self, input_shape: Shape | Sequence[Shape] | dict[str, Any]) -> tuple | list:
        shape = self._shape_of_data(input_shape)
        if self._condition is None or len(self.network.inputs) == 1:
            return self.network.compute_output_shape(shape)
        return self.network.compute_output_shape([shape, (shape[0], self._condition.size)])

    def _shape_of_data(self, shapes):
        """The shape of x among those of what the flow is called on."""
        if isinstance(shapes, dict):
            return shapes["x"]
        return shapes[0] if self._condition is not None and isinstance(shapes[0], list | tuple) else shapes

    def adapt(
        self, x: Examples, densities_only: bool | None = None, seed: Seed = None, *, condition: RawCondition = None
    ) -> None:
        """Sets scales and shifts by those of data, in one pass: where a fresh flow should start.

        Dense layers and convolutions then give outputs of mean zero and unit scale, and drop the directions in which
        the data vary least; `Normalization` layers know the data; and the densities of what is dropped, and of the
        output, have the right mean and deviation. What is frozen stays as it is.

        Args:
          x: Some hundred examples: an array or a tensor, of which 2,000 are taken at most, evenly spaced; or a
            `tf.data.Dataset` of batches, of which the first are taken.
          densities_only: Whether to leave the network as it is, say because it is trained; noise that its layers add is
            then scaled to what goes into them. If left out, whether the flow is `pretrained`.
          seed: Seed for the noise.
          condition: For a conditional flow, one for each example; in a dataset it comes with the data. `Normalization`
            layers of the condition network are set too, as there is one where `condition` was a shape.
        """
        self.build_from(x)
        densities_only = self.pretrained if densities_only is None else densities_only
        if isinstance(x, tf.data.Dataset):
            self._door.refuse_beside_dataset(condition)
            x, leaves = self._door.first_examples(x, ENOUGH)
            named = x
        else:
            named, (x, leaves) = x, self._door.asked(x, condition)
        self._check.warn_of_no_density(named)
        x = tf.cast(some_rows(x, ENOUGH), self.variable_dtype)
        leaves = {name: some_rows(value, ENOUGH) for name, value in leaves.items()}
        if self._condition is not None and not densities_only:
            self._condition.adapt(leaves)
        context = fb.Context(condition=self._vectors(x, leaves or None))
        self._adapt_to(x, context, densities_only, salted(seed, "adapt"))

    def _adapt_to(self, x, context, densities_only, seed):
        """Sets the flow to data, layer after layer, and then the density of its output."""
        adapter = Adapter(self._frozen(), densities_only, self.densities, context)
        bijector = self.distribution.bijector
        noise = draw(bijector.noise, [len(x)], seed)
        if densities_only:
            adapter.measure(bijector, [x, *map(tf.zeros_like, noise)])
        parts = adapter.forward(bijector, [x, *noise])
        if isinstance(self.base, FlowModel):
            self.base._adapt_to(parts[0], context, self.base.pretrained, salted(seed, "base"))
        else:
            for base, z in zip(self._bases or [], parts, strict=False):
                adapter.set_base(base, z)
        adapter.warn_of_small_units()

    def whitening(self, shape: Shape, given: Shape) -> fb.WhitenByFlow:
        """This density of x given z as a bijector [z, x, *noise] -> [z, *residuals], for `layers.Stochastic`.

        Args:
          shape, given: Event shapes of x and z.
        """
        if self._condition is None or list(self._condition.specs) != [CONDITION]:
            raise ValueError(f"{self.name} is no density given one tensor. Make it with condition={tuple(given)}.")
        wanted = tuple(self._condition.specs[CONDITION].shape[1:])
        if (self.event_shape, wanted) != (tuple(shape), tuple(given)):
            raise ValueError(
                f"{self.name} is a density of {self.event_shape} given {wanted}. Here it takes one of {tuple(shape)} "
                f"given {tuple(given)}."
            )
        return fb.WhitenByFlow(given, self.distribution.standardized(), Embedding(self._condition))

    def _frozen(self) -> list:
        """The variables of all layers that are frozen."""
        return [v for layer in layers_inside(self) if not layer.trainable for v in layer.variables]

    def summary(
        self,
        line_length: int | None = None,
        positions: Sequence[float] | None = None,
        print_fn: Callable | None = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Sequence[str] | None = None,
    ) -> None:
        """Prints Keras' summary of the network, and a table of where dimensions are added and dropped.

        Arguments are those of Keras, for its summary of the network.
        """
        self.network.summary(line_length, positions, print_fn, expand_nested, show_trainable, layer_range)
        (print_fn or print)(flow_summary(self))

    def describe_condition(self) -> str:
        """One line about the condition, for `summary`."""
        weights = self.condition_network.count_params()
        return (
            f"Given {self._condition.wanted()}, which {self.condition_network.name!r} makes a vector of "
            f"{self._condition.size} numbers ({weights:,} weights)."
        )

    # Saving.

    def save(self, filepath: PathLike, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any) -> None:
        """Saves the flow with its weights and its optimizer to a `.keras` file, as any Keras model."""
        if Path(filepath).suffix in (".h5", ".hdf5"):
            raise ValueError(
                f"A flow is saved to a .keras file: it could not be loaded again from HDF5. Received: {filepath}"
            )
        super().save(filepath, overwrite, zipped, **kwargs)

    def export(
        self,
        filepath: PathLike,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: None = None,
        *,
        num_draws: int = 1,
    ) -> None:
        """Writes a SavedModel that runs with TensorFlow alone.

        Its signatures are `log_prob(x, seed)`, `bits_per_dim(x, seed)`, `sample(n, temperature, seed)`,
        `encode(x, seed)`, `decode(z, residual_0, ...)` and `predict(x)`, for any batch size. A seed is a pair of
        int32; that of a whole number k here is (0, k) there. Nothing is cut into batches there; `sample` draws 2^31 - 1
        numbers at once, at most. Input that the flow does not take raises an `InvalidArgumentError`. A conditional flow
        has one more input in each, `condition`, or `condition_NAME` for each of several: a row for each example, or
        one row for all.

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
        num_draws = whole_number("num_draws", num_draws)
        counters = {id(counter) for counter in (self._noise_seed, self._training_draws, self._test_draws)}
        weights = [weight for weight in self.weights if id(weight) not in counters]
        export_functions(self._functions, [weight.value for weight in weights], filepath, num_draws)
        if verbose:
            print(f"Saved the signatures of {self.name} at {filepath}.")

    def get_config(self) -> dict:
        network = keras.saving.serialize_keras_object(self.network)
        frozen = [i for i, layer in enumerate(self._density_layers()) if not layer.trainable]
        own = {"network": network, "base": self.base, "seed": self.seed, "frozen_densities": frozen}
        own |= {"pretrained": self.pretrained, "notes": list(self.notes)}
        own["frozen_network"] = not self.network.trainable  # Some layers forget it of those inside them.
        if isinstance(self.base, FlowModel):
            own["base"] = keras.saving.serialize_keras_object(self.base)
        if self.condition_network is not None:
            own["condition"] = keras.saving.serialize_keras_object(self.condition_network)
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> Self:
        config = dict(config)
        for name in ("network", "base", "condition"):
            if isinstance(config.get(name), dict):
                config[name] = keras.saving.deserialize_keras_object(config[name], custom_objects)
        config["dtype"] = keras.saving.deserialize_keras_object(config["dtype"])
        frozen, frozen_network = config.pop("frozen_densities", []), config.pop("frozen_network", False)
        flow = cls(**config)
        if frozen_network:  # Keras passes on to the layers inside what changes, and nothing else.
            flow.network.trainable = True
            flow.network.trainable = False
        layers = flow._density_layers()
        for i in frozen:
            layers[i].trainable = False
        return flow

    def _density_layers(self) -> list:
        return [self.densities, *layers_inside(self.densities)]
