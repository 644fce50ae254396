"""Old names, which warn for one version before they leave."""

import sys
import warnings
from collections.abc import Callable
from typing import Any


def renamed(module: str, names: dict[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a module, by which old names lead to what they are called now, with a warning.

    Args:
      module: `__name__` of the module.
      names: The new names by the old ones.
    """

    def find(name):
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            f"{module}.{name} is called {names[name]} now; the old name leaves with the next version.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(sys.modules[module], names[name])

    return find
