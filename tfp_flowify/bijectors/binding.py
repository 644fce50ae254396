"""A bijector for events of one known shape: `bind` gives it that shape, whatever it takes by itself."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import as_list, as_shape, bundle, sum_over, swap_shapes
from tfp_flowify.core.types import Shape

tfb = tfp.bijectors


def bind(bijector: tfb.Bijector, *event_shapes: Shape) -> FlowBijector:
    """A bijector for events of exactly these shapes, one for each of its inputs.

    A layer of this package takes leading axes beside the shape that it needs: bound, they belong to the event, the
    layer acts on each place of them, and the log-det is the sum over all places. A bijector of TFP becomes a layer.

    Args:
      bijector: A layer of this package, or one of TFP's bijectors.
      *event_shapes: The shape of one example, for each input.

    >>> from tfp_flowify.bijectors import LeakyReLU
    >>> bind(LeakyReLU(0.5), (2, 3)).outputs
    [(2, 3)]
    >>> round(float(bind(tfb.Scale(2.0), (3,)).forward_log_det_jacobian(tf.zeros([3]))), 4)
    2.0794
    """
    shapes = [as_shape(shape) for shape in event_shapes]
    if not isinstance(bijector, tfb.Bijector):
        raise TypeError(f"A layer is a bijector. Received: {bijector!r}. Stochastic makes a layer of any function.")
    if not isinstance(bijector, FlowBijector):
        if len(shapes) != 1:
            raise ValueError(f"{bijector.name} takes one input. Received: event shapes {shapes}")
        return OfTFP(bijector, shapes[0])
    return bijector if shapes == bijector.inputs else Bound(bijector, shapes)


class Bound(FlowBijector):
    """A layer on every place of some leading axes of an event. See `bind`."""

    def __init__(self, bijector: FlowBijector, event_shapes: list[tuple[int, ...]]) -> None:
        self.bijector = bijector
        if len(bijector.inputs) != len(event_shapes):
            raise ValueError(f"{bijector.name} takes {len(bijector.inputs)} input(s). Received: {len(event_shapes)}")
        swap_shapes(bijector, event_shapes, bijector.inputs, [])
        prefix = self._prefix = event_shapes[0][: len(event_shapes[0]) - len(bijector.inputs[0])]
        super().__init__(
            inputs=event_shapes,
            outputs=[(*prefix, *shape) for shape in bijector.outputs],
            noise=[d.tile(prefix) for d in bijector.noise],
            residuals=[d.tile(prefix) for d in bijector.residuals],
            dtype=bijector.dtype,
            name=bijector.name,
        )
        self.is_onto, self.levels, self.output_levels = bijector.is_onto, bijector.levels, bijector.output_levels
        self.only_moves, self.keeps_signs = bijector.only_moves, bijector.keeps_signs

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        parts, log_det = self.bijector.forward_and_log_det(parts, context)
        return parts, sum_over(log_det, self._prefix)

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        parts, log_det = self.bijector.inverse_and_log_det(parts, context)
        return parts, sum_over(log_det, self._prefix)


class OfTFP(FlowBijector):
    """One of TFP's own bijectors as a layer. See `bind`.

    Those not known to reach the whole space are taken not to, and their inverse is NaN where it does not lead back.
    """

    def __init__(self, bijector: tfb.Bijector, event_shape: Shape) -> None:
        self.bijector = bijector
        outputs = [tuple(shape) for shape in as_list(bijector.forward_event_shape(tf.TensorShape(event_shape)))]
        if sum(map(math.prod, outputs)) != math.prod(event_shape):
            raise ValueError(f"{bijector.name} takes {event_shape} to {outputs}: not as many numbers on both sides.")
        super().__init__(inputs=[event_shape], outputs=outputs, name=bijector.name)
        self.is_onto, self.only_moves = _reaches_all(bijector), isinstance(bijector, _ONLY_MOVE)

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        x = tf.identity(parts[0])  # A tensor that its cache has not seen.
        log_det = self.bijector.forward_log_det_jacobian(x, self.forward_min_event_ndims)
        return as_list(self.bijector.forward(x)), log_det

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        z = bundle([tf.identity(part) for part in parts])
        x, log_det = self.bijector.inverse(z), self.bijector.inverse_log_det_jacobian(z, self.inverse_min_event_ndims)
        return [x if self.is_onto else self._nan_without_preimage(x, parts)], log_det

    def _nan_without_preimage(self, x, parts):
        back = as_list(self.bijector.forward(tf.identity(x)))
        batch_ndims = x.shape.rank - len(self.inputs[0])
        close = [
            tf.reduce_all(tf.abs(b - z) <= 1e-3 * (1 + tf.abs(z)), axis=list(range(-len(shape), 0)))
            for b, z, shape in zip(back, parts, self.outputs, strict=True)
        ]
        good = tf.reduce_all(tf.stack(close), axis=0)
        good = tf.reshape(good, tf.concat([tf.shape(x)[:batch_ndims], [1] * (x.shape.rank - batch_ndims)], axis=0))
        return tf.where(good, x, tf.cast(math.nan, x.dtype))


_ONLY_MOVE = (tfb.Identity, tfb.Reshape, tfb.Transpose, tfb.Permute)

# Bijectors of TFP's from all of the space onto all of it; and those from all of it onto a part.
_ONTO = (
    *(*_ONLY_MOVE, tfb.Scale, tfb.Shift, tfb.Sinh, tfb.SinhArcsinh, tfb.RationalQuadraticSpline, tfb.Split),
    *(tfb.ScaleMatvecDiag, tfb.ScaleMatvecTriL, tfb.ScaleMatvecLU),
)
_ONTO_A_PART = (tfb.Tanh, tfb.Sigmoid, tfb.Softplus, tfb.Exp, tfb.Expm1, tfb.Softsign, tfb.NormalCDF)


def _reaches_all(bijector) -> bool:
    if isinstance(bijector, tfb.Invert):
        return isinstance(bijector.bijector, _ONTO + _ONTO_A_PART)
    if isinstance(bijector, tfb.Chain):
        return all(_reaches_all(b) for b in bijector.bijectors)
    return bijector.is_onto if isinstance(bijector, FlowBijector) else isinstance(bijector, _ONTO)
