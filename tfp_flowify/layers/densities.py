"""The weights that a flow adds to its network."""

import keras

from tfp_flowify.layers.conditioners import KerasFunction

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

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parts, self.conditioners = [], []
        self.built = True

    def add_part(self, layer) -> "Densities":
        """A place for the weights that belong to one layer of the network."""
        part = Densities(dtype=layer.dtype_policy, name=f"{layer.name}_densities")
        self._keep(f"part_{len(self.parts)}", part)
        self.parts.append(part)
        return part

    def add(self, name: str, shape=(), value=0.0):
        """A trainable weight in full precision, filled with a value."""
        start = keras.initializers.Constant(value)
        return self._keep(name, self.add_weight(name=name, shape=shape, initializer=start, autocast=False))

    def add_conditioner(self, model) -> KerasFunction:
        """A Keras model that gives the parameters of a density, as a function that bijectors run."""
        self.conditioners.append(self._keep(f"conditioner_{len(self.conditioners)}", model))
        return KerasFunction(model)

    def _keep(self, name, value):
        """As an attribute: `tf.train.Checkpoint` finds attributes, but not what is in Keras' lists."""
        if hasattr(self, name):
            raise ValueError(f"{self.name} has a weight {name!r} already. Give it another name.")
        setattr(self, name, value)
        return value
