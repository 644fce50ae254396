"""Networks inside bijectors: how those are made that give densities, and how bijectors run them."""

import math

import keras
import tensorflow as tf

from tfp_flowify.bijectors.context import InContext
from tfp_flowify.layers.chain import chain, chain_tensors, has_two_inputs

#: An image of more numbers is seen by a dense network through the means of its channels.
MANY = 4096


def conditioner_for(
    given, dropped, size: int, dtype=None, kind=None, width=None, condition: int | None = None
) -> keras.Model:
    """A Keras model from the kept values to `size` numbers for each dropped one, all zero at the start.

    Args:
      given, dropped: Event shapes of what is kept and what is dropped. Where `given` is None, the model sees the
        condition alone.
      size: Number of parameters for one dropped value.
      dtype: Dtype policy of the model.
      kind: "last" acts on the last axis alone and may be used on events with more axes in front; "dense" sees all of
        the event at once. By default images, sequences and volumes get convolutions, where the dropped values fit
        their grid, and anything else a dense network; one of a large image sees the means of its channels.
      width: Units of its two hidden layers.
      condition: Size of a condition that the model sees as well, its second input; None where there is none.

    >>> conditioner_for((7, 7, 4), (7, 7, 12), 2).output_shape
    (None, 7, 7, 24)
    >>> len(conditioner_for((4,), (3,), 2, condition=10).inputs)
    2
    """
    outputs = math.prod(dropped) * size
    if given is None:
        return _model((condition,), _dense(condition, outputs, width), dtype)
    if kind == "last":
        return _model((*[None] * (len(given) - 1), given[-1]), _dense(given[-1], outputs, width), dtype, condition)
    grid = given[:-1]
    if len(grid) == 3:  # TensorFlow's convolution of volumes in bfloat16 gives NaN on CPUs.
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy()).variable_dtype
    if kind != "dense" and len(grid) in (1, 2, 3) and outputs % math.prod(grid) == 0:
        return _model(given, _convolutions(len(grid), outputs // math.prod(grid), width), dtype, condition)
    if kind != "dense" and grid and math.prod(given) > MANY:
        return _model(given, _dense(given[-1], outputs, width), dtype, condition, front=_MeanOverPlaces)
    return _model(given, _dense(math.prod(given), outputs, width), dtype, condition, front=keras.layers.Flatten)


@keras.saving.register_keras_serializable("tfp_flowify")
class _MeanOverPlaces(keras.layers.Layer):
    """The mean of each channel."""

    def call(self, x):
        return keras.ops.mean(x, axis=tuple(range(1, len(x.shape) - 1)))


def _model(given, layers, dtype, condition=None, front=None):
    """A model of layers, the first of them without its activation: that comes behind the condition, which is added."""
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    first, *others = [layer(dtype=policy) for layer in layers]
    flat = [] if front is None else [front(dtype=policy)]
    if condition is None:
        return chain([*flat, first, *others], given, policy, name="conditioner")
    inputs = [keras.Input(shape, dtype=policy.compute_dtype) for shape in (given, (condition,))]
    hidden, activation = chain_tensors(flat, inputs[0]), first.activation
    first.activation = keras.activations.linear
    seen = keras.layers.Dense(first.compute_output_shape(hidden.shape)[-1], use_bias=False, dtype=policy)(inputs[1])
    places = len(hidden.shape) - 2
    seen = keras.layers.Reshape((*[1] * places, seen.shape[-1]), dtype=policy)(seen) if places else seen
    hidden = keras.layers.Add(dtype=policy)([first(hidden), seen])
    hidden = keras.layers.Activation(activation, dtype=policy)(hidden)
    model = keras.Model(inputs, chain_tensors(others, hidden), name="conditioner")
    model.dtype_policy = policy
    return model


def _dense(features, outputs, width):
    width = width or min(128, max(64, 2 * min(features, outputs)))
    return [
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, outputs, kernel_initializer="zeros"),
    ]


def _convolutions(ndims, outputs, width):
    conv = {1: keras.layers.Conv1D, 2: keras.layers.Conv2D, 3: keras.layers.Conv3D}[ndims]
    width = width or 64
    return [
        _layer(conv, width, kernel_size=3, padding="same", activation="gelu"),
        _layer(conv, width, kernel_size=1, activation="gelu"),
        _layer(conv, outputs, kernel_size=1, kernel_initializer="zeros"),
    ]


def _layer(kind, size, **kwargs):
    return lambda dtype: kind(size, dtype=dtype, **kwargs)


class KerasFunction(InContext):
    """A Keras layer, or any function, as a bijector runs it.

    It runs in its own precision and in the training mode of the pass, and gives its result in the precision of its
    input. A model with two inputs gets the condition of the pass as the second.

    Args:
      function: The layer or function.
      inference: Whether it runs in inference mode whatever the mode of the pass.
    """

    def __init__(self, function, inference=False):
        super().__init__()
        self.inference = inference
        self.layer = function if isinstance(function, keras.layers.Layer) else AsLayer(function)
        self.takes_condition = has_two_inputs(function)

    def __call__(self, x, context):
        inputs = [x, context.condition_for(self.layer.name)] if self.takes_condition else x
        return tf.cast(self.layer(inputs, training=context.training and not self.inference), x.dtype)


class AsLayer(keras.layers.Layer):
    """A function as a layer: Keras hands the training mode on to layers that the function calls."""

    def __init__(self, function):
        super().__init__(autocast=False)
        self.function = function

    def call(self, x):
        return self.function(x)


class OfCondition(InContext):
    """A conditioner that depends on the condition alone, or on nothing: a bias, and what a network adds to it.

    Args:
      bias: A weight.
      network: A function of the condition that gives as many numbers for each row; None where there is no condition.
    """

    def __init__(self, bias, network=None):
        super().__init__()
        self.bias, self.network = bias, network

    def __call__(self, x, context):
        rows, shape = self.rows(context), self.bias.shape
        places = [1] * (x.shape.rank - 1 - len(shape))
        return rows if self.network is None else tf.reshape(rows, [-1, *places, *shape])

    def rows(self, context):
        """The numbers for each row of the condition; one set for all where there is no condition."""
        bias = tf.convert_to_tensor(self.bias)
        if self.network is None:
            return bias
        added = context.run(self.network, context.condition_for("A density"))
        return bias + tf.reshape(added, [-1, *bias.shape])


class PerChannel(InContext):
    """A conditioner that does not depend on x: the same parameters, (channels * size,), for each of some pixels."""

    def __init__(self, values: OfCondition, pixels):
        super().__init__()
        self.values, self.pixels = values, pixels

    @property
    def bias(self):
        return self.values.bias

    def __call__(self, x, context):
        rows = self.values.rows(context)
        return tf.tile(rows, [*[1] * (rows.shape.rank - 1), self.pixels])


def ensure_built(network, shape, condition: int | None = None) -> tuple:
    """Builds a Keras layer or model, and all inside it, for events of this shape; returns the shape that it gives.

    Args:
      network: A layer or a model; one with two inputs takes the condition as the second.
      shape: Event shape of its first input.
      condition: Size of the condition of the flow; None where it has none.
    """
    if not has_two_inputs(network):
        return tuple(network(keras.Input(shape)).shape)
    if condition is None:
        raise ValueError(
            f"{network.name} has two inputs, the second for a condition, and this flow has none. Give it one: "
            "FlowModel(..., condition=shape)."
        )
    given = tuple(network.inputs[1].shape[1:])
    if given != (condition,):
        raise ValueError(f"{network.name} takes a condition of {given}. The flow has one of {(condition,)}.")
    return tuple(network([keras.Input(shape), keras.Input((condition,))]).shape)
