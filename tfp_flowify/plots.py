"""Pictures of what a flow draws."""

import math
import os
from collections.abc import Sequence

import numpy as np

__all__ = ["save_densities", "save_panels", "tile_images"]


def tile_images(images: np.ndarray, columns: int | None = None, border: int = 1) -> np.ndarray:
    """Images (n, height, width, channels) as one, side by side, with a border of NaN between them.

    >>> tile_images(np.zeros([4, 8, 8, 1])).shape
    (19, 19, 1)
    """
    images = np.asarray(images, np.float64)
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4):
        raise ValueError(f"Images are (n, height, width, 1, 3 or 4). Received: shape={images.shape}")
    columns = columns or math.ceil(math.sqrt(len(images)))
    rows = -(-len(images) // columns)
    images = np.pad(images, [(0, rows * columns - len(images)), *[(0, 0)] * 3], constant_values=np.nan)
    sides = [(0, 0), (border, 0), (border, 0), (0, 0)]
    cells = np.pad(images, sides, constant_values=np.nan)
    height, width, channels = cells.shape[1:]
    grid = cells.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    grid = grid.reshape(rows * height, columns * width, channels)
    return np.pad(grid, [(0, border), (0, border), (0, 0)], constant_values=np.nan)


def save_panels(
    path: str | os.PathLike[str], panels: dict, limits: Sequence[float], columns: int | None = None
) -> None:
    """Writes a PNG of several grids of images, each with its title.

    Args:
      path: Path of the file.
      panels: Images (n, height, width, channels) by title.
      limits: The values of black and of white.
      columns: Number of images in a row.

    >>> save_panels("digits.png", {"digits": images, "samples": flow.sample(25)}, limits=(0, 16))  # doctest: +SKIP
    """
    from matplotlib.figure import Figure  # Takes a second, and most uses of the library do without.

    low, high = limits
    grids = [tile_images(images, columns) for images in panels.values()]
    height, width = grids[0].shape[:2]
    side = max(3.2, 2.2 * width / 120)  # Inches: two dots or more for each pixel.
    figure = Figure(figsize=(side * len(grids), side * height / width + 0.3), dpi=120, layout="constrained")
    for axis, title, grid in zip(figure.subplots(1, len(grids), squeeze=False)[0], panels, grids, strict=True):
        shown = np.nan_to_num(np.clip((grid - low) / (high - low), 0, 1), nan=1.0)
        axis.imshow(shown if shown.shape[-1] > 1 else np.repeat(shown, 3, axis=-1), interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
    figure.savefig(path)


def save_densities(
    path: str | os.PathLike[str],
    panels: dict,
    points: np.ndarray,
    limits: Sequence[float] | None = None,
    size: int = 200,
) -> None:
    """Writes a PNG of densities of points in the plane, side by side, behind them the data.

    Args:
      path: Path of the file.
      panels: Functions by title, each from points (n, 2) to log-densities (n,), such as `flow.log_prob`.
      points: Data (n, 2), drawn as dots in a panel of their own.
      limits: (low, high) of both axes; those of the data if left out.
      size: Pixels of a panel in each direction.

    >>> save_densities("moons.png", {"flow": flow.log_prob}, points)  # doctest: +SKIP
    """
    from matplotlib.figure import Figure

    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"Points in the plane are (n, 2). Received: shape={points.shape}")
    low, high = limits or (float(points.min()) - 0.3, float(points.max()) + 0.3)
    axis = np.linspace(low, high, size, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    figure = Figure(figsize=(3 * (len(panels) + 1), 3.2), dpi=120, layout="constrained")
    first, *others = figure.subplots(1, len(panels) + 1)
    first.scatter(*points.T, s=1, color="0.3")
    first.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    first.set_title("data", fontsize=9)
    densities = [np.exp(np.asarray(log_prob(grid), np.float64)).reshape(size, size) for log_prob in panels.values()]
    highest = max(np.quantile(density, 0.995) for density in densities)
    for panel, title, density in zip(others, panels, densities, strict=True):
        panel.imshow(density, origin="lower", extent=(low, high) * 2, vmin=0, vmax=highest, cmap="magma")
        panel.set_title(title, fontsize=9)
    for panel in (first, *others):
        panel.set(xticks=[], yticks=[])
    figure.savefig(path)
