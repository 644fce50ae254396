"""One part transformed given another, or given a condition: densities of what is dropped, and coupling layers."""

import math
from collections.abc import Sequence

import tensorflow as tf

from tfp_flowify import transforms
from tfp_flowify.augmentation import Code, SignedNormal, StandardNormal
from tfp_flowify.bijectors.base import FlowBijector, check_layer
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.bijectors.graph import Graph, Node
from tfp_flowify.bijectors.parts import Concatenate, Split
from tfp_flowify.core.checks import check_dtype, sum_over
from tfp_flowify.core.types import Shape, TensorFunction, TensorLike
from tfp_flowify.transforms import Transform


class Whiten(FlowBijector):
    """[given, dropped] -> [given, residual],  residual = T(dropped; conditioner(given)).

    log_det = sum of the log-slopes of T.  Scoring the residual under N(0, I) is the paper's p_inv: with `Standardize`,
    dropped ~ N(loc(given), scale(given)^2).

    Args:
      given, shape: Event shapes of the two parts.
      conditioner: Any function of `given` that gives `transform.size` numbers for each entry of `dropped`; or that
        many without leading axes, for parameters that depend on nothing. `Conditional(f)` makes one of a function
        f(given, condition).
      transform: The scalar function T, see `tfp_flowify.transforms`; `Standardize()` by default.
      signed: Whether the signs of `dropped` came from a `Code`; then the function must be odd.

    >>> whiten = Whiten((2,), (1,), conditioner=lambda given: 3.0 * given)  # loc and log-scale
    >>> [part.numpy().tolist() for part in whiten.forward([tf.constant([1.0, 0.0]), tf.constant([5.0])])]
    [[1.0, 0.0], [2.0]]
    """

    def __init__(
        self,
        given: Shape,
        shape: Shape,
        conditioner: TensorFunction | InContext,
        transform: Transform | None = None,
        dtype: tf.DType | str = tf.float32,
        signed: bool = False,
        name: str | None = None,
    ) -> None:
        self.conditioner = conditioner
        self.transform = transform or transforms.Standardize(shift=not signed)
        if signed and not self.transform.is_odd:
            raise ValueError(
                f"The signs of what is dropped here came from a code, so no density may depend on them. Received: "
                f"{type(self.transform).__name__}, which is not odd. Use Standardize(shift=False), Spline(odd=True) or "
                "a Stack of them."
            )
        residual = (SignedNormal if signed else StandardNormal)(shape, dtype)
        super().__init__(inputs=[given, shape], outputs=[given], residuals=[residual], dtype=dtype, name=name)

    @property
    def keeps_signs(self) -> bool:
        return self.transform.is_odd

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        given, dropped = parts
        residual, log_slope = self.transform.forward(dropped, self._parameters_at(given, context))
        return [given, residual], sum_over(log_slope, self.inputs[1])

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        given, residual = parts
        dropped, log_slope = self.transform.inverse(residual, self._parameters_at(given, context))
        return [given, dropped], sum_over(log_slope, self.inputs[1])

    def _parameters_at(self, given, context):
        parameters = context.run(self.conditioner, given)
        return parameters_for(self.name, self.transform, parameters, given, len(self.inputs[0]), self.inputs[1])


