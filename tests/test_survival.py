"""Runs that are killed again and again, on a disk that fills up, with files that are cut: they end as others do."""

import contextlib
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import keras
import pytest
from models import SMALL_RUN

from tfp_flowify.experiments import RunFolder, resume
from tfp_flowify.experiments.callbacks import steps_of
from tfp_flowify.experiments.durable import DurableFiles

ARGUMENTS = [*SMALL_RUN, "--epochs", "6", "--validation-examples", "100", "--draws", "2", "--weighted-examples", "20"]


def command(out, *more) -> list:
    return [sys.executable, "-m", "tfp_flowify_cli", "train", "--out", str(out), *(more or ARGUMENTS)]


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


def moment(out) -> str:
    """What a killed run was doing, by what it left."""
    folder = RunFolder(out)
    if not folder.holds_run:
        return "start"
    if list(out.glob(".new_*")):
        return "writing"
    return "report" if len(history(out)) == 6 else f"epoch {len(history(out))}"


def saved_steps(out) -> int:
    folder = RunFolder(out)
    return steps_of(folder.load_last()) if folder.files.exists(folder.last) else 0


@pytest.mark.slow
@pytest.mark.long
def test_twenty_kills(undisturbed, tmp_path):
    """At random moments behind the import of TensorFlow: while it starts, trains, writes, tests and draws."""
    out, generator, moments, steps = tmp_path / "run", random.Random(0), [], 0
    longest = 4 + 1.5 * history(undisturbed)[-1]["seconds"]  # Training, and then the report.
    while len(moments) < 20:
        more = ["--resume"] if RunFolder(out).holds_run else ARGUMENTS
        with subprocess.Popen(
            command(out, *more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            told = process.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(generator.uniform(0.0, longest))
            process.kill()
            told += process.stdout.read()
        if process.returncode == 0:
            assert figures(out) == figures(undisturbed)
            shutil.rmtree(out)  # It came to its end: once more from the start.
            steps = 0
            continue
        assert process.returncode == -signal.SIGKILL, told
        moments.append(moment(out))
        before, steps = steps, saved_steps(out)
        assert steps >= before, (moments, told)
    finished(out, *(["--resume"] if RunFolder(out).holds_run else ARGUMENTS))
    assert figures(out) == figures(undisturbed)
    assert not list(out.glob(".new_*"))
    assert len(set(moments)) >= 5 and "report" in moments and moments.count("start") <= 10, moments


@pytest.mark.slow
@pytest.mark.long
def test_a_disk_that_fills_up(undisturbed, tmp_path):
    """It is full at each size in turn, at other files each time; with room again, the run goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.name != "posix" or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", disk]).returncode:
        pytest.skip("a small disk can only be made by root, on Linux")
    try:
        full = set()
        for size in ("4k", "16k", "64k", "640k", "2500k", "3100k", "64m"):
            subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
            more = ["--resume"] if RunFolder(disk / "run").holds_run else ARGUMENTS
            done = subprocess.run(command(disk / "run", *more), capture_output=True, text=True, check=False)
            output = done.stdout + done.stderr
            assert done.returncode == (2 if "The disk is full" in output else 0), output
            full |= set(re.findall(r"The disk is full: (\S+) could not be written", output))
        assert done.returncode == 0 and full >= {"config.json", "history.csv", "last.keras", "best.keras"}, full
        assert figures(disk / "run") == figures(undisturbed)
    finally:
        subprocess.run(["umount", disk], check=True)


def cut(path: Path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def files_of(folder) -> list:
    return [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]


def visible(folder) -> set:
    return {path for path in files_of(folder) if not path.name.startswith(".")}


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run that was killed in its fifth epoch of six."""
    out = tmp_path_factory.mktemp("half") / "run"
    with subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (RunFolder(out).last.is_file() and len(history(out)) >= 4):
            time.sleep(0.02)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    return out


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start, needed", [("half", "last.keras"), ("undisturbed", "best.keras")])
def test_each_file_cut_in_turn(undisturbed, tmp_path, request, start, needed):
    """In the middle of a run, and at its end: it goes on, says which file it needs is damaged, and makes all whole."""
    start, wanted = request.getfixturevalue(start), figures(undisturbed)
    for name in files_of(start):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(start, copy)
        cut(copy / name)
        damaged = (copy / name).read_bytes()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            resume(copy, log=lambda message: None)
        said = any(f"{name} is damaged" in str(warning.message) for warning in caught)
        assert said or str(name) not in ("config.json", "history.csv", "checksums.json", needed), name
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert figures(copy) == wanted, name
        assert not (copy / name).is_file() or (copy / name).read_bytes() != damaged, name
        assert visible(copy) >= visible(undisturbed), name
        keras.backend.clear_session()


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


def test_writes_that_fail_again_and_again_do_not_disown_what_is_there(tmp_path, monkeypatch):
    """A job that is started anew on a full disk: the file fits, its spare does not."""
    files, path = DurableFiles(tmp_path), tmp_path / "a.txt"
    written(files, path, "one")

    def no_room(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", no_room)
    for text in ("two", "three", "four", "five"):
        with pytest.raises(OSError, match="disk is full"):
            written(files, path, text)
    assert files.whole(path).read_text() == "one"


def test_damaged_files_are_made_anew_from_their_spares(tmp_path):
    files, path, spare = DurableFiles(tmp_path), tmp_path / "a.txt", tmp_path / ".spare_a.txt"
    written(files, path, "one")
    for damaged in (path, spare):
        cut(damaged)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            files.restore(path)
        assert sum("a.txt" in str(each.message) for each in caught) == (damaged == path)
        assert path.read_text() == spare.read_text() == "one"
    files.restore(tmp_path / "never.txt")
    assert not (tmp_path / "never.txt").exists()


def test_what_fails_leaves_all_as_it_was(tmp_path):
    files, path = DurableFiles(tmp_path), tmp_path / "a.txt"
    written(files, path, "one")
    with pytest.raises(OSError, match=r"The disk is full: a\.txt could not be written"):
        written(files, path, "two", OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(ZeroDivisionError):
        written(files, path, "two", ZeroDivisionError())
    assert files.whole(path).read_text() == "one" and not list(tmp_path.glob(".new_*"))
