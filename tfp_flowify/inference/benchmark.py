"""The benchmark: posteriors of all tasks from a few numbers of simulations, measured and written down as they come."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfp_flowify.core.types import PathLike
from tfp_flowify.diagnostics import (
    c2st,
    coverage,
    credible_levels,
    ranks,
    save_coverage,
    save_pairs,
    save_ranks,
    uniformity,
)
from tfp_flowify.inference.estimators import ESTIMATORS
from tfp_flowify.inference.tasks import TASKS

#: Two-sample accuracies of neural posterior estimation by the package sbi 0.23, mean of ten observations: the re-run of
#: the benchmark that its authors publish (sbi-benchmark/results, benchmarking_sbi_023, column C2ST, algorithm NPE).
PUBLISHED = {
    "two_moons": {1000: 0.667, 10_000: 0.578, 100_000: 0.529},
    "gaussian_linear": {1000: 0.753, 10_000: 0.563, 100_000: 0.508},
    "gaussian_linear_uniform": {1000: 0.746, 10_000: 0.562, 100_000: 0.512},
    "slcp": {1000: 0.976, 10_000: 0.897, 100_000: 0.836},
    "gaussian_mixture": {1000: 0.639, 10_000: 0.563, 100_000: 0.521},
    "sir": {},
}

PAGE = """# Posteriors from simulations

Two-sample accuracy (C2ST) of samples against reference samples of the posterior, mean over observations, and each: 0.5
is best, 1 worst. `published` is neural posterior estimation of the package sbi 0.23 in the benchmark's own re-run (mean
of ten observations, values not standardized there). Calibration: the least p-value over parameters of the chi-square
test that ranks are uniform, and how often the truth lies in the 80 % region. All posteriors of a task see the same
truths, so their p-values go up and down together, and the least of ten is below 0.01 by chance one time in ten.
`outside`: samples outside of the prior.

| task | simulations | estimator | C2ST | published | least p | 80 % region | outside | epochs | seconds | of at most |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""

