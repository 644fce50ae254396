"""The weights that a flow adds to its network."""

from collections.abc import Callable
from typing import Any

import keras

from tfp_flowify.core.types import Shape
from tfp_flowify.layers.conditioners import KerasFunction, OfCondition
from tfp_flowify.layers.networks import conditioner_for

register = keras.saving.register_keras_serializable("tfp_flowify")


@register
class Densities(keras.layers.Layer):
    """The weights that a flow adds to its network: scales of noise, densities of what is dropped and of the output.

    There is one part for each layer of the network, in `parts`. `flow.densities.trainable = False` freezes all of them,
    `flow.network.trainable = False` all other weights of a flow.

    >>> from tfp_flowify import FlowModel, layers
    >>> flow = FlowModel([keras.Input([2]), layers.Dense(3)])
    >>> [weight.name for weight in flow.densities.parts[0].weights]
    ['log_noise_scale']
    """

    #: Size of the condition that densities may depend on; None where the flow has none.
    condition: int | None = None

    def __init__(self, condition: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.condition = condition
        self.parts, self.conditioners = [], []
        self.built = True

    def add_part(self, layer: keras.layers.Layer) -> "Densities":
        """A place for the weights that belong to one layer of the network."""
        part = Densities(self.condition, dtype=layer.dtype_policy, name=f"{layer.name}_densities")
        self._keep(f"part_{len(self.parts)}", part)
        self.parts.append(part)
        return part

    def add(self, name: str, shape: Shape = (), value: float | Callable = 0.0) -> keras.Variable:
        """A trainable weight in full precision, filled with a value, or set by an initializer."""
        start = value if callable(value) else keras.initializers.Constant(value)
        return self._keep(name, self.add_weight(name=name, shape=shape, initializer=start, autocast=False))

    def add_parameters(self, name: str, shape: Shape = ()) -> OfCondition:
        """Parameters of a density that depend on the condition where there is one, and else on nothing."""
        bias = self.add(name, shape)
        if self.condition is None:
            return OfCondition(bias)
        network = conditioner_for(None, shape, 1, self.dtype_policy, condition=self.condition)
        return OfCondition(bias, self.add_conditioner(network))

    def add_conditioner(self, model: keras.layers.Layer, takes_condition: bool | None = None) -> KerasFunction:
        """A Keras model that gives the parameters of a density, as a function that bijectors run: `KerasFunction`."""
        self.conditioners.append(self._keep(f"conditioner_{len(self.conditioners)}", model))
        return KerasFunction(model, takes_condition=takes_condition)

    def add_flow(self, flow: keras.Model) -> keras.Model:
        """A conditional `FlowModel` that is the density of what a layer drops."""
        return self._keep("flow", flow)

    def _keep(self, name, value):
        """As an attribute: `tf.train.Checkpoint` finds attributes, but not what is in Keras' lists."""
        if hasattr(self, name):
            raise ValueError(f"{self.name} has a weight {name!r} already. Give it another name.")
        setattr(self, name, value)
        return value
