"""Measures the speed and memory of flows beside plain networks, and writes a table, a picture and the figures.

Examples:
  python scripts/benchmark.py                           everything, into results/: about half an hour
  python scripts/benchmark.py --quick                   a first look, in less than three minutes
  python scripts/benchmark.py --models mnist_fconv2 --only networks --out /tmp/speed
  python scripts/benchmark.py --resume                  measures what is not there yet, after an interruption

Nothing else should run meanwhile. Figures are written as they come.
"""

import argparse
import json
import os
import shlex
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SECTIONS = ("networks", "conditions", "rotations", "scaling", "costs", "others")


def main(arguments):
    from benchmarks import networks
    from benchmarks.measure import Effort
    from benchmarks.page import write

    from tfp_flowify.experiments.machine import machine, versions

    if arguments.memory_of:
        name, num_draws = arguments.memory_of
        print(networks.work(name, int(num_draws)))
        return
    effort, begun = Effort(arguments.quick), time.perf_counter()
    figures = _kept(arguments) or {
        "command": shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]]),
        **{"machine": machine(), "versions": versions(), "rounds": effort.rounds},
        "imports_gb": networks.memory_of("nothing"),
    }
    for what, add in _measurements(arguments, effort, figures):
        log(f"{what} ...", begun)
        add(figures)
        write(arguments.out, figures)
    log(f"Wrote {arguments.out / 'benchmark.md'}, benchmark.json and benchmark.png there.", begun)


def _kept(arguments):
    """The figures of a run that was interrupted."""
    path = arguments.out / "benchmark.json"
    return json.loads(path.read_text()) if arguments.resume and path.is_file() else None


def _measurements(arguments, effort, figures):
    """Names of what is to be measured, and functions that add it to the figures."""
    from benchmarks.conditions import measure_conditions
    from benchmarks.costs import measure_costs
    from benchmarks.networks import measure_draws, measure_network, memory_of, names
    from benchmarks.others import measure_others
    from benchmarks.rotations import measure_rotations
    from benchmarks.scaling import measure_scaling

    def network(name, xla):
        def add(figures):
            row = measure_network(name, xla, effort)
            figures.setdefault("networks", []).append(row if xla else {**row, "memory_gb": memory_of(name)})

        return add

    def section(key, measure):
        return lambda figures: figures.update({key: measure()})

    there = {(row["network"], row["xla"]) for row in figures.get("networks", [])}
    models = names(arguments.models or (["mnist_fconv2"] if arguments.quick else None))
    if "networks" in arguments.only:
        for xla in (False, True) if arguments.xla else (False,):
            yield from ((name + " with XLA" * xla, network(name, xla)) for name in models if (name, xla) not in there)
    for part, key, measure in (
        ("conditions", "conditions", lambda: measure_conditions(effort)),
        ("rotations", "rotations", lambda: measure_rotations(effort)),
        ("scaling", "scaling", lambda: measure_scaling(effort)),
        ("scaling", "draws", measure_draws),
        ("costs", "costs", measure_costs),
        ("others", "others", lambda: measure_others(effort)),
    ):
        if part in arguments.only and key not in figures:
            yield key, section(key, measure)


def log(what, begun):
    print(f"{time.perf_counter() - begun:6.0f} s  {what}", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="such as mnist_fconv2 cifar10_fmlp (default: all)")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; mnist_fconv2 unless --models")
    parser.add_argument("--xla", action=argparse.BooleanOptionalAction, default=True, help="also with XLA")
    parser.add_argument("--resume", action="store_true", help="keep the figures that --out has, measure the others")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder (default: %(default)s)")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main(parse())
