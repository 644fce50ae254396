"""Shapes: moving entries about, adding and dropping them."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify import bijectors as fb
from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import CHANNELS_LAST, check_image, one_of, positive
from tfp_flowify.layers.base import Dropping, FlowLayer, register
from tfp_flowify.layers.densities import Densities

tfb = tfp.bijectors


@register
class Flatten(FlowLayer):
    """One vector of the whole event.

    >>> Flatten()(tf.ones([5, 2, 3])).shape.as_list()
    [5, 6]
    """

    fixed_arguments = CHANNELS_LAST

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.reshape(x, (-1, math.prod(x.shape[1:])))

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (input_shape[0], None if None in input_shape[1:] else math.prod(input_shape[1:]))

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(tfb.Reshape((math.prod(shape),), shape), shape)


@register
class Reshape(FlowLayer):
    """Another shape for the same entries; one size may be -1.

    >>> Reshape((3, -1))(tf.ones([5, 6])).shape.as_list()
    [5, 3, 2]
    """

    def __init__(self, target_shape: Sequence[int], **kwargs: Any):
        super().__init__(**kwargs)
        self.target_shape = tuple(target_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.reshape(x, (keras.ops.shape(x)[0], *self.target_shape))

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (input_shape[0], *self._target(input_shape[1:]))

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(tfb.Reshape(self._target(shape), shape), shape)

    def _target(self, shape):
        known = math.prod(size for size in self.target_shape if size != -1)
        if None in shape:
            return tuple(None if size == -1 else size for size in self.target_shape)
        target = tuple(math.prod(shape) // known if size == -1 else size for size in self.target_shape)
        if self.target_shape.count(-1) > 1 or math.prod(target) != math.prod(shape):
            raise ValueError(f"{self.name} cannot make {self.target_shape} of {tuple(shape)}.")
        return target


@register
class Permute(FlowLayer):
    """Permutes the axes of the event, counted from 1 as in Keras.

    >>> Permute((2, 1))(tf.ones([5, 2, 3])).shape.as_list()
    [5, 3, 2]
    """

    def __init__(self, dims: Sequence[int], **kwargs: Any):
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(f"dims is an order of 1 ... {len(self.dims)}. Received: dims={dims}")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.transpose(x, (0, *self.dims))

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        if len(input_shape) != len(self.dims) + 1:
            raise ValueError(f"{self.name} permutes {len(self.dims)} axes. Received: shape={tuple(input_shape)}")
        return (input_shape[0], *(input_shape[axis] for axis in self.dims))

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(tfb.Transpose([axis - 1 for axis in self.dims]), shape)


class ZeroPadding(FlowLayer):
    """A border of zeros, in a flow of noise."""

    ndims: int
    fixed_arguments = CHANNELS_LAST

    def __init__(
        self, padding: int | Sequence = 1, *args: Any, noise: str = "normal", noise_scale: float = 1.0, **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self.padding = borders("padding", padding, self.ndims)
        self.noise = one_of("noise", noise, ("normal", "uniform"))
        self.noise_scale = positive("noise_scale", noise_scale)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return keras.ops.pad(x, ((0, 0), *self.padding, (0, 0)))

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return _resized(self.name, input_shape, self.padding, 1)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        scale = densities.add("log_noise_scale", (), math.log(self.noise_scale))
        return fb.Pad(shape, self.padding, scale, self.noise)


@register
class ZeroPadding2D(ZeroPadding):
    """A border of zeros, in a flow of noise.

    Args:
      padding: A number, a pair (vertical, horizontal), or ((top, bottom), (left, right)).
      noise, noise_scale: Kind of the noise, and its scale at the start.

    >>> ZeroPadding2D(1)(tf.ones([5, 2, 2, 3])).shape.as_list()
    [5, 4, 4, 3]
    """

    ndims = 2


@register
class ZeroPadding1D(ZeroPadding):
    """Zeros at both ends of a sequence; `padding` is a number or a pair (before, behind).

    >>> ZeroPadding1D((2, 0))(tf.ones([5, 2, 3])).shape.as_list()
    [5, 4, 3]
    """

    ndims = 1


@register
class ZeroPadding3D(ZeroPadding):
    """`ZeroPadding2D` for volumes; `padding` is a number, three, or three pairs.

    >>> ZeroPadding3D(1)(tf.ones([5, 2, 2, 2, 3])).shape.as_list()
    [5, 4, 4, 4, 3]
    """

    ndims = 3


class Cropping(Dropping):
    """Drops a border."""

    ndims: int
    fixed_arguments = CHANNELS_LAST

    def __init__(self, cropping: int | Sequence = 1, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.cropping = borders("cropping", cropping, self.ndims)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        kept = [slice(first, -last or None) for first, last in self.cropping]
        return x[(slice(None), *kept)]

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return _resized(self.name, input_shape, self.cropping, -1)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return self.funnel(fb.Crop(shape, self.cropping, self.variable_dtype), densities)


@register
class Cropping2D(Cropping):
    """Drops a border.

    Args:
      cropping: A number, a pair (vertical, horizontal), or ((top, bottom), (left, right)).
      **kwargs: See `Dropping`.

    >>> Cropping2D(1)(tf.ones([5, 4, 4, 3])).shape.as_list()
    [5, 2, 2, 3]
    """

    ndims = 2


@register
class Cropping1D(Cropping):
    """Drops the ends of a sequence; `cropping` is a number or a pair (before, behind).

    >>> Cropping1D((0, 1))(tf.ones([5, 4, 3])).shape.as_list()
    [5, 3, 3]
    """

    ndims = 1


@register
class Cropping3D(Cropping):
    """`Cropping2D` for volumes; `cropping` is a number, three, or three pairs.

    >>> Cropping3D(1)(tf.ones([5, 4, 4, 4, 3])).shape.as_list()
    [5, 2, 2, 2, 3]
    """

    ndims = 3


@register
class Split(Dropping):
    """Keeps the first features and drops the others: on images, channels.

    Args:
      units: Number of features that are kept.
      **kwargs: See `Dropping`.

    >>> Split(2)(tf.ones([5, 3])).shape.as_list()
    [5, 2]
    """

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = whole_number("units", units)

    def build(self, input_shape: Shape) -> None:
        fb.Split(input_shape[-1], self.units)  # Raises where there is nothing to drop.

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x[..., : self.units]

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (*input_shape[:-1], self.units)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        split = fb.Split(shape[-1], self.units, self.variable_dtype)
        return self.funnel(fb.bind(split, shape), densities)


@register
class Slice(Dropping):
    """x[:, start:stop:step, ...]: keeps a part of the event, and drops the rest.

    Args:
      slices: (start, stop, step) for each of the first axes of the event, each of them a number or None.
      **kwargs: See `Dropping`.

    >>> Slice([(0, None, 2), (1, 3, None)])(tf.ones([5, 4, 4, 3])).shape.as_list()
    [5, 2, 2, 3]
    """

    def __init__(self, slices: Sequence[Sequence[int | None]], **kwargs: Any):
        super().__init__(**kwargs)
        self.slices = [tuple(axis) for axis in slices]
        if not self.slices or any(len(axis) != 3 for axis in self.slices):
            raise ValueError(f"slices has (start, stop, step) for each axis. Received: slices={slices}")

    def build(self, input_shape: Shape) -> None:
        if len(self.slices) >= len(input_shape):
            raise ValueError(f"{self.name} slices {len(self.slices)} axes. Received: shape={tuple(input_shape)}")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x[(slice(None), *(slice(*axis) for axis in self.slices))]

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        sides = [None if side is None else len(range(side)[slice(*axis)]) for side, axis in self._pairs(input_shape)]
        return (input_shape[0], *sides, *input_shape[1 + len(sides) :])

    def _pairs(self, input_shape):
        return zip(input_shape[1:], self.slices, strict=False)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        places = np.arange(math.prod(shape)).reshape(shape)[tuple(slice(*axis) for axis in self.slices)]
        if places.size == math.prod(shape):  # All is kept, perhaps in another order.
            taken = [tfb.Reshape((places.size,), shape), tfb.Permute(places.reshape(-1))]
        else:
            taken = [self.funnel(fb.Select(shape, places, self.variable_dtype), densities, kind="dense")]
        return fb.Sequential([*taken, tfb.Reshape(places.shape, (places.size,))], event_shape=shape)


@register
class Widen(FlowLayer):
    """Adds features behind those that are there: zeros, and in a flow noise.

    Args:
      units: Number of features that go out.
      noise, noise_scale: Kind of the noise, and its scale at the start.

    >>> Widen(4)(tf.ones([5, 3])).shape.as_list()
    [5, 4]
    """

    def __init__(self, units: int, noise: str = "normal", noise_scale: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.units, self.noise = whole_number("units", units), one_of("noise", noise, ("normal", "uniform"))
        self.noise_scale = positive("noise_scale", noise_scale)

    def build(self, input_shape: Shape) -> None:
        fb.Widen(input_shape[-1], self.units)  # Raises where there is nothing to add.

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return tf.pad(x, [(0, 0)] * (x.shape.rank - 1) + [(0, self.units - x.shape[-1])])

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (*input_shape[:-1], self.units)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        scale = densities.add("log_noise_scale", (), math.log(self.noise_scale))
        return fb.bind(fb.Widen(shape[-1], self.units, scale, self.noise), shape)


def _resized(name, shape, border, sign):
    check_image(name, shape, len(border))
    sides = [None if side is None else side + sign * sum(pair) for side, pair in zip(shape[1:-1], border, strict=True)]
    if any(side is not None and side < 1 for side in sides):
        raise ValueError(f"{name} crops {border}, and leaves nothing of {tuple(shape[1:-1])}. Crop less.")
    return (shape[0], *sides, shape[-1])


def borders(name: str, value: int | Sequence, ndims: int) -> tuple:
    """A pair of widths for each side, of any of the ways that Keras takes: ((top, bottom), (left, right)) for two."""
    pairs: tuple[Any, ...] = (value,) * ndims if isinstance(value, int) else tuple(value)
    if ndims == 1 and len(pairs) == 2:
        pairs = (pairs,)  # Both ends of a sequence.
    pairs = tuple((side, side) if isinstance(side, int) else tuple(side) for side in pairs)
    if len(pairs) != ndims or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ValueError(
            f"{name} is a number, one for each of {ndims} side(s), or a pair for each, none negative. "
            f"Received: {name}={value}"
        )
    return pairs
