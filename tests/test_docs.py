"""What the documentation says runs: the examples of the docstrings, the README's code and its commands."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import tfp_flowify
from tfp_flowify import bijectors, callbacks, data, distributions, layers

ROOT = Path(__file__).parent.parent
MODULES = [module.name for module in pkgutil.walk_packages(tfp_flowify.__path__, "tfp_flowify.")]
PUBLIC = [getattr(module, name) for module in (bijectors, distributions, layers) for name in module.__all__]
PUBLIC += [tfp_flowify.FlowModel, callbacks.SampleGrid, data.digits]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, extraglobs={"tf": tf}).failed == 0


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_public_objects_say_what_they_are(public):
    assert len(inspect.getdoc(public)) > 40
    ours = public.__module__.startswith("tfp_flowify")
    assert ">>>" in inspect.getdoc(public) or not ours
    if inspect.isclass(public) and public.__module__.startswith("tfp_flowify.layers"):
        assert f"`{public.__name__}" in (ROOT / "docs/keras.md").read_text()
    if inspect.isclass(public) and public.__module__.startswith("tfp_flowify.bijectors"):
        rows = (ROOT / "docs/layers.md").read_text()
        abstract = ("FlowBijector", "Elementwise", "Orthogonal", "Wrapped", "Node", "OverSequence")
        inner = ("MaxWindows", "MeanWindows")
        assert f"`{public.__name__}" in rows or public.__name__ in abstract + inner


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/keras.md", marks=pytest.mark.slow)])
def test_code_in_the_documentation_runs(page, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    if page == "README.md":
        assert len(blocks[0].strip().splitlines()) <= 15
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})
    if page == "README.md":
        assert (tmp_path / "digits_flow/saved_model.pb").exists()


def test_readme_commands_are_those_of_ci():
    commands = re.findall(r"^    (pip install.*)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert len(commands) == 2
    assert commands[1] in (ROOT / ".ci/run").read_text()


@pytest.mark.slow
def test_first_command_trains_and_exports(tmp_path):
    command = [sys.executable, ROOT / "scripts/first_flow.py", "--steps", "3", "--blocks", "1", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "flow, 100 draws" in done.stdout
    assert (tmp_path / "density.png").stat().st_size > 10_000
    loaded = tf.saved_model.load(tmp_path / "saved_model")
    x = loaded.sample(tf.constant(5), tf.constant([1, 2]))
    assert loaded.log_prob(x).shape == [5]