#: Draws for each truth in the test of calibration, and bins of the histogram of their ranks.
DRAWS, BINS = 99, 20


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how.

    Args:
      minutes: Time for the training of one posterior, at most.
      observations: Number of data sets for which samples are compared with reference samples.
      samples: Number of samples of each, for that comparison.
      truths: Number of simulations for the test of calibration.
      seed: Seed for simulations, weights, order and draws.
    """

    minutes: float = 1.0
    observations: int = 3
    samples: int = 5000
    truths: int = 300
    seed: int = 0


def run(
    tasks: Sequence[str],
    simulations: Sequence[int],
    estimators: Sequence[str],
    folder: PathLike,
    options: Options | None = None,
    log: Callable[[str], Any] = print,
) -> list:
    """Trains and measures posteriors; what is in the folder already is not done again.

    Args:
      tasks: Names of tasks.
      simulations: Numbers of simulations.
      estimators: Names of estimators.
      folder: Where a file for each posterior, pictures and a page are written.
      options: How it is measured.
      log: Function called with each progress message.

    Returns:
      The figures of all posteriors in the folder.
    """
    folder, options = Path(folder), options or Options()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(t, n, e) for t in tasks for n in simulations for e in estimators]
    for number, (task, count, estimator) in enumerate(wanted, 1):
        path = folder / f"{task}_{count}_{estimator}.json"
        head = f"[{number}/{len(wanted)}] {task}, {count:,} simulations, {estimator}"
        if path.is_file() and json.loads(path.read_text())["options"] == dataclasses.asdict(options):
            log(f"{head}: there already")
            continue
        log(f"{head} ...")
        figures = measure(task, count, estimator, folder, options)
        path.write_text(json.dumps(figures, indent=2) + "\n")
        log(f"    {describe(figures)}")
    results = read(folder)
    (folder / "README.md").write_text(page(results))
    return results


def measure(task_name: str, count: int, estimator_name: str, folder: Path, options: Options) -> dict:
    """Trains one posterior and measures it: two-sample accuracy, calibration, and samples outside of the prior."""
    task, seed = TASKS[task_name](), options.seed
    theta, x = task.draw(count, seed + 1)
    estimator = ESTIMATORS[estimator_name](task, theta, x, options.minutes, seed)
    begun = time.perf_counter()
    accuracies, leaks = _compare(task, estimator, folder, f"{task_name}_{count}_{estimator_name}", options)
    truths, data = task.draw(options.truths, seed + 2)
    draws = estimator.sample(data, DRAWS, seed)
    found = ranks(truths, draws)
    levels = credible_levels(estimator.log_prob(truths[None], data)[0], estimator.log_prob(draws, data))
    if estimator_name == "tfp_flowify":
        save_ranks(folder / f"{task_name}_{count}_ranks.png", found, DRAWS, task.parameters, BINS)
        save_coverage(folder / f"{task_name}_{count}_coverage.png", {task_name: coverage(levels)}, options.truths)
    nominal, inside = coverage(levels, [0.5, 0.8, 0.95])
    return {
        "task": task_name,
        "simulations": count,
        "estimator": estimator_name,
        "c2st": accuracies,
        "c2st_mean": float(np.mean(accuracies)),
        "outside_prior": float(np.mean(leaks)),
        "sbc_p_values": uniformity(found, DRAWS, BINS).tolist(),
        "coverage": dict(zip(map(str, nominal), inside.tolist(), strict=True)),
        "training": estimator.figures,
        "measuring_seconds": time.perf_counter() - begun,
        "options": dataclasses.asdict(options),
    }


def _compare(task, estimator, folder, name, options):
    """Two-sample accuracies and shares of samples outside of the prior, for some observations; a picture of one."""
    truths, observed = task.draw(options.observations, options.seed + 1000)
    samples = estimator.sample(observed, options.samples, options.seed)
    accuracies, leaks = [], []
    for i, x in enumerate(observed):
        generator = np.random.default_rng([options.seed, i])
        reference = task.reference(x.astype(np.float64), options.samples, generator)
        accuracies.append(c2st(samples[:, i], reference, seed=options.seed))
        outside = (
            False if task.low is None else np.any((samples[:, i] < task.low) | (samples[:, i] > task.high), axis=1)
        )
        leaks.append(float(np.mean(outside)))
        if i == 0 and len(task.parameters) <= 5:
            panels = {"reference": reference, estimator.name: samples[:, i]}
            save_pairs(folder / f"{name}_posterior.png", panels, task.parameters, truth=truths[i])
    return accuracies, leaks


def describe(figures: dict) -> str:
    """One line about a posterior."""
    training = figures["training"]
    return (
        f"C2ST {figures['c2st_mean']:.3f}, least p of calibration {min(figures['sbc_p_values']):.3f}, "
        f"{figures['outside_prior']:.1%} outside the prior, {training['epochs']} epochs in {training['seconds']:.0f} s"
    )


def read(folder: PathLike) -> list:
    """The figures of all posteriors in a folder, in the order of tasks and simulations."""
    results = [json.loads(path.read_text()) for path in Path(folder).glob("*_*.json")]
    return sorted(results, key=lambda r: (list(TASKS).index(r["task"]), r["simulations"], r["estimator"]))


def page(results: list) -> str:
    """A page with a table of all figures."""
    lines = [PAGE]
    for r in results:
        published = PUBLISHED[r["task"]].get(r["simulations"])
        each = ", ".join(f"{accuracy:.3f}" for accuracy in r["c2st"])
        cells = [
            r["task"],
            f"{r['simulations']:,}",
            r["estimator"],
            f"{r['c2st_mean']:.3f} ({each})",
            "" if published is None else f"{published:.3f}",
            f"{min(r['sbc_p_values']):.3f}",
            f"{r['coverage']['0.8']:.2f}",
            f"{r['outside_prior']:.1%}",
            str(r["training"]["epochs"]),
            f"{r['training']['seconds']:.0f}",
            f"{60 * r['options']['minutes']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
