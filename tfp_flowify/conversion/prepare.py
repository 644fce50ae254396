"""A copy of a Keras model that is ready to be converted: flat, checked, with the numbers that it was trained on."""

import contextlib

import keras

from tfp_flowify.conversion.graph import run_model
from tfp_flowify.core.private import calls_of
from tfp_flowify.layers.graph import is_graph

kl = keras.layers


def prepared(model: keras.Model, levels: int | None = None, preprocessing=None) -> tuple:
    """A flat copy of a model, with preprocessing in front and without a softmax at its end; and notes about that.

    Args:
      model: A Keras model.
      levels: Where given, the copy takes numbers in (0, 1), as `Dequantize(levels)` gives them for whole ones.
      preprocessing: A Keras layer or model in front; None for none.
    """
    model, notes = _copied(model)
    _check(model)
    given = model.inputs[0]
    x = inputs = keras.Input(given.shape[1:], dtype=policy_of(model).variable_dtype)
    if levels is not None:
        x = kl.Rescaling(levels, -0.5, name="to_levels")(x)
    if preprocessing is not None:
        x = run_model(preprocessing, [x])[0] if is_graph(preprocessing) else preprocessing(x)
    if not keras.backend.is_float_dtype(given.dtype):
        x = keras.ops.cast(keras.ops.round(x), given.dtype)
    flat = keras.Model(inputs, run_model(model, [x])[0], name=model.name)
    return _without_probabilities(flat, notes)


def _copied(model):
    """A model of copied layers and weights; the same one where it cannot be copied."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"flowify takes a Keras model. Received: {model!r}")
    if not is_graph(model):
        model = _called(model)
    try:
        copy = keras.models.clone_model(model)
    except (NotImplementedError, TypeError, ValueError):
        return model, [f"{model.name}: cannot be copied, so the flow holds its own layers: freezing one freezes both."]
    copy.set_weights(model.get_weights())
    return copy, []


def _called(model):
    """A model without a graph as the only layer of one that has one."""
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


def _without_probabilities(model, notes):
    """The model without a softmax or a sigmoid at its end, which would leave the output on a part of the space."""
    last = calls_of(model)[-1]
    layer, kinds = last.operation, ("softmax", "sigmoid")
    name = getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__.lower())
    if name not in kinds:
        return model, notes
    if isinstance(layer, kl.Layer) and not isinstance(layer, kl.Activation | kl.Softmax):
        layer.activation = keras.activations.linear
    else:
        model = keras.Model(model.inputs[0], last.input_tensors[0], name=model.name)
    return model, [*notes, f"The {name} at the end ({layer.name}) is taken off: the output is in front of it."]


def policy_of(model):
    """The dtype policy of the first layer with weights, or of the model."""
    weighty = (layer for layer in model.layers if layer.weights)
    return next((layer.dtype_policy for layer in weighty), model.dtype_policy)


@contextlib.contextmanager
def default_policy(policy):
    """Makes a dtype policy that of all layers made inside, where they are given none."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield policy
    finally:
        keras.config.set_dtype_policy(before)
