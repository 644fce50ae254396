"""The experiments of the paper, and the best networks: what is run, what came out elsewhere, and a page of results."""

import dataclasses
import fnmatch
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tfp_flowify.experiments.durable import moved_into
from tfp_flowify.experiments.figures import carried_over
from tfp_flowify.experiments.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A run of the paper, or one of ours.

    Args:
      data, model: See `tfp_flowify.experiments.Options`.
      paper: The paper's figure, bits per dimension or nats; None for networks that it does not have.
      minutes: Time that it is given here.
      noise: For the comparison of kinds of noise: which one.
    """

    data: str
    model: str
    paper: float | None
    minutes: float
    noise: str | None = None

    @property
    def name(self) -> str:
        return "_".join([self.data, self.model, *([self.noise] if self.noise else [])])

    @property
    def is_image(self) -> bool:
        return self.data in ("mnist", "cifar10")

    def arguments(self, minutes=None) -> list:
        """The arguments of `tfp-flowify train`, but for folders."""
        noise = ["--noise", self.noise] if self.noise else []
        return ["--data", self.data, "--model", self.model, *noise, "--minutes", f"{minutes or self.minutes:g}"]


MODELS = {
    "fmlp": "fMLP",
    "fconv1": "fConv1",
    "fconv2": "fConv2",
    "fconv1_nsf": "fConv1 + NSF",
    "fconv2_nsf": "fConv2 + NSF",
}
SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
PAPER_MNIST = (4.19, 3.11, 1.41, 2.70, 1.35)
PAPER_CIFAR = (5.45, 4.91, 4.20, 3.93, 3.69)
PAPER_TABLES = {"power": -0.50, "gas": 5.35, "hepmass": -19.56, "miniboone": -14.05, "bsds300": 144.22}

#: The paper's noise of fConv1, on each of its sets of images.
PAPER_NOISE = {"mnist": {"uniform": 3.41, "normal": 3.11}, "cifar10": {"uniform": 6.24, "normal": 4.91}}

#: Figures of others for the best networks to be set beside, as their papers give them.
PUBLISHED = {
    "mnist": "Glow 1.05, i-ResNet 1.06, FFJORD 0.99, Residual Flow 0.97",
    "cifar10": "RealNVP 3.49, Glow 3.35, VFlow 2.98",
    "power": "Glow 0.38, NSF 0.63",
}

#: The best networks, and how long they are trained.
RECORDS = (
    Experiment("mnist", "best", None, 20),
    Experiment("cifar10", "best", None, 50),
    Experiment("power", "best", None, 30),
    Experiment("mnist", "best_large", None, 100),
    Experiment("cifar10", "best_large", None, 100),
)

#: All of them, in the order in which they are run.
EXPERIMENTS = (
    *(Experiment("mnist", model, figure, 15) for model, figure in zip(MODELS, PAPER_MNIST, strict=True)),
    *(Experiment("cifar10", model, figure, 15) for model, figure in zip(MODELS, PAPER_CIFAR, strict=True)),
    *(Experiment(data, "fconv1", f, 10, noise) for data, both in PAPER_NOISE.items() for noise, f in both.items()),
    *(Experiment(name, "fmlp", figure, 10) for name, figure in PAPER_TABLES.items()),
    *RECORDS,
)

#: The paper's own code on two cores like those of our first runs: bits per dimension, and after how many minutes.
PAPER_CODE = {"mnist_fconv2": (6.05, 12), "mnist_fmlp": (6.90, 6), "mnist_fconv1": (13.1, 6)}


#: What the page is made of, for each run.
FILES = ("report.json", "history.csv", "samples.png", "samples_mean.png", "curves.png")


def chosen(patterns) -> list:
    """The experiments whose names match; all for None."""
    for pattern in patterns or []:
        if not any(fnmatch.fnmatch(e.name, pattern) for e in EXPERIMENTS):
            names = ", ".join(e.name for e in EXPERIMENTS)
            raise ValueError(f"There is no experiment {pattern!r}. There are: {names}")
    return [e for e in EXPERIMENTS if not patterns or any(fnmatch.fnmatch(e.name, p) for p in patterns)]


def reproduce(experiments, runs, out, folders: dict, minutes=None) -> list:
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


def write_results(runs, out) -> Path:
    """Writes README.md into a folder, beside reports and pictures of all finished runs; the path of the page.

    Reports that are in the folder already, from other runs, stay and count too.
    """
    runs, out = Path(runs), Path(out)
    for experiment in EXPERIMENTS:
        run = RunFolder(runs / experiment.name)
        if run.read_report() is not None:
            _copy(run, out / experiment.name, FILES)
    reports = {e.name: out / e.name / "report.json" for e in EXPERIMENTS}
    done = {name: json.loads(path.read_text()) for name, path in reports.items() if path.is_file()}
    if not done:
        raise FileNotFoundError(f"There is no finished experiment in {runs}: no page to write.")
    machines = sorted({report["machine"] for report in done.values()})
    parts = [
        f"# Results\n\nWritten by `tfp-flowify reproduce`, from runs on: {'; '.join(machines)}.\n",
        INTRODUCTION,
        _records_table(done),
        *_image_tables(done, out),
        _noise_table(done),
        _tabular_table(done),
        _commands(done),
        _pictures(done),
    ]
    with moved_into(out / "README.md") as new:
        new.write_text("\n".join(parts), encoding="utf-8")
    return out / "README.md"


INTRODUCTION = """
Test figures of the epoch with the best validation figure, with their standard errors. "One draw" is the bound that is
trained; "100 draws" is importance-weighted, a tighter one: what it gains over one draw was measured on 1000 test
examples. Minutes are wall-clock time of training, compiling, validating and saving included. The paper's runs took
8 to 12 hours (MNIST) and 36 to 48 hours (CIFAR-10) on a GPU; "its code here" is the paper's own code on two cores like
ours, beside our validation figure after as many minutes.

