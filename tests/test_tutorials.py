"""The tutorials run, and what they say holds: the last cell of each, which the site does not show, checks it."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shared import shared_data

TUTORIALS = sorted((Path(__file__).parent.parent / "docs/tutorials").glob("*.md"))
TUTORIALS = [page for page in TUTORIALS if page.name != "index.md"]


def cells(page):
    """The cells of a page: their options, and their code."""
    blocks = re.findall(r"^```\{code-cell\}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [re.fullmatch(r"((?::\w+:[^\n]*\n)*)(.*)", block, flags=re.DOTALL).groups() for block in blocks]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_check_themselves(page):
    *shown, (options, last) = cells(page)
    assert options == ":tags: [remove-cell]\n" and not any(options for options, _ in shown)
    assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(last)))


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_run(page, tmp_path):
    script = tmp_path / "tutorial.py"
    script.write_text("\n\n".join(code for _, code in cells(page)))
    environment = {**os.environ, "MPLBACKEND": "Agg", "TFDS_DATA_DIR": str(shared_data("tfds"))}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
