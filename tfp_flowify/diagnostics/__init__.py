"""How good samples of a density are, and how well posteriors are calibrated: for flows and for any other sampler."""

from tfp_flowify.diagnostics.anomalies import auroc, corruptions
from tfp_flowify.diagnostics.calibration import coverage, credible_levels, ranks, uniformity
from tfp_flowify.diagnostics.pictures import save_coverage, save_pairs, save_ranks
from tfp_flowify.diagnostics.two_sample import c2st

__all__ = [
    "auroc",
    "c2st",
    "corruptions",
    "coverage",
    "credible_levels",
    "ranks",
    "save_coverage",
    "save_pairs",
    "save_ranks",
    "uniformity",
]
