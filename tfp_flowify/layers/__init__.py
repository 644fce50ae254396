"""Keras 3 layers: ordinary layers that are flow layers too. They own the weights; the bijectors read them."""

from tfp_flowify.layers.activations import (
    ELU,
    SELU,
    Abs,
    LeakyReLU,
    Logit,
    PReLU,
    ReLU,
    Sigmoid,
    Softplus,
    Spline,
    Tanh,
)
from tfp_flowify.layers.base import Dropping, FlowLayer
from tfp_flowify.layers.branches import Add, Concatenate, Duplicate, Residual
from tfp_flowify.layers.conditional import ConditionalAffine, ConditionalSpline
from tfp_flowify.layers.convolution import Conv1D, Conv2D, FourierConv2D
from tfp_flowify.layers.coupling import SplineCoupling
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.linear import Dense, Linear
from tfp_flowify.layers.pooling import AveragePooling2D, GlobalAveragePooling2D, MaxPooling2D
from tfp_flowify.layers.scale import Normalization, Rescaling
from tfp_flowify.layers.shaped_noise import ShapedNoise
from tfp_flowify.layers.shapes import Cropping2D, Flatten, Permute, Reshape, Split, Widen, ZeroPadding2D
from tfp_flowify.layers.stochastic import Dequantize, Stochastic

__all__ = [
    "ELU",
    "SELU",
    "Abs",
    "Add",
    "AveragePooling2D",
    "Concatenate",
    "ConditionalAffine",
    "ConditionalSpline",
    "Conv1D",
    "Conv2D",
    "Cropping2D",
    "Dense",
    "Densities",
    "Dequantize",
    "Dropping",
    "Duplicate",
    "Flatten",
    "FlowLayer",
    "FourierConv2D",
    "GlobalAveragePooling2D",
    "LeakyReLU",
    "Linear",
    "Logit",
    "MaxPooling2D",
    "Normalization",
    "PReLU",
    "Permute",
    "ReLU",
    "Rescaling",
    "Reshape",
    "Residual",
    "ShapedNoise",
    "Sigmoid",
    "Softplus",
    "Spline",
    "SplineCoupling",
    "Split",
    "Stochastic",
    "Tanh",
    "Widen",
    "ZeroPadding2D",
]
