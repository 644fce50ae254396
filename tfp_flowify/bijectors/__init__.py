"""Layers as bijections on an augmented space: [h, *noise] <-> [h', *residuals].

What is listed in `__all__` is public. TFP's own bijectors (`Tanh`, `Reshape`, `Transpose` and so on) stand in a `Graph`
or a `Sequential` as they are.
"""

from typing import TYPE_CHECKING

from tfp_flowify.bijectors.activations import ELU, SELU, LeakyReLU, Logit, PReLU, Sigmoid, Spline
from tfp_flowify.bijectors.base import Elementwise, FlowBijector
from tfp_flowify.bijectors.binding import bind
from tfp_flowify.bijectors.branches import Duplicate, Residual, Sum
from tfp_flowify.bijectors.choices import Abs, ReLU
from tfp_flowify.bijectors.conditional import ConditionalTransform, Coupling, Funnel, StagedFunnel, Whiten
from tfp_flowify.bijectors.context import Conditional, Context
from tfp_flowify.bijectors.convolution import Conv, Conv1D, Conv2D
from tfp_flowify.bijectors.fourier import FourierConv2D
from tfp_flowify.bijectors.given import Given
from tfp_flowify.bijectors.graph import Graph, Node, Sequential
from tfp_flowify.bijectors.grouped import GroupedExpm, GroupedLinear
from tfp_flowify.bijectors.levels import Levels
from tfp_flowify.bijectors.linear import Diagonal, Linear
from tfp_flowify.bijectors.normalize import Multiply, Normalize
from tfp_flowify.bijectors.orthogonal import Cayley, Expm, Householder
from tfp_flowify.bijectors.padding import Crop, Pad
from tfp_flowify.bijectors.parts import Concatenate, Select, Split, Widen
from tfp_flowify.bijectors.pooling import (
    AveragePool,
    AveragePool2D,
    GlobalAveragePool,
    GlobalAveragePool2D,
    MaxPool,
    MaxPool2D,
)
from tfp_flowify.bijectors.shaped_noise import ShapedNoise
from tfp_flowify.bijectors.spread import Spread
from tfp_flowify.bijectors.stochastic import Dequantize, Stochastic
from tfp_flowify.bijectors.subsample import Stage, Subsample
from tfp_flowify.bijectors.unfold import Unfold
from tfp_flowify.bijectors.whiten_by_flow import WhitenByFlow
from tfp_flowify.core.renamed import renamed

__all__ = [
    "ELU",
    "SELU",
    "Abs",
    "AveragePool",
    "AveragePool2D",
    "Cayley",
    "Concatenate",
    "Conditional",
    "ConditionalTransform",
    "Context",
    "Conv",
    "Conv1D",
    "Conv2D",
    "Coupling",
    "Crop",
    "Dequantize",
    "Diagonal",
    "Duplicate",
    "Elementwise",
    "Expm",
    "FlowBijector",
    "FourierConv2D",
    "Funnel",
    "Given",
    "GlobalAveragePool",
    "GlobalAveragePool2D",
    "Graph",
    "GroupedExpm",
    "GroupedLinear",
    "Householder",
    "LeakyReLU",
    "Levels",
    "Linear",
    "Logit",
    "MaxPool",
    "MaxPool2D",
    "Multiply",
    "Node",
    "Normalize",
    "PReLU",
    "Pad",
    "ReLU",
    "Residual",
    "Select",
    "Sequential",
    "ShapedNoise",
    "Sigmoid",
    "Spline",
    "Split",
    "Spread",
    "Stage",
    "StagedFunnel",
    "Stochastic",
    "Subsample",
    "Sum",
    "Unfold",
    "Whiten",
    "WhitenByFlow",
    "Widen",
    "bind",
]

if not TYPE_CHECKING:  # A type checker would take any name for one of these.
    __getattr__ = renamed(__name__, {"Cascade": "StagedFunnel", "RationalQuadraticSpline": "Spline"})
