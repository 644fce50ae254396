"""The folder of a run: what is in it, and how it is written so that a kill at any moment leaves it whole."""

import contextlib
import csv
import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

from tfp_flowify.core.private import averaged
from tfp_flowify.core.types import PathLike
from tfp_flowify.experiments.durable import DurableFiles, moved_into
from tfp_flowify.experiments.keras_file import load_keras_file
from tfp_flowify.model import FlowModel


class RunFolder:
    """The files of a training run.

    `last.keras` and `best.keras` hold the flow with its optimizer, `history.csv` a row for each epoch, `config.json`
    the arguments of the run. These are durable: `checksums.json` tells whether they are whole, and each has a spare.
    `report.json`, which comes last of all, says that the run is complete.

    Args:
      path: Path of the folder.
    """

    def __init__(self, path: PathLike):
        self.path = Path(path)
        self.config, self.history_file = self.path / "config.json", self.path / "history.csv"
        self.last, self.best = self.path / "last.keras", self.path / "best.keras"
        self.saved_model, self.report = self.path / "saved_model", self.path / "report.json"
        self.page, self.before_failure = self.path / "report.html", self.path / "before_failure.keras"
        self.truth = self.path / "truth.json"
        self.files = DurableFiles(self.path)

    @property
    def holds_run(self) -> bool:
        """Whether there is a run in the folder."""
        return self.files.exists(self.config)

    def make_new(self) -> None:
        """Makes the folder; raises an error where it holds a run already."""
        if self.holds_run:
            raise FileExistsError(f"{self.path} holds a run already. Resume it, or give another folder (out=DIR).")
        self.make()

    def start(self, config: dict) -> None:
        """Keeps the arguments of a new run."""
        self.make_new()
        self.write_config(config)

    def make(self) -> None:
        """Makes the folder; an error where it cannot be written to, before any work is done."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".probe"
            probe.write_text("")
            probe.unlink()
            self.files.remove_leftovers()
        except OSError as error:
            raise PermissionError(
                f"{self.path} cannot be written to ({error.strerror}). Give another folder (out=DIR)."
            ) from error

    def restore(self) -> None:
        """Makes damaged files anew from their spares, with a warning for each, before a run goes on."""
        for path in (self.config, self.history_file, self.best, self.last):
            self.files.restore(path)

    def remove_report(self) -> None:
        """Takes back what says that the run is complete, before it is trained further."""
        self.files.remove(self.report)
        self.page.unlink(missing_ok=True)

    def read_config(self) -> dict:
        """The arguments of the run."""
        if not self.holds_run:
            raise FileNotFoundError(f"There is no run in {self.path}: it has no {self.config.name}.")
        try:
            config = json.loads(self._whole(self.config).read_text())
        except ValueError as error:
            raise ValueError(f"{self.config} is damaged: {error}") from error
        if not isinstance(config, dict) or not {"data", "model", "machine"} <= config.keys():
            raise ValueError(f"{self.config} is damaged: it does not say what data and model the run is of.")
        return config

    def write_config(self, config: dict) -> None:
        """Keeps the arguments of the run."""
        with self.files.replaced(self.config) as new:
            new.write_text(_as_json(config))

    def write_report(self, report: dict) -> None:
        """Keeps the figures of the run, and says that it is complete."""
        with self.files.replaced(self.report) as new:
            new.write_text(_as_json(report))

    def read_report(self) -> dict | None:
        """The figures of the run; None where it is not complete, or they are damaged: resuming makes them anew."""
        if not self.files.exists(self.report):
            return None
        path = self.files.whole(self.report)
        try:
            return None if path is None else dict(json.loads(path.read_text()))
        except (ValueError, TypeError):
            warnings.warn(f"{path} is damaged. Resuming the run writes it anew.", stacklevel=2)
            return None

    def read_history(self, steps: int | None = None) -> list:
        """The rows of `history.csv`, with numbers; up to a number of training steps."""
        if not self.files.exists(self.history_file):
            return []
        with open(self._whole(self.history_file), newline="") as file:
            try:
                rows = [{name: _number(value) for name, value in row.items()} for row in csv.DictReader(file)]
                return [row for row in rows if steps is None or row["steps"] <= steps]
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise ValueError(f"{self.history_file} is damaged: {type(error).__name__} {error}") from error

    def write_history(self, rows: list) -> None:
        """All rows, at once."""
        with self.files.replaced(self.history_file) as new, open(new, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    def save(self, flow: FlowModel, is_best: bool) -> None:
        """Keeps a flow as the last, and maybe as the best. The last goes last: a kill before it repeats an epoch.

        Where weights are averaged, the best has the averages.
        """
        with self.files.replaced(self.last, spare_is_copy=False) as new_last:
            flow.save(new_last)
            if is_best:
                with self.files.replaced(self.best) as new_best, averaged(flow) as differs:
                    flow.save(new_best) if differs else shutil.copyfile(new_last, new_best)

    def save_before_failure(self, flow: FlowModel) -> None:
        """Keeps a flow as it was before a step that failed."""
        with moved_into(self.before_failure) as new:
            flow.save(new)

    def load(self, path: Path | None = None) -> FlowModel:
        """The best flow, or that of a given file; where it is damaged, that of its spare."""
        path = path or (self.best if self.files.exists(self.best) else self.last)
        if not self.files.exists(path):
            raise FileNotFoundError(f"{self.path} holds no flow yet: it has no {path.name}.")
        return load_flow(self._whole(path))

    def load_last(self) -> FlowModel | None:
        """The flow to go on from; None where there is none yet, or none that is whole: then the run starts anew."""
        if not self.files.exists(self.last):
            return None
        path = self.files.whole(self.last)
        if path is None:
            warnings.warn(f"{self.path} holds no flow that is whole: its training starts anew.", stacklevel=2)
            return None
        return load_flow(path)

    @contextlib.contextmanager
    def replaced_export(self) -> Iterator[Path]:
        """Gives a path to export to, whose folder then takes the place of the SavedModel."""
        new = self.path / f".new_{self.saved_model.name}"
        shutil.rmtree(new, ignore_errors=True)
        yield new
        shutil.rmtree(self.saved_model, ignore_errors=True)
        new.rename(self.saved_model)

    def _whole(self, path) -> Path:
        whole = self.files.whole(path)
        if whole is None:
            raise ValueError(f"{path} is damaged, and its spare too.")
        return whole


def _as_json(content: dict) -> str:
    return json.dumps(content, indent=2) + "\n"


def _number(text):
    return int(text) if text.lstrip("-").isdigit() else float(text)


def load_flow(path: PathLike) -> FlowModel:
    """The flow of a `.keras` file; an error that says what is wrong with it. No code from the file is run."""
    if Path(path).suffix != ".keras":
        raise ValueError(f"{path} is not a .keras file.")
    try:
        flow = load_keras_file(path)
    except ValueError as error:
        raise ValueError(f"{error} Of a run, best.keras and last.keras are both flows: try the other.") from error
    if not isinstance(flow, FlowModel):
        raise ValueError(f"{path} holds a {type(flow).__name__}, not a FlowModel.")
    return flow
