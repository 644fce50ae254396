"""The script that takes networks apart."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "ablation.py"


def ablation(folder, *rows):
    command = [sys.executable, str(SCRIPT), "--data", "digits", "--minutes", "0.05", "--runs", str(folder / "runs")]
    command += ["--out", str(folder / "out"), "--rows", *rows]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_rows_are_set_beside_the_whole_network(tmp_path):
    first = ablation(tmp_path, "fconv2")
    assert first.returncode == 0, first.stderr
    second = ablation(tmp_path, "fconv2", "fconv2-affine")
    assert second.returncode == 0, second.stderr
    assert "1 of 2: fconv2\n" not in second.stdout and "2 of 2: fconv2-affine" in second.stdout
    page = (tmp_path / "out" / "README.md").read_text()
    whole, affine = (line for line in page.splitlines() if line.startswith("| fconv2"))
    assert "as it is" in whole and "`--transform affine`" in affine
    difference, one, many = (affine.split(" | ")[i] for i in (4, 2, 3))
    base = float(whole.split(" | ")[3].split()[0])
    assert float(difference) == pytest.approx(float(many.split()[0]) - base, abs=2e-3)
    assert 0 < float(one.split()[0]) < 10


def test_rows_that_are_not_there_are_named(tmp_path):
    result = ablation(tmp_path, "fconv3")
    assert result.returncode == 1 and "There is no row ['fconv3']. There are: best, " in result.stderr
