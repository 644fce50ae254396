"""Layers as bijections on an augmented space: [h, *noise] <-> [h', *residuals]."""

from tensorflow_probability.python.bijectors import Sigmoid, Softplus, Tanh

from tfp_flowify.bijectors.activations import (
    ELU,
    SELU,
    Abs,
    LeakyReLU,
    PReLU,
    RationalQuadraticSpline,
    ReLU,
)
from tfp_flowify.bijectors.base import Elementwise, FlowBijector
from tfp_flowify.bijectors.branches import Duplicate, Residual, Sum
from tfp_flowify.bijectors.conditional import Coupling, Funnel, Whiten
from tfp_flowify.bijectors.convolution import Conv1D, Conv2D, Crop, OverSequence, Pad, Unfold
from tfp_flowify.bijectors.fourier import FourierConv2D
from tfp_flowify.bijectors.graph import Graph, Node, Sequential
from tfp_flowify.bijectors.linear import Diagonal, Linear
from tfp_flowify.bijectors.orthogonal import Cayley, Expm, Householder, Orthogonal, random_orthogonal
from tfp_flowify.bijectors.parts import Concatenate, Flatten, Permute, Reshape, Split, Widen
from tfp_flowify.bijectors.pooling import AveragePool2D, GlobalAveragePool2D, MaxPool2D, MaxWindows, MeanWindows
from tfp_flowify.bijectors.stochastic import Dequantize, Stochastic
from tfp_flowify.bijectors.transforms import Affine, Spline, Stack

__all__ = [name for name in dir() if name[0].isupper()]
