"""What layers make of their weights alone: once for a pass through a flow, and for layers of a kind in one batch."""

import collections
import contextlib
import contextvars
import types

# What is there already, by the identity of the layer that it belongs to.
_PREPARED = contextvars.ContextVar("prepared", default=types.MappingProxyType({}))


class Prepared:
    """Mixin for a bijector that makes something of its weights before it takes any data.

    Layers with the same `batch_key` are prepared together, by `prepare_batch`.
    """

    @property
    def batch_key(self) -> tuple:
        raise NotImplementedError(f"{type(self).__name__} must define batch_key.")

    @classmethod
    def prepare_batch(cls, layers: list) -> list:
        """What each of some layers of this class needs."""
        raise NotImplementedError(f"{cls.__name__} must define prepare_batch(layers).")

    def prepared(self):
        """What the layer needs: found, where it was prepared, else made."""
        found = _PREPARED.get()
        return found[id(self)] if id(self) in found else self.prepare_batch([self])[0]


def to_prepare(bijector) -> list:
    """All in a bijector that can be prepared."""
    return [module for module in (bijector, *bijector.submodules) if isinstance(module, Prepared)]


@contextlib.contextmanager
def prepared_once(layers: list):
    """Within, these layers use what is made of their weights at the start of the block."""
    batches, found = collections.defaultdict(list), dict(_PREPARED.get())
    for layer in layers:
        if id(layer) not in found:
            batches[type(layer), layer.batch_key].append(layer)
    for (kind, _), batch in batches.items():
        found.update(zip(map(id, batch), kind.prepare_batch(batch), strict=True))
    token = _PREPARED.set(found)
    try:
        yield
    finally:
        _PREPARED.reset(token)
