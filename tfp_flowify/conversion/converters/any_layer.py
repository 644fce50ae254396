"""Layers of Keras without a flow layer of their own: the fallback takes them whole."""

import keras

from tfp_flowify.conversion.registry import register_fallback

kl = keras.layers

register_fallback(
    kl.AdaptiveAveragePooling1D, kl.AdaptiveAveragePooling2D, kl.AdaptiveAveragePooling3D, kl.AdaptiveMaxPooling1D,
    kl.AdaptiveMaxPooling2D, kl.AdaptiveMaxPooling3D, kl.AdditiveAttention, kl.Attention, kl.Bidirectional,
    kl.CenterCrop, kl.ConvLSTM1D, kl.ConvLSTM2D, kl.ConvLSTM3D, kl.Dot, kl.Embedding, kl.GRU, kl.GroupQueryAttention,
    kl.LSTM, kl.Masking, kl.MultiHeadAttention, kl.RNN, kl.Resizing, kl.SimpleRNN, kl.Softmax,
    kl.SpectralNormalization, kl.TimeDistributed,
)  # fmt: skip
