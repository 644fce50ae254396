"""tfp_flowify: neural networks as normalizing flows, on TensorFlow Probability."""

from tfp_flowify import bijectors, distributions
from tfp_flowify.distributions import FlowDistribution

__version__ = "0.1.0"
__all__ = ["FlowDistribution", "bijectors", "distributions"]
