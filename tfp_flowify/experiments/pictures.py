"""The pictures of a run."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tfp_flowify.core.types import PathLike
from tfp_flowify.data import Data
from tfp_flowify.model import FlowModel
from tfp_flowify.plots import save_panels

COUNT = 64

#: Samples of each class in a row.
PER_CLASS = 10


def draw_all(folder: Path, flow: FlowModel, data: Data, history: list, temperature: float = 1.0) -> list:
    """Writes the pictures of a run; their names."""
    draw_curves(folder / "curves.png", history, "bits per dimension" if data.is_image else "nats")
    draw = draw_image_samples if data.is_image else draw_table_samples
    draw(folder, flow, data, temperature)
    return ["samples_mean.png", "samples.png", "reconstructions.png", "curves.png"]


def draw_curves(path: PathLike, history: list, unit: str) -> None:
    """Training and validation likelihood against minutes."""
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axis = figure.subplots()
    minutes = [row["seconds"] / 60 for row in history]
    for name in ("train", "validation"):
        values = [row[name] for row in history]
        axis.plot(minutes, values, marker="o", markersize=3, label=f"{name}, {values[-1]:.3f} at the end")
    axis.set(xlabel="minutes", ylabel=unit)
    shown = np.array([[row["train"], row["validation"]] for row in history])
    low, high = shown.min(), np.quantile(shown, 0.95) if len(shown) > 5 else shown.max()
    if unit == "nats":
        low, high = (np.quantile(shown, 0.05) if len(shown) > 5 else low), shown.max()
    room = 0.1 * (high - low) or 0.1
    axis.set_ylim(low - room, high + room)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path)


def draw_image_samples(folder: Path, flow: FlowModel, data: Data, temperature: float) -> None:
    """The paper's two columns, with the same outputs; and examples with what the output tells of them."""
    limits = (0, data.levels - 1) if data.levels else (float(data.train.min()), float(data.train.max()))
    drawn: dict[str, Any] = {"temperature": temperature, "seed": 0}
    columns, note = None, ""
    count = COUNT if max(data.shape[:2]) <= 64 else 16
    rows = slice(min(count, 32))
    x, reconstructed = data.test[rows], flow.reconstruct(data.test[rows], **data.given("test", rows))
    pairs = np.stack([np.asarray(x, np.float32), np.asarray(reconstructed)], axis=1).reshape(-1, *data.shape)
    if data.classes:
        count, columns, note = data.classes * PER_CLASS, PER_CLASS, ", a row for each class"
        drawn["condition"] = np.repeat(np.arange(data.classes), PER_CLASS)
    samples, means = flow.sample(count, **drawn), flow.sample(count, mean=True, **drawn)
    if data.shape[-1] not in (1, 3, 4):  # No colours: the first channel, grey.
        samples, means, pairs = samples[..., :1], means[..., :1], pairs[..., :1]
    save_panels(folder / "samples.png", {f"samples{note}": samples}, limits, columns)
    save_panels(folder / "samples_mean.png", {f"samples{note}, what is dropped at its mean": means}, limits, columns)
    title = "test examples, beside each its reconstruction"
    save_panels(folder / "reconstructions.png", {title: pairs}, limits, columns=8)


def draw_table_samples(folder: Path, flow: FlowModel, data: Data, temperature: float) -> None:
    """Histograms of columns, of test examples and of samples; and reconstructed against true values."""
    count = min(10_000, len(data.test))
    x = data.test[:count]
    drawn = {"temperature": temperature, "seed": 0, **data.given("test", slice(count))}
    names = data.columns or [f"column {i}" for i in range(x.shape[1])]
    for name, samples in (
        ("samples", flow.sample(count, **drawn)),
        ("samples_mean", flow.sample(count, mean=True, **drawn)),
    ):
        _histograms(folder / f"{name}.png", x, np.asarray(samples), names)
    reconstructed = flow.reconstruct(x[:2000], **data.given("test", slice(min(count, 2000))))
    _scatter(folder / "reconstructions.png", x[:2000], np.asarray(reconstructed), names)


def _panels(columns):
    """A figure with a panel for each column, twelve at most."""
    count = min(columns, 12)
    across = min(count, 4)
    down = math.ceil(count / across)
    figure = Figure(figsize=(3 * across, 2.6 * down), dpi=120, layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).reshape(-1)
    for panel in panels[count:]:
        panel.set_axis_off()
    return figure, panels[:count]


def _histograms(path, x, samples, names):
    figure, panels = _panels(x.shape[1])
    for i, panel in enumerate(panels):
        low, high = np.quantile(x[:, i], [0.001, 0.999])
        bins = np.linspace(low, high + 1e-6, 60)
        panel.hist(x[:, i], bins, density=True, color="0.75", label="test data")
        panel.hist(samples[:, i], bins, density=True, histtype="step", color="tab:blue", label="samples")
        panel.set_title(names[i], fontsize=9, parse_math=False)
        panel.set_yticks([])
    panels[0].legend(fontsize=8)
    figure.savefig(path)


def _scatter(path, x, reconstructed, names):
    figure, panels = _panels(x.shape[1])
    for i, panel in enumerate(panels):
        panel.scatter(x[:, i], reconstructed[:, i], s=2, alpha=0.4)
        low, high = np.quantile(x[:, i], [0.001, 0.999])
        panel.plot([low, high], [low, high], color="0.5", linewidth=1)
        panel.set(xlim=(low, high), ylim=(low, high))
        panel.set_title(f"{names[i]}: true, and from the output", fontsize=8, parse_math=False)
    figure.savefig(path)
