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

ROOT = Path(__file__).parent.parent
MODULES = [module.name for module in pkgutil.walk_packages(tfp_flowify.__path__, "tfp_flowify.")]
PACKAGES = [tfp_flowify, *(part for part in map(vars(tfp_flowify).get, tfp_flowify.__all__) if inspect.ismodule(part))]
PUBLIC = [getattr(package, name) for package in PACKAGES for name in package.__all__]
PUBLIC = sorted({thing for thing in PUBLIC if callable(thing)}, key=lambda thing: (thing.__module__, thing.__name__))


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
        assert f"`{public.__name__}" in rows or public.__name__ in ("FlowBijector", "Elementwise", "Node", "Context")


SLOW_PAGES = [
    pytest.param(f"docs/{name}.md", marks=pytest.mark.slow)
    for name in ("start", "keras", "choose", "inference", "flowify", "scale")
]


@pytest.mark.parametrize("page", ["README.md", *SLOW_PAGES])
def test_code_in_the_documentation_runs(page, tmp_path, monkeypatch, two_devices):
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: two_devices)  # See there why there is but one.
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    if page == "README.md":
        assert len(blocks[0].strip().splitlines()) <= 15
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})
    if page == "README.md":
        assert (tmp_path / "digits_flow/saved_model.pb").exists()


def test_the_version_is_the_same_everywhere():
    version = tfp_flowify.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]
    assert newest in (version, "Unreleased")


def test_readme_commands_are_those_of_ci():
    commands = re.findall(r"^    (pip install.*)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert len(commands) == 2
    assert commands[1] in (ROOT / ".ci/run").read_text()


@pytest.mark.slow
def test_first_command_trains_draws_and_exports(tmp_path):
    """The README's first command, but for the installation and with less time."""
    command = re.findall(r"^    pip install.* && (.*)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)[0]
    assert command == "python scripts/train.py"
    script = [sys.executable, ROOT / "scripts/train.py", "--minutes", "0.5"]
    done = subprocess.run(script, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "test, 100 draws" in done.stdout and "samples.png" in done.stdout
    run = tmp_path / "runs/digits"
    assert (run / "samples.png").stat().st_size > 10_000
    loaded = tf.saved_model.load(run / "saved_model")
    seed = tf.constant([1, 2])
    x = loaded.signatures["sample"](n=tf.constant(5), temperature=tf.constant(1.0), seed=seed)["x"]
    assert loaded.signatures["log_prob"](x=x, seed=seed)["log_prob"].shape == [5]
