"""Distributions over one kind of event, with no batch of parameters."""

import tensorflow as tf
import tensorflow_probability as tfp


class Unbatched(tfp.distributions.Distribution):
    """A distribution without a batch shape, whose event shape is static; the other methods that TFP asks for."""

    def _event_shape_tensor(self):
        return tf.constant(self._event_shape().as_list(), tf.int32)

    def _batch_shape(self):
        return tf.TensorShape([])

    def _batch_shape_tensor(self):
        return tf.constant([], tf.int32)

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {}
