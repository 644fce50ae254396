"""Draws from a flow: a picture, or the numbers.

Examples:
  tfp-flowify sample runs/digits                             samples.png in the current folder
  tfp-flowify sample runs/digits --count 100 --temperature 0.8 --mean --out mean.png
  tfp-flowify sample runs/power --count 10000 --out rows.csv
  tfp-flowify sample runs/classes --condition 3 7 --count 10 ten digits of each of these classes, a row each
  tfp-flowify sample runs/given --condition 41 70.5 --count 1000 --out rows.csv
"""

import argparse
from pathlib import Path

FORMATS = (".png", ".csv", ".npy", ".npz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, metavar="FLOW", help="the folder of a run, a .keras file or a SavedModel")
    parser.add_argument("--count", type=int, help="how many (default: 64)")
    parser.add_argument(
        "--condition",
        nargs="+",
        type=float,
        metavar="N",
        help="of a flow given labels, one or more labels, with --count samples of each (default: all of them, ten of "
        "each); of one given columns, a number for each",
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="less than one for typical ones (default: 1)")
    parser.add_argument("--mean", action="store_true", help="draw the output alone; what is dropped is at its mean")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same samples (default: %(default)s)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("samples.png"),
        help=".png for a picture, .csv, .npy or .npz for numbers (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> None:
    import numpy as np

    from tfp_flowify.experiments.stored import open_flow

    if (arguments.count is not None and arguments.count < 1) or not arguments.temperature > 0:
        raise ValueError(
            f"--count and --temperature are positive. Received: {arguments.count} and {arguments.temperature}"
        )
    if arguments.out.suffix not in FORMATS:
        raise ValueError(f"--out is a file {', '.join(FORMATS)}. Received: {arguments.out}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    flow, config = open_flow(arguments.flow)
    shape = flow.event_shape
    if arguments.out.suffix == ".png" and (len(shape) != 3 or shape[-1] not in (1, 3, 4)):
        raise ValueError(f"This flow draws {shape}, which is no picture. Write numbers: --out samples.csv")
    count, given, per_row = _conditions(arguments, flow.takes_condition, config)
    print(f"Drawing {count} samples of shape {shape} ...")
    x = np.asarray(flow.sample(count, arguments.temperature, mean=arguments.mean, seed=arguments.seed, **given))
    _write(arguments.out, x, flow.levels, config.get("columns"), per_row)
    print(f"Wrote {arguments.out}.")


def _conditions(arguments, takes_condition, config):
    """How many samples, the condition as an argument for the flow, and how many samples make a row of a picture."""
    import numpy as np

    values, classes = arguments.condition, config.get("classes")
    if not takes_condition:
        if values:
            raise ValueError(f"The flow in {arguments.flow} takes no --condition.")
        return arguments.count or 64, {}, None
    if not classes:
        if not values:
            raise ValueError(
                f"The flow in {arguments.flow} is a density given {config.get('condition', 'a condition')}: give "
                "--condition, a number for each."
            )
        return arguments.count or 64, {"condition": np.array(values)}, None
    labels = np.array(values) if values else np.arange(classes)
    if not np.isin(labels, np.arange(classes)).all():
        raise ValueError(
            f"--condition takes labels 0 ... {classes - 1}. Received: {', '.join(f'{v:g}' for v in labels)}"
        )
    each = arguments.count or (64 if len(labels) == 1 else 10)
    return each * len(labels), {"condition": np.repeat(labels.astype(int), each)}, each if len(labels) > 1 else None


def _write(path, x, levels, columns, per_row=None):
    """A picture, or the numbers: in a .csv file a row for each sample, below the names of the columns."""
    import numpy as np

    from tfp_flowify.plots import save_panels

    if path.suffix == ".png":
        limits = (0, levels - 1) if levels else (float(x.min()), float(x.max()) + 1e-9)
        save_panels(path, {f"{len(x)} samples": x}, limits, per_row)
    elif path.suffix == ".csv":
        rows = x.reshape(len(x), -1)
        header = ",".join(columns or [f"column_{i}" for i in range(rows.shape[1])])
        np.savetxt(path, rows, "%d" if levels else "%.9g", delimiter=",", header=header, comments="")
    elif path.suffix == ".npy":
        np.save(path, x)
    else:
        np.savez(path, samples=x)
