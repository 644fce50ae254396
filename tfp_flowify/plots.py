"""Pictures of what a flow draws."""

import math

import numpy as np


def tile_images(images, columns=None, border=1) -> np.ndarray:
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


def save_panels(path, panels: dict, limits, columns=None):
    """Writes a PNG of several grids of images, each with its title.

    Args:
      path: Path of the file.
      panels: Images (n, height, width, channels) by title.
      limits: The values of black and of white.
      columns: Number of images in a row.
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
