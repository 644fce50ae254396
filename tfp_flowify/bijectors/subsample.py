"""Images of whole numbers at half their size: the pixels in between are dropped as codes."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_flowify.augmentation import Code
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.bijectors.levels import Levels
from tfp_flowify.core.checks import sum_last
from tfp_flowify.core.types import Shape


class Stage(NamedTuple):
    """The networks of one group of dropped pixels: those at one place of all blocks.

    update: Function of [features of the newly known pixels, state of the stage before], without the state in the first
      stage, on the grid of the kept pixels. Gives the state: any tensor on that grid.
    heads: For each channel, a function of [state, features of the channels before] that gives the parameters of a
      mixture of logistics for each pixel of the group; of [state] alone for the first channel.

    >>> len(Stage(lambda inputs: inputs[0], [lambda inputs: tf.zeros([3])]).heads)
    1
    """

    update: Any
    heads: list


class Subsample(FlowBijector):
    """Keeps every second pixel of an image of whole numbers. The others leave in stages, given all that is known.

    Of each block of 2 x 2 pixels the first is kept; the others leave one after the other, channel by channel. A pixel
    is not a real number but a choice, so what leaves is a `Code` that says which level it had:

        forward: [x, w] -> [x[::2, ::2], codes],  code = P(below d | known) + w P(d | known)  for each dropped d
        log_det = sum of log P(d | known)

    The likelihood does not depend on w: it is exact, with no loss to dequantization. All pixels of a group are
    independent given what is known: the kept pixels, and the groups that leave before. A network carries what it
    learned of them from stage to stage as its state. Going back runs the same stages in the same order.
    Nielsen and Winther 2020, "Closing the dequantization gap"; Reed et al. 2017, "Parallel multiscale autoregressive
    density estimation".

    Shapes: (..., *sides, c) of any number of sides -> (..., *halves, c), beside a code for each dropped number. A half
    is rounded up; a side of one stays.

    Args:
      shape: (*sides, channels).
      levels: The `Levels` of the channels.
      stages: A `Stage` for each group of `groups(sides)`.

    >>> import numpy as np
    >>> levels = Levels(tf.zeros([1]), tf.zeros([1, 2]))
    >>> stage = Stage(lambda inputs: inputs[0], [lambda inputs: tf.zeros([1, 1, 1, 3])])
    >>> layer = Subsample((2, 2, 1), levels, [stage] * 3)
    >>> layer.without_noise(np.array([[[3], [0]], [[1], [2]]])).numpy().tolist()
    [[[3.0]]]
    """

    levels: int

    def __init__(self, shape: Shape, levels: Levels, stages: Iterable[Stage], name: str | None = None) -> None:
        *sides, channels = shape
        self._groups, self.levels_of, self.stages = groups(sides), levels, list(stages)
        if not self._groups:
            raise ValueError(f"Subsample halves sides longer than one. Received: shape={tuple(shape)}")
        if levels.channels != channels or len(self.stages) != len(self._groups):
            raise ValueError(
                f"Subsample of an image {tuple(shape)} takes levels of {channels} channel(s) and {len(self._groups)} "
                f"stages. Received: levels of {levels.channels} channel(s), {len(self.stages)} stages."
            )
        self.levels, self._grid = levels.count, _size([0] * len(sides), sides)
        dtype = tf.as_dtype(levels.first_cut.dtype)
        codes = [(*_size(offset, sides), channels) for offset in self._groups]
        super().__init__(
            inputs=[shape],
            outputs=[(*self._grid, channels)],
            noise=[Code(size, dtype) for size in codes],
            residuals=[Code(size, dtype) for size in codes],
            dtype=dtype,
            name=name,
        )

    @property
    def output_levels(self) -> int:
        return self.levels

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, *codes = parts
        kept = self._take(x, (0,) * len(self._grid))
        dropped = [self._take(x, offset) for offset in self._groups]

        def run(channel, parameters, i):
            squeezed, log_det = self.levels_of.encode(
                dropped[i][..., channel], codes[i][..., channel], channel, parameters
            )
            return dropped[i][..., channel], squeezed, log_det

        _, squeezed, log_det = self._walk(kept, run, context)
        is_level = (x >= 0) & (x < self.levels) & (x == tf.floor(x))
        every = tf.reduce_all(is_level, axis=list(range(1, x.shape.rank)))
        return [kept, *squeezed], tf.where(every, log_det, tf.cast(-float("inf"), x.dtype))

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        kept, *squeezed = parts

        def run(channel, parameters, i):
            return self.levels_of.decode(squeezed[i][..., channel], channel, parameters)

        dropped, codes, log_det = self._walk(kept, run, context)
        return [self._join(kept, dropped), *codes], log_det

    def _walk(self, known, run, context):
        """All stages in turn, each channel by `run(channel, parameters, stage) -> (levels, code, log_det)`.

        Returns:
          Levels and codes of all stages, and the sum of all log-dets.
        """
        if known.shape.rank != len(self._grid) + 2:
            raise ValueError(
                f"Subsample takes images {self.inputs[0]} with one axis of examples in front. Received: kept pixels of "
                f"shape {tuple(known.shape)}. Make one axis of all those in front by Reshape."
            )
        all_levels, all_codes, total, state = [], [], 0.0, []
        for i, (stage, offset) in enumerate(zip(self.stages, self._groups, strict=True)):
            state = [context.run(stage.update, [self.levels_of.features(self._on_grid(known)), *state])]
            here = self._off_grid(state[0], offset)
            levels, codes, before = [], [], []
            for channel, head in enumerate(stage.heads):
                level, code, log_det = run(channel, context.run(head, [here, *before]), i)
                seen = self.levels_of.features(level, channel)
                before = [tf.concat([*before, seen], axis=-1)]
                levels.append(level)
                codes.append(code)
                total += sum_last(log_det, len(self._grid))
            known = tf.stack(levels, axis=-1)
            all_levels.append(known)
            all_codes.append(tf.stack(codes, axis=-1))
        return all_levels, all_codes, total

    def _take(self, x, offset):
        """The pixels at one place of all blocks."""
        return x[(slice(None), *(slice(first, None, 2 if side > 1 else 1) for first, side in self._axes(offset)))]

    def _axes(self, offset):
        return zip(offset, self.inputs[0][:-1], strict=True)

    def _on_grid(self, values):
        """A group on the grid of the kept pixels: a block that an odd side cuts off lacks some of its pixels."""
        missing = [(0, size - have) for size, have in zip(self._grid, values.shape[1:-1], strict=True)]
        return tf.pad(values, [(0, 0), *missing, (0, 0)])

    def _off_grid(self, state, offset):
        """The places of the grid whose blocks have a pixel of the group."""
        return state[(slice(None), *(slice(size) for size in _size(offset, self.inputs[0][:-1])))]

    def _join(self, kept, dropped):
        """The image of all its groups."""
        places = {(0,) * len(self._grid): kept, **dict(zip(self._groups, dropped, strict=True))}
        image = {offset: self._on_grid(values) for offset, values in places.items()}
        for axis, side in reversed(list(enumerate(self.inputs[0][:-1]))):
            if side > 1:
                image = {first: _interleave(image, first, axis) for first in image if first[axis] == 0}
        (whole,) = image.values()
        return whole[(slice(None), *(slice(side) for side in self.inputs[0][:-1]))]


def groups(sides: Sequence[int]) -> list[tuple[int, ...]]:
    """The places of a block that are dropped, in the order in which they leave: the one far from what is kept first.

    >>> groups([28, 28]), groups([5, 1])
    ([(1, 1), (0, 1), (1, 0)], [(1, 0)])
    """
    offsets = itertools.product(*((0, 1) if side > 1 else (0,) for side in sides))
    return sorted((offset for offset in offsets if any(offset)), key=lambda offset: -sum(offset))


def _size(offset, sides) -> tuple:
    """How many pixels a group has along each side."""
    return tuple(side if side == 1 else (side - first + 1) // 2 for first, side in zip(offset, sides, strict=True))


def _interleave(image, offset, axis):
    """The two groups that differ along one axis, their pixels in turns."""
    other = (*offset[:axis], 1, *offset[axis + 1 :])
    pair = tf.stack([image[offset], image[other]], axis=axis + 2)
    shape = tf.shape(image[offset])
    return tf.reshape(pair, tf.concat([shape[: axis + 1], [2 * image[offset].shape[axis + 1]], shape[axis + 2 :]], 0))
