"""Training runs: from data to a folder with a trained flow, its figures and pictures."""

from tfp_flowify.experiments.figures import evaluate
from tfp_flowify.experiments.folder import RunFolder
from tfp_flowify.experiments.options import Options
from tfp_flowify.experiments.training import resume, train

__all__ = ["Options", "RunFolder", "evaluate", "resume", "train"]
