"""Coupling layers: some features are changed given the others."""

import math

from tfp_flowify import bijectors as fb
from tfp_flowify import transforms
from tfp_flowify.core.checks import whole_number
from tfp_flowify.layers.arguments import positive
from tfp_flowify.layers.base import register
from tfp_flowify.layers.conditional import TakingCondition, split_shapes
from tfp_flowify.layers.conditioners import KerasFunction, conditioner_for, ensure_built


@register
class SplineCoupling(TakingCondition):
    """Keeps some features and bends each of the others by a spline whose parameters a network makes of the kept ones.

    Dense on vectors; on sequences and images it splits the channels, and the network is convolutional. Exact.
    With a fresh network of its own it starts as the identity. Called on `[x, condition]`, as a conditional flow does,
    the network sees the condition too.

    Args:
      kept: Number of features that are kept; half of them if left out.
      swap: Whether to keep the last ones and change the first; alternate it from layer to layer.
      bins, bound: Number of pieces of the spline, which lives on [-bound, bound].
      conditioner: A Keras model of the kept features, or of them and the condition, that gives 3 bins - 1 numbers for
        each changed one.
      width: Units of the hidden layers of the network that it makes without one.

    >>> SplineCoupling()(tf.ones([5, 4])).shape.as_list()
    [5, 4]
    """

    def __init__(self, kept=None, swap=False, bins=8, bound=2.0, conditioner=None, width=None, **kwargs):
        super().__init__(**kwargs)
        self.kept, self.swap = kept if kept is None else whole_number("kept", kept), bool(swap)
        self.bins, self.bound = whole_number("bins", bins), positive("bound", bound)
        self.conditioner = conditioner
        self.width = width if width is None else whole_number("width", width)

    def build(self, input_shape):
        input_shape, condition = split_shapes(input_shape)
        *sides, features = input_shape[1:]
        if None in sides:
            raise ValueError(f"{self.name} takes events of known size. Received: shape={tuple(input_shape)}")
        kept = features // 2 if self.kept is None else self.kept
        if not 0 < kept < features:
            raise ValueError(f"{self.name} keeps some features and changes some. Received: kept={kept} of {features}")
        spline = transforms.Spline(self.bins, self.bound)
        changed = (*sides, features - kept)
        given = (*sides, kept)
        self.model = self.conditioner or conditioner_for(
            given, changed, spline.size, self.dtype_policy, width=self.width, condition=condition
        )
        shape, wanted = ensure_built(self.model, given, condition)[1:], spline.size * math.prod(changed)
        if math.prod(shape) != wanted:
            raise ValueError(
                f"The conditioner of {self.name} gives {math.prod(shape)} numbers, {shape}. It changes "
                f"{math.prod(changed)} values, {changed}, and a spline of {self.bins} bins needs {spline.size} numbers "
                f"for each: {wanted}."
            )
        function = KerasFunction(self.model)
        coupling = fb.Coupling(features, function, kept, self.swap, spline, self.variable_dtype)
        self.bijector = fb.bind(coupling, (*sides, features))
