"""The Keras networks that give densities their parameters: how they are made."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_flowify.core.types import Shape
from tfp_flowify.layers.chain import chain, chain_tensors

#: An image of more numbers is seen by a dense network through the means of its channels.
MANY = 4096

_CONVOLUTIONS = {1: keras.layers.Conv1D, 2: keras.layers.Conv2D, 3: keras.layers.Conv3D}


def conditioner_for(
    given: Shape | None,
    dropped: Shape,
    size: int,
    dtype: keras.DTypePolicy | str | None = None,
    kind: str | None = None,
    width: int | None = None,
    condition: int | None = None,
    depth: int | None = None,
    dropout: float = 0.0,
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
      width: Units of its hidden layers.
      condition: Size of a condition that the model sees as well, its second input; None where there is none.
      depth: Number of residual blocks, for a deeper network than the small one of two hidden layers. A convolutional
        one then also sees where a pixel is, and the mean of the image.
      dropout: Share of the units inside a residual block that are left out at random in training.

    >>> conditioner_for((7, 7, 4), (7, 7, 12), 2).output_shape
    (None, 7, 7, 24)
    >>> len(conditioner_for((4,), (3,), 2, condition=10).inputs)
    2
    """
    policy, outputs = keras.dtype_policies.get(dtype or keras.config.dtype_policy()), math.prod(dropped) * size
    if given is None:
        return _dense_model((condition,), condition, outputs, width, policy)
    grid = given[:-1]
    policy = policy_for(grid, policy)
    if kind not in ("dense", "last") and len(grid) in (1, 2, 3) and outputs % math.prod(grid) == 0:
        outputs //= math.prod(grid)
        if depth is None:
            return _small_model(given, _convolutions(len(grid), outputs, width), policy, condition)
        return residual_network(given, outputs, width or 64, depth, policy, condition, dropout)
    rest = (width, policy, condition, depth, dropout)
    if kind == "last":
        return _dense_model((*[None] * (len(given) - 1), given[-1]), given[-1], outputs, *rest)
    if kind != "dense" and grid and math.prod(given) > MANY:
        return _dense_model(given, given[-1], outputs, *rest, front=_MeanOverPlaces)
    return _dense_model(given, math.prod(given), outputs, *rest, front=keras.layers.Flatten)


def policy_for(grid: Sequence[int], policy: keras.DTypePolicy) -> keras.DTypePolicy:
    """The dtype policy of convolutions on a grid: TensorFlow's of volumes in bfloat16 give NaN on CPUs.

    >>> mixed = keras.dtype_policies.get("mixed_bfloat16")
    >>> policy_for((8, 8), mixed).name, policy_for((8, 8, 8), mixed).name
    ('mixed_bfloat16', 'float32')
    """
    return keras.dtype_policies.get(policy.variable_dtype) if len(grid) == 3 else policy


@keras.saving.register_keras_serializable("tfp_flowify")
class _MeanOverPlaces(keras.layers.Layer):
    """The mean of each channel."""

    def call(self, x):
        return keras.ops.mean(x, axis=tuple(range(1, len(x.shape) - 1)))


@keras.saving.register_keras_serializable("tfp_flowify")
class Dropout(keras.layers.Dropout):
    """Keras' layer, which goes on in a saved model with the masks that were to come: Keras saves no seeds."""

    def save_own_variables(self, store: dict) -> None:
        super().save_own_variables(store)
        store["seed"] = self.seed_generator.state

    def load_own_variables(self, store: dict) -> None:
        self.seed_generator.state.assign(store["seed"])


@keras.saving.register_keras_serializable("tfp_flowify")
class Coordinates(keras.layers.Layer):
    """Adds channels that say where a pixel is: one for each side, from -1 to 1, and one of ones, which padding lacks.

    >>> Coordinates()(keras.ops.zeros([5, 3, 1, 2])).numpy()[0, :, 0].tolist()
    [[0.0, 0.0, -1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0, 1.0]]
    """

    def call(self, x: tf.Tensor) -> tf.Tensor:
        sides = x.shape[1:-1]
        axes = [keras.ops.linspace(-1.0, 1.0, side) if side > 1 else keras.ops.zeros([1]) for side in sides]
        places = keras.ops.meshgrid(*axes, indexing="ij")
        where = keras.ops.cast(keras.ops.stack([*places, keras.ops.ones(sides)], axis=-1), x.dtype)
        rows = keras.ops.broadcast_to(where, (keras.ops.shape(x)[0], *where.shape))
        return keras.ops.concatenate([x, rows], axis=-1)

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (*input_shape[:-1], input_shape[-1] + len(input_shape) - 1)


def _dense_model(given, features, outputs, width, policy, condition=None, depth=None, dropout=0.0, front=None):
    if depth is None:
        return _small_model(given, _dense(features, outputs, width), policy, condition, front)
    return residual_network(given, outputs, width or 128, depth, policy, condition, dropout, front, convolutional=False)


def _small_model(given, layers, policy, condition=None, front=None):
    """A model of layers, the first of them without its activation: that comes behind the condition, which is added."""
    first, *others = [layer(dtype=policy) for layer in layers]
    flat = [] if front is None else [front(dtype=policy)]
    if condition is None:
        return chain([*flat, first, *others], given, policy, name="conditioner")
    inputs = [keras.Input(shape, dtype=policy.compute_dtype) for shape in (given, (condition,))]
    activation, first.activation = first.activation, keras.activations.linear
    hidden = add_everywhere(first(chain_tensors(flat, inputs[0])), inputs[1], policy, use_bias=False)
    hidden = keras.layers.Activation(activation, dtype=policy)(hidden)
    return as_model(inputs, chain_tensors(others, hidden), policy, "conditioner")


