"""The base classes of all Keras layers: the ordinary layer, and a bijector over the same weights."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify import transforms
from tfp_flowify.core.checks import as_list, whole_number
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import block_sizes, check_full_precision, drop_fixed
from tfp_flowify.layers.conditioners import KerasFunction, PerChannel, ensure_built
from tfp_flowify.layers.densities import Densities, register
from tfp_flowify.layers.networks import conditioner_for
from tfp_flowify.transforms import Transform

# What `Layer` takes care of itself.
_OF_KERAS = ("self", "args", "kwargs", "name", "dtype", "trainable", "autocast", "activity_regularizer")

__all__ = ["Dropping", "FlowLayer", "make_transform", "register"]


class FlowLayer(keras.layers.Layer):
    """An ordinary Keras layer that is a flow layer too.

    Called on a tensor it is the ordinary layer, and its weights are those of the ordinary layer: it can stand in any
    Keras model. A `FlowModel` asks it for its bijector over the same weights, by

        make_bijector(shape, densities) -> FlowBijector

    with the event shape that comes in, or a list of them. Weights that only the flow needs, the scales of noise and the
    densities of what is dropped, are added to `densities`, and so belong to the flow, not to the layer.

    A layer keeps each argument of `__init__` as an attribute of the same name; its config follows from that. Weights
    are kept in full precision, in which the flow runs; `call` runs in the layer's compute dtype.

    >>> class Double(FlowLayer):
    ...     def call(self, x):
    ...         return 2 * x
    ...     def make_bijector(self, shape, densities):
    ...         return fb.bind(fb.Diagonal(log_scale=tf.math.log(2.0)), shape)
    >>> Double()(tf.ones([2])).numpy().tolist()
    [2.0, 2.0]
    """

    #: Whether it takes a condition beside its input, `layer([x, condition])`: in a conditional flow it then gets one.
    takes_condition = False

    #: Arguments of the Keras layer of the same name that can have one value here, in Keras' order.
    fixed_arguments: ClassVar = {}

    def __init__(self, *args: Any, **kwargs: Any):
        kwargs.update(zip(self.fixed_arguments, args, strict=False))
        if len(args) > len(self.fixed_arguments):
            raise TypeError(f"{type(self).__name__} was given {len(args)} positional argument(s) too many: {args}")
        super().__init__(**drop_fixed(type(self).__name__, self.fixed_arguments, kwargs))
        check_full_precision(self)

    def make_bijector(self, shape: Any, densities: Densities) -> fb.FlowBijector:
        raise NotImplementedError(f"{type(self).__name__} must define make_bijector(shape, densities).")

    def add_weight(self, *args: Any, autocast: bool = False, **kwargs: Any) -> keras.Variable:
        return super().add_weight(*args, autocast=autocast, **kwargs)

    def run(self, bijector: fb.FlowBijector, inputs: tf.Tensor | list, training: bool | None = False) -> tf.Tensor:
        """The ordinary layer as a bijector knows it, in full precision, of x or of [x, condition]."""
        x, *condition = [tf.cast(value, self.variable_dtype) for value in as_list(inputs)]
        context = fb.Context(training=bool(training), condition=condition[0] if condition else None)
        return tf.cast(bijector.without_noise(x, context), self.compute_dtype)

    def get_config(self) -> dict:
        own = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self._argument_names()}
        return {**super().get_config(), **own}

    @classmethod
    def _argument_names(cls):
        """The arguments of `__init__`, also those that it hands on to the classes it builds on."""
        own = [vars(c)["__init__"] for c in cls.__mro__[: cls.__mro__.index(FlowLayer)] if "__init__" in vars(c)]
        names = [name for init in reversed(own) for name in inspect.signature(init).parameters]
        return [name for name in dict.fromkeys(names) if name not in _OF_KERAS]

    @classmethod
    def from_config(cls, config: dict) -> Self:
        is_object = {name: name != "dtype" and _is_serialized(value) for name, value in config.items()}
        read = keras.saving.deserialize_keras_object
        return super().from_config({name: read(v) if is_object[name] else v for name, v in config.items()})


class Dropping(FlowLayer):
    """A layer that may drop dimensions, with a density for them.

    Args:
      density: The density of what is dropped. "funnel" is one given the output, by a small network; "multiscale" is the
        standard normal, with no weights (the paper's two variants); or a network of one's own: any Keras model of the
        output, or of the output and the condition, that gives the parameters of the transform. The network of "funnel"
        sees the condition, where the flow has one.
      transform: How what is dropped is made standard normal: "affine" (the paper's Gaussian), "spline",
        "affine+spline" or "affine+mixture".
      pieces: How many pieces a spline has, or a mixture; 8 of a spline, 4 of a mixture if left out. More of them follow
        densities with many modes.
      width: Units of the hidden layers of that small network; chosen by its input and output if left out.
      depth: Number of residual blocks of a deeper network in its place; on images that one also sees where a pixel is,
        and what an image has in common. Better, and slower.
      dropout: Share of the units inside the blocks that are left out at random in training; for small data.

    >>> from tfp_flowify.layers import Dense
    >>> own = keras.Sequential([keras.Input([2]), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
    >>> Dense(2, density=own)(tf.ones([5, 3])).shape.as_list()  # One dropped value, with a mean and a log-scale.
    [5, 2]
    """

    #: Whether what is dropped is positive by nature, so that its density is one of sizes.
    odd = False

    def __init__(
        self,
        *args: Any,
        density: str | keras.layers.Layer = "funnel",
        transform: str = "affine",
        pieces: int | None = None,
        width: int | None = None,
        depth: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.pieces = pieces if pieces is None else whole_number("pieces", pieces, least=2)
        self.width = width if width is None else whole_number("width", width)
        self.depth, self.dropout = block_sizes(depth, dropout)
        if density not in ("funnel", "multiscale") and not isinstance(density, keras.layers.Layer):
            raise ValueError(f'density is "funnel", "multiscale" or a Keras model. Received: density={density!r}')
        self.transform = transform
        self.make_transform()  # Raises where there is none of that name.
        self._density = _Untracked(density)

    @property
    def density(self) -> str | keras.layers.Layer:
        return self._density.value

    def make_transform(self) -> Transform:
        """The scalar function that makes what is dropped standard normal."""
        return make_transform(self.transform, self.pieces, self.odd)

    def conditioner(
        self,
        densities: Densities,
        given: Shape,
        dropped: Shape,
        kind: str | None = None,
        or_dropped: Shape | None = None,
    ) -> KerasFunction | None:
        """The network that gives the parameters of what is dropped, or None for "multiscale".

        Args:
          densities: Takes its weights.
          given, dropped: Event shapes of what is kept and what is dropped.
          kind: See `conditioner_for`.
          or_dropped: Another shape of dropped values that a user's network may give the parameters of.
        """
        if self.density == "multiscale":
            return None
        network, size = self.density, self.make_transform().size
        if network == "funnel":
            sizes = {"width": self.width, "depth": self.depth, "dropout": self.dropout}
            network = conditioner_for(
                given, dropped, size, self.dtype_policy, kind, condition=densities.condition, **sizes
            )
        shape = ensure_built(network, given, densities.condition)[1:]
        numbers = shape[-1] if kind == "last" else None if None in shape else math.prod(shape)
        wanted = [size * math.prod(dropped), size * math.prod(or_dropped or dropped)]
        if numbers is not None and numbers not in wanted:
            raise ValueError(
                f"The density of {self.name} is a network that gives {numbers} numbers, {shape}. It drops "
                f"{math.prod(dropped)} values, {tuple(dropped)}, and transform={self.transform!r} needs {size} numbers "
                f"for each: {wanted[0]}."
            )
        return densities.add_conditioner(network)

    def with_density_of_unseen(self, bijector: fb.FlowBijector, densities: Densities) -> fb.FlowBijector:
        """Adds a mean and a deviation for each channel of the pixels that no window sees, where strides leave some."""
        if self.density == "multiscale" or not bijector.unseen:
            return bijector
        pixels, channels = bijector.residuals[0].event_shape
        values = densities.add_parameters("unseen", [2 * channels])
        return fb.Funnel(bijector, PerChannel(values, pixels), name=bijector.name)

    def funnel(self, bijector: fb.FlowBijector, densities: Densities, kind: str | None = None) -> fb.FlowBijector:
        """The bijector with a density for its first residual, if it has one."""
        if not bijector.residuals:
            return bijector
        dropped = tuple(bijector.residuals[0].event_shape)
        conditioner = self.conditioner(densities, bijector.outputs[0], dropped, kind)
        if conditioner is None:
            return bijector
        return fb.Funnel(bijector, conditioner, self.make_transform())


class _Untracked:
    """Hides a Keras model from the layer that keeps it as an argument: its weights are not the layer's."""

    def __init__(self, value):
        self.value = value


def make_transform(name: str, pieces: int | None = None, odd: bool = False) -> Transform:
    """The transform that a layer's arguments name; the odd one of its kind where only the size counts."""
    affine, spline = transforms.Standardize(shift=not odd), functools.partial(transforms.Spline, pieces or 8, odd=odd)
    kinds: dict[str, Callable[[], Transform]] = {
        "affine": lambda: affine,
        "spline": lambda: spline(bound=2.0),
        "affine+spline": lambda: transforms.Stack([affine, spline(bound=3.0)]),
        "affine+mixture": lambda: transforms.Stack([affine, transforms.Mixture(pieces or 4)]),
    }
    if name not in kinds:
        raise ValueError(f"transform is one of {list(kinds)}. Received: transform={name!r}")
    return kinds[name]()


def _is_serialized(value) -> bool:
    if isinstance(value, dict):
        return "class_name" in value
    return isinstance(value, list) and any(_is_serialized(v) for v in value)
