"""Pictures of posteriors and of their calibration."""

import math
from collections.abc import Sequence

import numpy as np

from tfp_flowify.core.types import PathLike
from tfp_flowify.diagnostics.calibration import rank_histogram

BLUE, ORANGE, GREEN, GREY = "tab:blue", "tab:orange", "tab:green", "0.6"

#: Deviations within which 99 % of a normal distribution lie.
WITHIN = 2.576


def save_ranks(
    path: PathLike, ranks: np.ndarray, num_draws: int, names: Sequence[str] | None = None, bins: int = 20
) -> None:
    """Writes a PNG of histograms of ranks, one for each parameter, with the band where 99 % of uniform ones lie.

    Args:
      path: Path of the file.
      ranks, num_draws, bins: See `uniformity`.
      names: Names of the parameters.

    >>> save_ranks("ranks.png", ranks, num_draws=99)  # doctest: +SKIP
    """
    counts, expected = rank_histogram(ranks, num_draws, bins)
    figure, panels = _panels(counts.shape[1], 2.6, 2.0)
    width = WITHIN * np.sqrt(expected * (1 - expected / len(ranks)))
    for i, panel in enumerate(panels):
        band = (expected - width, expected + width)
        panel.fill_between(np.arange(bins), *band, step="mid", color=GREY, alpha=0.4, linewidth=0)
        panel.bar(np.arange(bins), counts[:, i], width=0.9, color=BLUE)
        panel.set_title(_name(names, i), fontsize=9)
        panel.set(xticks=[0, bins - 1], xticklabels=["0", str(num_draws)], yticks=[])
    figure.suptitle("ranks of true parameters among draws; grey: 99 % of uniform ones", fontsize=9)
    figure.savefig(path)


def save_coverage(path: PathLike, curves: dict, count: int) -> None:
    """Writes a PNG of expected coverage: how often the truth lies in regions of each level.

    Args:
      path: Path of the file.
      curves: What `coverage` gives, by title.
      count: Number of truths that they are of, for the band where 99 % of calibrated curves lie at each level.

    >>> save_coverage("coverage.png", {"flow": coverage(levels)}, len(levels))  # doctest: +SKIP
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3.8), dpi=120, layout="constrained")
    axis = figure.subplots()
    level = np.linspace(0, 1, 101)
    width = WITHIN * np.sqrt(level * (1 - level) / count)
    axis.fill_between(level, level - width, level + width, color=GREY, alpha=0.3, linewidth=0)
    axis.plot(level, level, color="0.4", linewidth=1)
    for title, (nominal, inside) in curves.items():
        axis.plot(nominal, inside, marker="o", markersize=3, label=title)
    axis.set(xlabel="level of the region", ylabel="how often the truth is inside", xlim=(0, 1), ylim=(0, 1))
    axis.legend(fontsize=8)
    figure.savefig(path)


def save_pairs(
    path: PathLike,
    samples: dict,
    names: Sequence[str] | None = None,
    limits: Sequence | None = None,
    truth: Sequence[float] | np.ndarray | None = None,
) -> None:
    """Writes a PNG of samples of up to four densities: each parameter alone, and each pair of them.

    Args:
      path: Path of the file.
      samples: Arrays (n, d) by title.
      names: Names of the parameters.
      limits: (low, high), each (d,); if left out, those of nearly all samples of the first density, and some room.
      truth: The true parameters (d,), marked where they are given.

    >>> save_pairs("posterior.png", {"flow": samples, "reference": others})  # doctest: +SKIP
    """
    from matplotlib.figure import Figure

    arrays = {title: np.asarray(x) for title, x in samples.items()}
    if len(arrays) > 4:
        raise ValueError(f"save_pairs draws four densities at most. Received: {len(arrays)}")
    size = next(iter(arrays.values())).shape[1]
    low, high = _limits(next(iter(arrays.values()))) if limits is None else limits
    figure = Figure(figsize=(1.5 * size + 1, 1.5 * size + 1), dpi=120, layout="constrained")
    panels = figure.subplots(size, size, squeeze=False)
    for i, j in np.ndindex(size, size):
        panel = panels[i, j]
        panel.set(xlim=(low[j], high[j]), xticks=[], yticks=[])
        if j > i:
            panel.set_axis_off()
            continue
        _draw_pair(panel, arrays, i, j, (low, high), truth)
        if i == size - 1:
            panel.set_xlabel(_name(names, j), fontsize=8)
        if j == 0 and i:
            panel.set_ylabel(_name(names, i), fontsize=8)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", fontsize=8)
    figure.savefig(path)


def _draw_pair(panel, arrays, i, j, limits, truth):
    """Parameter i against parameter j, or a histogram where they are the same."""
    low, high = limits
    for (title, x), colour in zip(arrays.items(), (GREY, BLUE, ORANGE, GREEN), strict=False):
        if i == j:
            panel.hist(
                x[:, i], np.linspace(low[i], high[i], 50), density=True, histtype="step", color=colour, label=title
            )
        else:
            panel.scatter(x[:2000, j], x[:2000, i], s=1, alpha=0.4, color=colour, linewidths=0)
            panel.set_ylim(low[i], high[i])
    if truth is not None:
        panel.axvline(truth[j], color="black", linewidth=0.8)
        if i != j:
            panel.axhline(truth[i], color="black", linewidth=0.8)


def _limits(samples):
    """Where nearly all samples are, and a fifth more on each side."""
    low, high = np.quantile(samples, [0.002, 0.998], axis=0)
    room = 0.2 * (high - low) + 1e-9
    return low - room, high + room


def _panels(count, width, height):
    """A figure with so many panels, five in a row."""
    from matplotlib.figure import Figure  # Takes a second, and most uses of the library do without.

    across = min(count, 5)
    down = math.ceil(count / across)
    figure = Figure(figsize=(width * across, height * down + 0.4), dpi=120, layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).reshape(-1)
    for panel in panels[count:]:
        panel.set_axis_off()
    return figure, panels[:count]


def _name(names, i) -> str:
    return str(names[i]) if names is not None else f"parameter {i}"
