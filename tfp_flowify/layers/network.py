"""From a Keras graph of flow layers to one bijector: each call of a layer is a node, each tensor a wire."""

import keras

from tfp_flowify import bijectors as fb
from tfp_flowify.layers.base import FlowLayer, Inverse


def network_bijector(network: keras.Model, inverse: Inverse) -> fb.Graph:
    """The bijector of a Keras functional or sequential model of flow layers.

    Behind a tensor that is used more than once stands a `Duplicate`, with noise of a trainable scale.

    Args:
      network: a model that is built; models inside it may hold layers too.
      inverse: takes the weights that only the flow needs, one part for each call of a layer.
    """
    calls = layer_calls(network)
    wires = _Wires(calls, network, inverse)
    nodes = wires.bring(network.inputs)
    inputs = {wires.name(tensor): tuple(tensor.shape[1:]) for tensor in network.inputs}
    for call in calls:
        _check_call(call)
        bijector, taken = _call_bijector(call, inverse.part(call.operation)), wires.take(call.input_tensors)
        copies = wires.bring(call.output_tensors)
        nodes += [fb.Node(bijector, taken, tuple(map(wires.name, call.output_tensors))), *copies]
    return fb.Graph(nodes, inputs, wires.take(network.outputs), name=network.name)


def layer_calls(network: keras.Model) -> list:
    """The calls of layers in a network, as Keras' nodes, each behind those it depends on."""
    calls, known = [], {id(tensor) for tensor in network.inputs}

    def visit(tensor):
        if id(tensor) in known:
            return
        layer, index, _ = tensor._keras_history
        call = layer._inbound_nodes[index]
        known.update(map(id, call.output_tensors))
        for parent in call.input_tensors:
            visit(parent)
        calls.append(call)

    for tensor in network.outputs:
        visit(tensor)
    return calls


def is_graph(network) -> bool:
    """Whether a Keras model is a graph of layers that can be walked: functional or sequential, and built."""
    return isinstance(network, keras.Model) and bool(getattr(network, "inputs", None))


def _check_call(call):
    layer, shapes = call.operation, [tuple(tensor.shape[1:]) for tensor in call.input_tensors]
    if not isinstance(layer, FlowLayer) and not is_graph(layer):
        hint = {"Add": "layers.Add", "GetItem": "layers.Split"}.get(type(layer).__name__, "the layer of the same name")
        raise TypeError(
            f"A flow is made of layers of tfp_flowify.layers. Received: {layer.name} ({type(layer).__name__}). "
            f"Use {hint} there, or Stochastic(layer), which takes any."
        )
    if any(None in shape for shape in shapes):
        raise ValueError(f"{layer.name} is in a flow and so takes shapes that are known. Received: {shapes}")


def _call_bijector(call, part):
    layer, shapes = call.operation, [tuple(tensor.shape[1:]) for tensor in call.input_tensors]
    if isinstance(layer, keras.Model):
        return network_bijector(layer, part)
    return layer.make_bijector(shapes[0] if len(shapes) == 1 else shapes, part)


class Copies(fb.Duplicate):
    """Copies that no layer asked for: of a tensor that is used more than once."""


class _Wires:
    """Names for the tensors of a network; one that is used several times has a name for each use."""

    def __init__(self, calls, network, inverse):
        self._used = [id(t) for call in calls for t in call.input_tensors] + [id(t) for t in network.outputs]
        self._names, self._to_take, self._inverse = {}, {}, inverse

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
                scale = self._inverse.weight(f"{name}_log_copy_scale")
                copy = Copies(tuple(tensor.shape[1:]), uses, scale)
                nodes.append(fb.Node(copy, (name,), tuple(self._to_take[id(tensor)])))
        return nodes

    def take(self, tensors):
        return tuple(self._to_take[id(tensor)].pop(0) for tensor in tensors)
