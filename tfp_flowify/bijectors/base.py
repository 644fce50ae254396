"""The base of all layers: a bijection on an augmented space, value and log-det in one pass."""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.checks import (
    as_list,
    as_shape,
    bundle,
    check_parts,
    event_shapes,
    static_shapes,
    sum_last,
    swap_shapes,
)
from tfp_flowify.bijectors.variables import AllVariables

tfb = tfp.bijectors


class FlowBijector(AllVariables, tfb.Bijector):
    """A bijection [*inputs, *noise] <-> [*outputs, *residuals].

    A layer says which parts it has and implements two methods:

        forward_and_log_det(x) -> (z, log |det dz/dx|)
        inverse_and_log_det(z) -> (x, log |det dx/dz|)

    x and z are a tensor where there is one part, a list of tensors where there are several. A log-det has the batch
    shape, or a shape that broadcasts to it: () where it is constant.

    Args:
      inputs: event shapes of the parts that come from the layer before.
      outputs: event shapes of the parts that go on to the next layer.
      noise: distributions of the parts that are drawn where the layer adds dimensions.
      residuals: distributions under which the parts that the layer drops are scored.
      dtype: of all parts, or None where any floating type will do.

    All shapes are the least that the layer needs. As usual in TFP it takes leading axes too, the same for all parts,
    and `forward_log_det_jacobian(x, event_ndims)` sums over those that belong to the event.

    >>> class Scale(FlowBijector):
    ...     def __init__(self, log_scale):
    ...         self.log_scale = log_scale
    ...         super().__init__(inputs=[log_scale.shape], outputs=[log_scale.shape], dtype=log_scale.dtype)
    ...     def forward_and_log_det(self, x):
    ...         return x * tf.exp(self.log_scale), tf.reduce_sum(self.log_scale)
    ...     def inverse_and_log_det(self, z):
    ...         return z * tf.exp(-self.log_scale), -tf.reduce_sum(self.log_scale)
    >>> float(Scale(tf.constant([0.5, 1.0])).forward_log_det_jacobian(tf.zeros([3, 2])))
    1.5
    """

    #: Whether every point of the output space has a preimage. Where not, the density integrates to less than one.
    is_onto = True

    #: How many whole numbers 0 ... levels - 1 the first input takes; None where it takes real numbers.
    levels = None

    #: Whether the layer only moves entries about.
    only_moves = False

    #: Whether signs of what the layer takes go into signs of what it gives, and nowhere else.
    keeps_signs = False

    def __init__(self, inputs, outputs, noise=(), residuals=(), dtype=None, name=None):
        self.inputs = self._no_dependency([as_shape(shape) for shape in inputs])
        self.outputs = self._no_dependency([as_shape(shape) for shape in outputs])
        self.noise = self._no_dependency(list(noise))
        self.residuals = self._no_dependency(list(residuals))
        self._in_shapes = self._no_dependency(self.inputs + event_shapes(self.noise))
        self._out_shapes = self._no_dependency(self.outputs + event_shapes(self.residuals))
        super().__init__(
            forward_min_event_ndims=bundle([len(shape) for shape in self._in_shapes]),
            inverse_min_event_ndims=bundle([len(shape) for shape in self._out_shapes]),
            dtype=dtype and tf.as_dtype(dtype),
            name=name or type(self).__name__,
        )

    @property
    def takes_integers(self) -> bool:
        """Whether the first input holds whole numbers, so that integers may be given for it."""
        return self.levels is not None

    def forward_and_log_det(self, x):
        raise NotImplementedError(f"{type(self).__name__} must define forward_and_log_det(x).")

    def inverse_and_log_det(self, z):
        raise NotImplementedError(f"{type(self).__name__} must define inverse_and_log_det(z).")

    def network(self, x):
        """The ordinary layer: forward with noise zero, residuals ignored.

        Takes and gives a tensor, or a list of tensors where the layer has several inputs or outputs.
        """
        inputs = check_parts(self, x, self.inputs, self.dtype)
        batch = tf.shape(inputs[0])[: inputs[0].shape.rank - len(self.inputs[0])]
        noise = [tf.zeros(tf.concat([batch, d.event_shape], axis=0), d.dtype) for d in self.noise]
        outputs, _ = self._with_one_batch_axis(self.forward_and_log_det, inputs + noise, "forward")
        return bundle(outputs[: len(self.outputs)])

    # What TFP asks for, from the above. It knows a tensor that it has seen by its identity, and then gives back what it
    # computed from it, though a weight may have changed or a tape started since; so it always gets new tensors.

    def forward(self, x, name="forward", **kwargs):
        return super().forward(fresh(check_parts(self, x, self._in_shapes, self.dtype)), name, **kwargs)

    def inverse(self, y, name="inverse", **kwargs):
        return super().inverse(fresh(check_parts(self, y, self._out_shapes, self.dtype)), name, **kwargs)

    def forward_log_det_jacobian(self, x, event_ndims=None, name="forward_log_det_jacobian", **kwargs):
        x = fresh(check_parts(self, x, self._in_shapes, self.dtype))
        return super().forward_log_det_jacobian(x, event_ndims, name, **kwargs)

    def inverse_log_det_jacobian(self, y, event_ndims=None, name="inverse_log_det_jacobian", **kwargs):
        y = fresh(check_parts(self, y, self._out_shapes, self.dtype))
        return super().inverse_log_det_jacobian(y, event_ndims, name, **kwargs)

    def _forward(self, x):
        return bundle(self._with_one_batch_axis(self.forward_and_log_det, as_list(x), "forward")[0])

    def _inverse(self, z):
        return bundle(self._with_one_batch_axis(self.inverse_and_log_det, as_list(z), "inverse")[0])

    def _forward_log_det_jacobian(self, x):
        return self._with_one_batch_axis(self.forward_and_log_det, as_list(x), "forward")[1]

    def _inverse_log_det_jacobian(self, z):
        return self._with_one_batch_axis(self.inverse_and_log_det, as_list(z), "inverse")[1]

    def _with_one_batch_axis(self, function, parts, direction):
        """Runs a method with all leading axes as one: networks inside take that, and may misread anything else."""
        taken, given = self._in_shapes, self._out_shapes
        if direction == "inverse":
            taken, given = given, taken
        batch_ndims = parts[0].shape.rank - len(taken[0])
        batch, static_batch = tf.shape(parts[0])[:batch_ndims], parts[0].shape[:batch_ndims]
        flat = [tf.reshape(part, [-1, *shape]) for part, shape in zip(parts, taken, strict=True)]
        results, log_det = function(bundle(flat))
        log_det = tf.convert_to_tensor(log_det)
        if log_det.shape.rank:
            log_det = tf.reshape(tf.broadcast_to(log_det, tf.shape(flat[0])[:1]), batch)
        results = [
            tf.ensure_shape(
                tf.reshape(result, tf.concat([batch, tf.constant(shape, tf.int32)], axis=0)), [*static_batch, *shape]
            )
            for result, shape in zip(as_list(results), given, strict=True)
        ]
        return results, log_det

    @classmethod
    def _parameter_properties(cls, dtype):
        return {}  # Parameters carry no batch shape.

    def _forward_dtype(self, dtype, **_):
        return bundle([tf.nest.flatten(dtype)[0]] * len(self._out_shapes))

    def _inverse_dtype(self, dtype, **_):
        return bundle([tf.nest.flatten(dtype)[0]] * len(self._in_shapes))

    def _forward_event_shape(self, shapes):
        return bundle(swap_shapes(self, as_list(shapes), self._in_shapes, self._out_shapes))

    def _inverse_event_shape(self, shapes):
        return bundle(swap_shapes(self, as_list(shapes), self._out_shapes, self._in_shapes))

    def _forward_event_shape_tensor(self, shapes):
        shapes = as_list(self._forward_event_shape(static_shapes(self, shapes)))
        return bundle([tf.constant(shape.as_list(), tf.int32) for shape in shapes])

    def _inverse_event_shape_tensor(self, shapes):
        shapes = as_list(self._inverse_event_shape(static_shapes(self, shapes)))
        return bundle([tf.constant(shape.as_list(), tf.int32) for shape in shapes])


