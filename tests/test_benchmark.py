"""The benchmark runs, writes what it promises, and goes on where it was interrupted. Times are no matter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "benchmark.py"


def run(*arguments):
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.long
def test_quick_benchmark_writes_figures_and_resumes(tmp_path):
    options = ("--quick", "--no-xla", "--out", tmp_path)
    done = run(*options, "--only", "networks")
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads((tmp_path / "benchmark.json").read_text())
    (row,) = figures["networks"]
    assert row["network"] == "mnist_fconv2" and row["graph"] > row["twin_graph"] > 0
    assert min(row[key] for key in ("step_ms", "twin_step_ms", "log_prob_ms", "sample_ms", "memory_gb")) > 0
    assert row["ratio"] == row["step_ms"] / row["twin_step_ms"]
    done = run(*options, "--only", "networks", "conditions", "others", "--resume")
    assert done.returncode == 0, done.stderr[-2000:]
    again = json.loads((tmp_path / "benchmark.json").read_text())
    assert again["networks"] == figures["networks"] and again["others"]
    assert all(row["ratio"] == row["given_ms"] / row["plain_ms"] > 0 for row in again["conditions"])
    assert "| mnist_fconv2 |" in (tmp_path / "benchmark.md").read_text()
    assert (tmp_path / "benchmark.png").stat().st_size > 1000


@pytest.mark.slow
def test_unknown_networks_are_refused(tmp_path):
    done = run("--models", "mnist_lenet", "--out", tmp_path)
    assert done.returncode != 0 and "mnist_lenet" in done.stderr and "mnist_fconv2" in done.stderr
