"""Layers one after the other as a Keras model."""

from collections.abc import Callable, Iterable

import keras

from tfp_flowify.core.types import Shape


def chain(
    layers: Iterable[keras.layers.Layer],
    shape: Shape,
    policy: keras.DTypePolicy,
    name: str | None = None,
    condition: int | None = None,
) -> keras.Model:
    """A Keras model of layers in a row, for events of this shape, in the precision of a dtype policy.

    Args:
      layers: The layers.
      shape: Event shape of the input.
      policy: A dtype policy.
      name: Name of the model.
      condition: Size of a condition; it is then the second input, for the layers that take one.
    """
    inputs = keras.Input(shape, dtype=policy.compute_dtype)
    given = None if condition is None else keras.Input((condition,), dtype=policy.compute_dtype, name="condition")
    outputs = chain_tensors(layers, inputs, given)
    network = keras.Model(inputs if given is None else [inputs, given], outputs, name=name)
    network.dtype_policy = policy
    return network


def chain_tensors(
    layers: Iterable[keras.layers.Layer], tensor: keras.KerasTensor, condition: keras.KerasTensor | None = None
) -> keras.KerasTensor:
    """The tensor behind layers in a row; those that take a condition are given it beside their input."""
    for layer in layers:
        takes_it = condition is not None and wants_condition(layer)
        tensor = layer([tensor, condition]) if takes_it else layer(tensor)
    return tensor


def wants_condition(layer: keras.layers.Layer | keras.KerasTensor) -> bool:
    """Whether a layer, or a model of layers, takes a condition beside its input."""
    return has_two_inputs(layer) if isinstance(layer, keras.Model) else getattr(layer, "takes_condition", False)


def has_two_inputs(network: Callable) -> bool:
    """Whether a Keras model takes two tensors: the second is for a condition."""
    return len(getattr(network, "inputs", None) or []) == 2
