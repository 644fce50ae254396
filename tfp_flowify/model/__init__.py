"""A network of flow layers as a Keras model: `FlowModel`."""

from tfp_flowify.model.flow_model import FlowModel

__all__ = ["FlowModel"]
