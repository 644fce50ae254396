"""Coupling layers: some features are changed given the others."""

import math
from collections.abc import Sequence
from typing import Any

import keras

from tfp_flowify import bijectors as fb
from tfp_flowify import transforms
from tfp_flowify.core.checks import whole_number
from tfp_flowify.layers.arguments import block_sizes, positive
from tfp_flowify.layers.base import make_transform, register
from tfp_flowify.layers.conditional import TakingCondition, split_shapes
from tfp_flowify.layers.conditioners import KerasFunction, ensure_built
from tfp_flowify.layers.networks import conditioner_for
from tfp_flowify.transforms import Transform


class AnyCoupling(TakingCondition):
    """The base of the couplings: keeps some features and changes each of the others by a function given the kept ones.

    A network of the kept features gives the parameters of the function. Dense on vectors; on sequences and images it
    splits the channels, and the network is convolutional. Exact. With a fresh network of its own it starts as the
    identity, or next to it. Called on `[x, condition]`, as a conditional flow does, the network sees the condition too.

    Args:
      kept: Number of features that are kept; half of them if left out.
      swap: Whether to keep the last ones and change the first; alternate it from layer to layer.
      conditioner: A Keras model of the kept features, or of them and the condition, that gives the parameters.
      width, depth, dropout: Of the network that it makes without one, see `Dropping`.
    """

    def __init__(
        self,
        kept: int | None = None,
        swap: bool = False,
        conditioner: keras.layers.Layer | None = None,
        width: int | None = None,
        depth: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.kept, self.swap = kept if kept is None else whole_number("kept", kept), bool(swap)
        self.conditioner = conditioner
        self.width = width if width is None else whole_number("width", width)
        self.depth, self.dropout = block_sizes(depth, dropout)

    def make_transform(self) -> Transform:
        """The scalar function whose parameters the network gives."""
        raise NotImplementedError(f"{type(self).__name__} must define make_transform().")

    def build(self, input_shape: Sequence) -> None:
        input_shape, condition = split_shapes(input_shape)
        *sides, features = input_shape[1:]
        if None in sides:
            raise ValueError(f"{self.name} takes events of known size. Received: shape={tuple(input_shape)}")
        kept = features // 2 if self.kept is None else self.kept
        if not 0 < kept < features:
            raise ValueError(f"{self.name} keeps some features and changes some. Received: kept={kept} of {features}")
        function, changed, given = self.make_transform(), (*sides, features - kept), (*sides, kept)
        sizes = {"width": self.width, "depth": self.depth, "dropout": self.dropout}
        self.model = self.conditioner or conditioner_for(
            given, changed, function.size, self.dtype_policy, condition=condition, **sizes
        )
        shape, wanted = ensure_built(self.model, given, condition)[1:], function.size * math.prod(changed)
        if math.prod(shape) != wanted:
            raise ValueError(
                f"The conditioner of {self.name} gives {math.prod(shape)} numbers, {shape}. It changes "
                f"{math.prod(changed)} values, {changed}, by a function that needs {function.size} numbers for each: "
                f"{wanted}."
            )
        coupling = fb.Coupling(features, KerasFunction(self.model), kept, self.swap, function, self.variable_dtype)
        self.bijector = fb.bind(coupling, (*sides, features))


@register
class Coupling(AnyCoupling):
    """A coupling by shifts and scales, as in RealNVP and Glow, or by another of the functions that densities have.

    Args:
      transform, pieces: "affine", "spline", "affine+spline" or "affine+mixture", see `Dropping`.
      **kwargs: See `AnyCoupling`.

    >>> Coupling()(tf.ones([5, 4])).numpy()[0].tolist()  # A fresh one is the identity.
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        kept: int | None = None,
        swap: bool = False,
        transform: str = "affine",
        pieces: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(kept, swap, **kwargs)
        self.pieces = pieces if pieces is None else whole_number("pieces", pieces, least=2)
        self.transform = transform
        self.make_transform()  # Raises where there is none of that name.

    def make_transform(self) -> Transform:
        return make_transform(self.transform, self.pieces)


@register
class SplineCoupling(AnyCoupling):
    """A coupling by splines: the paper's NSF layer.

    Args:
      bins, bound: Number of pieces of the spline, which lives on [-bound, bound]; outside it is the identity.
      **kwargs: See `AnyCoupling`.

    >>> SplineCoupling()(tf.ones([5, 4])).shape.as_list()
    [5, 4]
    """

    def __init__(
        self,
        kept: int | None = None,
        swap: bool = False,
        bins: int = 8,
        bound: float = 2.0,
        conditioner: keras.layers.Layer | None = None,
        width: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(kept, swap, conditioner, width, **kwargs)
        self.bins, self.bound = whole_number("bins", bins), positive("bound", bound)

    def make_transform(self) -> Transform:
        return transforms.Spline(self.bins, self.bound)
