"""tfp_flowify: neural networks as normalizing flows, on TensorFlow Probability and Keras."""

from tfp_flowify import (
    bijectors,
    callbacks,
    data,
    diagnostics,
    distributions,
    inference,
    layers,
    plots,
    transforms,
    zoo,
)
from tfp_flowify.conversion import flowify, register_layer
from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.model import FlowModel
from tfp_flowify.optimizer import FusedAdam
from tfp_flowify.version import __version__

__all__ = [
    "FlowDistribution",
    "FlowModel",
    "FusedAdam",
    "__version__",
    "bijectors",
    "callbacks",
    "data",
    "diagnostics",
    "distributions",
    "flowify",
    "inference",
    "layers",
    "plots",
    "register_layer",
    "transforms",
    "zoo",
]
