"""The ordinary network of a flow: a Keras model of the layers that the flow is made of."""

from collections.abc import Sequence

import keras
import numpy as np

from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.layers.base import FlowLayer
from tfp_flowify.layers.chain import chain_tensors, wants_condition
from tfp_flowify.layers.graph import is_graph, way_out
from tfp_flowify.model.condition import Condition


def as_network(network: keras.Model | Sequence, condition: int | None = None) -> keras.Model:
    """A Keras model of the layers that a flow is made of.

    Args:
      network: A list of layers, or a functional or sequential model of them.
      condition: Size of the vector of the condition: the second input, where some of the layers in a list read it. None
        for a flow without a condition.
    """
    if isinstance(network, keras.Model) and not (is_graph(network) or isinstance(network, keras.Sequential)):
        raise TypeError(
            f"A flow is made of a list of layers, or a functional or sequential Keras model of them. Received: "
            f"{type(network).__name__} {network.name!r}. Stochastic(model) takes any model as a layer."
        )
    if isinstance(network, keras.Sequential) and condition is not None and any(map(wants_condition, network.layers)):
        raise ValueError(
            f"The layers of {network.name!r} that could read the condition were made without it. Give the flow a list "
            "of layers, FlowModel([keras.Input(shape), ...], condition=...), or a functional model of [x, condition]."
        )
    if isinstance(network, keras.Model):
        return network
    if not isinstance(network, list | tuple) or not network:
        raise TypeError(f"A flow is made of a list of layers, or a Keras model of them. Received: {network!r}")
    for layer in network:
        if not isinstance(layer, FlowLayer | keras.Model | keras.layers.InputLayer | keras.KerasTensor):
            raise TypeError(f"A flow is made of layers of tfp_flowify.layers. Received: {layer!r}. {way_out(layer)}")
    if condition is not None and any(map(wants_condition, network)):
        return _with_condition(network, condition)
    sequential = keras.Sequential(list(network))
    sequential.dtype_policy = policy_of(network)
    return sequential


def _with_condition(network, condition):
    """Layers in a row as a model of [x, vector of the condition]."""
    first, *layers = network
    if isinstance(first, keras.layers.InputLayer):
        first = first.output
    if not isinstance(first, keras.KerasTensor):
        raise ValueError(
            "Some layers of this flow read the condition, so the shape of the data must be known when it is made. "
            "Start them with keras.Input(shape)."
        )
    policy = policy_of(network)
    given = keras.Input((condition,), dtype=policy.variable_dtype, name="condition")
    model = keras.Model([first, given], chain_tensors(layers, first, given))
    model.dtype_policy = policy
    return model


def check_inputs(network: keras.Model, condition: Condition | None) -> None:
    """Raises an error where a network has other inputs than the data and, beside them, the condition."""
    count, shapes = len(network.inputs), [tuple(tensor.shape[1:]) for tensor in network.inputs]
    if condition is None and count != 1:
        raise ValueError(
            f"A flow has one input. Received: a network with {count}. If the second is a condition, say so: "
            "FlowModel(network, condition=shape)."
        )
    if condition is not None and (count > 2 or (count == 2 and shapes[1] != (condition.size,))):
        raise ValueError(
            "The inputs of this network are the data and, where layers read it, the vector of the condition, "
            f"({condition.size},). Received: {shapes}"
        )


def policy_of(network: keras.Model | Sequence) -> keras.DTypePolicy:
    """The dtype policy of the layers of a list or a model; of the model itself, or Keras' own, where there are none."""
    layers = getattr(network, "layers", network)
    layers = layers if isinstance(layers, list | tuple) else []
    default = network.dtype_policy if isinstance(network, keras.Model) else keras.config.dtype_policy()
    return next((layer.dtype_policy for layer in layers if isinstance(layer, FlowLayer)), default)


def base_of(flow: keras.Model, condition: Condition | None, shapes: list) -> FlowDistribution:
    """The density of another flow as a base, checked."""
    base = flow.distribution
    if shapes != [tuple(base.event_shape)]:
        raise ValueError(f"The base is a flow of {tuple(base.event_shape)}. The network has outputs {shapes}.")
    wanted = base.condition_shape
    if wanted is not None and (condition is None or wanted != (condition.size,)):
        given = "none" if condition is None else f"({condition.size},)"
        raise ValueError(f"The base {flow.name!r} takes a condition of {wanted}. That of this flow is {given}.")
    if wanted is not None and any(np.any(weight) for weight in flow.condition_network.get_weights()):
        raise ValueError(
            f"The base {flow.name!r} is given the condition as this flow embeds it, so its own condition network would "
            f"not be used. Make it with condition={wanted}, and adapt the whole flow."
        )
    return base
