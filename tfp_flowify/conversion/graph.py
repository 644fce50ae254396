"""A Keras model as a list of calls, cut into stretches at the tensors that everything passes through."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras

from tfp_flowify.core.private import arguments_of, calls_of


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a layer or of an operation of Keras.

    Args:
      layer: The layer, or the operation.
      node: The call as Keras records it.
    """

    layer: Any
    node: Any

    @property
    def inputs(self) -> list:
        """The tensors that it takes; one that it takes twice is there once."""
        return list({id(tensor): tensor for tensor in self.node.input_tensors}.values())

    @property
    def repeated(self) -> int:
        """Entries of the tensors that it takes more than once, for each time beyond the first."""
        return sum(map(math.prod, self.shapes)) - sum(math.prod(tensor.shape[1:]) for tensor in self.inputs)

    @property
    def outputs(self) -> list:
        return self.node.output_tensors

    @property
    def shapes(self) -> list:
        """Event shapes of what it takes."""
        return [tuple(tensor.shape[1:]) for tensor in self.node.input_tensors]

    @property
    def shape(self) -> tuple:
        """The event shape of what it gives first."""
        return tuple(self.outputs[0].shape[1:])

    @property
    def training(self) -> bool:
        """Whether it was called with training=True."""
        return arguments_of(self.node, {id(tensor): tensor for tensor in self.inputs})[1].get("training") is True

    def arguments(self, tensors: dict) -> tuple:
        """The arguments (args, kwargs) of the call, with other tensors in the place of its own, by their identity.

        Those that say nothing at inference are left out: `training`, and masks where there are none.
        """
        args, kwargs = arguments_of(self.node, tensors)
        kwargs = {k: v for k, v in kwargs.items() if k != "training" and (v is not None or not k.endswith("mask"))}
        return (args, kwargs) if args or len(kwargs) != 1 else (tuple(kwargs.values()), {})


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A part of a network between two tensors that everything passes through.

    Args:
      calls: Its calls, in the order in which they run.
      start, end: The tensor that goes in, and the one that comes out.
    """

    calls: tuple
    start: Any
    end: Any

    def __add__(self, other: "Stretch") -> "Stretch":
        return Stretch(self.calls + other.calls, self.start, other.end)

    @property
    def dimension(self) -> int:
        """The number of entries of what comes out."""
        return math.prod(self.end.shape[1:])

    @property
    def changes_size(self) -> bool:
        """Whether another number of entries comes out than goes in."""
        return self.dimension != math.prod(self.start.shape[1:])

    @property
    def names(self) -> list:
        return [call.layer.name for call in self.calls]

    @property
    def title(self) -> str:
        """Its layers, for people."""
        if len(self.names) < 3:
            return " and ".join(self.names)
        return f"{self.names[0]} ... {self.names[-1]} ({len(self.names)} layers)"

    def as_model(self, name: str) -> keras.Model:
        """The stretch as a Keras model of its own, of the same layers."""
        inputs = keras.Input(self.start.shape[1:], dtype=self.start.dtype)
        tensors = {id(self.start): inputs}
        for call in self.calls:
            run(call, call.layer, tensors)
        return keras.Model(inputs, tensors[id(self.end)], name=name)


def run(call: Call, function: Callable, tensors: dict) -> None:
    """Calls a function as the layer of a call was called, and adds what it gives to the tensors."""
    args, kwargs = call.arguments(tensors)
    results = keras.tree.flatten(function(*args, **kwargs))
    tensors.update({id(old): new for old, new in zip(call.outputs, results, strict=True)})


def stretches_of(model: keras.Model) -> list:
    """The stretches of a flat model with one input and one output, as short as can be.

    All end in real numbers, and none in rounded ones that another layer takes: noise would make others of them.
    """
    calls = [Call(node.operation, node) for node in calls_of(model)]
    last_use = {id(tensor): i for i, call in enumerate(calls) for tensor in call.inputs}
    last_use[id(model.outputs[0])] = len(calls)
    found, begun, open_, start = [], 0, {id(model.inputs[0])}, model.inputs[0]
    for i, call in enumerate(calls):
        open_ |= {id(tensor) for tensor in call.outputs if id(tensor) in last_use}
        open_ = {tensor for tensor in open_ if last_use[tensor] > i}
        end = next((tensor for tensor in call.outputs if {id(tensor)} == open_), None)
        rounded = type(call.layer).__name__ == "Round" and end is not model.outputs[0]
        if end is not None and keras.backend.is_float_dtype(end.dtype) and not rounded:
            found.append(Stretch(tuple(calls[begun : i + 1]), start, end))
            begun, start = i + 1, end
    return found
