"""The base of all layers: a bijection on an augmented space, value and log-det in one pass."""

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow_probability.python.internal import cache_util  # Private; the reason why TFP is pinned.

from tfp_flowify.bijectors.checks import (
    as_list,
    bundle,
    check_parts,
    event_shapes,
    static_shapes,
    sum_last,
    swap_shapes,
)

tfb = tfp.bijectors

# Bijectors of TFP's whose image is not the whole space.
_NOT_ONTO = (tfb.Tanh, tfb.Sigmoid, tfb.Softplus, tfb.Exp, tfb.Expm1, tfb.Softsign, tfb.NormalCDF)


class FlowBijector(tfb.Bijector):
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

    # Stores each log-det beside its value, so that TFP never runs a layer twice for one log_prob.
    _cache = cache_util.BijectorCacheWithGreedyAttrs("_forward_pair", "_inverse_pair")

    #: Whether every point of the output space has a preimage. Where not, the density integrates to less than one.
    is_onto = True

    #: Whether the first input holds whole numbers, so that integers may be given for it.
    takes_integers = False

    def __init__(self, inputs, outputs, noise=(), residuals=(), dtype=None, name=None):
        self.inputs = self._no_dependency([tuple(shape) for shape in inputs])
        self.outputs = self._no_dependency([tuple(shape) for shape in outputs])
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
        outputs = self.forward_and_log_det(bundle(inputs + noise))[0]
        return bundle(as_list(outputs)[: len(self.outputs)])

    # What TFP asks for, from the above.

    def forward(self, x, name="forward", **kwargs):
        return super().forward(self._admit(x, self._in_shapes), name, **kwargs)

    def inverse(self, y, name="inverse", **kwargs):
        return super().inverse(self._admit(y, self._out_shapes), name, **kwargs)

    def forward_log_det_jacobian(self, x, event_ndims=None, name="forward_log_det_jacobian", **kwargs):
        return super().forward_log_det_jacobian(self._admit(x, self._in_shapes), event_ndims, name, **kwargs)

    def inverse_log_det_jacobian(self, y, event_ndims=None, name="inverse_log_det_jacobian", **kwargs):
        return super().inverse_log_det_jacobian(self._admit(y, self._out_shapes), event_ndims, name, **kwargs)

    def _admit(self, x, shapes):
        """Checks parts against the shapes and the type that they must have.

        TFP's cache knows a tensor by its identity. In eager mode a weight may have changed since it saw the tensor, and
        a tape may have started, so there every call gets tensors of its own.
        """
        parts = check_parts(self, x, shapes, self.dtype)
        return bundle([tf.identity(part) for part in parts] if tf.executing_eagerly() else parts)

    def _forward_pair(self, x):
        z, log_det = self.forward_and_log_det(x)
        return z, {"ildj": -tf.convert_to_tensor(log_det)}

    def _inverse_pair(self, z):
        x, log_det = self.inverse_and_log_det(z)
        return x, {"ildj": tf.convert_to_tensor(log_det)}

    def _forward(self, x):
        return self.forward_and_log_det(x)[0]

    def _inverse(self, z):
        return self.inverse_and_log_det(z)[0]

    def _forward_log_det_jacobian(self, x):
        return self.forward_and_log_det(x)[1]

    def _inverse_log_det_jacobian(self, z):
        return self.inverse_and_log_det(z)[1]

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
    """

    def __init__(self, shape=(), dtype=None, name=None):
        super().__init__(inputs=[shape], outputs=[shape], dtype=dtype, name=name)

    def sum_event(self, log_slope):
        return sum_last(log_slope, len(self.inputs[0]))


class Wrapped(FlowBijector):
    """One of TFP's own bijectors, for events of a known shape.

    >>> Wrapped(tfb.Exp(), (3,)).outputs
    [(3,)]
    """

    def __init__(self, bijector: tfb.Bijector, event_shape, name=None):
        self.bijector = bijector
        outputs = as_list(bijector.forward_event_shape(tf.TensorShape(event_shape)))
        own_name = bijector.name if type(self) is Wrapped else None
        super().__init__(inputs=[event_shape], outputs=outputs, name=name or own_name)

    @property
    def is_onto(self) -> bool:
        return not any(isinstance(b, _NOT_ONTO) for b in getattr(self.bijector, "bijectors", [self.bijector]))

    def forward_and_log_det(self, x):
        x = tf.identity(x)  # A tensor that its cache has not seen.
        return self.bijector.forward(x), self.bijector.forward_log_det_jacobian(x, self.forward_min_event_ndims)

    def inverse_and_log_det(self, z):
        z = tf.nest.map_structure(tf.identity, z)
        return self.bijector.inverse(z), self.bijector.inverse_log_det_jacobian(z, self.inverse_min_event_ndims)