def _dense(features, outputs, width):
    width = width or min(128, max(64, 2 * min(features, outputs)))
    return [
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, outputs, kernel_initializer="zeros"),
    ]


def _convolutions(ndims, outputs, width):
    """A convolution, and dense layers at each place: TensorFlow's convolutions of one cell take longer."""
    width = width or 64
    return [
        _layer(_CONVOLUTIONS[ndims], width, kernel_size=3, padding="same", activation="gelu"),
        _layer(keras.layers.Dense, width, activation="gelu"),
        _layer(keras.layers.Dense, outputs, kernel_initializer="zeros"),
    ]


def _layer(kind, size, **kwargs):
    return lambda dtype: kind(size, dtype=dtype, **kwargs)


def residual_network(
    given: Shape,
    outputs: int,
    width: int,
    depth: int,
    policy: keras.DTypePolicy,
    condition: int | None = None,
    dropout: float = 0.0,
    front: Callable | None = None,
    convolutional: bool = True,
) -> keras.Model:
    """A deeper conditioner: see `conditioner_for`."""
    inputs = [keras.Input(given, dtype=policy.compute_dtype)]
    hidden = inputs[0] if front is None else front(dtype=policy)(inputs[0])
    if condition is not None:
        inputs.append(keras.Input((condition,), dtype=policy.compute_dtype))
    hidden = residual_trunk(hidden, width, depth, policy, inputs[1:], dropout, convolutional=convolutional)
    hidden = keras.layers.ReLU(dtype=policy)(hidden)
    last = keras.layers.Dense(outputs, kernel_initializer="zeros", dtype=policy)
    return as_model(inputs, last(hidden), policy, "conditioner")


def residual_trunk(
    x: keras.KerasTensor,
    width: int,
    depth: int,
    policy: keras.DTypePolicy,
    everywhere: Sequence[keras.KerasTensor] = (),
    dropout: float = 0.0,
    state: keras.KerasTensor | None = None,
    convolutional: bool = True,
) -> keras.KerasTensor:
    """A layer of x, and residual blocks behind it; what is added in front of them is the same at all places.

    Args:
      x: A Keras tensor.
      width: Number of channels.
      depth: Number of residual blocks.
      policy: A dtype policy.
      everywhere: Vectors that are added at all places, each through a dense layer.
      dropout: See `conditioner_for`.
      state: A tensor that is added behind the first layer, or None.
      convolutional: Whether neighbouring pixels are seen, where they are, and the mean of the image; else each place of
        x is seen by itself.
    """
    layer = _convolution if convolutional else keras.layers.Dense
    x = Coordinates(dtype=policy)(x) if convolutional else x
    hidden = layer(width, dtype=policy, use_bias=state is None)(x)
    if state is not None:
        hidden = keras.layers.Add(dtype=policy)([hidden, state])
    for vector in everywhere:
        hidden = add_everywhere(hidden, vector, policy, use_bias=False)
    for i in range(depth):
        hidden = _residual_block(hidden, layer, policy, dropout)
        if convolutional and i == 0 and math.prod(hidden.shape[1:-1]) > 1:
            hidden = _add_mean(hidden, policy)
    return hidden


def _convolution(width, dtype, **kwargs):
    return lambda x: _CONVOLUTIONS[len(x.shape) - 2](width, 3, padding="same", dtype=dtype, **kwargs)(x)


def _residual_block(hidden, layer, policy, dropout):
    """hidden + layer(relu(layer(relu(hidden)))), close to the identity at the start.

    What is added has no bias of its own: TensorFlow's optimizer of graphs fails on sums of convolutions with biases.
    """
    width, small = hidden.shape[-1], keras.initializers.VarianceScaling(0.1)
    layers = [
        keras.layers.ReLU(dtype=policy),
        layer(width, dtype=policy, activation="relu"),
        *([Dropout(dropout, dtype=policy)] if dropout else []),
        layer(width, dtype=policy, use_bias=False, kernel_initializer=small),
    ]
    return keras.layers.Add(dtype=policy)([hidden, chain_tensors(layers, hidden)])


def _add_mean(hidden, policy):
    """Adds what a dense layer makes of the mean of each channel: what an image has in common."""
    mean = chain_tensors([keras.layers.ReLU(dtype=policy), _MeanOverPlaces(dtype=policy)], hidden)
    return add_everywhere(hidden, mean, policy)


def add_everywhere(
    hidden: keras.KerasTensor, vector: keras.KerasTensor, policy: keras.DTypePolicy, **kwargs: Any
) -> keras.KerasTensor:
    """Adds what a dense layer makes of a vector to all places."""
    width, places = hidden.shape[-1], len(hidden.shape) - 2
    added = [keras.layers.Dense(width, dtype=policy, **kwargs)]
    if places:
        added.append(keras.layers.Reshape((*[1] * places, width), dtype=policy))
    return keras.layers.Add(dtype=policy)([hidden, chain_tensors(added, vector)])


def as_model(inputs: list, outputs: keras.KerasTensor, policy: keras.DTypePolicy, name: str) -> keras.Model:
    """A Keras model in the precision of a dtype policy, with a bare input where there is one."""
    model = keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs, name=name)
    model.dtype_policy = policy
    return model
