"""The flow as a distribution of data, and the distributions of its parts."""

from tfp_flowify.augmentation import (
    Augmentation,
    Code,
    OrthogonalNormal,
    OrthogonalUniform,
    SignedNormal,
    StandardNormal,
    StandardUniform,
)
from tfp_flowify.distributions.bases import ConditionalNormal
from tfp_flowify.distributions.flow import FlowDistribution
from tfp_flowify.distributions.given import GivenFlow
from tfp_flowify.distributions.normal import DiagonalNormal

__all__ = [
    "Augmentation",
    "Code",
    "ConditionalNormal",
    "DiagonalNormal",
    "FlowDistribution",
    "GivenFlow",
    "OrthogonalNormal",
    "OrthogonalUniform",
    "SignedNormal",
    "StandardNormal",
    "StandardUniform",
]
