"""What is public stays: a name leaves only on purpose, and then its old spelling warns for one version."""

import importlib
import inspect
import types
from pathlib import Path

import pytest

import tfp_flowify

LIST = Path(__file__).parent / "public_names.txt"


def public_names():
    """All that is listed in `__all__`, of the package and of those packages that it lists."""
    for name in tfp_flowify.__all__:
        yield f"tfp_flowify.{name}"
        if isinstance(module := getattr(tfp_flowify, name), types.ModuleType):
            yield from (f"{module.__name__}.{name}" for name in module.__all__)


def test_public_names_are_those_of_the_list():
    """A new name gets a line in the list; one that leaves is `renamed` for a version first (see CONTRIBUTING.md)."""
    assert sorted(public_names()) == LIST.read_text().split()


def test_all_public_names_exist():
    for name in public_names():
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize(
    "module, old, new",
    [
        (tfp_flowify.bijectors, "Cascade", "StagedFunnel"),
        (tfp_flowify.bijectors, "RationalQuadraticSpline", "Spline"),
        (tfp_flowify.layers, "Inverse", "Densities"),
    ],
)
def test_old_names_warn_and_lead_to_the_new_ones(module, old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new} now"):
        assert getattr(module, old) is getattr(module, new)
    assert old not in module.__all__


def test_names_that_never_were_are_missing():
    with pytest.raises(AttributeError, match="has no attribute 'Densee'"):
        tfp_flowify.layers.Densee  # noqa: B018


def untyped(function):
    """The arguments of a function that have no type, and "return" if what it gives has none."""
    shown = vars(function).pop("__signature__", None)  # Methods of Keras show its signature, which has no types.
    signature = inspect.signature(function)
    if shown is not None:
        function.__signature__ = shown
    without = [
        p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")
    ]
    is_init = function.__name__ == "__init__"
    return without + ["return"] * (signature.return_annotation is signature.empty and not is_init)


def test_public_signatures_have_types():
    """Those of functions, and those of the public methods that a class has from this library."""
    missing = {}
    for name in public_names():
        module, _, attribute = name.rpartition(".")
        thing = getattr(importlib.import_module(module), attribute)
        bases = [base for base in getattr(thing, "__mro__", ()) if base.__module__.startswith("tfp_flowify")]
        own = [pair for base in bases for pair in vars(base).items()] if inspect.isclass(thing) else [("", thing)]
        for method, function in own:
            function = getattr(function, "__func__", function)  # Of class methods and static ones.
            is_public = not method.startswith("_") or method == "__init__"
            function = inspect.unwrap(function) if inspect.isfunction(function) else None  # Some are Keras', wrapped.
            if function is not None and is_public and function.__module__.startswith("tfp_flowify"):
                missing[f"{name}.{method}"] = untyped(function)
    assert len(missing) > 300
    assert not {name: arguments for name, arguments in missing.items() if arguments}
