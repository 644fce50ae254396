"""Runs the paper's experiments, each in a time budget, and writes a page of results beside the paper's own.

Examples:
  tfp-flowify reproduce --list
  tfp-flowify reproduce --image-dir TFDS_DIR --table-dir DIR --only "mnist_*" power_fmlp
  tfp-flowify reproduce --page-only                         the page anew, from the runs that are there

Each experiment is a run of `tfp-flowify train` in a process and a folder of its own. A finished one is not run
again, an interrupted one goes on. The page, README.md in the folder of results, is written anew after each.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="say what experiments there are, and stop")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names or patterns such as 'mnist_*' (default: all)")
    parser.add_argument("--minutes", type=float, help="for each, in place of its own (see --list)")
    parser.add_argument("--image-dir", metavar="DIR", help="folder of TensorFlow Datasets")
    parser.add_argument("--table-dir", metavar="DIR", help="folder of the tables, see docs/data.md")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="run folders (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results"), help="of the page (default: %(default)s)")
    parser.add_argument("--page-only", action="store_true", help="run nothing, write the page")


def run(arguments: argparse.Namespace) -> int:
    from tfp_flowify.experiments.reproduce import chosen, reproduce
    from tfp_flowify.experiments.results_page import write_results

    experiments = chosen(arguments.only)
    if arguments.list:
        for experiment in experiments:
            print(f"{experiment.name:<22}{experiment.minutes:g} min")
        return 0
    failed = []
    if not arguments.page_only:
        folders = {"images": arguments.image_dir, "tables": arguments.table_dir}
        if any(not e.is_image for e in experiments) and arguments.table_dir is None:
            raise ValueError("The tables are read from a folder: give --table-dir DIR, or choose others with --only.")
        failed = reproduce(experiments, arguments.runs, arguments.out, folders, arguments.minutes)
    print(f"Wrote {write_results(arguments.runs, arguments.out)}.")
    if failed:
        print(f"These did not finish, see the messages above: {', '.join(failed)}")
    return 1 if failed else 0
