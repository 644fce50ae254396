"""Likelihoods of data under a flow, with standard errors, for files and for people."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfp_flowify.core.types import TensorLike
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.data import Data

#: So many examples go forward and back, at most.
ROUND_TRIPS = 200

#: An entry has changed on its way forward and back where it is off by more than this, in deviations of the data.
CHANGED = 1e-2

#: Where a larger share of entries changes, there is a warning.
LARGEST_SHARE = 1e-3


def unit_of(data: Data) -> str:
    """The unit in which likelihoods of data are given."""
    return "bits/dim" if data.is_image else "nats"


def likelihoods(flow: Any, x: TensorLike, in_bits: bool, **kwargs: Any) -> np.ndarray:
    """Bits per dimension or nats, for each example."""
    return np.asarray(flow.bits_per_dim(x, **kwargs) if in_bits else flow.log_prob(x, **kwargs), np.float64)


def evaluate(
    flow: Any,
    data: Data,
    draws: int = 100,
    weighted_examples: int = 1000,
    split: str = "test",
    seed: int = 0,
    log: Callable[[str], Any] = print,
    keep: Callable[[np.ndarray], Any] | None = None,
) -> dict:
    """Likelihoods of a split: with one draw of the noise, and importance-weighted with many.

    The weighted one takes many times longer, so it is measured on a random part of the examples, and carried over to
    all of them by what it gains there over one draw.

    Args:
      flow: Anything with `log_prob`, `bits_per_dim`, `encode` and `decode`.
      data: The data, in splits.
      draws: Number of draws of the noise, for the weighted figure.
      weighted_examples: Number of examples for the weighted figure, at most.
      split: "test", "validation" or "train".
      seed: Seed for the noise draws.
      log: Function called with each progress message.
      keep: Function called with the log-likelihoods of all examples with one draw, in nats, before they are summed up.
    """
    if draws < 1 or weighted_examples < 1:
        raise ValueError(
            "draws and weighted_examples must be positive. "
            f"Received: draws={draws}, weighted_examples={weighted_examples}"
        )
    x, in_bits = getattr(data, split), data.is_image
    rows = np.random.default_rng(0).permutation(len(x))[:weighted_examples]
    called = "examples" if data.is_for_scores else f"{split} examples"
    log(f"Likelihoods of {len(x):,} {called} with one draw of the noise, of {len(rows):,} with {draws} ...")
    log_prob = np.asarray(flow.log_prob(x, seed=seed, **data.given(split)), np.float64)
    if keep is not None:
        keep(log_prob)
    single = np.asarray(bits_per_dim(log_prob, data.shape) if in_bits else log_prob)
    weighted = likelihoods(flow, x[rows], in_bits, num_draws=draws, seed=seed, **data.given(split, rows))
    figures = {
        "unit": unit_of(data),
        "split": split,
        "single_draw": _summary(single),
        "single_draw_same_examples": _summary(single[rows]),
        "importance_weighted": {**_summary(weighted), "draws": draws},
        "gain": _summary((single[rows] - weighted) * (1 if in_bits else -1)),
    }
    trips = round_trips(flow, x[rows[:ROUND_TRIPS]], seed, **data.given(split, rows[:ROUND_TRIPS]))
    return {**figures, "importance_weighted_all": carried_over(figures), "round_trips": trips}


def round_trips(flow: Any, x: np.ndarray, seed: int = 0, **given: Any) -> dict:
    """How far examples are from where they were when they have gone forward through a flow and back.

    Without rounding they would be where they were. Where many are not, likelihoods and samples suffer from it too.

    Args:
      flow: Anything with `encode` and `decode`.
      x: Some examples.
      seed: Seed for the noise draws.
      **given: Their condition, if there is one.
    """
    back = np.asarray(flow.decode(flow.encode(x, seed=seed, **given), **given), np.float64)
    deviation = np.std(x, axis=0 if np.ndim(x) == 2 else None, dtype=np.float64)  # Columns may be in any units.
    errors = np.abs(back - np.asarray(x, np.float64)) / np.where(deviation > 0, deviation, 1.0)
    errors = np.where(np.isfinite(errors), errors, np.inf)
    trips = {"changed": float(np.mean(errors > CHANGED)), "largest": float(errors.max()), "examples": len(x)}
    if trips["changed"] > LARGEST_SHARE:
        warnings.warn(
            f"Of {len(x)} examples that went forward through the flow and back, {trips['changed']:.2%} of the entries "
            f"have changed, by {trips['largest']:.2g} deviations at most: rounding in this flow is large. Train with "
            "precision='float64', a smaller learning_rate=N or clip_norm=N.",
            stacklevel=2,
        )
    return trips


def carried_over(figures: dict) -> dict:
    """The importance-weighted figure of all examples: that of one draw, and the gain measured on a part of them.

    The two are almost independent, and the gain varies far less from example to example than the figure does.
    """
    single, gain = figures["single_draw"], figures["gain"]
    sign = -1 if figures["unit"] == "bits/dim" else 1
    error = math.hypot(single["standard_error"], gain["standard_error"])
    return {"mean": single["mean"] + sign * gain["mean"], "standard_error": error, "examples": single["examples"]}


def trained_numbers(flow: keras.Model) -> int:
    """The number of weights that are trained: without fixed rotations and seeds."""
    return sum(math.prod(weight.shape) for weight in flow.trainable_variables)


def _summary(values):
    """Mean and its standard error."""
    if not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values))
        raise FloatingPointError(
            f"The likelihoods of {len(bad)} of {len(values)} examples are not finite, so that there is no mean; the "
            f"first is example {bad[0]}, counted from 0. Leave those out; `evaluate --per-example FILE` scores each."
        )
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"mean": float(values.mean()), "standard_error": float(error), "examples": len(values)}


def table(report: dict) -> str:
    """The figures of a report, one in a line."""
    width = max(len(name) for name, _ in rows_of(report)) + 2
    return "\n".join(f"{name:<{width}}{value}" for name, value in rows_of(report))


def rows_of(report: dict) -> list:
    """Names and figures of a report, for people."""
    unit, draws, gain = report["unit"], report["importance_weighted"]["draws"], report["gain"]
    rows = [("data", report["data"]), ("model", report["model"])] if "model" in report else []
    rows += [("given", report["condition"])] if "condition" in report else []
    rows += [
        (f"{report['split']}, one draw", _with_error(report["single_draw"], unit)),
        (f"{report['split']}, {draws} draws", _with_error(carried_over(report), unit)),
        (f"  better by {draws} draws", _with_error(gain, unit)),
    ]
    if "round_trips" in report:
        trips = report["round_trips"]
        changed = f"{trips['changed']:.3%} of entries change, by {trips['largest']:.1g} deviations at most"
        rows += [("forward and back", f"{changed} ({trips['examples']:,} examples)")]
    if "training_seconds" not in report:
        return rows
    rows += [
        ("validation, one draw", f"{report['validation']:.4f} {unit}, best in epoch {report['best_epoch']}"),
        ("trained", f"{report['training_seconds'] / 60:.1f} min, {report['epochs']} epochs, {report['steps']:,} steps"),
        ("weights", f"{report['parameters']:,}"),
        ("seconds per step", f"{report['seconds_per_step']:.4f}"),
        ("seconds to first step", f"{report['seconds_to_first_step']:.1f}"),
        ("peak memory", f"{report['peak_memory_bytes'] / 1e9:.2f} GB"),
    ]
    return rows


def _with_error(figure, unit):
    return f"{figure['mean']:.4f} +- {figure['standard_error']:.4f} {unit} ({figure['examples']:,} examples)"
