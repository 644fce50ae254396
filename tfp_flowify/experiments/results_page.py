"""The page of results: figures of all experiments that were run, beside those of the paper and of others."""

import json
import shutil
import warnings
from pathlib import Path

from tfp_flowify.core.types import PathLike
from tfp_flowify.experiments.durable import moved_into
from tfp_flowify.experiments.figures import carried_over
from tfp_flowify.experiments.folder import RunFolder
from tfp_flowify.experiments.paper import EXPERIMENTS, MODELS, PAPER_TABLES, RECORDS, SETS

#: Figures of others for the best networks to be set beside, as their papers give them.
PUBLISHED = {
    "mnist": "Glow 1.05, i-ResNet 1.06, FFJORD 0.99, Residual Flow 0.97",
    "cifar10": "RealNVP 3.49, Glow 3.35, VFlow 2.98",
    "power": "Glow 0.38, NSF 0.63",
}

#: The paper's own code on two cores like those of our first runs: bits per dimension, and after how many minutes.
PAPER_CODE = {"mnist_fconv2": (6.05, 12), "mnist_fmlp": (6.90, 6), "mnist_fconv1": (13.1, 6)}

#: Rows of the published training splits.
TRAINING_EXAMPLES = {"power": 1_659_917, "gas": 852_174, "hepmass": 315_123, "miniboone": 29_556, "bsds300": 1_000_000}

#: What the page is made of, for each run.
FILES = ("report.json", "truth.json", "history.csv", "samples.png", "samples_mean.png", "curves.png")


def write_results(runs: PathLike, out: PathLike) -> Path:
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
        _truth_table(done, out),
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

TRUTH = """
## Whether it is true

By `scripts/check_truth.py`: the log-det of a trained flow at some test examples beside that of its whole Jacobian by
autodiff in double precision, the largest difference as a share; and the figure with more and more draws on test
examples, which becomes better but for chance, or stays where a flow is exact or nearly so.

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
    notes = []
    for name, figure in PAPER_TABLES.items():
        report = done.get(f"{name}_fmlp")
        rows.append(f"| {name.upper()} | {figure:.2f} | {_cells(report)} |")
        published = TRAINING_EXAMPLES[name]
        reports = [done[run] for run in (f"{name}_fmlp", f"{name}_best") if run in done]
        for trained in {report.get("training_examples", published) for report in reports} - {published}:
            notes.append(
                f"\n{name.upper()}: trained on {trained:,} rows, not on the {published:,} of the published split.\n"
            )
    return "\n## Tables: nats, higher is better\n\n" + "\n".join(rows) + "\n" + "".join(notes)


def _truth_table(done, out):
    """What scripts/check_truth.py found and wrote beside the report of a run."""
    found = {name: _read(out / name / "truth.json") for name in done}
    checks = {name: check for name, check in found.items() if check is not None}
    if not checks:
        return ""
    draws = sorted({int(number) for check in checks.values() for number in check["figures"]})
    head = ["run", "largest difference of log-dets", "unit, examples", *[f"{n:,} draw(s)" for n in draws], "holds"]
    rows = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for name, check in checks.items():
        figures = [f"{check['figures'][str(n)]:.5f}" if str(n) in check["figures"] else "" for n in draws]
        difference = f"{check['largest_difference']:.1e} at {len(check['log_dets'])} examples"
        unit = f"{done[name]['unit']}, {check.get('weighted_examples', 'not told')}"  # By older files.
        cells = [name, difference, unit, *figures, {True: "yes", False: "**no**"}.get(check.get("holds"), "not told")]
        rows.append(f"| {' | '.join(cells)} |")
    return TRUTH + "\n".join(rows) + "\n"


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
    is_same_run = _read(target / "report.json") == run.read_report()
    for path in (run.path / name for name in names):
        whole = run.files.whole(path) if run.files.exists(path) else None
        if whole is not None:
            shutil.copyfile(whole, target / path.name)
        elif not is_same_run:  # What is there is of a run before.
            (target / path.name).unlink(missing_ok=True)


def _read(path):
    """What a JSON file holds; None where there is none, or it is damaged."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        warnings.warn(f"{path} is damaged, and left out.", stacklevel=2)
        return None
