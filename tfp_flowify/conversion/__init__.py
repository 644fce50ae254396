"""From a Keras network that exists to a flow: `flowify`."""

from tfp_flowify.conversion import converters  # Fills the registry.
from tfp_flowify.conversion.convert import flowify
from tfp_flowify.conversion.registry import register_layer

__all__ = ["converters", "flowify", "register_layer"]
