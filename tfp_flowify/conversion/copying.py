"""Copies of Keras models: flat, at inference, each layer with a name of its own."""

import itertools
import types
from collections.abc import Callable
from typing import Any

import keras

from tfp_flowify.conversion.graph import Call
from tfp_flowify.core.private import calls_of, layers_inside
from tfp_flowify.layers.graph import is_graph


class Names:
    """Gives out names, each once."""

    def __init__(self):
        self._taken = set()

    def unique(self, name: str) -> str:
        """The name, or the first of name_1, name_2, ... that is not taken.

        >>> names = Names()
        >>> names.unique("dense"), names.unique("dense")
        ('dense', 'dense_1')
        """
        names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
        found = next(each for each in names if each not in self._taken)
        self._taken.add(found)
        return found


class Copier:
    """Calls copies of layers, with their weights, as the layers themselves were called.

    Each layer is copied once, so that a layer that is called twice is one layer in the copy too.

    Attributes:
      notes: Lines about what could not be copied as it was.
    """

    def __init__(self):
        self.notes, self.unique = [], Names().unique
        self._copies = {}

    def is_copy(self, layer: object) -> bool:
        """Whether a layer was made here, so that it may be changed."""
        return any(copy is layer and original is not layer for original, copy in self._copies.values())

    def run_model(self, model: keras.Model, inputs: list) -> list:
        """What a copy of a model gives for some tensors."""
        tensors = {id(old): new for old, new in zip(model.inputs, inputs, strict=True)}
        for node in calls_of(model):
            call = Call(node.operation, node)
            if call.training:
                self.notes.append(f"{call.layer.name}: called with training=True. In the flow it is at inference.")
            args, kwargs = call.arguments(tensors)
            results = self.run(call.layer, *args, **kwargs)
            tensors.update({id(old): new for old, new in zip(call.outputs, results, strict=True)})
        return [tensors[id(tensor)] for tensor in model.outputs]

    def run(self, function: Callable, *args: Any, **kwargs: Any) -> list:
        """What a copy of a layer, a model or an operation gives for these arguments, or any function as it is."""
        if is_graph(function):
            return self.run_model(function, _inputs_of(function, args[0]))
        if not isinstance(function, keras.Operation):
            return keras.tree.flatten(function(*args, **kwargs))
        if id(function) not in self._copies:
            self._copies[id(function)] = function, self._copied(function, args, kwargs)
        return keras.tree.flatten(self._copies[id(function)][1](*args, **kwargs))

    def _copied(self, operation, args, kwargs):
        """A copy of an operation, built for these arguments; the operation itself where it cannot be copied."""
        try:
            copy = type(operation).from_config(operation.get_config())
            _take_functions(copy, operation)
            copy.name = self.unique(operation.name)
            if isinstance(operation, keras.layers.Layer) and operation.built:
                copy(*args, **kwargs)  # Builds it.
                _take_over(copy, operation)
        except Exception as error:  # Configs are the user's code, and may raise anything.
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            if isinstance(operation, keras.layers.Layer):
                self.notes.append(
                    f"{operation.name}: cannot be copied ({reason}). The flow holds the layer itself: what freezes or "
                    "trains one, does so to both."
                )
            return operation
        return copy


def _inputs_of(model, given) -> list:
    """The tensors that a model was called on, in the order of its inputs."""
    if isinstance(given, dict) and set(given) >= {tensor.name for tensor in model.inputs}:
        return [given[tensor.name] for tensor in model.inputs]
    return keras.tree.flatten(given)


def _take_functions(copy, operation):
    """Gives a copy the very functions of an operation: a config knows their names only, which others may have too."""
    for name, value in vars(operation).items():
        if isinstance(value, types.FunctionType) and not hasattr(type(operation), name):
            setattr(copy, name, value)


def _take_over(copy, layer):
    """Gives a copy the state of a layer, as a `.keras` file would: variables, and what follows from them."""
    for old, new in zip([layer, *layers_inside(layer)], [copy, *layers_inside(copy)], strict=True):
        store = {}
        old.save_own_variables(store)
        new.load_own_variables(store)
