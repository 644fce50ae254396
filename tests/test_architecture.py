"""The packages import only what lies below them, and importing the library is light."""

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "tfp_flowify", ROOT / "tfp_flowify_cli"

#: What each package or module may import of the library, beside itself: the table of docs/architecture.md.
MAY_IMPORT = {
    "version": [],
    "core": [],
    "math": [],
    "augmentation": ["core", "math"],
    "transforms": ["math"],
    "bijectors": ["core", "math", "augmentation", "transforms"],
    "distributions": ["core", "math", "augmentation", "bijectors"],
    "optimizer": ["core"],
    "layers": ["core", "math", "bijectors", "transforms"],
    "model": ["core", "math", "augmentation", "transforms", "bijectors", "distributions", "layers", "optimizer"],
    "diagnostics": ["core"],
    "inference": ["core", "layers", "model", "optimizer", "diagnostics"],
    "zoo": ["layers", "model"],
    "conversion": ["core", "math", "layers", "model", "zoo"],
    "plots": [],
    "callbacks": ["plots"],
    "data": ["core"],
    "experiments": ["core", "conversion", "data", "diagnostics", "model", "optimizer", "plots", "version", "zoo"],
    "tfp_flowify_cli": ["data", "experiments", "inference", "plots"],
}

MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py") if path.name != "__main__.py")


def owner(path):
    """The package or module below tfp_flowify that a file belongs to, or that of the command; None for its __init__."""
    package, *parts = path.relative_to(ROOT).parts
    first = package if package == "tfp_flowify_cli" else parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def imported(path):
    """Names of packages and modules of the library that a file imports, at any depth of its code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: imports name the whole package")
        if isinstance(node, ast.ImportFrom) and node.module == "tfp_flowify":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tfp_flowify."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("tfp_flowify"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_import_what_lies_below_them(path):
    name = owner(path)
    if name is None:
        return  # The front door, which imports all.
    assert set(imported(path)) <= {name, *MAY_IMPORT[name]}


def test_the_rule_is_written_down_and_has_no_circles():
    page = (ROOT / "docs/architecture.md").read_text()
    known = set()
    for name, below in MAY_IMPORT.items():
        assert set(below) <= known, f"{name} comes behind what it imports"
        known.add(name)
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}"))
        assert sorted(re.findall(r"`(\w+)`", row.split("|")[2])) == sorted(below), row
    assert {owner(path) for path in MODULES} - {None} == known


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_api_of_other_libraries_is_used_in_one_place(path):
    """An attribute with an underscore is read of oneself, or of objects of the same file's classes."""
    if path.name == "private.py":
        return
    tree = ast.parse(path.read_text())
    modules = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not [m for m in modules if m.startswith("keras.src") or ".python." in m]
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    own |= {t.id for n in ast.walk(tree) if isinstance(n, ast.AnnAssign) for t in [n.target] if isinstance(t, ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        of_super = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"
        named_tuple = node.attr in ("_replace", "_asdict")
        assert of_self or of_super or named_tuple or node.attr in own, f"{node.attr} in line {node.lineno}"


def test_help_needs_no_tensorflow():
    """What a user types most comes at once: each second counts there."""
    code = """
        import sys
        import tfp_flowify_cli

        for arguments in ([], ["train"], ["evaluate"], ["sample"], ["reproduce"], ["infer"], ["classifier"]):
            try:
                tfp_flowify_cli.main([*arguments, "--help"])
            except SystemExit as end:
                assert end.code == 0
        assert not {"tensorflow", "keras", "numpy", "tfp_flowify"} & set(sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--minutes" in done.stdout


def test_importing_the_library_is_light():
    """It needs neither matplotlib nor TensorFlow Datasets. (Keras itself imports the first where it is installed.)"""
    code = """
        import sys

        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("matplotlib", "tensorflow_datasets"):
                    raise ImportError(f"{name} is not to be had here")

        sys.meta_path.insert(0, Refuse())
        import tfp_flowify
        assert tfp_flowify.FlowModel and tfp_flowify.data.digits()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
