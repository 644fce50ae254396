"""The plain network beside which a flow is measured."""

import itertools

import keras

from tfp_flowify import layers

_COUNT = itertools.count()


def twin_of(flow) -> keras.Model:
    """Ordinary layers of a flow's sizes, with the same conditioner networks, trained on the mean square of all outputs.

    Args:
      flow: A `FlowModel` of the zoo for images.
    """
    x = keras.Input(flow.network.input_shape[1:])
    return _MeanSquare(x, _outputs(flow, keras.layers.Rescaling(1 / 255)(x)), name=f"{flow.name}_twin")


class _MeanSquare(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return sum(keras.ops.mean(keras.ops.square(output)) for output in y_pred)


def _outputs(flow, h):
    """The network's output, and that of all conditioners."""
    densities = {part.name: part.conditioners for part in flow.densities.parts}
    outputs = []
    for layer in flow.network.layers:
        if isinstance(layer, layers.SplineCoupling):
            kept = layer.model.input_shape[-1]
            outputs.append(_clone(layer.model)(h[..., -kept:] if layer.swap else h[..., :kept]))
        h = _plain(layer)(h)
        outputs += [_clone(model)(h) for model in densities.get(f"{layer.name}_densities", [])]
    return [h, *outputs]


def _plain(layer):
    if isinstance(layer, layers.Dense):
        return keras.layers.Dense(layer.units)
    if isinstance(layer, layers.Conv2D):
        return keras.layers.Conv2D(layer.filters, layer.kernel_size, layer.strides, layer.padding)
    if isinstance(layer, layers.Flatten):
        return keras.layers.Flatten()
    return keras.layers.LeakyReLU() if isinstance(layer, layers.Spline) else keras.layers.Identity()


def _clone(network):
    """A layer with a name of its own, as Keras asks."""
    clone = keras.models.clone_model(network)
    return keras.Model(clone.inputs, clone.outputs, name=f"conditioner_{next(_COUNT)}")
