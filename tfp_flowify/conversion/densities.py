"""The densities of a flowified network by default: of what a block takes given what it gives, and of the output."""

import math
from collections.abc import Callable, Sequence

import keras

from tfp_flowify import layers as fl
from tfp_flowify import zoo
from tfp_flowify.core.types import Shape
from tfp_flowify.model import FlowModel

#: What comes out of a block is given to the flow as it is up to so many numbers; beyond, a network makes fewer of them.
MANY, EMBEDDED = 512, 128

#: An output of so many features at most has a flow as its density: couplings in turns.
FLOW_OF_OUTPUT, COUPLINGS = 256, 4


def density_for(
    shape: Shape, given: Shape, box: Sequence | None = None, density: str | Callable | None = None
) -> FlowModel:
    """A conditional flow of x given z.

    Args:
      shape, given: Event shapes of x and z.
      box: The sides (low, high) that x lies between; None for any numbers.
      density: The name of a network of the zoo, or a function of (shape, given) that makes the flow; the zoo's network
        for the shape if left out.
    """
    if callable(density):
        flow = density(shape, given)
        if not isinstance(flow, FlowModel):
            raise TypeError(f"density is a name, or a function that makes a FlowModel. Received: one that gave {flow}")
        return flow
    return zoo.build(density or zoo.name_for(shape), shape, box=box, condition=_embedding(given))


def _embedding(given):
    """The condition of a flow that is given z: its shape, or for large z a network."""
    if math.prod(given) <= MANY:
        return tuple(given)
    inputs = keras.Input(given)
    hidden = fl.Normalization()(keras.layers.Reshape((math.prod(given),))(inputs))
    hidden = keras.layers.Dense(EMBEDDED, activation="gelu")(hidden)
    return keras.Model(inputs, keras.layers.Dense(EMBEDDED)(hidden), name="embedding")


def output_density(shape: Shape, policy: keras.DTypePolicy) -> str | FlowModel:
    """The density of the output: a flow of vectors that are not too long, else normal."""
    if len(shape) != 1 or shape[0] > FLOW_OF_OUTPUT:
        return "normal"
    stack = [keras.Input(shape, dtype=policy.variable_dtype), fl.Normalization(dtype=policy)]
    if shape[0] == 1:
        return FlowModel([*stack, fl.Spline(bins=16, bound=4.0, dtype=policy)], name="output")
    for i in range(COUPLINGS):
        stack.append(fl.SplineCoupling(swap=bool(i % 2), bound=4.0, dtype=policy))
        stack.append(fl.Dense(shape[0], dtype=policy))
    return FlowModel(stack, name="output")
