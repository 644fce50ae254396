"""A copy of a Keras model that is ready to be converted: flat, checked, with the numbers that it was trained on."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras

from tfp_flowify.conversion.copying import Copier
from tfp_flowify.core.private import calls_of
from tfp_flowify.layers.graph import is_graph

kl = keras.layers

#: Layers whose activation is the last thing that they do.
_ACTIVATION_LAST = (
    *(kl.Dense, kl.EinsumDense, kl.Conv1D, kl.Conv2D, kl.Conv3D),
    *(kl.Conv1DTranspose, kl.Conv2DTranspose, kl.Conv3DTranspose),
    *(kl.DepthwiseConv1D, kl.DepthwiseConv2D, kl.SeparableConv1D, kl.SeparableConv2D),
)

_PROBABILITIES = ("softmax", "sigmoid")


def prepared(model: keras.Model, levels: int | None = None, preprocessing: Callable | None = None) -> tuple:
    """A flat copy of a model, with preprocessing in front and without a softmax at its end; and notes about that.

    Args:
      model: A Keras model.
      levels: Where given, the copy takes numbers in (0, 1), as `Dequantize(levels)` gives them for whole ones.
      preprocessing: A Keras layer or model, or a function of Keras tensors, in front; None for none.
    """
    model = _with_graph(model)
    _check(model)
    with default_policy(policy_of(model)) as policy:
        copier, given = Copier(), model.inputs[0]
        x = inputs = keras.Input(given.shape[1:], dtype=policy.variable_dtype)
        if levels is not None:
            x = kl.Rescaling(levels, -0.5, name=copier.unique("to_levels"))(x)
        if preprocessing is not None:
            x = _preprocessed(copier, preprocessing, x)
        if not keras.backend.is_float_dtype(given.dtype):
            x = keras.ops.cast(keras.ops.round(x), given.dtype)
        elif levels is not None and _are_tokens(model):
            x = keras.ops.round(x)
        (z,) = copier.run_model(model, [x])
        return _without_probabilities(keras.Model(inputs, z, name=model.name), copier)


def _with_graph(model):
    """The model; one without a graph, as the only layer of one that has one."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"flowify takes a Keras model. Received: {model!r}")
    if is_graph(model):
        return model
    shape = (model.get_build_config() or {}).get("input_shape")
    if shape is None or not all(isinstance(size, int | None) for size in shape):
        raise ValueError(
            f"{model.name} ({type(model).__name__}) does not tell what it takes. Call it on an input first: "
            "x = keras.Input(shape); flowify(keras.Model(x, model(x)))."
        )
    inputs = keras.Input(shape[1:])
    return keras.Model(inputs, model(inputs), name=model.name)


def _check(model):
    count, outputs = len(model.inputs), len(model.outputs)
    if count != 1:
        raise ValueError(
            f"A flow is the density of one tensor. {model.name} takes {count}. Fix the others, or join them and take "
            "them apart inside: x = keras.Input(shape); keras.Model(x, model([...]))."
        )
    if outputs != 1:
        raise ValueError(
            f"{model.name} has {outputs} outputs. Choose one: flowify(keras.Model(model.inputs, model.outputs[0])); or "
            "join them by Flatten and Concatenate."
        )
    shapes = [tuple(tensor.shape[1:]) for tensor in (*model.inputs, *model.outputs)]
    if any(None in shape for shape in shapes):
        raise ValueError(
            f"{model.name} takes and gives {shapes[0]} and {shapes[1]}, and a flow must know all sizes. Call it on an "
            "input of known size: x = keras.Input(shape); flowify(keras.Model(x, model(x)))."
        )


def _preprocessed(copier, preprocessing, x):
    results = copier.run(preprocessing, x)
    if len(results) != 1 or not isinstance(results[0], keras.KerasTensor):
        raise TypeError(
            "preprocessing is a Keras layer, a model, or a function that takes and gives one Keras tensor. Received: "
            f"{preprocessing!r}, which gave {results}"
        )
    return results[0]


def _are_tokens(model) -> bool:
    """Whether an embedding takes the input: then it must be whole, whatever type Keras gave it."""
    (given,) = model.inputs
    takers = [call.operation for call in calls_of(model) if any(t is given for t in call.input_tensors)]
    return any(_are_tokens(each) if is_graph(each) else isinstance(each, kl.Embedding) for each in takers)


def _without_probabilities(model, copier):
    """The model without a softmax or a sigmoid at its end, which would leave the output on a part of the space."""
    calls, notes = calls_of(model), copier.notes
    layer = calls[-1].operation if calls else None
    name = _final_activation(layer)
    if name not in _PROBABILITIES or sum(call.operation is layer for call in calls) > 1:
        return model, notes
    if isinstance(layer, _ACTIVATION_LAST):
        if not copier.is_copy(layer):
            return model, notes
        layer.activation = keras.activations.linear
    else:
        model = keras.Model(model.inputs[0], calls[-1].input_tensors[0], name=model.name)
    return model, [*notes, f"The {name} at the end ({layer.name}) is taken off: the output is in front of it."]


def _final_activation(layer) -> str | None:
    """The name of the function that a layer or an operation ends with, where it is one of probabilities."""
    kinds = {name: getattr(keras.activations, name) for name in _PROBABILITIES}
    if isinstance(layer, (kl.Activation, *_ACTIVATION_LAST)):
        return next((name for name, kind in kinds.items() if layer.activation is kind), None)
    if isinstance(layer, kl.Softmax):
        return "softmax"
    is_operation = layer is not None and not isinstance(layer, kl.Layer)
    return type(layer).__name__.lower() if is_operation else None


def policy_of(model: keras.Model) -> keras.DTypePolicy:
    """The dtype policy of the first layer with weights, or of the model."""
    weighty = (layer for layer in model.layers if layer.weights)
    return next((layer.dtype_policy for layer in weighty), model.dtype_policy)


@contextlib.contextmanager
def default_policy(policy: keras.DTypePolicy | str) -> Iterator[Any]:
    """Makes a dtype policy that of all layers made inside, where they are given none."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield policy
    finally:
        keras.config.set_dtype_policy(before)
