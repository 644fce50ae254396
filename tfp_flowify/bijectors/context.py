"""The context of a pass: what it knows besides its data, handed down to every layer as an argument."""

import collections
import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import tensorflow as tf

from tfp_flowify.core.types import TensorFunction, TensorLike


@dataclasses.dataclass(frozen=True)
class Context:
    """One pass through a flow. Layers read it; nothing changes it.

    Args:
      training: Whether networks inside layers run in training mode, in which dropout is active.
      prepared: What layers have computed from their weights before the pass, by the identity of the layer.
      condition: The value c of a conditional flow, (n, ...), a row for each example; None where there is none. Every
        layer may read it, none changes it.
      without_noise: Whether the ordinary network is asked for, so that noise is zero whatever would shape it.

    >>> Context(training=True).training
    True
    """

    training: bool = False
    prepared: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    condition: Any = None
    without_noise: bool = False

    def replace(self, **changes: Any) -> "Context":
        """The same context with some fields changed."""
        return dataclasses.replace(self, **changes)

    def condition_for(self, reader: str) -> TensorLike:
        """Returns the condition, or raises an error that names the reader where the pass has none."""
        if self.condition is None:
            raise ValueError(
                f"{reader} depends on a condition, and none was given. Give one to the call: condition=..., or, for a "
                "flow, condition_shape=(...) when it is made."
            )
        return self.condition

    def prepared_for(self, layer: "Prepared") -> Any:
        """Returns what the layer needs from its weights: found where it was prepared, else computed now."""
        found = self.prepared.get(id(layer))
        return layer.prepare_batch([layer])[0] if found is None else found

    def run(self, function: "TensorFunction | InContext", x: Any) -> Any:
        """Runs a function inside a layer, such as a conditioner. An `InContext` function gets the context too."""
        return function(x, self) if isinstance(function, InContext) else function(x)


class InContext(tf.Module):
    """A function of (x, context): for networks that behave differently in training."""

    def __call__(self, x: Any, context: Context) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(x, context).")


class Conditional(InContext):
    """A function of (x, condition) as a conditioner: any place that takes a function of x takes this one too.

    Args:
      function: Gives a tensor from x and the condition of the pass, (n, ...).

    >>> shift = Conditional(lambda x, c: x + c)
    >>> shift(tf.constant([1.0]), Context(condition=tf.constant([2.0]))).numpy().tolist()
    [3.0]
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function

    def __call__(self, x: Any, context: Context) -> Any:
        return self.function(x, context.condition_for("A conditioner"))


class Prepared:
    """Mixin for a bijector that computes something from its weights alone: a rotation matrix, the table of a spline.

    That is done once for a pass, however often the layer runs in it, and in one batch for all layers that have the same
    `batch_key`.
    """

    @property
    def batch_key(self) -> Hashable:
        raise NotImplementedError(f"{type(self).__name__} must define batch_key.")

    @classmethod
    def prepare_batch(cls, layers: list) -> list:
        """Computes what each of several layers of this class needs."""
        raise NotImplementedError(f"{cls.__name__} must define prepare_batch(layers).")


def layers_to_prepare(bijector: tf.Module) -> list:
    """Returns all layers inside a bijector that compute something from their weights."""
    return [module for module in (bijector, *bijector.submodules) if isinstance(module, Prepared)]


def prepare(layers: list, training: bool = False, condition: TensorLike | None = None) -> Context:
    """Prepares layers, and returns the context for a pass that uses the result.

    Args:
      layers: What `layers_to_prepare` gives.
      training, condition: See `Context`.
    """
    batches, prepared = collections.defaultdict(list), {}
    for layer in layers:
        batches[type(layer), layer.batch_key].append(layer)
    for (kind, _), batch in batches.items():
        prepared.update(zip(map(id, batch), kind.prepare_batch(batch), strict=True))
    return Context(training, prepared, condition)
