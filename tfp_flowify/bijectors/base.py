"""The base class of all layers: a bijection on an augmented space, value and log-det in one pass."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import (
    as_list,
    as_shape,
    bundle,
    check_parts,
    event_shapes,
    static_shapes,
    sum_over,
    swap_shapes,
)
from tfp_flowify.core.private import untracked
from tfp_flowify.core.types import Shape, TensorLike
from tfp_flowify.core.variables import AllVariables


class FlowBijector(AllVariables, tfp.bijectors.Bijector):
    """A bijection [*inputs, *noise] <-> [*outputs, *residuals].

    A layer says which parts it has and implements two methods:

        forward_and_log_det(parts, context) -> (parts, log |det d forward|)
        inverse_and_log_det(parts, context) -> (parts, log |det d inverse|)

    `parts` is a list of tensors, also where there is one. A log-det has the batch shape, or a shape that broadcasts to
    it: () where it is constant. `context` is a `Context`; most layers do not need it. TFP's methods (`forward`,
    `inverse` and so on) follow from the two; they take and give a bare tensor where there is one part. As TFP's own
    conditional bijectors they take a condition by keyword, `forward(x, condition=c)`, with the leading axes of x.

    Args:
      inputs: Event shapes of the parts that come from the layer before.
      outputs: Event shapes of the parts that go on to the next layer.
      noise: Distributions of the parts that are drawn where the layer adds dimensions.
      residuals: Distributions under which the parts that the layer drops are scored.
      dtype: Type of all parts, or None where any floating type will do.

    All shapes are the least that the layer needs. As usual in TFP it takes leading axes too, the same for all parts,
    and `forward_log_det_jacobian(x, event_ndims)` sums over those that belong to the event.

    >>> class Scale(FlowBijector):
    ...     def __init__(self, log_scale):
    ...         self.log_scale = log_scale
    ...         super().__init__(inputs=[log_scale.shape], outputs=[log_scale.shape], dtype=log_scale.dtype)
    ...     def forward_and_log_det(self, parts, context):
    ...         return [parts[0] * tf.exp(self.log_scale)], tf.reduce_sum(self.log_scale)
    ...     def inverse_and_log_det(self, parts, context):
    ...         return [parts[0] * tf.exp(-self.log_scale)], -tf.reduce_sum(self.log_scale)
    >>> float(Scale(tf.constant([0.5, 1.0])).forward_log_det_jacobian(tf.zeros([3, 2])))
    1.5
    """

    #: Whether every point of the output space has a preimage. Where not, the density integrates to less than one.
    is_onto = True

    #: How many whole numbers 0 ... levels - 1 the first input takes; None where it takes real numbers.
    levels: int | None = None

    #: The same of the first output: whole numbers that a layer hands on; None where it gives real numbers.
    output_levels: int | None = None

    #: Whether the layer only moves entries about.
    only_moves = False

    #: Whether signs of what the layer takes go into signs of what it gives, and nowhere else.
    keeps_signs = False

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls)
        object.__setattr__(self, "_arguments", _Arguments(args, kwargs))
        return self

    def __init__(
        self,
        inputs: Iterable[Shape],
        outputs: Iterable[Shape],
        noise: Iterable[tfp.distributions.Distribution] = (),
        residuals: Iterable[tfp.distributions.Distribution] = (),
        dtype: tf.DType | str | None = None,
        name: str | None = None,
    ) -> None:
        self.inputs = untracked(self, [as_shape(shape) for shape in inputs])
        self.outputs = untracked(self, [as_shape(shape) for shape in outputs])
        self.noise = untracked(self, list(noise))
        self.residuals = untracked(self, list(residuals))
        super().__init__(
            forward_min_event_ndims=bundle([len(shape) for shape in self.shapes_in]),
            inverse_min_event_ndims=bundle([len(shape) for shape in self.shapes_out]),
            dtype=dtype and tf.as_dtype(dtype),
            name=name or type(self).__name__,
        )

    @property
    def shapes_in(self) -> list[tuple[int, ...]]:
        """Event shapes of all parts that `forward` takes: inputs, then noise."""
        return self.inputs + event_shapes(self.noise)

    @property
    def shapes_out(self) -> list[tuple[int, ...]]:
        """Event shapes of all parts that `forward` gives: outputs, then residuals."""
        return self.outputs + event_shapes(self.residuals)

    @property
    def takes_integers(self) -> bool:
        """Whether the first input holds whole numbers, so that integers may be given for it."""
        return self.levels is not None

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        raise NotImplementedError(f"{type(self).__name__} must define forward_and_log_det(parts, context).")

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        raise NotImplementedError(f"{type(self).__name__} must define inverse_and_log_det(parts, context).")

    def without_noise(self, x: TensorLike, context: Context | None = None) -> tf.Tensor | list[tf.Tensor]:
        """The ordinary layer: forward with noise zero, residuals ignored.

        Takes and gives a tensor, or a list of tensors where the layer has several inputs or outputs.
        """
        inputs = check_parts(self, x, self.inputs, self.dtype)
        batch = tf.shape(inputs[0])[: inputs[0].shape.rank - len(self.inputs[0])]
        noise = [tf.zeros(tf.concat([batch, d.event_shape], axis=0), d.dtype) for d in self.noise]
        outputs, _ = self._forward_pass(inputs + noise, (context or Context()).replace(without_noise=True))
        return bundle(outputs[: len(self.outputs)])

    def copy(self, **overrides: Any) -> "FlowBijector":
        """A new bijector of this class with the same arguments, some of them replaced. Both share variables."""
        return type(self)(**{**self._arguments.by_name(type(self)), **overrides})

    # What TFP asks for, from the above. It knows a tensor that it has seen by its identity, and then gives back what it
    # computed from it, though a weight may have changed or a tape started since; so it always gets new tensors.

    def forward(self, x: TensorLike, name: str = "forward", **kwargs: Any) -> tf.Tensor | list[tf.Tensor]:
        return super().forward(self._taken(x, self.shapes_in), name, **kwargs)

    def inverse(self, y: TensorLike, name: str = "inverse", **kwargs: Any) -> tf.Tensor | list[tf.Tensor]:
        return super().inverse(self._taken(y, self.shapes_out), name, **kwargs)

    def forward_log_det_jacobian(
        self,
        x: TensorLike,
        event_ndims: int | Sequence[int] | None = None,
        name: str = "forward_log_det_jacobian",
        **kwargs: Any,
    ) -> tf.Tensor:
        return super().forward_log_det_jacobian(self._taken(x, self.shapes_in), event_ndims, name, **kwargs)

    def inverse_log_det_jacobian(
        self,
        y: TensorLike,
        event_ndims: int | Sequence[int] | None = None,
        name: str = "inverse_log_det_jacobian",
        **kwargs: Any,
    ) -> tf.Tensor:
        return super().inverse_log_det_jacobian(self._taken(y, self.shapes_out), event_ndims, name, **kwargs)

    def _taken(self, x, shapes):
        """Checked parts as new tensors, in the structure that TFP sees."""
        return bundle([tf.identity(part) for part in check_parts(self, x, shapes, self.dtype)])

    def _forward(self, x, condition=None):
        return bundle(self._forward_pass(as_list(x), Context(condition=condition))[0])

    def _inverse(self, z, condition=None):
        return bundle(self._inverse_pass(as_list(z), Context(condition=condition))[0])

    def _forward_log_det_jacobian(self, x, condition=None):
        return self._forward_pass(as_list(x), Context(condition=condition))[1]

    def _inverse_log_det_jacobian(self, z, condition=None):
        return self._inverse_pass(as_list(z), Context(condition=condition))[1]

    def _forward_pass(self, parts, context):
        return _with_one_batch_axis(self.forward_and_log_det, parts, self.shapes_in, self.shapes_out, context)

    def _inverse_pass(self, parts, context):
        return _with_one_batch_axis(self.inverse_and_log_det, parts, self.shapes_out, self.shapes_in, context)

    @classmethod
    def _parameter_properties(cls, dtype):
        return {}  # Parameters carry no batch shape.

    def _forward_dtype(self, dtype, **_):
        return bundle([tf.nest.flatten(dtype)[0]] * len(self.shapes_out))

    def _inverse_dtype(self, dtype, **_):
        return bundle([tf.nest.flatten(dtype)[0]] * len(self.shapes_in))

    def _forward_event_shape(self, shapes):
        return bundle(swap_shapes(self, as_list(shapes), self.shapes_in, self.shapes_out))

    def _inverse_event_shape(self, shapes):
        return bundle(swap_shapes(self, as_list(shapes), self.shapes_out, self.shapes_in))

    def _forward_event_shape_tensor(self, shapes):
        shapes = as_list(self._forward_event_shape(static_shapes(self, shapes)))
        return bundle([tf.constant(shape.as_list(), tf.int32) for shape in shapes])

    def _inverse_event_shape_tensor(self, shapes):
        shapes = as_list(self._inverse_event_shape(static_shapes(self, shapes)))
        return bundle([tf.constant(shape.as_list(), tf.int32) for shape in shapes])


class _Arguments:
    """The arguments of a constructor, kept for `copy`; variables among them do not count as the layer's own."""

    def __init__(self, args: tuple, kwargs: dict[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs

    def by_name(self, owner: type) -> dict[str, Any]:
        bound = inspect.signature(owner).bind(*self._args, **self._kwargs).arguments
        return {**bound.pop("kwargs", {}), **bound}


class Elementwise(FlowBijector):
    """A scalar function applied to every entry, with one log-slope for each.

    A subclass implements two methods:

        forward_and_log_slope(x, context) -> (z, log-slope of each entry)
        inverse_and_log_slope(z, context) -> (x, log-slope of the inverse at each entry)

    Args:
      shape: Shape of the parameters: () where all entries share them. The log-det is summed over these axes.

    >>> class Double(Elementwise):
    ...     def forward_and_log_slope(self, x, context):
    ...         return 2 * x, tf.fill(tf.shape(x), tf.math.log(2.0))
    ...     def inverse_and_log_slope(self, z, context):
    ...         return z / 2, tf.fill(tf.shape(z), -tf.math.log(2.0))
    >>> Double().forward([1.0, 2.0]).numpy().tolist()
    [2.0, 4.0]
    """

    def __init__(self, shape: Shape = (), dtype: tf.DType | str | None = None, name: str | None = None) -> None:
        super().__init__(inputs=[shape], outputs=[shape], dtype=dtype, name=name)

    def forward_and_log_slope(self, x: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        raise NotImplementedError(f"{type(self).__name__} must define forward_and_log_slope(x, context).")

    def inverse_and_log_slope(self, z: tf.Tensor, context: Context) -> tuple[tf.Tensor, tf.Tensor]:
        raise NotImplementedError(f"{type(self).__name__} must define inverse_and_log_slope(z, context).")

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        (x,) = parts
        z, log_slope = self.forward_and_log_slope(x, context)
        return [z], sum_over(log_slope, self.inputs[0])

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        (z,) = parts
        x, log_slope = self.inverse_and_log_slope(z, context)
        return [x], sum_over(log_slope, self.inputs[0])


def _with_one_batch_axis(method, parts, taken, given, context):
    """Runs a method with all leading axes as one: networks inside take that, and may misread anything else."""
    batch_ndims = parts[0].shape.rank - len(taken[0])
    batch, static_batch = tf.shape(parts[0])[:batch_ndims], parts[0].shape[:batch_ndims]
    flat = [tf.reshape(part, [-1, *shape]) for part, shape in zip(parts, taken, strict=True)]
    if context.condition is not None:
        condition = tf.convert_to_tensor(context.condition)
        if not static_batch.is_compatible_with(condition.shape[:batch_ndims]):
            raise ValueError(
                "A condition has the leading axes of the parts. Received: parts with leading axes "
                f"{tuple(static_batch)}, condition of shape {tuple(condition.shape)}"
            )
        rest = tf.shape(condition)[batch_ndims:]
        context = context.replace(condition=tf.reshape(condition, tf.concat([tf.shape(flat[0])[:1], rest], axis=0)))
    results, log_det = method(flat, context)
    log_det = tf.convert_to_tensor(log_det)
    if log_det.shape.rank:
        log_det = tf.reshape(tf.broadcast_to(log_det, tf.shape(flat[0])[:1]), batch)
    results = [
        tf.ensure_shape(
            tf.reshape(result, tf.concat([batch, tf.constant(shape, tf.int32)], axis=0)), [*static_batch, *shape]
        )
        for result, shape in zip(results, given, strict=True)
    ]
    return results, log_det


def check_layer(layer: Any, owner: str) -> None:
    """Raises an error where a layer with known shapes is needed and something else is given."""
    if not isinstance(layer, FlowBijector):
        raise TypeError(
            f"{owner} takes a layer whose shapes are known. Received: {layer!r}. "
            "Give a bijector of TFP its shape by bind(bijector, event_shape)."
        )
