"""The registry: how each kind of Keras layer is made of flow layers."""

import dataclasses
import math
from collections.abc import Callable

import keras

from tfp_flowify.conversion.fallback import fallback, fallback_noise
from tfp_flowify.conversion.graph import Call

#: Methods that a subclass may have of its own and still be converted as the layer that it derives from.
_HARMLESS = ("__init__", "get_config", "from_config")


@dataclasses.dataclass(frozen=True)
class Entry:
    """How one kind of layer is converted.

    Args:
      convert: A function of the layer and the arguments of its call, tensors among them, that calls flow layers on the
        tensors and returns what they give.
      noise: A function of a `Call` that tells how many dimensions of noise the flow layers add; None where `convert` is
        not for such a call, which the fallback then takes; infinity where the call cannot be converted by itself.
      onto: A function of a `Call` that tells whether they reach the whole space, so that samples have a preimage.
    """

    convert: Callable
    noise: Callable
    onto: Callable


_ENTRIES: dict = {}


def register_layer(*kinds: type | str, noise: float | Callable | None = 0, onto: bool | Callable = True) -> Callable:
    """Says how a kind of Keras layer becomes a part of a flow; to be put in front of a function.

    The function is called as the layer was, with the layer in front, and builds the same from layers of
    `tfp_flowify.layers`. A later registration replaces an earlier one. A subclass with methods of its own is another
    kind of layer.

    Args:
      *kinds: Classes of layers; or names of Keras' operations on tensors, such as "Multiply".
      noise: How many dimensions of noise it adds: a number, or a function of a `Call`, with `call.layer`, the event
        shapes `call.shapes` that go in, and `call.shape` that goes out. `flowify(by="auto")` goes by it. None says that
        such a call is not for this function, but for the fallback, which takes any layer of one tensor.
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


#: The entry of what is known to have no flow layer.
FALLBACK = Entry(fallback, _constant(None), _constant(True))


def register_fallback(*kinds: type | str) -> None:
    """Says that the fallback takes these kinds of layers."""
    _ENTRIES.update(dict.fromkeys(kinds, FALLBACK))


def _entry_of(operation) -> Entry | None:
    """The entry of a layer, by its class or one that it derives from; of an operation, by its name; or None."""
    if not isinstance(operation, keras.layers.Layer):
        return _ENTRIES.get(type(operation).__name__, FALLBACK)
    for kind in type(operation).__mro__:
        if kind in _ENTRIES:
            return _ENTRIES[kind]
        if _has_own_methods(kind):
            return None
    return None


def _has_own_methods(kind) -> bool:
    methods = (name for name, value in vars(kind).items() if callable(value) or isinstance(value, property))
    return any(name not in _HARMLESS for name in methods)


def is_known(operation: keras.Operation) -> bool:
    """Whether a layer or an operation has an entry."""
    return _entry_of(operation) is not None


def noise_of(call: Call) -> float:
    """How many dimensions of noise a call adds when it is converted by itself; infinity where it cannot be."""
    entry = _entry_of(call.layer)
    noise = math.inf if entry is None else entry.noise(call)
    return fallback_noise(call) if noise is None else noise


def is_onto(call: Call) -> bool:
    """Whether a call that is converted by itself reaches the whole space."""
    entry = _entry_of(call.layer)
    return entry is None or entry.noise(call) is None or entry.onto(call)


def cost_of(call: Call) -> float:
    """The noise of a call; where it does not reach the whole space, as much as if noise took care of that."""
    return noise_of(call) + (0 if is_onto(call) else math.prod(call.shape))


def converter_of(call: Call) -> Callable:
    """The function that converts a call."""
    entry = _entry_of(call.layer)
    return fallback if entry.noise(call) is None else entry.convert


def known_layers() -> list:
    """Names of all layers and operations that have an entry."""
    return sorted(kind if isinstance(kind, str) else kind.__name__ for kind in _ENTRIES)
