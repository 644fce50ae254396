"""The fallback: layers without a flow layer of their own are taken whole."""

import math
from typing import Any

import keras

from tfp_flowify import layers as fl
from tfp_flowify.conversion.graph import Call


def fallback(layer: keras.Operation, *args: Any, **kwargs: Any) -> keras.KerasTensor:
    """Any layer or operation of one tensor as `Stochastic`: what it gives plus noise, and a density of what it took."""
    tensors = {id(t): t for t in keras.tree.flatten((args, kwargs)) if isinstance(t, keras.KerasTensor)}
    (tensor,) = tensors.values()
    inputs = keras.Input(tensor.shape[1:], dtype=tensor.dtype)

    def replace(value):
        return inputs if isinstance(value, keras.KerasTensor) else value

    args, kwargs = keras.tree.map_structure(replace, (args, kwargs))
    function = keras.Model(inputs, layer(*args, **kwargs), name=f"{layer.name}_function")
    return fl.Stochastic(function, inference=True, name=layer.name)(tensor)


def fallback_noise(call: Call) -> float:
    """The noise of `fallback`: a number for each that goes out. It is no way for layers of several tensors."""
    return math.prod(call.shape) if len(call.inputs) == 1 and len(call.outputs) == 1 else math.inf
