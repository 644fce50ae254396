"""Data sets that some machines have; tests of them are skipped, and say so, where they are not."""

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("FLOWIFY_TEST_DATA", Path(__file__).parent.parent.parent / "shared/data"))


def shared_data(name) -> Path:
    return ROOT / name


def needs(name):
    return pytest.mark.skipif(
        not shared_data(name).exists(), reason=f"{name} is not there; set FLOWIFY_TEST_DATA to a folder that has it"
    )
