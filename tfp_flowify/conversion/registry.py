"""The registry: how each kind of Keras layer is made of flow layers."""

import dataclasses
import math
from collections.abc import Callable

import keras


@dataclasses.dataclass(frozen=True)
class Entry:
    """How one kind of layer is converted.

    Args:
      convert: A function of the layer and the arguments of its call, tensors among them, that calls flow layers on the
        tensors and returns what they give.
      noise: A function of a `Call` that tells how many dimensions of noise the flow layers add.
      onto: A function of a `Call` that tells whether they reach the whole space, so that samples have a preimage.
    """

    convert: Callable
    noise: Callable
    onto: Callable


_ENTRIES: dict = {}


def register_layer(*kinds, noise=0, onto=True):
    """Says how a kind of Keras layer becomes a part of a flow; to be put in front of a function.

    The function is called as the layer was, with the layer in front, and builds the same from layers of
    `tfp_flowify.layers`. A later registration replaces an earlier one.

    Args:
      *kinds: Classes of layers; or names of Keras' operations on tensors, such as "Multiply".
      noise: How many dimensions of noise it adds: a number, or a function of a `Call`, with `call.layer`, the event
        shapes `call.shapes` that go in, and `call.shape` that goes out. `flowify(by="auto")` goes by it.
      onto: Whether it reaches the whole space; or a function of a `Call`.

    >>> import tfp_flowify
    >>> class Negate(keras.layers.Layer):
    ...     def call(self, x):
    ...         return -x
    >>> @register_layer(Negate)
    ... def convert(layer, x):
    ...     return tfp_flowify.layers.Rescaling(-1.0)(x)
    """

    def register(convert):
        entry = Entry(convert, *(value if callable(value) else _constant(value) for value in (noise, onto)))
        _ENTRIES.update(dict.fromkeys(kinds, entry))
        return convert

    return register


def _constant(value):
    return lambda call: value


def entry_of(operation) -> Entry | None:
    """The entry of a layer, by its class or one that it derives from, or of an operation, by its name; or None."""
    if not isinstance(operation, keras.layers.Layer):
        return _ENTRIES.get(type(operation).__name__)
    return next((_ENTRIES[kind] for kind in type(operation).__mro__ if kind in _ENTRIES), None)


def noise_of(call) -> float:
    """How many dimensions of noise a call adds when it is converted by itself; infinity where it cannot be."""
    entry = entry_of(call.layer)
    return math.inf if entry is None else entry.noise(call)


def cost_of(call) -> float:
    """The noise of a call; where it does not reach the whole space, as much as if noise took care of that."""
    entry = entry_of(call.layer)
    return noise_of(call) + (0 if entry is None or entry.onto(call) else math.prod(call.shape))


def known_layers() -> list:
    """Names of all layers and operations that have an entry."""
    return sorted(kind if isinstance(kind, str) else kind.__name__ for kind in _ENTRIES)
