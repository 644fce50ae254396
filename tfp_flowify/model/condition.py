"""What a flow is conditioned on: how raw conditions look, and the network that makes a vector of them."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify.bijectors.context import InContext
from tfp_flowify.core.checks import as_list
from tfp_flowify.core.private import calls_of
from tfp_flowify.core.types import DTypeLike, RawCondition, Shape, TensorLike
from tfp_flowify.layers import Normalization
from tfp_flowify.model.entries import Range, dense, is_numeric

#: Where a condition is told from data: `fit({"x": x, "condition": c})`.
X, CONDITION = "x", "condition"

#: Layers that take labels 0 ... n - 1, and their attribute n.
LABELS = {keras.layers.Embedding: "input_dim", keras.layers.CategoryEncoding: "num_tokens"}


class Condition:
    """Raw conditions of a flow: a tensor, a dict or a list of tensors; and the vector that a network makes of them.

    Inside the flow a raw condition is a dict of tensors by `names`, its *leaves*.

    Args:
      network: A Keras model from raw conditions to vectors. See `condition_network`.
    """

    def __init__(self, network: keras.Model):
        self.network, self._template = network, _template(network)
        if isinstance(self._template, dict):
            self._keys: list | None = list(self._template)
        else:
            self._keys = list(range(len(self._template))) if isinstance(self._template, list) else None
        tensors = [self._template] if self._keys is None else [self._template[key] for key in self._keys]
        self.names = [CONDITION] if self._keys is None else [f"{CONDITION}_{key}" for key in self._keys]
        self.specs = {
            name: tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype, name=name)
            for name, tensor in zip(self.names, tensors, strict=True)
        }
        self.ranges = {name: _range(network, tensor) for name, tensor in zip(self.names, tensors, strict=True)}
        self.size = network.outputs[0].shape[-1]

    def leaves(self, condition: Any) -> dict:
        """The tensors of a raw condition by name; an error where there are too few, or too many, or none."""
        if isinstance(condition, dict) and set(condition) == set(self.names):
            return dict(condition)
        if condition is None:
            raise ValueError(f"This flow is a density given a condition: give {self.wanted()}, as condition=...")
        if self._keys is None:
            if isinstance(condition, dict):
                raise ValueError(f"This flow takes {self.wanted()}. Received: a dict with keys {list(condition)}")
            return {CONDITION: condition}
        kind = dict if isinstance(self._template, dict) else list | tuple
        if not isinstance(condition, kind):
            raise ValueError(f"This flow takes {self.wanted()}. Received: {type(condition).__name__}")
        keys = list(condition) if kind is dict else list(range(len(condition)))
        missing, extra = [k for k in self._keys if k not in keys], [k for k in keys if k not in self._keys]
        if missing or extra:
            raise ValueError(f"This flow takes {self.wanted()}. Received: missing {missing}, not known {extra}")
        return {name: condition[key] for name, key in zip(self.names, self._keys, strict=True)}

    def checked(self, condition: RawCondition, count: int | None = None) -> dict:
        """Leaves of a raw condition as arrays or tensors with a batch axis; errors name what does not fit.

        Args:
          condition: With a batch axis: a row for each example, or one for all; or without one, for all.
          count: The number of examples; None where it is not known.
        """
        leaves = {name: self._checked(name, value) for name, value in self.leaves(condition).items()}
        self.check_rows({name: value.shape[0] for name, value in leaves.items()}, count)
        return leaves

    def check_rows(self, rows: dict, count: int | None) -> None:
        """Raises an error where leaves do not have a row for each example, or one for all; None is not known."""
        known = {number for number in rows.values() if number is not None}
        if len(known) > 1 or (count is not None and not known <= {1, count}):
            asked = "" if count is None else f", one for each of {count} examples or one for all"
            given = ", ".join(f"{name} has {number}" for name, number in rows.items())
            raise ValueError(f"This flow takes {self.wanted()}{asked}. Received: {given} row(s).")

    def asserted(self, leaves: dict, count: tf.Tensor | int) -> dict:
        """The same tensors; when a graph runs with others than the flow takes, it fails and says so.

        Args:
          leaves: The tensors by name.
          count: The number of examples.
        """
        return {name: self._asserted(name, value, count) for name, value in leaves.items()}

    def _asserted(self, name, value, count):
        value = tf.ensure_shape(value, self.specs[name].shape)
        rows = tf.shape(value)[0]
        message = f"{name} has a row for each example, or one for all. Received: rows and examples"
        with tf.control_dependencies([tf.debugging.Assert((rows == 1) | (rows == count), [message, rows, count])]):
            return self.ranges[name].asserted(value, self._wanted_of(name))

    def check_numbers(self, name: str, values: np.ndarray) -> None:
        """Raises an error where an array has others than the numbers that a leaf takes."""
        self.ranges[name].check(values, self._wanted_of(name), of=f" of {name}")

    def _wanted_of(self, name):
        return f"A condition has {self.ranges[name]}"

    def dense(self, name: str, value: TensorLike) -> np.ndarray | tf.Tensor:
        """A leaf as an array or a tensor of numbers; see `entries.dense`."""
        return dense(value, f"This flow takes {self.wanted()} of numbers", name)

    def cast(self, name: str, value: TensorLike) -> tf.Tensor:
        """A leaf in the type that the network takes; it fails where whole numbers are wanted and others given."""
        dtype = self.specs[name].dtype
        value = tf.convert_to_tensor(self.dense(name, value))
        if dtype.is_floating:
            return tf.cast(value, dtype)
        if tf.executing_eagerly():
            self.check_numbers(name, value.numpy())
        return tf.cast(self.ranges[name].asserted(value, self._wanted_of(name)), dtype)

    def embed(self, leaves: dict, count: tf.Tensor | int, dtype: DTypeLike, training: bool | None = False) -> tf.Tensor:
        """The vectors of `count` examples, of a row for each or of one for all."""
        vectors = self.network(self._as_network_takes(leaves), training=training)
        return tf.broadcast_to(tf.cast(vectors, dtype), [count, self.size])

    def embed_all(self, condition: RawCondition, dtype: DTypeLike) -> tf.Tensor:
        """The vectors (..., size) of a raw condition with any leading axes; differentiable."""
        leaves, axes, static = self.leaves(condition), [], []
        for name, spec in self.specs.items():
            value = self.cast(name, leaves[name])
            ndims = value.shape.rank - (spec.shape.rank - 1)
            if ndims < 0 or not spec.shape[1:].is_compatible_with(value.shape[ndims:]):
                raise ValueError(
                    f"This flow takes {self.wanted()}, with any leading axes. Received: {name} of {tuple(value.shape)}"
                )
            axes.append(tf.shape(value)[:ndims])
            static.append(value.shape[:ndims])
            leaves[name] = tf.reshape(value, tf.concat([[-1], tf.shape(value)[ndims:]], axis=0))
        if not all(static[0].is_compatible_with(shape) for shape in static):
            given = ", ".join(f"{name} has {tuple(shape)}" for name, shape in zip(self.names, static, strict=True))
            raise ValueError(f"All parts of a condition have the same leading axes. Received: {given}")
        count = tf.reduce_prod(axes[0])
        return tf.reshape(self.embed(leaves, count, dtype), tf.concat([axes[0], [self.size]], axis=0))

    def adapt(self, leaves: dict) -> None:
        """Lets `Normalization` layers of the network measure the conditions that reach them."""
        for layer in self.network.layers:
            if isinstance(layer, Normalization) and layer.trainable:
                front = keras.Model(self._template, layer.input)
                layer.adapt(np.asarray(front(self._as_network_takes(leaves))))

    def wanted(self) -> str:
        """What raw conditions look like, for people."""
        kinds = [str(("n", *spec.shape[1:])).replace("'n'", "n") for spec in self.specs.values()]
        if self._keys is None:
            return f"a condition {kinds[0]}"
        if isinstance(self._template, dict):
            named = ", ".join(f"{key!r}: {kind}" for key, kind in zip(self._keys, kinds, strict=True))
            return f"a condition {{{named}}}"
        return f"a condition [{', '.join(kinds)}]"

    def _as_network_takes(self, leaves):
        if self._keys is None:
            return leaves[CONDITION]
        values = [leaves[name] for name in self.names]
        return dict(zip(self._keys, values, strict=True)) if isinstance(self._template, dict) else values

    def _checked(self, name, value):
        spec = self.specs[name]
        value = self.dense(name, value)
        value = value[None] if len(value.shape) == spec.shape.rank - 1 else value
        if not spec.shape.is_compatible_with(value.shape) or value.shape[0] == 0:
            raise ValueError(f"This flow takes {self.wanted()}. Received: {name} of shape {tuple(value.shape)}")
        if not tf.executing_eagerly():
            return tf.cast(value, spec.dtype)
        self.check_numbers(name, np.asarray(value))
        return tf.cast(value, spec.dtype) if tf.is_tensor(value) else value.astype(spec.dtype.as_numpy_dtype)


class Embedding(InContext):
    """A condition that is another part of a flow: the vector that the network of a `Condition` makes of it."""

    def __init__(self, condition: Condition):
        super().__init__()
        self.condition, self.network = condition, condition.network

    def __call__(self, x, context):
        return self.condition.embed({CONDITION: x}, tf.shape(x)[0], x.dtype, training=context.training)

    def adapt(self, x: TensorLike) -> None:
        """Lets `Normalization` layers of the network measure it."""
        self.condition.adapt({CONDITION: x})


def condition_network(condition: keras.Model | Shape | dict[str, Shape], policy: keras.DTypePolicy) -> keras.Model:
    """The Keras model from raw conditions to vectors that the argument `condition` of a flow stands for.

    Args:
      condition: A shape, a dict of shapes, or a Keras model. Of shapes, all numbers are joined to a vector, which
        `FlowModel.adapt` gives mean zero and unit deviation. The output of a model is made a vector.
      policy: Dtype policy of what is made here.

    >>> condition_network({"a": (2,), "b": ()}, keras.config.dtype_policy()).output_shape
    (None, 3)
    """
    if isinstance(condition, keras.Model):
        return _with_vector(condition, policy)
    shapes = condition if isinstance(condition, dict) else {CONDITION: condition}
    try:
        shapes = {str(name): tuple(int(size) for size in shape) for name, shape in shapes.items()}
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"condition is a shape such as (3,), a dict of shapes, or a Keras model. Received: condition={condition!r}"
        ) from error
    if not shapes or any(size < 1 for shape in shapes.values() for size in shape):
        raise ValueError(f"A condition has one number or more. Received: condition={condition!r}")
    inputs = {name: keras.Input(shape, dtype=policy.variable_dtype, name=name) for name, shape in shapes.items()}
    flat = [keras.layers.Reshape((math.prod(shapes[n]),), dtype=policy.variable_dtype)(x) for n, x in inputs.items()]
    joined = keras.layers.Concatenate(dtype=policy.variable_dtype)(flat) if len(flat) > 1 else flat[0]
    outputs = Normalization(dtype=policy.variable_dtype)(joined)
    return keras.Model(inputs if isinstance(condition, dict) else inputs[CONDITION], outputs, name="condition")


def _with_vector(network, policy):
    """A model with one output that is a vector."""
    if not getattr(network, "inputs", None):
        raise ValueError(
            f"The condition network {network.name!r} does not tell the shape of what it takes. Start it with a "
            "keras.Input(shape), or call it on one: x = keras.Input(shape); keras.Model(x, network(x))."
        )
    if len(network.outputs) != 1 or None in network.outputs[0].shape[1:]:
        shapes = [tuple(tensor.shape) for tensor in network.outputs]
        raise ValueError(f"A condition network has one output of known size. Received: {network.name!r} with {shapes}")
    if len(network.outputs[0].shape) == 2:
        return network
    size = math.prod(network.outputs[0].shape[1:])
    flat = keras.layers.Reshape((size,), dtype=policy.variable_dtype)(network.outputs[0])
    return keras.Model(_template(network), flat, name=f"{network.name}_flat")


def _range(network, tensor) -> Range:
    """The numbers that an input takes: those of its type, or the labels that a layer behind it knows."""
    for call in calls_of(network):
        size = LABELS.get(type(call.operation))
        if size is not None and call.input_tensors[0] is tensor:
            return Range(0, getattr(call.operation, size) - 1, whole=True)
    if not is_numeric(tf.as_dtype(tensor.dtype)):
        raise ValueError(f"A condition has numbers. {network.name!r} takes {tensor.dtype}: make numbers of it before.")
    return Range.of_type(tensor.dtype)


def _template(network):
    """The inputs of a Keras model in their structure."""
    if isinstance(network, keras.Sequential):
        return network.inputs[0]
    template = network.input
    if isinstance(template, tuple | list):
        template = list(template) if len(template) > 1 else template[0]
    tensors = list(template.values()) if isinstance(template, dict) else as_list(template)
    if not all(isinstance(tensor, keras.KerasTensor) for tensor in tensors):
        raise ValueError(f"A condition is a tensor, a dict or a list of tensors. {network.name!r} takes {template}")
    return template