class ConditionalTransform(FlowBijector):
    """z = T(x; conditioner(condition)), entry by entry: a map whose parameters depend on the condition alone.

    log_det = sum of the log-slopes of T.  With `Standardize` it is affine, with `Spline` a spline. Exact, onto.

    Args:
      shape: Event shape of x. Bound to a larger one, all places share the parameters.
      conditioner: A function of the condition, (n, ...), that gives `transform.size` numbers for each entry of x.
      transform: The scalar function T, see `tfp_flowify.transforms`; `Standardize()` by default.

    >>> shift = ConditionalTransform((1,), lambda c: tf.concat([c, 0 * c], axis=-1))  # loc and log-scale
    >>> shift.forward([[5.0]], condition=[[2.0]]).numpy().tolist()
    [[3.0]]
    """

    def __init__(
        self,
        shape: Shape,
        conditioner: TensorFunction | InContext,
        transform: Transform | None = None,
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        self.conditioner, self.transform = conditioner, transform or transforms.Standardize()
        super().__init__(inputs=[shape], outputs=[shape], dtype=dtype, name=name)

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        (x,) = parts
        z, log_slope = self.transform.forward(x, self._parameters_at(x, context))
        return [z], sum_over(log_slope, self.inputs[0])

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        (z,) = parts
        x, log_slope = self.transform.inverse(z, self._parameters_at(z, context))
        return [x], sum_over(log_slope, self.inputs[0])

    def _parameters_at(self, x, context):
        condition = tf.convert_to_tensor(context.condition_for(self.name))
        parameters = context.run(self.conditioner, condition)
        ndims = len(self.inputs[0])
        parameters = parameters_for(self.name, self.transform, parameters, x, x.shape.rank - 1, self.inputs[0])
        places = tf.shape(x)[1 : x.shape.rank - ndims]
        if not places.shape[0] or parameters.shape.rank == ndims + 1:
            return parameters  # There are no other places, or the parameters are the same for all examples.
        per_entry = tf.shape(parameters)[1:]
        alike = tf.reshape(parameters, tf.concat([tf.shape(x)[:1], tf.ones_like(places), per_entry], axis=0))
        return tf.broadcast_to(alike, tf.concat([tf.shape(x)[:1], places, per_entry], axis=0))


def parameters_for(
    name: str, transform: Transform, parameters: TensorLike, given: tf.Tensor, given_ndims: int, shape: Shape
) -> tf.Tensor:
    """The parameters (..., *shape, size) of a transform, of what a conditioner gave for `given`; checked.

    Args:
      name: Name of the layer, for errors.
      transform: The transform.
      parameters: As many numbers as the transform needs for values of this shape, with or without leading axes.
      given: The tensor that leading axes are those of, with `given_ndims` axes behind them.
      given_ndims: Number of axes of an event of it.
      shape: Shape of the values that are transformed.
    """
    parameters = tf.convert_to_tensor(parameters)
    check_dtype(f"The conditioner of {name}", parameters, given.dtype)
    batch_ndims = given.shape.rank - given_ndims
    leading = batch_ndims if parameters.shape.rank > batch_ndims else 0
    numbers = math.prod(parameters.shape[leading:])
    if not leading and len(shape) > 1 and numbers == shape[-1] * transform.size:  # The same at all places.
        return tf.reshape(parameters, [*[1] * (len(shape) - 1), shape[-1], transform.size])
    if numbers != math.prod(shape) * transform.size:
        raise ValueError(
            f"The conditioner of {name} gives {numbers} numbers for {tuple(shape)} values that it transforms; "
            f"{type(transform).__name__} needs {transform.size} for each: {math.prod(shape) * transform.size}."
        )
    return tf.reshape(parameters, tf.concat([tf.shape(parameters)[:leading], [*shape, transform.size]], axis=0))


class Funnel(Graph):
    """A layer whose dropped part has a density given its output, by a network: named after its shape, wide to narrow.

    The dropped part is whitened given the output. Without a `Funnel`, the layer's residual is what it drops, scored
    under a standard normal: the multi-scale architecture, which adds no parameters.

        forward: [x, *noise] -> layer -> [z, dropped, ...] -> [z, ..., T(dropped; conditioner(z))]

    Args:
      layer: A bijector with a residual; the first one is whitened, given the first output.
      conditioner, transform: See `Whiten`.

    >>> from tfp_flowify.bijectors import Linear
    >>> funnel = Funnel(Linear.create(3, 2, seed=0), conditioner=lambda z: z)
    >>> [tuple(part.shape) for part in funnel.forward(tf.ones([5, 3]))]
    [(5, 2), (5, 1)]
    """

    def __init__(
        self,
        layer: FlowBijector,
        conditioner: TensorFunction | InContext,
        transform: Transform | None = None,
        name: str | None = None,
    ) -> None:
        check_layer(layer, "Funnel")
        if not layer.residuals or isinstance(layer.residuals[0], Code):
            raise ValueError(f"{layer.name} drops no values first, so there is nothing to whiten. Use it as it is.")
        self.layer, dropped = layer, layer.residuals[0]
        signed, shape = isinstance(dropped, SignedNormal), dropped.event_shape.as_list()
        whiten = Whiten(layer.outputs[0], shape, conditioner, transform, dropped.dtype, signed)
        inputs = {f"x{i}": shape for i, shape in enumerate(layer.inputs)}
        others = tuple(f"z{i}" for i in range(1, len(layer.outputs)))
        super().__init__(
            [Node(layer, tuple(inputs), ("given", *others, "dropped")), Node(whiten, ("given", "dropped"), ("z0",))],
            inputs=inputs,
            outputs=("z0", *others),
            name=name or f"Funnel_{layer.name}",
        )


class StagedFunnel(Graph):
    """A layer whose dropped part leaves in stages, each whitened given the output and what has not left yet.

        forward: [x, *noise] -> layer -> [z, dropped],  dropped = [d_1, ..., d_k]
                 residual_i = T(d_i; conditioner_i([z, d_1, ..., d_(i-1)])),  for i = k, ..., 1

    `Funnel` takes the dropped values for independent of each other, given z; here each group depends on those before.
    The residuals leave in the order k, ..., 1.

    Args:
      layer: A bijector with one output and one residual, alike but for their last axis.
      conditioners: One for each stage, see `Whiten`; the first sees z alone.
      transform: See `Whiten`.

    >>> from tfp_flowify.bijectors import Linear
    >>> funnel = StagedFunnel(Linear.create(5, 2, seed=0), [lambda z: tf.zeros([4]), lambda z: z[..., :2]])
    >>> [tuple(part.shape) for part in funnel.forward(tf.ones([7, 5]))]
    [(7, 2), (7, 1), (7, 2)]
    """

    def __init__(
        self,
        layer: FlowBijector,
        conditioners: Sequence[TensorFunction | InContext],
        transform: Transform | None = None,
        name: str | None = None,
    ) -> None:
        check_layer(layer, "StagedFunnel")
        self.layer, dtype = layer, layer.dtype
        units, dropped = layer.outputs[0][-1], layer.residuals[0].event_shape[-1]
        sizes = stage_sizes(dropped, len(conditioners))
        nodes, features = [], units + dropped
        for i, (size, conditioner) in enumerate(zip(reversed(sizes), reversed(conditioners), strict=True)):
            split = Split(features, features - size, dtype)
            nodes.append(Node(Funnel(split, conditioner, transform), (f"h{i}",), (f"h{i + 1}",)))
            features -= size
        super().__init__(
            [
                Node(layer, ("x",), ("z", "dropped")),
                Node(Concatenate([units, dropped]), ("z", "dropped"), ("h0",)),
                *nodes,
            ],
            inputs={"x": layer.inputs[0]},
            outputs=(f"h{len(sizes)}",),
            name=name or f"StagedFunnel_{layer.name}",
        )


def stage_sizes(dropped: int, stages: int) -> list[int]:
    """The number of values that leave in each stage: as equal as can be.

    >>> stage_sizes(5, 2)
    [3, 2]
    """
    if not 1 <= stages <= dropped:
        raise ValueError(f"{dropped} dropped values leave in 1 to {dropped} stages. Received: stages={stages}")
    return [dropped // stages + (i < dropped % stages) for i in range(stages)]


class Coupling(Graph):
    """Transforms one part of the features given the other: by default the paper's NSF layer.

        forward: x = [a, b] -> [a, T(b; conditioner(a))],  log_det = sum of the log-slopes of T.

    Shapes: (..., n) -> (..., n). On images it splits the channels, and a convolutional conditioner sees all pixels.

    Args:
      features: Number of features, n.
      conditioner: Gives `transform.size` numbers for each transformed feature.
      kept: Number of features that are kept; half of them by default.
      swap: Whether to keep the last ones and transform the first.
      transform: `transforms.Spline()` by default.

    >>> shift = Coupling(2, lambda a: tf.concat([a, 0 * a], axis=-1), transform=transforms.Standardize())
    >>> shift.forward([1.0, 5.0]).numpy().tolist()
    [1.0, 4.0]
    """

    def __init__(
        self,
        features: int,
        conditioner: TensorFunction | InContext,
        kept: int | None = None,
        swap: bool = False,
        transform: Transform | None = None,
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        kept = features // 2 if kept is None else kept
        if not 0 < kept < features:
            raise ValueError(f"Coupling keeps some features and transforms some. Received: kept={kept} of {features}")
        self.conditioner = conditioner
        sizes = [features - kept, kept] if swap else [kept, features - kept]
        given, changed = ("second", "first") if swap else ("first", "second")
        whiten = Whiten(
            (kept,), (features - kept,), conditioner, transform or transforms.Spline(), dtype, name="Coupled"
        )
        super().__init__(
            [
                Node(Split(features, sizes[0], dtype), ("x",), ("first", "second")),
                Node(whiten, (given, changed), (given, changed)),
                Node(Concatenate(sizes), ("first", "second"), ("z",)),
            ],
            inputs={"x": (features,)},
            outputs=("z",),
            name=name,
        )
