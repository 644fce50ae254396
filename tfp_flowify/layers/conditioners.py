"""Networks inside bijectors: how bijectors run them."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.core.checks import as_list, bundle
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.chain import has_two_inputs


class KerasFunction(InContext):
    """A Keras layer, or any function, as a bijector runs it.

    It runs in its own precision and in the training mode of the pass, and gives its result in the precision of its
    input. It may take a list of tensors.

    Args:
      function: The layer or function.
      inference: Whether it runs in inference mode whatever the mode of the pass.
      takes_condition: Whether it gets the condition of the pass as its last input; if left out, a model with two inputs
        does.
    """

    def __init__(self, function: Callable, inference: bool = False, takes_condition: bool | None = None):
        super().__init__()
        self.inference = inference
        self.layer = function if isinstance(function, keras.layers.Layer) else AsLayer(function)
        self.takes_condition = has_two_inputs(function) if takes_condition is None else takes_condition

    def __call__(self, x, context):
        inputs = as_list(x)
        condition = [context.condition_for(self.layer.name)] if self.takes_condition else []
        result = self.layer(bundle(inputs + condition), training=context.training and not self.inference)
        return tf.cast(result, inputs[0].dtype)


class AsLayer(keras.layers.Layer):
    """A function as a layer: Keras hands the training mode on to layers that the function calls."""

    def __init__(self, function: Callable):
        super().__init__(autocast=False)
        self.function = function

    def call(self, x: tf.Tensor | list) -> tf.Tensor:
        return self.function(x)


class OfCondition(InContext):
    """A conditioner that depends on the condition alone, or on nothing: a bias, and what a network adds to it.

    Args:
      bias: A weight.
      network: A function of the condition that gives as many numbers for each row; None where there is no condition.
    """

    def __init__(self, bias: keras.Variable, network: Callable | None = None):
        super().__init__()
        self.bias, self.network = bias, network

    def __call__(self, x, context):
        rows, shape = self.rows(context), self.bias.shape
        places = [1] * (x.shape.rank - 1 - len(shape))
        return rows if self.network is None else tf.reshape(rows, [-1, *places, *shape])

    def rows(self, context: Context) -> tf.Tensor:
        """The numbers for each row of the condition; one set for all where there is no condition."""
        bias = tf.convert_to_tensor(self.bias)
        if self.network is None:
            return bias
        added = context.run(self.network, context.condition_for("A density"))
        return bias + tf.reshape(added, [-1, *bias.shape])


class PerChannel(InContext):
    """A conditioner that does not depend on x: the same parameters, (channels * size,), for each of some pixels."""

    def __init__(self, values: OfCondition, pixels: int):
        super().__init__()
        self.values, self.pixels = values, pixels

    @property
    def bias(self) -> keras.Variable:
        return self.values.bias

    def __call__(self, x, context):
        rows = self.values.rows(context)
        return tf.tile(rows, [*[1] * (rows.shape.rank - 1), self.pixels])


def ensure_built(network: keras.layers.Layer, shape: Shape, condition: int | None = None) -> tuple:
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
