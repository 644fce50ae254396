"""The plain network beside which a flow is measured."""

import itertools

import keras

from tfp_flowify import layers

_COUNT = itertools.count()


def twin_of(flow, as_many=False) -> keras.Model:
    """Ordinary layers of a flow's sizes, with the same conditioner networks, trained on the mean square of all outputs.

    Args:
      flow: A `FlowModel` of the zoo for images.
      as_many: Whether a layer that drops dimensions gives as many numbers as it takes, as that of the flow does; the
        next layer sees the first of them.
    """
    x = keras.Input(flow.network.input_shape[1:])
    return _MeanSquare(x, _outputs(flow, keras.layers.Rescaling(1 / 255)(x), as_many), name=f"{flow.name}_twin")


class _MeanSquare(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return sum(keras.ops.mean(keras.ops.square(output)) for output in y_pred)


def _outputs(flow, h, as_many):
    """The network's output, what its layers drop, and the outputs of all conditioners."""
    densities = {part.name: part.conditioners for part in flow.densities.parts}
    outputs = []
    for layer in flow.network.layers:
        if isinstance(layer, layers.SplineCoupling):
            kept = layer.model.input_shape[-1]
            outputs.append(_clone(layer.model)(h[..., -kept:] if layer.swap else h[..., :kept]))
        h = _plain(layer, as_many)(h)
        kept = layer.units if isinstance(layer, layers.Dense) else getattr(layer, "filters", h.shape[-1])
        if kept < h.shape[-1]:
            h, dropped = h[..., :kept], h[..., kept:]
            outputs.append(dropped)
        outputs += [_clone(model)(h) for model in densities.get(f"{layer.name}_densities", [])]
    return [h, *outputs]


def _plain(layer, as_many):
    least = layer.right.size if as_many and isinstance(layer, layers.Dense | layers.Conv2D) else 0
    if isinstance(layer, layers.Dense):
        return keras.layers.Dense(max(layer.units, least))
    if isinstance(layer, layers.Conv2D):
        filters = max(layer.filters, least)
        return keras.layers.Conv2D(filters, layer.kernel_size, layer.strides, layer.padding)
    if isinstance(layer, layers.Flatten):
        return keras.layers.Flatten()
    return keras.layers.LeakyReLU() if isinstance(layer, layers.Spline) else keras.layers.Identity()


def _clone(network):
    """A layer with a name of its own, as Keras asks."""
    clone = keras.models.clone_model(network)
    return keras.Model(clone.inputs, clone.outputs, name=f"conditioner_{next(_COUNT)}")
