"""The folder of a run: what is in it, and how it is written so that a kill at any moment leaves it whole."""

import csv
import json
import os
import shutil
from pathlib import Path

from tfp_flowify.experiments.keras_file import load_keras_file
from tfp_flowify.model import FlowModel


class RunFolder:
    """The files of a training run.

    `last.keras` and `best.keras` hold the flow with its optimizer, `history.csv` a row for each epoch, `config.json`
    the arguments of the run. These are written beside their place and then moved there, and `report.json`, which comes
    last of all, says that the run is complete.

    Args:
      path: Path of the folder.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.config, self.history_file = self.path / "config.json", self.path / "history.csv"
        self.last, self.best = self.path / "last.keras", self.path / "best.keras"
        self.saved_model, self.report = self.path / "saved_model", self.path / "report.json"
        self.page = self.path / "report.html"

    def make_new(self):
        """Makes the folder; raises an error where it holds a run already."""
        if self.config.exists():
            raise FileExistsError(f"{self.path} holds a run already. Resume it, or give another folder (out=DIR).")
        self.make()

    def start(self, config: dict):
        """Keeps the arguments of a new run."""
        self.make_new()
        self.write_json(self.config, config)

    def make(self):
        """Makes the folder; an error where it cannot be written to, before any work is done."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".probe"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise PermissionError(
                f"{self.path} cannot be written to ({error.strerror}). Give another folder (out=DIR)."
            ) from error

    def remove_report(self):
        """Takes back what says that the run is complete, before it is trained further."""
        self.report.unlink(missing_ok=True)
        self.page.unlink(missing_ok=True)

    def read_config(self) -> dict:
        """The arguments of the run."""
        if not self.config.is_file():
            raise FileNotFoundError(f"There is no run in {self.path}: it has no {self.config.name}.")
        try:
            config = json.loads(self.config.read_text())
        except ValueError as error:
            raise ValueError(f"{self.config} is damaged: {error}") from error
        if not isinstance(config, dict) or not {"data", "model", "machine"} <= config.keys():
            raise ValueError(f"{self.config} is damaged: it does not say what data and model the run is of.")
        return config

    def write_json(self, path, content: dict):
        """Writes a file of JSON at once."""
        with moved_into(path) as new:
            new.write_text(json.dumps(content, indent=2) + "\n")

    def read_history(self, steps: int | None = None) -> list:
        """The rows of `history.csv`, with numbers; up to a number of training steps."""
        if not self.history_file.is_file():
            return []
        with open(self.history_file, newline="") as file:
            try:
                rows = [{name: _number(value) for name, value in row.items()} for row in csv.DictReader(file)]
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self.history_file} is damaged: {error}") from error
        return rows if steps is None else [row for row in rows if row["steps"] <= steps]

    def write_history(self, rows: list):
        """All rows, at once."""
        with moved_into(self.history_file) as new, open(new, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    def save(self, flow, is_best: bool):
        """Keeps a flow as the last, and maybe as the best. The last goes last: a kill before it repeats an epoch."""
        with moved_into(self.last) as new_last:
            flow.save(new_last)
            if is_best:
                with moved_into(self.best) as new_best:
                    shutil.copyfile(new_last, new_best)

    def load(self, path=None) -> FlowModel:
        """The best flow, or that of a given file."""
        path = path or (self.best if self.best.is_file() else self.last)
        if not path.is_file():
            raise FileNotFoundError(f"{self.path} holds no flow yet: it has no {path.name}.")
        return load_flow(path)


def _number(text):
    return int(text) if text.lstrip("-").isdigit() else float(text)


class moved_into:  # noqa: N801 (a context, used like a function)
    """A path beside another one, that takes its place when all has gone well."""

    def __init__(self, path):
        self.path = Path(path)
        self.new = self.path.with_name(f".new_{self.path.name}")

    def __enter__(self):
        return self.new

    def __exit__(self, kind, error, trace):
        if kind is None:
            os.replace(self.new, self.path)
        else:
            self.new.unlink(missing_ok=True)


def load_flow(path) -> FlowModel:
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
