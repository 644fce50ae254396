"""Layers without a flow layer of their own: the fallback takes them whole."""

import math

import keras

from tfp_flowify import layers as fl
from tfp_flowify.conversion.registry import register_layer

kl = keras.layers


def fallback(layer, *args, **kwargs):
    """Any layer of one tensor as `Stochastic`: what it gives plus noise, and a density of what it took."""
    tensors = {id(t): t for t in keras.tree.flatten((args, kwargs)) if isinstance(t, keras.KerasTensor)}
    (tensor,) = tensors.values()
    inputs = keras.Input(tensor.shape[1:], dtype=tensor.dtype)

    def replace(value):
        return inputs if isinstance(value, keras.KerasTensor) else value

    args, kwargs = keras.tree.map_structure(replace, (args, kwargs))
    function = keras.Model(inputs, layer(*args, **kwargs), name=f"{layer.name}_function")
    return fl.Stochastic(function, inference=True, name=layer.name)(tensor)


def entries(call) -> float:
    """The noise of `fallback`: a number for each that goes out. It is no way for layers of several tensors."""
    return math.prod(call.shape) if len(call.inputs) == 1 and len(call.outputs) == 1 else math.inf


register_layer(
    kl.AdaptiveAveragePooling1D, kl.AdaptiveAveragePooling2D, kl.AdaptiveAveragePooling3D, kl.AdaptiveMaxPooling1D,
    kl.AdaptiveMaxPooling2D, kl.AdaptiveMaxPooling3D, kl.AdditiveAttention, kl.Attention, kl.Bidirectional,
    kl.ConvLSTM1D, kl.ConvLSTM2D, kl.ConvLSTM3D, kl.Dot, kl.Embedding, kl.GRU, kl.GroupQueryAttention, kl.LSTM,
    kl.MultiHeadAttention, kl.RNN, kl.Resizing, kl.SimpleRNN, kl.SpectralNormalization, kl.TimeDistributed,
    noise=entries,
)(fallback)  # fmt: skip
