"""Augmentation noise, and the flow as a distribution over data."""

from tfp_flowify.distributions.augmentation import (
    Augmentation,
    Code,
    OrthogonalNormal,
    OrthogonalUniform,
    SignedNormal,
    StandardNormal,
    StandardUniform,
)
from tfp_flowify.distributions.flow import FlowDistribution
from tfp_flowify.distributions.normal import DiagonalNormal

__all__ = [
    "Augmentation",
    "Code",
    "DiagonalNormal",
    "FlowDistribution",
    "OrthogonalNormal",
    "OrthogonalUniform",
    "SignedNormal",
    "StandardNormal",
    "StandardUniform",
]
