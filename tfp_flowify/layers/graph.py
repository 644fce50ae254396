"""From a Keras graph of flow layers to one bijector: each call of a layer is a node, each tensor a wire."""

import keras

from tfp_flowify import bijectors as fb
from tfp_flowify.core.private import calls_of
from tfp_flowify.layers.base import FlowLayer
from tfp_flowify.layers.densities import Densities


def model_bijector(model: keras.Model, densities: Densities) -> fb.Graph:
    """The bijector of a Keras functional or sequential model of flow layers.

    Behind a tensor that is used more than once stands a `Duplicate`, with noise of a trainable scale.

    Args:
      model: A model that is built; models inside it may hold layers too.
      densities: Takes the weights that only the flow needs, one part for each call of a layer.
    """
    calls = calls_of(model)
    wires = _Wires(calls, model, densities)
    nodes = wires.bring(model.inputs)
    inputs = {wires.name(tensor): tuple(tensor.shape[1:]) for tensor in model.inputs}
    for call in calls:
        _check_call(call)
        bijector, taken = _call_bijector(call, densities.add_part(call.operation)), wires.take(call.input_tensors)
        copies = wires.bring(call.output_tensors)
        nodes += [fb.Node(bijector, taken, tuple(map(wires.name, call.output_tensors))), *copies]
    return fb.Graph(nodes, inputs, wires.take(model.outputs), name=model.name)


def is_graph(model) -> bool:
    """Whether a Keras model is a graph of layers that can be walked: functional or sequential, and built."""
    return isinstance(model, keras.Model) and bool(getattr(model, "inputs", None))


def way_out(layer) -> str:
    """Says what to use in place of a Keras layer that is no flow layer."""
    from tfp_flowify import layers

    name = {"GetItem": "Split"}.get(type(layer).__name__, type(layer).__name__)
    here = getattr(layers, name, None)
    same = f"Use tfp_flowify.layers.{name}, or" if isinstance(here, type) and issubclass(here, FlowLayer) else "Use"
    return f"{same} Stochastic(layer), which takes any layer."


def _check_call(call):
    layer, shapes = call.operation, [tuple(tensor.shape[1:]) for tensor in call.input_tensors]
    if not isinstance(layer, FlowLayer) and not is_graph(layer):
        raise TypeError(
            f"A flow is made of layers of tfp_flowify.layers. Received: {layer.name} ({type(layer).__name__}). "
            f"{way_out(layer)}"
        )
    if any(None in shape for shape in shapes):
        raise ValueError(f"{layer.name} is in a flow and so takes shapes that are known. Received: {shapes}")


def _call_bijector(call, part):
    layer, shapes = call.operation, [tuple(tensor.shape[1:]) for tensor in call.input_tensors]
    if isinstance(layer, keras.Model):
        return model_bijector(layer, part)
    return layer.make_bijector(shapes[0] if len(shapes) == 1 else shapes, part)


class Copies(fb.Duplicate):
    """Copies that no layer asked for: of a tensor that is used more than once."""


class _Wires:
    """Names for the tensors of a model; one that is used several times has a name for each use."""

    def __init__(self, calls, model, densities):
        self._used = [id(t) for call in calls for t in call.input_tensors] + [id(t) for t in model.outputs]
        self._names, self._to_take, self._densities = {}, {}, densities

    def name(self, tensor):
        return self._names[id(tensor)]

    def bring(self, tensors):
        """Names new tensors, and returns a node for each that must be copied."""
        nodes = []
        for tensor in tensors:
            name, uses = f"h{len(self._names)}", self._used.count(id(tensor))
            if not uses:
                raise ValueError(
                    f"The tensor {tensor.name} of shape {tuple(tensor.shape)} is used nowhere. Make it an output."
                )
            self._names[id(tensor)] = name
            self._to_take[id(tensor)] = [name] if uses == 1 else [f"{name}.{i}" for i in range(uses)]
            if uses > 1:
                scale = self._densities.add(f"{name}_log_copy_scale")
                copy = Copies(tuple(tensor.shape[1:]), uses, scale)
                nodes.append(fb.Node(copy, (name,), tuple(self._to_take[id(tensor)])))
        return nodes

    def take(self, tensors):
        return tuple(self._to_take[id(tensor)].pop(0) for tensor in tensors)
