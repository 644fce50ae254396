"""Runs the experiments one after the other, each in a process and a folder of its own."""

import fnmatch
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfp_flowify.core.types import PathLike
from tfp_flowify.experiments.folder import RunFolder
from tfp_flowify.experiments.paper import EXPERIMENTS, Experiment
from tfp_flowify.experiments.results_page import write_results


def chosen(patterns: Iterable[str] | None) -> list:
    """The experiments whose names match, in the order of the patterns; all for None."""
    if not patterns:
        return list(EXPERIMENTS)
    found = []
    for pattern in patterns:
        named = [e for e in EXPERIMENTS if fnmatch.fnmatch(e.name, pattern)]
        if not named:
            names = ", ".join(e.name for e in EXPERIMENTS)
            raise ValueError(f"There is no experiment {pattern!r}. There are: {names}")
        found += [e for e in named if e not in found]
    return found


def reproduce(
    experiments: Sequence[Experiment], runs: PathLike, out: PathLike, folders: dict, minutes: float | None = None
) -> list:
    """Runs experiments one after the other; the names of those that failed.

    Args:
      experiments: Those to run.
      runs: Folder of the run folders.
      out: Folder of the page, written anew after each.
      folders: Where "images" and "tables" are.
      minutes: Time for each, in place of its own.
    """
    failed = []
    for folder in (runs, out):
        RunFolder(folder).make()
    for i, experiment in enumerate(experiments):
        run = RunFolder(Path(runs) / experiment.name)
        title = f"{i + 1} of {len(experiments)}: {experiment.name}"
        if run.read_report() is not None:
            print(f"{title} is done already.")
            continue
        print(f"{title}, {minutes or experiment.minutes:g} minutes", flush=True)
        code = _run(experiment, run, folders["images" if experiment.is_image else "tables"], minutes)
        if code == 130:
            raise KeyboardInterrupt
        if code:
            failed.append(experiment.name)
        else:
            write_results(runs, out)
    return failed


def _run(experiment, run, folder, minutes) -> int:
    """A process that trains; its exit code. Ctrl-C is for it alone: it saves what it has, then ends."""
    arguments = ["--resume"] if run.holds_run else experiment.arguments(minutes)
    arguments += ["--data-dir", str(folder)] if folder else []
    command = [sys.executable, "-m", "tfp_flowify_cli", "train", "--out", str(run.path), *arguments]
    process = subprocess.Popen(command)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
