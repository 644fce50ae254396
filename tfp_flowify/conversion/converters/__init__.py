"""How Keras' own layers are made of flow layers: the entries of the registry that the library brings."""

from tfp_flowify.conversion.converters import (
    activations,
    any_layer,
    branches,
    convolution,
    linear,
    normalization,
    operations,
    pooling,
    shapes,
)

__all__ = [
    "activations",
    "any_layer",
    "branches",
    "convolution",
    "linear",
    "normalization",
    "operations",
    "pooling",
    "shapes",
]
