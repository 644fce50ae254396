"""Layers as bijections on an augmented space: [h, *noise] <-> [h', *residuals]."""

import tensorflow_probability as tfp

from tfp_flowify.bijectors.activations import ELU, SELU, LeakyReLU, PReLU, RationalQuadraticSpline
from tfp_flowify.bijectors.base import Elementwise, FlowBijector, Wrapped
from tfp_flowify.bijectors.branches import Duplicate, Residual, Sum
from tfp_flowify.bijectors.choices import Abs, ReLU
from tfp_flowify.bijectors.conditional import Cascade, Coupling, Funnel, Whiten, step_sizes
from tfp_flowify.bijectors.convolution import Conv1D, Conv2D, OverSequence
from tfp_flowify.bijectors.fourier import FourierConv2D
from tfp_flowify.bijectors.graph import Graph, Node, Sequential
from tfp_flowify.bijectors.linear import Diagonal, Linear
from tfp_flowify.bijectors.orthogonal import Cayley, Expm, Householder, Orthogonal, random_orthogonal
from tfp_flowify.bijectors.padding import Crop, Pad
from tfp_flowify.bijectors.parts import Concatenate, Flatten, Permute, Reshape, Split, Widen
from tfp_flowify.bijectors.pooling import AveragePool2D, GlobalAveragePool2D, MaxPool2D, MaxWindows, MeanWindows
from tfp_flowify.bijectors.stochastic import Dequantize, Stochastic
from tfp_flowify.bijectors.transforms import Affine, OddSpline, Scale, Spline, Stack
from tfp_flowify.bijectors.unfold import Unfold

Tanh, Sigmoid, Softplus = tfp.bijectors.Tanh, tfp.bijectors.Sigmoid, tfp.bijectors.Softplus

__all__ = [
    "ELU",
    "SELU",
    "Abs",
    "Affine",
    "AveragePool2D",
    "Cascade",
    "Cayley",
    "Concatenate",
    "Conv1D",
    "Conv2D",
    "Coupling",
    "Crop",
    "Dequantize",
    "Diagonal",
    "Duplicate",
    "Elementwise",
    "Expm",
    "Flatten",
    "FlowBijector",
    "FourierConv2D",
    "Funnel",
    "GlobalAveragePool2D",
    "Graph",
    "Householder",
    "LeakyReLU",
    "Linear",
    "MaxPool2D",
    "MaxWindows",
    "MeanWindows",
    "Node",
    "OddSpline",
    "Orthogonal",
    "OverSequence",
    "PReLU",
    "Pad",
    "Permute",
    "RationalQuadraticSpline",
    "ReLU",
    "Reshape",
    "Residual",
    "Scale",
    "Sequential",
    "Sigmoid",
    "Softplus",
    "Spline",
    "Split",
    "Stack",
    "Stochastic",
    "Sum",
    "Tanh",
    "Unfold",
    "Whiten",
    "Widen",
    "Wrapped",
    "random_orthogonal",
    "step_sizes",
]
