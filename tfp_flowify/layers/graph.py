"""From a Keras graph of flow layers to one bijector: each call of a layer is a node, each tensor a wire."""

import keras

from tfp_flowify import bijectors as fb
from tfp_flowify.core.private import calls_of
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.base import FlowLayer
from tfp_flowify.layers.densities import Densities


def model_bijector(model: keras.Model, densities: Densities, condition: keras.KerasTensor | None = None) -> fb.Graph:
    """The bijector of a Keras functional or sequential model of flow layers.

    Behind a tensor that is used more than once stands a `Duplicate`, with noise of a trainable scale.

    Args:
      model: A model that is built; models inside it may hold layers too.
      densities: Takes the weights that only the flow needs, one part for each call of a layer.
      condition: That of the inputs of the model that is the condition: no wire, but a value that layers read from the
        context; None where there is none.
    """
    data = [tensor for tensor in model.inputs if tensor is not condition]
    calls = [_Call(call, condition) for call in calls_of(model)]
    wires = _Wires(calls, model, densities)
    nodes = wires.bring(data)
    inputs: dict[str, Shape] = {wires.name(tensor): tuple(tensor.shape[1:]) for tensor in data}
    for call in calls:
        bijector, taken = call.make_bijector(densities.add_part(call.layer)), wires.take(call.inputs)
        copies = wires.bring(call.outputs)
        nodes += [fb.Node(bijector, taken, tuple(map(wires.name, call.outputs)), call.layer.name), *copies]
    return fb.Graph(nodes, inputs, wires.take(model.outputs), name=model.name)


def is_graph(model: object) -> bool:
    """Whether a Keras model is a graph of layers that can be walked: functional or sequential, and built."""
    return isinstance(model, keras.Model) and bool(getattr(model, "inputs", None))


def way_out(layer: object) -> str:
    """Says what to use in place of a Keras layer that is no flow layer."""
    from tfp_flowify import layers

    name = {"GetItem": "Split"}.get(type(layer).__name__, type(layer).__name__)
    here = getattr(layers, name, None)
    same = f"Use tfp_flowify.layers.{name}, or" if isinstance(here, type) and issubclass(here, FlowLayer) else "Use"
    return f"{same} Stochastic(layer), which takes any layer."


class _Call:
    """A call of a layer in a Keras graph: the tensors that it takes and gives, without the condition.

    Args:
      call: As Keras records it.
      condition: The tensor of the condition, or None.
    """

    def __init__(self, call, condition):
        self.layer, self.outputs = call.operation, call.output_tensors
        self.inputs = [tensor for tensor in call.input_tensors if tensor is not condition]
        self._shapes = [tuple(tensor.shape[1:]) for tensor in self.inputs]
        self._places = [i for i, tensor in enumerate(call.input_tensors) if tensor is condition]
        self._check(len(call.input_tensors))

    def make_bijector(self, part):
        """The bijector of this call, with a part of the densities for it."""
        if isinstance(self.layer, keras.Model):
            return model_bijector(self.layer, part, self.layer.inputs[self._places[0]] if self._places else None)
        return self.layer.make_bijector(self._shapes[0] if len(self._shapes) == 1 else self._shapes, part)

    def _check(self, count):
        layer = self.layer
        if self._places and not isinstance(layer, FlowLayer | keras.Model):
            raise ValueError(
                f"{layer.name} ({type(layer).__name__}) changes the condition inside the network. Give the flow a "
                "model that does so: FlowModel(..., condition=model)."
            )
        if not isinstance(layer, FlowLayer) and not is_graph(layer):
            raise TypeError(
                f"A flow is made of layers of tfp_flowify.layers. Received: {layer.name} ({type(layer).__name__}). "
                f"{way_out(layer)}"
            )
        if any(None in shape for shape in self._shapes):
            raise ValueError(f"{layer.name} is in a flow and so takes shapes that are known. Received: {self._shapes}")
        if isinstance(layer, keras.Model):
            return
        if layer.takes_condition and count == 2 and self._places != [1]:
            raise ValueError(
                f"{layer.name} takes [x, condition], and the condition must be the second input of the model itself. "
                "To change it first, give the flow a model: FlowModel(..., condition=model)."
            )
        if self._places and not layer.takes_condition:
            raise ValueError(
                f"{layer.name} ({type(layer).__name__}) takes the condition for data. Layers that take one beside "
                "their data, such as SplineCoupling, are called on [x, condition]."
            )


class Copies(fb.Duplicate):
    """Copies that no layer asked for: of a tensor that is used more than once."""


class _Wires:
    """Names for the tensors of a model; one that is used several times has a name for each use."""

    def __init__(self, calls, model, densities):
        self._used = [id(t) for call in calls for t in call.inputs] + [id(t) for t in model.outputs]
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
                nodes.append(fb.Node(copy, (name,), tuple(self._to_take[id(tensor)]), f"copies of {tensor.name}"))
        return nodes

    def take(self, tensors):
        return tuple(self._to_take[id(tensor)].pop(0) for tensor in tensors)
