"""A network of flow layers as a Keras model: `FlowModel`, the one way in."""

from tfp_flowify.model.flow_model import FlowModel

__all__ = ["FlowModel"]
