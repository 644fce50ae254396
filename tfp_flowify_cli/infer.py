"""Learns posteriors from simulations, and measures them against reference posteriors.

Examples:
  tfp-flowify infer                                               two moons from 10,000 simulations, in a minute
  tfp-flowify infer --tasks all --simulations 1000 10000 100000 --minutes 1 --out runs/inference
  tfp-flowify infer --tasks two_moons slcp --estimators tfp_flowify zuko

In the folder: a .json file for each posterior, pictures of posteriors, of ranks and of coverage, and README.md, a table
of all. What is there already is not done again, so that a run that was ended goes on where it was.
"""

import argparse
from pathlib import Path

TASKS = ("two_moons", "gaussian_linear", "gaussian_linear_uniform", "slcp", "gaussian_mixture", "sir")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", default=["two_moons"], help=f"{', '.join(TASKS)}, or all")
    parser.add_argument("--simulations", nargs="+", type=int, default=[10_000], metavar="N", help="(default: 10000)")
    parser.add_argument(
        "--estimators", nargs="+", default=["tfp_flowify"], help="tfp_flowify, zuko (default: tfp_flowify)"
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="of training for each, at most (default: 1)")
    parser.add_argument("--observations", type=int, default=3, help="that are compared (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=5000, help="of each posterior (default: %(default)s)")
    parser.add_argument("--truths", type=int, default=300, help="for the test of calibration (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/inference"), help="folder (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    from tfp_flowify.inference import benchmark
    from tfp_flowify.inference.estimators import ESTIMATORS

    tasks = list(TASKS) if arguments.tasks == ["all"] else arguments.tasks
    for name, given, known in (("--tasks", tasks, TASKS), ("--estimators", arguments.estimators, ESTIMATORS)):
        unknown = [value for value in given if value not in known]
        if unknown:
            raise ValueError(f"{name} takes {', '.join(known)}. Received: {', '.join(unknown)}")
    numbers = {name: getattr(arguments, name) for name in ("minutes", "observations", "samples", "truths")}
    for name, value in {**numbers, "simulations": min(arguments.simulations)}.items():
        if not value > 0:
            raise ValueError(f"--{name} takes positive numbers. Received: {value}")
    options = benchmark.Options(seed=arguments.seed, **numbers)
    benchmark.run(tasks, arguments.simulations, arguments.estimators, arguments.out, options)
    print(f"The table of all: {arguments.out / 'README.md'}")
