"""Callbacks for `fit`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfp_flowify.plots import save_panels

__all__ = ["SampleGrid"]


class SampleGrid(keras.callbacks.Callback):
    """Writes a picture of samples and reconstructions each few epochs: `epoch_0005.png` and so on.

    The panels are samples with what the network drops at its mean, samples with it drawn, from the same outputs (the
    paper's two columns), and, with `data`, examples and what their outputs alone tell of them.

    Args:
      directory: Folder for the files; it is made.
      data: Images to reconstruct, or None.
      every: Number of epochs from one picture to the next; the last epoch gets one too.
      count: Number of images in a panel.
      temperature: Temperature of the samples.
      seed: Seed for the samples, which are the same ones each time.
      limits: The values of black and of white; by default those of `Dequantize`, of the data, or 0 and 1.
      condition: For a conditional flow: `count` conditions, for the samples and for the data alike.

    >>> SampleGrid("pictures", every=10).every
    10
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        data: np.ndarray | None = None,
        every: int = 1,
        count: int = 25,
        temperature: float = 1.0,
        seed: int | Sequence[int] | None = 0,
        limits: Sequence[float] | None = None,
        condition: Any = None,
    ):
        super().__init__()
        if every < 1 or count < 1:
            raise ValueError(f"every and count are at least 1. Received: every={every}, count={count}")
        self.directory, self.data = Path(directory), None if data is None else np.asarray(data[:count])
        self.every, self.count, self.temperature, self.seed, self.limits = every, count, temperature, seed, limits
        self.condition = condition

    def on_train_begin(self, logs: dict | None = None) -> None:
        shape = tuple(self.model.distribution.event_shape)
        if len(shape) != 3 or shape[-1] not in (1, 3, 4):
            raise ValueError(f"SampleGrid is for flows of images (height, width, 1, 3 or 4). Received: data of {shape}")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._epoch: int | None = None
        self._written: int | None = None

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._epoch = epoch + 1
        if (epoch + 1) % self.every == 0:
            self._write()

    def on_train_end(self, logs: dict | None = None) -> None:
        if self._written != self._epoch:
            self._write()

    def _write(self):
        draw = {"temperature": self.temperature, "seed": self.seed, **self._given(self.count)}
        panels = {
            "samples, dropped at mean": self.model.sample(self.count, mean=True, **draw),
            "samples": self.model.sample(self.count, **draw),
        }
        if self.data is not None:
            panels["data"] = self.data
            panels["reconstructions"] = self.model.reconstruct(self.data, **self._given(len(self.data)))
        save_panels(self.directory / f"epoch_{self._epoch:04d}.png", panels, self._limits())
        self._written = self._epoch

    def _given(self, rows):
        """The first conditions as an argument of the flow; none where there are none."""
        if self.condition is None:
            return {}
        return {"condition": keras.tree.map_structure(lambda value: value[:rows], self.condition)}

    def _limits(self):
        levels = self.model.distribution.bijector.levels
        if self.limits is not None:
            return self.limits
        if levels is not None:
            return 0, levels - 1
        return (0, 1) if self.data is None else (self.data.min(), self.data.max())
