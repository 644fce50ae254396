"""The networks of a `Subsample` layer: they carry what is known of an image from stage to stage."""

from collections.abc import Sequence

import keras

from tfp_flowify.layers.networks import as_model, residual_trunk


def update_network(
    grid: Sequence[int],
    features: int,
    width: int,
    depth: int,
    policy: keras.DTypePolicy,
    has_state: bool,
    condition: int | None = None,
    dropout: float = 0.0,
) -> keras.Model:
    """A Keras model of [features of the newly known pixels, state, condition] that gives the new state.

    Args:
      grid: The sides of the state.
      features: Number of features of a pixel.
      width: Number of channels of the state.
      depth: Number of residual blocks.
      policy: A dtype policy.
      has_state: Whether there is a state before; in the first stage there is none.
      condition: Size of the condition, or None.
      dropout: Share of the channels inside a block that are left out at random in training.
    """
    pixels, state = (keras.Input((*grid, size), dtype=policy.compute_dtype) for size in (features, width))
    given = [] if condition is None else [keras.Input((condition,), dtype=policy.compute_dtype)]
    new = residual_trunk(pixels, width, depth, policy, given, dropout, state if has_state else None)
    return as_model([pixels, *([state] if has_state else []), *given], new, policy, "update")


def head_network(
    ndims: int, width: int, features: int, outputs: Sequence[float], policy: keras.DTypePolicy
) -> keras.Model:
    """A Keras model of [state, features of the channels before] that gives the parameters of a density for each pixel.

    Args:
      ndims: Number of sides.
      width: Number of channels of the state.
      features: Number of features of the channels before; there are none of the first.
      outputs: The parameters that the network gives at the start.
      policy: A dtype policy.
    """
    places = [None] * ndims
    inputs = [keras.Input((*places, width), dtype=policy.compute_dtype)]
    hidden = keras.layers.ReLU(dtype=policy)(inputs[0])
    if features:
        inputs.append(keras.Input((*places, features), dtype=policy.compute_dtype))
        hidden = keras.layers.Concatenate(dtype=policy)([hidden, inputs[-1]])
    hidden = keras.layers.Dense(width, "relu", dtype=policy)(hidden)
    last = keras.layers.Dense(
        len(outputs),
        dtype=policy.variable_dtype,  # A density is sensitive to rounding.
        kernel_initializer=keras.initializers.VarianceScaling(0.01),
        bias_initializer=keras.initializers.Constant(outputs),
    )
    return as_model(inputs, last(hidden), policy, "head")
