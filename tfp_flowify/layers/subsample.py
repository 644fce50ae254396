"""Images of whole numbers at half their size."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.levels import cuts_for
from tfp_flowify.bijectors.subsample import groups
from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import share
from tfp_flowify.layers.base import FlowLayer, register
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.networks import conditioner_for, policy_for
from tfp_flowify.layers.rotations import constant
from tfp_flowify.layers.stage_networks import head_network, update_network


@register
class Spread(FlowLayer):
    """A number for each of the levels 0 ... levels - 1, in their order: dequantization that is learned.

    In a flow, each level has an interval of the line, and normal noise, of a shape that is trained, spreads it there.
    It takes the place of `Dequantize` and `Logit` in front. `FlowModel.adapt` measures how often each level occurs.

    Args:
      levels: Number of levels; 256 for images of eight bits.
      variational: Whether a network of all of the event gives the shape of the noise for each entry.
      width: Units of the hidden layers of that network.

    >>> Spread(levels=4)(tf.constant([[0.0], [3.0]])).numpy().astype(float).round(2).tolist()
    [[-3.23], [3.23]]
    """

    def __init__(self, levels: int = 256, variational: bool = False, width: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.autocast = False  # Whole numbers stay what they are.
        self.levels, self.variational = whole_number("levels", levels, least=2), bool(variational)
        self.width = width if width is None else whole_number("width", width)

    def build(self, input_shape: Shape) -> None:
        channels = input_shape[-1]
        even = cuts_for([[1] * self.levels] * channels)
        self.first_cut, self.log_gaps = (
            self.add_weight(name=name, shape=value.shape, initializer=constant(value))
            for name, value in zip(("first_cut", "log_gaps"), even, strict=True)
        )
        table, loc = [channels, self.levels], np.zeros([channels, self.levels])
        loc[:, [0, -1]] = 2.0  # Nearly normal.
        self.loc = self.add_weight(name="loc", shape=table, initializer=constant(loc))
        # A logistic function of a normal number of this deviation is next to uniform.
        self.log_scale = self.add_weight(name="log_scale", shape=table, initializer=constant(np.full(table, 0.5)))

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.run(self._bijector(tuple(x.shape[1:])), x)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        if not self.variational:
            return self._bijector(shape)
        model = conditioner_for(
            (*shape[:-1], 2 * shape[-1]), shape, 2, self.dtype_policy, width=self.width, condition=densities.condition
        )
        return self._bijector(shape, densities.add_conditioner(model))

    def _bijector(self, shape, conditioner=None):
        return fb.Spread(shape, fb.Levels(self.first_cut, self.log_gaps), self.loc, self.log_scale, conditioner)


@register
class Subsample(FlowLayer):
    """x[:, ::2, ::2]: keeps every second pixel of an image of whole numbers 0 ... levels - 1.

    In a flow, the other pixels leave in stages, each as a choice among the levels given all that is known, by a
    network: exact, with no noise that has to be described. It takes sequences, images and volumes; a side of one stays
    as it is. Put several in a row, and `Dequantize` behind the last. `FlowModel.adapt` measures how often each level
    occurs.

    Args:
      levels: Number of levels; 256 for images of eight bits.
      mixtures: Number of logistic distributions that the density of a pixel is mixed of.
      width: Channels of the network.
      depth: Residual blocks of the network in each stage.
      dropout: Share of the channels inside a block that are left out at random in training; for small data.

    >>> Subsample(levels=4, width=8)(tf.ones([5, 8, 8, 1])).shape.as_list()
    [5, 4, 4, 1]
    """

    def __init__(
        self, levels: int = 256, mixtures: int = 6, width: int = 64, depth: int = 1, dropout: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.autocast = False  # Whole numbers stay what they are.
        self.levels = whole_number("levels", levels, least=2)
        self.mixtures, self.width = whole_number("mixtures", mixtures), whole_number("width", width)
        self.depth = whole_number("depth", depth)
        self.dropout = share("dropout", dropout)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) not in (3, 4, 5):
            raise ValueError(f"{self.name} takes sequences, images or volumes. Received: shape={tuple(input_shape)}")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x[(slice(None), *(slice(None, None, 1 if side == 1 else 2) for side in x.shape[1:-1]))]

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        halves = [side if side is None else (side + 1) // 2 for side in input_shape[1:-1]]
        return (input_shape[0], *halves, input_shape[-1])

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        *grid, channels = self.compute_output_shape((None, *shape))[1:]
        even = [[1] * self.levels] * channels
        names = zip(("first_cut", "log_gaps"), cuts_for(even), strict=True)
        levels = fb.Levels(*(densities.add(name, value.shape, constant(value)) for name, value in names))
        stages = [self._stage(densities, grid, channels, i > 0) for i in range(len(groups(shape[:-1])))]
        return fb.Subsample(shape, levels, stages)

    def _stage(self, densities, grid, channels, has_state):
        condition, policy = densities.condition, policy_for(grid, self.dtype_policy)
        update = update_network(grid, 2 * channels, self.width, self.depth, policy, has_state, condition, self.dropout)
        spread = np.linspace(-0.5, 0.5, self.mixtures) if self.mixtures > 1 else np.zeros(1)
        start = np.concatenate([np.zeros(self.mixtures), spread, np.zeros(self.mixtures)]).tolist()
        heads = [head_network(len(grid), self.width, 2 * i, start, policy) for i in range(channels)]
        return fb.Stage(
            densities.add_conditioner(update, takes_condition=condition is not None),
            [densities.add_conditioner(head, takes_condition=False) for head in heads],
        )
