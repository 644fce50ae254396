"""What is public stays: a name leaves only on purpose, and then its old spelling warns for one version."""

import importlib
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
