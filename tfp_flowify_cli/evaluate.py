"""Tests a flow: log-likelihoods of data, with one draw of the noise and importance-weighted with many.

Examples:
  tfp-flowify evaluate runs/digits                        the data of the run, its best flow
  tfp-flowify evaluate runs/mnist --data-dir DIR --draws 1000 --weighted-examples 200
  tfp-flowify evaluate runs/mnist/saved_model --data clothes.npz --per-example scores.npz
  tfp-flowify evaluate runs/table --data new.csv --split all --per-example scores.csv   a score for each row

With more draws the figure comes closer to the true log-likelihood; in the mean both are at most that.
"""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, metavar="FLOW", help="the folder of a run, a .keras file or a SavedModel")
    parser.add_argument("--data", help="as for train (default: those of the run)")
    parser.add_argument("--data-dir", metavar="DIR", help="where named data are (default: as in the run)")
    parser.add_argument("--condition", metavar="WHAT", help="as for train (default: that of the run)")
    parser.add_argument("--image-size", type=int, nargs=2, metavar=("H", "W"), help="resize the images of a folder")
    parser.add_argument(
        "--split",
        choices=["test", "validation", "train", "all"],
        default="test",
        help="all: all examples of a file of yours, in its order (default: test)",
    )
    parser.add_argument("--draws", type=int, default=100, help="of the noise (default: %(default)s)")
    parser.add_argument("--weighted-examples", type=int, default=1000, help="for many draws (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument(
        "--per-example",
        type=Path,
        metavar="FILE",
        help="write a .npz or a .csv with a score for each example of the split: its log_prob in nats, with one draw "
        "of the noise; less is more unusual",
    )


def run(arguments: argparse.Namespace) -> None:
    from tfp_flowify.data import load
    from tfp_flowify.experiments.figures import evaluate, table
    from tfp_flowify.experiments.stored import open_flow

    if arguments.per_example is not None and arguments.per_example.suffix not in (".csv", ".npz"):
        raise ValueError(f"--per-example is a file .csv or .npz. Received: {arguments.per_example}")
    for path in (arguments.json, arguments.per_example):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    flow, config = open_flow(arguments.flow)
    name = arguments.data or config.get("data")
    if name is None:
        raise ValueError(f"{arguments.flow} does not say what data it was trained on. Give --data.")
    data = load(
        name,
        arguments.data_dir or config.get("data_dir"),
        image_size=arguments.image_size or config.get("image_size"),
        condition=arguments.condition or config.get("condition"),
        whole=arguments.split == "all",
    )
    split = "test" if arguments.split == "all" else arguments.split
    if flow.takes_condition != (data.condition is not None):
        way_out = "Say which one: --condition" if flow.takes_condition else "Leave out --condition"
        what = "a" if flow.takes_condition else "no"
        raise ValueError(f"The flow in {arguments.flow} takes {what} condition. {way_out}.")
    print(data.describe())
    if flow.event_shape != data.shape:
        raise ValueError(f"The flow in {arguments.flow} takes data of {flow.event_shape}, {name} has {data.shape}.")
    known, columns = config.get("columns"), data.columns
    if known and columns and list(known) != list(columns):
        raise ValueError(
            f"The flow in {arguments.flow} was trained on the columns {', '.join(known)}, in this order. "
            f"Received: {name} with {', '.join(columns)}."
        )
    keep = _writer(arguments.per_example)
    figures = evaluate(flow, data, arguments.draws, arguments.weighted_examples, split, arguments.seed, print, keep)
    figures["split"] = arguments.split
    print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def _writer(path):
    """A function that writes scores to a file; None for no file."""
    import numpy as np

    def write(scores):
        if path.suffix == ".csv":
            np.savetxt(path, scores, "%.9g", header="log_prob", comments="")
        else:
            np.savez(path, log_prob=scores)
        print(f"Wrote log_prob of {len(scores):,} examples to {path}.")

    return None if path is None else write
