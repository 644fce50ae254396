"""Checks that a trained flow is what it says: its log-dets in double precision, its figures with more and more draws.

Examples:
  python scripts/check_truth.py runs/mnist --data-dir DIR
  python scripts/check_truth.py runs/mnist --data-dir DIR --examples 3 --draws 1 10 100

The log-det at some test examples is set beside that of the whole Jacobian, which TensorFlow finds by autodiff. The
importance-weighted figure may only rise with the draws, but for chance; where the flow is exact it stays what it is. It
ends with code 1 where that does not hold. What it found stays in truth.json, for the page of results.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

#: Log-dets may differ by this share: a flow that was trained in single precision has rotations of that precision.
TOLERANCE = 1e-6


def main(arguments) -> int:
    import numpy as np

    from tfp_flowify.data import load
    from tfp_flowify.experiments import RunFolder
    from tfp_flowify.experiments.durable import moved_into
    from tfp_flowify.experiments.figures import likelihoods, unit_of
    from tfp_flowify.experiments.options import options_of
    from tfp_flowify.experiments.truth import in_double_precision, log_dets

    run = RunFolder(arguments.run)
    options = options_of(run, {"data_dir": arguments.data_dir} if arguments.data_dir else {})
    if options.condition:
        raise SystemExit(f"{arguments.run} is given {options.condition}: this looks at flows without a condition.")
    data = load(options.data, options.data_dir, image_size=options.image_size)
    flow = run.load()
    rows = np.linspace(0, len(data.test) - 1, arguments.examples).astype(int)
    print(f"Log-dets of {len(rows)} test examples, that of the flow and that of the Jacobian by autodiff:")
    pairs = log_dets(in_double_precision(flow, options, data).distribution, data.test[rows])
    for own, jacobian in pairs:
        print(f"  {own:.9f}  {jacobian:.9f}")
    differences = np.abs(pairs[:, 0] - pairs[:, 1]) / np.maximum(1.0, np.abs(pairs[:, 1]))
    print(f"Largest difference, as a share: {differences.max():.2g}")
    x, figures, rises, before = data.test[: arguments.weighted_examples], {}, [], None
    for draws in sorted(arguments.draws):
        found = likelihoods(flow, x, data.is_image, num_draws=draws, seed=0)
        figures[draws] = float(np.mean(found))
        print(f"{draws:6d} draw(s), {len(x)} test examples: {figures[draws]:.6f} {unit_of(data)}", flush=True)
        if before is not None:
            gain = (before - found) * (1 if data.is_image else -1)
            error = np.std(gain) / np.sqrt(len(gain))
            rises.append(np.all(np.abs(gain) < 1e-6) if flow.is_exact else np.mean(gain) > -3 * error - 1e-6)
        before = found
    holds = bool(differences.max() < TOLERANCE and all(rises))
    report = {
        "holds": holds,
        "log_dets": pairs.tolist(),
        "largest_difference": float(differences.max()),
        "weighted_examples": len(x),
        "figures": figures,
    }
    with moved_into(arguments.out or run.truth) as new:
        new.write_text(json.dumps(report, indent=2) + "\n")
    print("All of it holds." if holds else "It does NOT hold.")
    return 0 if holds else 1


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--data-dir", metavar="DIR", help="where named data are (default: as in the run)")
    parser.add_argument("--examples", type=int, default=5, help="for the Jacobian (default: %(default)s)")
    parser.add_argument("--weighted-examples", type=int, default=100, help="for the figures (default: %(default)s)")
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 10, 100, 1000], help="(default: 1 10 100 1000)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="(default: truth.json in the folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(parse()))
