"""Distributions without parameters: what fills added dimensions, and what dropped ones are scored under."""

from tfp_flowify.augmentation.noise import (
    Augmentation,
    Code,
    SignedNormal,
    StandardNormal,
    StandardUniform,
    draw,
    standard_noise,
)
from tfp_flowify.augmentation.orthogonal import OrthogonalNormal, OrthogonalUniform, orthogonal_noise
from tfp_flowify.augmentation.unbatched import Unbatched

__all__ = [
    "Augmentation",
    "Code",
    "OrthogonalNormal",
    "OrthogonalUniform",
    "SignedNormal",
    "StandardNormal",
    "StandardUniform",
    "Unbatched",
    "draw",
    "orthogonal_noise",
    "standard_noise",
]
