"""Layers one after the other as a Keras model."""

import keras


def chain(layers, shape, policy, name=None) -> keras.Model:
    """A Keras model of layers in a row, for events of this shape, in the precision of a dtype policy."""
    inputs = keras.Input(shape, dtype=policy.compute_dtype)
    outputs = inputs
    for layer in layers:
        outputs = layer(outputs)
    network = keras.Model(inputs, outputs, name=name)
    network.dtype_policy = policy
    return network
