"""Augmentation noise, and the flow as a distribution over data."""

from tfp_flowify.distributions.augmentation import (
    Augmentation,
    Code,
    OrthogonalNormal,
    OrthogonalUniform,
    StandardNormal,
    StandardUniform,
)
from tfp_flowify.distributions.flow import FlowDistribution

__all__ = [
    "Augmentation",
    "Code",
    "FlowDistribution",
    "OrthogonalNormal",
    "OrthogonalUniform",
    "StandardNormal",
    "StandardUniform",
]
