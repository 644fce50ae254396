"""tfp_flowify: neural networks as normalizing flows, on TensorFlow Probability and Keras."""

from tfp_flowify import bijectors, callbacks, data, distributions, layers, zoo
from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.model import FlowModel
from tfp_flowify.optimizer import FusedAdam

__version__ = "0.1.0"
__all__ = [
    "FlowDistribution",
    "FlowModel",
    "FusedAdam",
    "bijectors",
    "callbacks",
    "data",
    "distributions",
    "layers",
    "zoo",
]
