"""Runs that are killed again and again, on a disk that fills up, with files that are cut: they end as others do."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from models import SMALL_RUN

from tfp_flowify.experiments import RunFolder, resume
from tfp_flowify.experiments.durable import DurableFiles

ARGUMENTS = [*SMALL_RUN, "--epochs", "6", "--validation-examples", "100"]


def command(out, *more) -> list:
    return [sys.executable, "-m", "tfp_flowify", "train", "--out", str(out), *(more or ARGUMENTS)]


def finished(out, *more):
    """Runs the command to its end; what it printed."""
    done = subprocess.run(command(out, *more), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def figures(out) -> dict:
    """All numbers of a run but its times and memory: they must be the same to the last digit."""
    folder = RunFolder(out)
    names = ("single_draw", "importance_weighted", "gain", "validation", "best_epoch", "epochs", "steps", "round_trips")
    rows = [[row[name] for name in ("epoch", "steps", "train", "validation", "learning_rate")] for row in history(out)]
    return {"report": {name: folder.read_report()[name] for name in names}, "rows": rows}


def history(out) -> list:
    return RunFolder(out).read_history()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    finished(out)
    return out


@pytest.mark.slow
def test_twenty_kills(undisturbed, tmp_path):
    """At random moments: while it starts, trains, writes, tests and draws."""
    out, generator, kills, longest = tmp_path / "run", random.Random(0), 0, 12.0
    while kills < 20:
        process = subprocess.Popen(
            command(out, *(["--resume"] if RunFolder(out).holds_run else ARGUMENTS)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = len(history(out)) if RunFolder(out).holds_run else 0
        try:
            process.wait(generator.uniform(1.0, longest))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            assert process.returncode == 0
            assert figures(out) == figures(undisturbed)
            shutil.rmtree(out)  # It came to its end: once more from the start.
            continue
        if RunFolder(out).holds_run:
            assert len(history(out)) >= before
    finished(out, *(["--resume"] if RunFolder(out).holds_run else ARGUMENTS))
    assert figures(out) == figures(undisturbed)
    assert not list(out.glob(".new_*"))


@pytest.mark.slow
def test_a_disk_that_fills_up(undisturbed, tmp_path):
    """It is full at each size in turn, from the first file to the last picture; with room again, the run goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.name != "posix" or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk]).returncode:
        pytest.skip("a small disk can only be made by root, on Linux")
    try:
        told = []
        for size in ("64k", "320k", "640k", "1100k", "1800k", "2500k", "64m"):
            subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
            more = ["--resume"] if RunFolder(disk / "run").holds_run else ARGUMENTS
            done = subprocess.run(command(disk / "run", *more), capture_output=True, text=True, check=False)
            output = done.stdout + done.stderr
            told.append((done.returncode, "disk is full" in output))
        assert told[-1] == (0, False) and told.count((2, True)) == len(told) - 1, told
        assert figures(disk / "run") == figures(undisturbed)
    finally:
        subprocess.run(["umount", disk], check=True)


def cut(path: Path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.slow
def test_each_file_cut_in_turn(undisturbed, tmp_path):
    """In the middle of a run, and at its end: it goes on, and says which of the files that it needs is damaged."""
    half, wanted = tmp_path / "half", figures(undisturbed)
    process = subprocess.Popen(command(half), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (RunFolder(half).last.is_file() and len(history(half)) >= 3):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for start in (half, undisturbed):
        for name in [path.relative_to(start) for path in sorted(start.rglob("*")) if path.is_file()]:
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(start, copy)
            cut(copy / name)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                resume(copy, log=lambda message: None)
                got = figures(copy)
            said = any(f"{name} is damaged" in str(warning.message) for warning in caught)
            needed = ("config.json", "history.csv", "last.keras" if start is half else "best.keras")
            assert said or str(name) not in needed, name
            assert got == wanted, name


def written(files, path, text, error=None):
    with files.replaced(path) as new:
        new.write_text(text)
        if error is not None:
            raise error


def test_the_spare_is_read_where_a_file_is_damaged(tmp_path):
    files, path = DurableFiles(tmp_path), tmp_path / "a.txt"
    written(files, path, "one")
    written(files, path, "two")
    assert files.whole(path) == path and path.read_text() == "two"
    path.write_text("tw")
    with pytest.warns(UserWarning, match=r"a.txt is damaged: its checksum .* spare .spare_a.txt is used"):
        assert files.whole(path).read_text() == "two"
    path.unlink()
    with pytest.warns(UserWarning, match="a.txt is missing"):
        assert files.exists(path) and files.whole(path).read_text() == "two"
    (tmp_path / ".spare_a.txt").write_text("other")
    with pytest.warns(UserWarning, match="and so is its spare"):
        assert files.whole(path) is None


def test_the_file_before_can_be_the_spare(tmp_path):
    files, path = DurableFiles(tmp_path), tmp_path / "a.txt"
    for text in ("one", "two"):
        with files.replaced(path, spare_is_copy=False) as new:
            new.write_text(text)
    cut(path)
    with pytest.warns(UserWarning, match="spare"):
        assert files.whole(path).read_text() == "one"


def test_without_checksums_files_are_taken_as_they_are(tmp_path):
    files, path = DurableFiles(tmp_path), tmp_path / "a.txt"
    written(files, path, "one")
    cut(files.checksums_file)
    with pytest.warns(UserWarning, match=r"checksums.json is damaged"):
        assert files.whole(path) == path
    files.checksums_file.unlink()
    assert files.whole(path) == path


def test_what_fails_leaves_all_as_it_was(tmp_path):
    files, path = DurableFiles(tmp_path), tmp_path / "a.txt"
    written(files, path, "one")
    with pytest.raises(OSError, match=r"The disk is full: a\.txt could not be written"):
        written(files, path, "two", OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(ZeroDivisionError):
        written(files, path, "two", ZeroDivisionError())
    assert files.whole(path).read_text() == "one" and not list(tmp_path.glob(".new_*"))
