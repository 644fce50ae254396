"""Keras 3 layers: ordinary layers that are flow layers too. They own the weights; the bijectors read them."""

from typing import TYPE_CHECKING

from tfp_flowify.core.renamed import renamed
from tfp_flowify.layers.activations import (
    ELU,
    SELU,
    Abs,
    Exponential,
    LeakyReLU,
    Logit,
    PReLU,
    ReLU,
    Sigmoid,
    Softplus,
    Softsign,
    Spline,
    Tanh,
)
from tfp_flowify.layers.base import Dropping, FlowLayer
from tfp_flowify.layers.branches import Add, Concatenate, Duplicate, Residual
from tfp_flowify.layers.conditional import ConditionalAffine, ConditionalSpline
from tfp_flowify.layers.convolution import Conv1D, Conv2D, Conv3D, DepthwiseConv1D, DepthwiseConv2D, FourierConv2D
from tfp_flowify.layers.coupling import Coupling, SplineCoupling
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.linear import Dense, Linear
from tfp_flowify.layers.normalization import LayerNormalization, Multiply
from tfp_flowify.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    AveragePooling3D,
    GlobalAveragePooling,
    GlobalAveragePooling2D,
    MaxPooling1D,
    MaxPooling2D,
    MaxPooling3D,
)
from tfp_flowify.layers.scale import Affine, Normalization, Rescaling
from tfp_flowify.layers.shaped_noise import ShapedNoise
from tfp_flowify.layers.shapes import (
    Cropping1D,
    Cropping2D,
    Cropping3D,
    Flatten,
    Permute,
    Reshape,
    Slice,
    Split,
    Widen,
    ZeroPadding1D,
    ZeroPadding2D,
    ZeroPadding3D,
)
from tfp_flowify.layers.stochastic import Dequantize, Stochastic
from tfp_flowify.layers.subsample import Spread, Subsample

__all__ = [
    "ELU",
    "SELU",
    "Abs",
    "Add",
    "Affine",
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "Concatenate",
    "ConditionalAffine",
    "ConditionalSpline",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "Coupling",
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Dense",
    "Densities",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "Dequantize",
    "Dropping",
    "Duplicate",
    "Exponential",
    "Flatten",
    "FlowLayer",
    "FourierConv2D",
    "GlobalAveragePooling",
    "GlobalAveragePooling2D",
    "LayerNormalization",
    "LeakyReLU",
    "Linear",
    "Logit",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "Multiply",
    "Normalization",
    "PReLU",
    "Permute",
    "ReLU",
    "Rescaling",
    "Reshape",
    "Residual",
    "ShapedNoise",
    "Sigmoid",
    "Slice",
    "Softplus",
    "Softsign",
    "Spline",
    "SplineCoupling",
    "Split",
    "Spread",
    "Stochastic",
    "Subsample",
    "Tanh",
    "Widen",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
]

if not TYPE_CHECKING:  # A type checker would take any name for one of these.
    __getattr__ = renamed(__name__, {"Inverse": "Densities"})
