"""Branches: copies, sums, and the residual block."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.core.checks import as_list, whole_number
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import one_of, positive
from tfp_flowify.layers.base import Dropping, FlowLayer, register
from tfp_flowify.layers.chain import chain, wants_condition
from tfp_flowify.layers.conditional import split_shapes
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.graph import model_bijector


@register
class Duplicate(FlowLayer):
    """The same tensor several times; in a flow, with noise that tells the copies apart. A bound.

    A `FlowModel` does so by itself wherever a tensor is used more than once.

    >>> first, second = Duplicate()(tf.ones([5, 3]))
    """

    def __init__(self, copies: int = 2, noise: str = "normal", noise_scale: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.copies, self.noise = whole_number("copies", copies), one_of("noise", noise, ("normal", "uniform"))
        self.noise_scale = positive("noise_scale", noise_scale)

    def call(self, x: tf.Tensor) -> list:
        return [tf.identity(x) for _ in range(self.copies)]

    def compute_output_shape(self, input_shape: Shape) -> list:
        return [tuple(input_shape)] * self.copies

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        scale = densities.add("log_noise_scale", (), math.log(self.noise_scale))
        return fb.Duplicate(shape, self.copies, scale, self.noise)


@register
class Add(Dropping):
    """The sum of several tensors. In a flow it drops their differences. Exact.

    >>> Add()([tf.ones([5, 3]), tf.ones([5, 3])]).shape.as_list()
    [5, 3]
    """

    def build(self, input_shape: Sequence[Shape]) -> None:
        _check_branches(self, input_shape, whole_shape=True)

    def call(self, inputs: list) -> tf.Tensor:
        return sum(inputs[1:], start=inputs[0])

    def compute_output_shape(self, input_shape: Sequence[Shape]) -> tuple:
        return tuple(input_shape[0])

    def make_bijector(self, shape: Sequence[Shape], densities: Densities) -> fb.FlowBijector:
        return self.funnel(fb.Sum(shape[0], len(shape), self.variable_dtype), densities)


@register
class Concatenate(FlowLayer):
    """Several tensors joined along the last axis. Exact.

    >>> Concatenate()([tf.ones([5, 3]), tf.ones([5, 2])]).shape.as_list()
    [5, 5]
    """

    fixed_arguments: ClassVar = {"axis": ((-1,), "it joins along the last axis; put Permute in front for another")}

    def build(self, input_shape: Sequence[Shape]) -> None:
        _check_branches(self, input_shape, whole_shape=False)

    def call(self, inputs: list) -> tf.Tensor:
        return keras.ops.concatenate(inputs, axis=-1)

    def compute_output_shape(self, input_shape: Sequence[Shape]) -> tuple:
        return (*input_shape[0][:-1], sum(shape[-1] for shape in input_shape))

    def make_bijector(self, shape: Sequence[Shape], densities: Densities) -> fb.FlowBijector:
        return fb.bind(fb.Concatenate([branch[-1] for branch in shape]), *shape)


@register
class Residual(Dropping):
    """x + f(x), with f a list of layers. In a flow: two copies of x, one through f, and their sum. A bound.

    Args:
      layers: The branch f.
      shortcut: Layers on the other side, where f changes the shape.
      noise, noise_scale: Kind of the noise that tells the copies apart, and its scale at the start.
      **kwargs: The density of the difference of the two sides, see `Dropping`.

    >>> from tfp_flowify.layers import Dense, LeakyReLU
    >>> Residual([Dense(8), LeakyReLU(), Dense(3)])(tf.ones([5, 3])).shape.as_list()
    [5, 3]
    """

    def __init__(
        self,
        layers: Sequence[FlowLayer],
        shortcut: Sequence[FlowLayer] = (),
        noise: str = "normal",
        noise_scale: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.layers, self.shortcut = list(layers), list(shortcut)
        for layer in self.layers + self.shortcut:
            if not isinstance(layer, FlowLayer):
                raise TypeError(f"{self.name} takes layers of tfp_flowify. Received: {layer!r}. Wrap it in Stochastic.")
        self.noise = one_of("noise", noise, ("normal", "uniform"))
        self.noise_scale = positive("noise_scale", noise_scale)

    @property
    def takes_condition(self) -> bool:
        return any(layer.takes_condition for layer in self.layers + self.shortcut)

    def build(self, input_shape: Sequence) -> None:
        input_shape, condition = split_shapes(input_shape)
        self.branch, self.side = (self._chain(side, input_shape, condition) for side in (self.layers, self.shortcut))
        other = self.side.output_shape if self.side else (None, *input_shape[1:])
        if self.branch.output_shape != other:
            raise ValueError(
                f"The sides of {self.name} must fit: layers {tuple(input_shape)} -> {self.branch.output_shape}, "
                f"{'shortcut' if self.side else 'identity'} {tuple(input_shape)} -> {other}. Give a shortcut that fits."
            )

    def _chain(self, layers, input_shape, condition):
        if not layers:
            return None
        takes_it = any(layer.takes_condition for layer in layers)
        return chain(layers, input_shape[1:], self.dtype_policy, condition=condition if takes_it else None)

    def call(self, inputs: tf.Tensor | list) -> tf.Tensor:
        x = as_list(inputs)[0]
        branch, other = (self._run_side(side, inputs) if side else x for side in (self.branch, self.side))
        return branch + other

    @staticmethod
    def _run_side(side, inputs):
        return side(inputs if wants_condition(side) else as_list(inputs)[0])

    def compute_output_shape(self, input_shape: Sequence) -> tuple:
        input_shape, _ = split_shapes(input_shape)
        for layer in self.layers:
            input_shape = layer.compute_output_shape(input_shape)
        return tuple(input_shape)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        branch, shortcut = (
            side and model_bijector(side, densities.add_part(self), *side.inputs[1:])
            for side in (self.branch, self.side)
        )
        image = branch.outputs[0]
        return fb.Residual(
            branch,
            shortcut,
            self.conditioner(densities, image, (*image, 1)),
            self.make_transform(),
            densities.add("log_noise_scale", (), math.log(self.noise_scale)),
            self.noise,
            self.variable_dtype,
        )


def _check_branches(layer, shapes, whole_shape):
    if not isinstance(shapes, list) or len(shapes) < 2:
        raise ValueError(f"{layer.name} takes a list of two tensors or more. Received: {shapes}")
    if len({tuple(shape) if whole_shape else tuple(shape[:-1]) for shape in shapes}) > 1:
        raise ValueError(f"{layer.name} takes tensors whose shapes fit. Received: {[tuple(shape) for shape in shapes]}")
