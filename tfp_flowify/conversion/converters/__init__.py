"""How Keras' own layers are made of flow layers: the entries of the registry that the library brings."""

from tfp_flowify.conversion.converters import (
    activations,
    branches,
    convolution,
    linear,
    normalization,
    operations,
    pooling,
    shapes,
    whole,
)

__all__ = [
    "activations",
    "branches",
    "convolution",
    "linear",
    "normalization",
    "operations",
    "pooling",
    "shapes",
    "whole",
]