class Elementwise(FlowBijector):
    """A scalar function applied to every entry, with one log-slope for each.

    The shape is that of the parameters: () where all entries share them. Then the log-det has one term for each entry,
    otherwise it is summed over the axes of the parameters.

    >>> class Double(Elementwise):
    ...     def forward_and_log_det(self, x):
    ...         return 2 * x, tf.fill(tf.shape(x), tf.math.log(2.0))
    ...     def inverse_and_log_det(self, z):
    ...         return z / 2, tf.fill(tf.shape(z), -tf.math.log(2.0))
    >>> Double().forward([1.0, 2.0]).numpy().tolist()
    [2.0, 4.0]
    """

    def __init__(self, shape=(), dtype=None, name=None):
        super().__init__(inputs=[shape], outputs=[shape], dtype=dtype, name=name)

    def sum_event(self, log_slope):
        return sum_last(log_slope, len(self.inputs[0]))


class Wrapped(FlowBijector):
    """One of TFP's own bijectors, for events of a known shape.

    Those not known to reach the whole space are taken not to, and their inverse is NaN where it does not lead back.

    >>> Wrapped(tfb.Exp(), (3,)).outputs
    [(3,)]
    """

    def __init__(self, bijector: tfb.Bijector, event_shape, name=None):
        if not isinstance(bijector, tfb.Bijector):
            raise TypeError(f"A layer is a bijector. Received: {bijector!r}. Stochastic makes a layer of any function.")
        self.bijector = bijector
        event_shape = as_shape(event_shape)
        outputs = [tuple(shape) for shape in as_list(bijector.forward_event_shape(tf.TensorShape(event_shape)))]
        if sum(map(math.prod, outputs)) != math.prod(event_shape):
            raise ValueError(f"{bijector.name} takes {event_shape} to {outputs}: not as many numbers on both sides.")
        own_name = bijector.name if type(self) is Wrapped else None
        super().__init__(inputs=[event_shape], outputs=outputs, name=name or own_name)

    @property
    def is_onto(self) -> bool:
        return _reaches_all(self.bijector)

    def forward_and_log_det(self, x):
        x = tf.identity(x)  # A tensor that its cache has not seen.
        return self.bijector.forward(x), self.bijector.forward_log_det_jacobian(x, self.forward_min_event_ndims)

    def inverse_and_log_det(self, z):
        z = tf.nest.map_structure(tf.identity, z)
        x, log_det = self.bijector.inverse(z), self.bijector.inverse_log_det_jacobian(z, self.inverse_min_event_ndims)
        return (x if self.is_onto else self._nan_without_preimage(x, z)), log_det

    def _nan_without_preimage(self, x, z):
        back = self.bijector.forward(tf.identity(x))
        pairs = zip(as_list(back), as_list(z), self.outputs, strict=True)
        batch_ndims = x.shape.rank - len(self.inputs[0])
        close = [tf.reduce_all(tf.abs(b - v) <= 1e-3 * (1 + tf.abs(v)), axis=_last(len(s))) for b, v, s in pairs]
        good = tf.reduce_all(tf.stack(close), axis=0)
        good = tf.reshape(good, tf.concat([tf.shape(x)[:batch_ndims], [1] * (x.shape.rank - batch_ndims)], axis=0))
        return tf.where(good, x, tf.cast(math.nan, x.dtype))