What is the same in the paper's networks: the layer sizes are those of its appendix, but for fConv2, which it does not
print. What is not: in front, levels are intervals of the line, of trained widths, with noise of a trained shape; and
what layers drop has mixtures for densities, given by small networks that are convolutional where the layer is. The best
networks are ours: see docs/experiments.md. For scale: on MNIST, a histogram of pixel values, the same for all pixels,
has 1.97 bits per dimension on the test set, and one for each pixel 1.69; on CIFAR-10 the first has 7.91. The table of
POWER is learned by dense layers of widths 5, 4, 3, 2 and 1, which need no noise: its likelihood is exact.
"""


def _records_table(done):
    rows = ["| data | network | ours, one draw | ours, 100 draws | minutes | steps | weights | published elsewhere |"]
    rows.append("| --- " * 8 + "|")
    for experiment in RECORDS:
        name, published = SETS.get(experiment.data, experiment.data.upper()), PUBLISHED[experiment.data]
        rows.append(f"| {name} | {experiment.model} | {_cells(done.get(experiment.name))} | {published} |")
    explained = "Images: bits per dimension, lower is better. POWER: nats, higher is better."
    return f"\n## The best networks\n\n{explained}\n\n" + "\n".join(rows) + "\n"


def _image_tables(done, out):
    head = "| network | paper | its code here | ours, one draw | ours, 100 draws | minutes | steps | weights |"
    for data, title in SETS.items():
        rows = [head, "| --- " * 8 + "|"]
        for model, label in MODELS.items():
            experiment = next(e for e in EXPERIMENTS if (e.data, e.model, e.noise) == (data, model, None))
            code = _paper_code(experiment.name, out)
            rows.append(f"| {label} | {experiment.paper:.2f} | {code} | {_cells(done.get(experiment.name))} |")
        yield f"\n## {title}: bits per dimension, lower is better\n\n" + "\n".join(rows) + "\n"


def _paper_code(name, out):
    """The figure of the paper's code after some minutes, and our validation figure by then."""
    if name not in PAPER_CODE:
        return ""
    figure, minutes = PAPER_CODE[name]
    by_then = [row for row in RunFolder(out / name).read_history() if row["seconds"] <= 60 * minutes]
    ours = f", ours by then {by_then[-1]['validation']:.2f}" if by_then else ""
    return f"{figure:.2f} after {minutes} min{ours}"


def _noise_table(done):
    rows = [
        "| data | noise | paper | ours, one draw | ours, 100 draws | minutes | steps | weights |",
        "| --- " * 8 + "|",
    ]
    for data, title in SETS.items():
        for noise in ("uniform", "normal"):
            experiment = next(e for e in EXPERIMENTS if (e.data, e.model, e.noise) == (data, "fconv1", noise))
            rows.append(f"| {title} | {noise} | {experiment.paper:.2f} | {_cells(done.get(experiment.name))} |")
    return "\n## Noise of fConv1: bits per dimension, lower is better\n\n" + "\n".join(rows) + "\n"


def _tabular_table(done):
    rows = ["| data | paper, fMLP | ours, one draw | ours, 100 draws | minutes | steps | weights |", "| --- " * 7 + "|"]
    for name, figure in PAPER_TABLES.items():
        rows.append(f"| {name.upper()} | {figure:.2f} | {_cells(done.get(f'{name}_fmlp'))} |")
    return "\n## Tables: nats, higher is better\n\n" + "\n".join(rows) + "\n"


def _cells(report):
    if report is None:
        return " | ".join(["not run"] + [""] * 4)
    figures = [report["single_draw"], carried_over(report)]
    cells = [f"{figure['mean']:.3f} +- {figure['standard_error']:.3f}" for figure in figures]
    cells += [f"{report['training_seconds'] / 60:.1f}", f"{report['steps']:,}", f"{report['parameters']:,}"]
    return " | ".join(cells)


def _commands(done):
    lines = []
    for experiment in (e for e in EXPERIMENTS if e.name in done):
        minutes = done[experiment.name]["minutes"]
        lines.append(
            f"    tfp-flowify train {' '.join(experiment.arguments(minutes))} --data-dir DIR --out {experiment.name}"
        )
    return "\n## Commands\n\n" + "\n".join(lines) + "\n"


def _pictures(done):
    parts = [
        "\n## Samples\n\nLeft with what the network drops at its mean, right with it drawn, from the same outputs.\n"
    ]
    for experiment in (e for e in EXPERIMENTS if e.name in done):
        images = " ".join(
            f'<img src="{experiment.name}/{name}.png" width="45%">' for name in ("samples_mean", "samples")
        )
        parts.append(f"\n{experiment.name}:\n\n{images}\n")
    return "".join(parts)


def _copy(run, target, names):
    target.mkdir(parents=True, exist_ok=True)
    for path in (run.path / name for name in names):
        whole = run.files.whole(path) if run.files.exists(path) else None
        if whole is not None:
            shutil.copyfile(whole, target / path.name)
