"""What each part of a network buys: one part off, or another in its place, at a time, all trained as long.

Examples:
  python scripts/ablation.py --data-dir DIR                          MNIST, five minutes a row, into results/ablation
  python scripts/ablation.py --data digits --minutes 0.5 --rows "fconv2*" --out /tmp/ablation

Nothing else should run meanwhile. Rows that are done stay; one that was interrupted goes on. The page is written anew
after each row.
"""

import argparse
import fnmatch
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A run of a network in which something differs from that network as it is.

    Args:
      name: Name of its folder: that of the network, and of what differs.
      what: What differs, for people.
      arguments: Arguments of `tfp-flowify train`.
    """

    name: str
    what: str
    arguments: str = ""

    @property
    def network(self) -> str:
        return self.name.partition("-")[0]

    @property
    def is_whole(self) -> bool:
        """Whether it is the network as it is."""
        return self.name == self.network


ROWS = (
    Row("best", "as it is"),
    Row("best-one_logistic", "one logistic for each pixel, not a mixture of six", "--set mixtures=1"),
    Row("best-ten_logistics", "ten", "--set mixtures=10"),
    Row("best-narrow", "32 channels, not 64", "--set width=32"),
    Row("best-wide", "96 channels", "--set width=96"),
    Row("best-deep", "two residual blocks in each stage, not one", "--set depth=2"),
    Row("best-batch_128", "batches of 128, not 64", "--batch-size 128"),
    Row("best-average", "moving averages of the weights", "--average 0.999"),
    Row("best-shift", "images moved by a pixel at random", "--shift 1"),
    Row("fconv2", "as it is"),
    Row("fconv2-uniform_front", "uniform noise, logit and spline in front, not `Spread`", "--set front=uniform"),
    Row("fconv2-variational", "`Spread` whose noise depends on the image", "--set front=variational"),
    Row("fconv2-affine", "normal densities, the paper's, not mixtures", "--transform affine"),
    Row("fconv2-spline", "splines behind the normal densities", "--transform affine+spline"),
    Row("fconv2-two_stages", "what is dropped leaves in two stages", "--stages 2"),
    Row("fconv2-small", "small networks for densities, not residual ones", "--set depth=null width=null"),
    Row("fconv2-multiscale", "no networks for densities", "--density multiscale"),
    Row("fconv2-average", "moving averages of the weights", "--average 0.999"),
    Row("fconv1", "as it is"),
    Row("fconv1-affine", "normal densities, the paper's, not mixtures", "--transform affine"),
    Row("fconv1-small", "small networks for densities, not residual ones", "--set depth=null width=null"),
    Row("fconv1-shaped_noise", "noise that follows the data", "--noise shaped"),
    Row("fconv1-uniform_noise", "uniform noise", "--noise uniform"),
)

INTRODUCTION = """# What each part buys

Written by `{command}`, on {machine}. Each row is a network trained for {minutes:g} minutes on {data} with one thing
changed, seed {seed}. Bits per dimension of the test set, one draw of the noise and 100; the difference is that of the
last, and less is better. One seed a row: differences below about 0.005 are chance.
"""


def main(arguments) -> int:
    from tfp_flowify.experiments import RunFolder

    rows = [row for row in ROWS if any(fnmatch.fnmatch(row.name, pattern) for pattern in arguments.rows)]
    if not rows:
        raise SystemExit(f"There is no row {arguments.rows}. There are: {', '.join(row.name for row in ROWS)}")
    failed = []
    for i, row in enumerate(rows):
        run = RunFolder(arguments.runs / row.name)
        if run.read_report() is not None and not _is_of(run, arguments):
            raise SystemExit(f"{run.path} is a run of other data, minutes or seed. Take another folder: --runs DIR.")
        if run.read_report() is None:
            print(f"{i + 1} of {len(rows)}: {row.name}", flush=True)
            code = subprocess.run(_command(row, run, arguments)).returncode
            if code == 130:
                return code
            failed += [row.name] * bool(code)
        write_page(arguments)
    print(f"Wrote {arguments.out / 'README.md'}." + (f" Failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


def _command(row, run, arguments) -> list:
    command = [sys.executable, "-m", "tfp_flowify_cli", "train", "--out", str(run.path)]
    if run.holds_run:
        return [*command, "--resume"]
    data = ["--data", arguments.data, *(["--data-dir", arguments.data_dir] if arguments.data_dir else [])]
    how = ["--minutes", str(arguments.minutes), "--seed", str(arguments.seed)]
    return [*command, *data, *how, "--model", row.network, *row.arguments.split()]


def _is_of(run, arguments) -> bool:
    """Whether a run was trained on these data, for as long and with this seed."""
    config = run.read_config()
    wanted = {"minutes": arguments.minutes, "seed": arguments.seed}
    same = all(config[name] == value for name, value in wanted.items())
    return same and Path(config["data"]).name == Path(arguments.data).name


def write_page(arguments):
    """Writes README.md of all rows that are done."""
    from tfp_flowify.experiments import RunFolder
    from tfp_flowify.experiments.figures import carried_over

    runs = {row: RunFolder(arguments.runs / row.name) for row in ROWS}
    runs = {row: run for row, run in runs.items() if run.read_report() is not None and _is_of(run, arguments)}
    done = {row: run.read_report() for row, run in runs.items()}
    if not done:
        return
    lines = ["| network | what differs | one draw | 100 draws | difference | steps | weights | arguments |"]
    lines.append("| --- " * 8 + "|")
    whole = {row.network: carried_over(report)["mean"] for row, report in done.items() if row.is_whole}
    for row, report in done.items():
        one, many = report["single_draw"], carried_over(report)
        figures = [f"{figure['mean']:.3f} +- {figure['standard_error']:.3f}" for figure in (one, many)]
        difference = "" if row.is_whole or row.network not in whole else f"{many['mean'] - whole[row.network]:+.3f}"
        counts = [f"{report['steps']:,}", f"{report['parameters']:,}"]
        cells = [row.network, row.what, *figures, difference, *counts, f"`{row.arguments}`" if row.arguments else ""]
        lines.append("| " + " | ".join(cells) + " |")
    command = f"python scripts/ablation.py --data {arguments.data} --minutes {arguments.minutes:g} --data-dir DIR"
    about = {"machine": next(iter(done.values()))["machine"], "command": command}
    given = {"minutes": arguments.minutes, "data": arguments.data, "seed": arguments.seed}
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = INTRODUCTION.format(**about, **given) + "\n" + "\n".join(lines) + "\n"
    (arguments.out / "README.md").write_text(text, encoding="utf-8")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist", help="images, as for train (default: %(default)s)")
    parser.add_argument("--data-dir", metavar="DIR", help="where named data are")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="NAME", help="such as fconv2* (default: all)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/ablation"), help="folder of runs (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("results/ablation"), help="folder (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(parse()))