# Bijectors of TFP's from all of the space onto all of it; and those from all of it onto a part.
_ONTO = (tfb.Identity, tfb.Scale, tfb.Shift, tfb.Reshape, tfb.Transpose, tfb.Permute, tfb.Sinh, tfb.SinhArcsinh)
_ONTO += (tfb.RationalQuadraticSpline, tfb.ScaleMatvecDiag, tfb.ScaleMatvecTriL, tfb.ScaleMatvecLU, tfb.Split)
_ONTO_A_PART = (tfb.Tanh, tfb.Sigmoid, tfb.Softplus, tfb.Exp, tfb.Expm1, tfb.Softsign, tfb.NormalCDF)


def _reaches_all(bijector) -> bool:
    if isinstance(bijector, tfb.Invert):
        return isinstance(bijector.bijector, _ONTO + _ONTO_A_PART)
    if isinstance(bijector, tfb.Chain):
        return all(_reaches_all(b) for b in bijector.bijectors)
    return bijector.is_onto if isinstance(bijector, FlowBijector) else isinstance(bijector, _ONTO)


def _last(ndims):
    return list(range(-ndims, 0))


def fresh(parts):
    """New tensors of the same values, in the structure that TFP sees."""
    return bundle([tf.identity(part) for part in parts])


def check_layer(layer, owner: str):
    """An error where a layer with known shapes is needed and something else is given."""
    if not isinstance(layer, FlowBijector):
        raise TypeError(
            f"{owner} takes a layer whose shapes are known. Received: {layer!r}. "
            "Give a bijector of TFP its shape by Sequential([bijector], event_shape=(...))."
        )
