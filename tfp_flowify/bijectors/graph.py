"""Layers put together: a graph of bijectors is a bijector, with all their noise and all their residuals."""

from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.bijectors.base import FlowBijector, Wrapped
from tfp_flowify.bijectors.checks import as_list, as_shape, bundle, event_shapes, sum_over, swap_shapes
from tfp_flowify.distributions.augmentation import Code, SignedNormal

tfb = tfp.bijectors


class Node(NamedTuple):
    """A bijector and the wires it joins, by name.

    `outputs` names the parts that go on. Residuals may be named too, behind them: then another node can take them;
    residuals without a name leave the graph.

    >>> Node(tfb.Exp(), ("x",), ("z",)).inputs
    ('x',)
    """

    bijector: tfb.Bijector
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Graph(FlowBijector):
    """A directed acyclic graph of bijectors, each node fed by wires of earlier ones.

        forward:  [*inputs, *noise of all nodes] -> [*outputs, *residuals of all nodes],  log_det = sum over nodes.

    A wire is used once, else the map would not be a bijection: to use a value twice, put `Duplicate` behind it.

    Args:
      nodes: `Node`s, each after those it depends on. TFP's own bijectors may stand in them as they are.
      inputs: event shape of each input wire, by name.
      outputs: names of the output wires.

    >>> from tfp_flowify.bijectors import Duplicate, LeakyReLU, Sum
    >>> graph = Graph(
    ...     [
    ...         Node(Duplicate((3,)), ("x",), ("a", "b")),
    ...         Node(LeakyReLU(0.5), ("a",), ("c",)),
    ...         Node(Sum((3,)), ("b", "c"), ("z",)),
    ...     ],
    ...     inputs={"x": (3,)},
    ...     outputs=("z",),
    ... )
    >>> [tuple(part.shape) for part in graph.forward([tf.ones([5, 3]), tf.zeros([5, 3, 1])])]
    [(5, 3), (5, 3, 1)]
    """

    def __init__(self, nodes, inputs: dict, outputs, name=None):
        outputs = _names(outputs)
        self._input_names, self._output_names = tuple(inputs), outputs
        self.steps, open_wires = _connect(nodes, inputs)
        _check_ends(open_wires, outputs)
        super().__init__(
            inputs=inputs.values(),
            outputs=[open_wires[wire] for wire in outputs],
            noise=[d for step in self.steps for d in step.noise],
            residuals=[d for step in self.steps for d in step.residuals],
            dtype=_common_dtype(self.bijectors),
            name=name,
        )

    @property
    def bijectors(self) -> list:
        return [step.bijector for step in self.steps]

    @property
    def is_onto(self) -> bool:
        return all(bijector.is_onto for bijector in self.bijectors)

    @property
    def levels(self) -> int | None:
        wire = self._input_names[0]
        for step in self.steps:
            if wire in step.inputs and not step.bijector.only_moves:
                return step.bijector.levels
            if wire in step.inputs:
                wire = step.outputs[0]
        return None

    def forward_and_log_det(self, x):
        return self.walk(x, lambda step, parts: step.forward(parts))

    def walk(self, x, run):
        """Goes forward step by step, each taken by `run(step, parts) -> (parts, log_det)`."""
        parts, residuals, log_dets = as_list(x), [], []
        wires = dict(zip(self._input_names, parts, strict=False))
        noise = iter(parts[len(wires) :])
        for step in self.steps:
            taken = [wires.pop(wire) for wire in step.inputs] + [next(noise) for _ in step.noise]
            given, log_det = run(step, taken)
            wires.update(zip(step.outputs, given, strict=False))
            residuals += given[len(step.outputs) :]
            log_dets.append(log_det)
        return bundle([wires[wire] for wire in self._output_names] + residuals), _total(log_dets)

    def inverse_and_log_det(self, z):
        parts, noise, log_dets = as_list(z), [], []
        wires = dict(zip(self._output_names, parts, strict=False))
        residuals = parts[len(wires) :]
        for step in reversed(self.steps):
            split = len(residuals) - len(step.residuals)
            taken = [wires.pop(wire) for wire in step.outputs] + residuals[split:]
            given, log_det = step.inverse(taken)
            wires.update(zip(step.inputs, given, strict=False))
            residuals, noise = residuals[:split], given[len(step.inputs) :] + noise
            log_dets.append(log_det)
        return bundle([wires[wire] for wire in self._input_names] + noise), _total(log_dets)


class Sequential(Graph):
    """Bijectors one after the other.

        forward:  [x, *noise] -> [z, *residuals],  both in layer order.

    Args:
      bijectors: with one input and one output each, beside noise and residuals.
      event_shape: of x; may be left out where the first layer knows it.

    >>> net = Sequential([Sequential([tfb.Scale(2.0)], (3,)), tfb.Shift(1.0)])
    >>> net.forward(tf.zeros([3])).numpy().tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, bijectors, event_shape=None, name=None):
        bijectors = list(bijectors)
        if not bijectors:
            raise ValueError("Sequential needs at least one bijector.")
        if event_shape is None:
            event_shape = getattr(bijectors[0], "inputs", [()])[0]
            if event_shape == ():
                raise ValueError(
                    f"The first layer, {bijectors[0].name}, takes any shape: give event_shape=(...) to Sequential."
                )
        nodes = [Node(b, (f"h{i}",), (f"h{i + 1}",)) for i, b in enumerate(bijectors)]
        super().__init__(nodes, inputs={"h0": event_shape}, outputs=(f"h{len(nodes)}",), name=name)


class _Step(tf.Module):
    """A node whose shapes are known: what it takes and gives, and what it runs on."""

    def __init__(self, node, shapes):
        super().__init__()
        bijector = node.bijector if isinstance(node.bijector, FlowBijector) else Wrapped(node.bijector, shapes[0])
        self.bijector, self.inputs, self.outputs = bijector, _names(node.inputs), _names(node.outputs)
        self.prefix = self._leading_axes(shapes)
        self.noise = self._tile(bijector.noise)
        residuals, named = self._tile(bijector.residuals), len(self.outputs) - len(bijector.outputs)
        if not 0 <= named <= len(residuals):
            raise ValueError(
                f"{bijector.name} gives {len(bijector.outputs)} output(s) and {len(residuals)} residual(s). "
                f"Received: outputs={self.outputs}"
            )
        if any(isinstance(d, Code) for d in residuals[:named]):
            raise ValueError(
                f"{bijector.name} has a Code among the residuals named in outputs={self.outputs}. "
                "A code must leave the graph as it is: no density may depend on it."
            )
        names = self.outputs[len(bijector.outputs) :]
        self.signed = [n for n, d in zip(names, residuals, strict=False) if isinstance(d, SignedNormal)]
        self.residuals = residuals[named:]
        shapes_out = [(*self.prefix, *shape) for shape in bijector.outputs] + event_shapes(residuals[:named])
        self.output_shapes = dict(zip(self.outputs, shapes_out, strict=True))

    def _leading_axes(self, shapes):
        """The axes of the event that the bijector treats as independent: those it does not need."""
        least = self.bijector.inputs
        if len(least) != len(shapes):
            raise ValueError(f"{self.bijector.name} takes {len(least)} input(s). Received: inputs={self.inputs}")
        swap_shapes(self.bijector, shapes, least, [])
        return shapes[0][: len(shapes[0]) - len(least[0])]

    def _tile(self, distributions):
        return [d.tile(self.prefix) for d in distributions] if self.prefix else list(distributions)

    def forward(self, parts):
        z, log_det = self.bijector.forward_and_log_det(bundle(parts))
        return as_list(z), sum_over(tf.convert_to_tensor(log_det), self.prefix)

    def inverse(self, parts):
        x, log_det = self.bijector.inverse_and_log_det(bundle(parts))
        return as_list(x), sum_over(tf.convert_to_tensor(log_det), self.prefix)


def _total(log_dets):
    """Their sum; those of rotations and the like, zero whatever comes, are left out of graphs to keep them small."""
    if not tf.executing_eagerly():
        log_dets = [x for x in log_dets if x.shape.rank or tf.get_static_value(x) != 0] or log_dets[:1]
    return sum(log_dets[1:], start=log_dets[0])


def _connect(nodes, inputs):
    """The steps of a graph, and the shapes of the wires that stay open behind the last one."""
    steps, wires, signed = [], {wire: as_shape(shape) for wire, shape in inputs.items()}, set()
    for node in nodes:
        node = node._replace(inputs=_names(node.inputs), outputs=_names(node.outputs))
        for wire in node.inputs:
            if wire not in wires or node.inputs.count(wire) > 1:
                raise ValueError(
                    f"{node.bijector.name} takes the wire {wire!r}, which is not there or used already. "
                    f"There are: {sorted(wires)}. To use a value twice, put Duplicate behind it."
                )
        steps.append(_Step(node, [wires.pop(wire) for wire in node.inputs]))
        if signed.intersection(node.inputs) and not steps[-1].bijector.keeps_signs:
            raise ValueError(
                f"{node.bijector.name} takes {sorted(signed.intersection(node.inputs))}, whose signs came from a code: "
                "no density may depend on them. Only Whiten with an odd transform may take them."
            )
        signed = signed.difference(node.inputs).union(steps[-1].signed)
        taken = [wire for wire in node.outputs if wire in wires]
        if taken or len(set(node.outputs)) < len(node.outputs):
            raise ValueError(
                f"{node.bijector.name} needs new names for its outputs. Received: outputs={node.outputs}, "
                f"of which these wires are open: {taken}"
            )
        wires.update(steps[-1].output_shapes)
    return steps, wires


def _names(wires) -> tuple:
    """Names of wires; a lone one may be given as it is."""
    return (wires,) if isinstance(wires, str) else tuple(wires)


def _check_ends(open_wires, outputs):
    missing, loose = [w for w in outputs if w not in open_wires], [w for w in open_wires if w not in outputs]
    if missing or loose or len(set(outputs)) < len(outputs):
        raise ValueError(
            f"Every wire that no node takes must be an output, once. Received: outputs={tuple(outputs)}, "
            f"not there: {missing}, left over: {loose}"
        )


def _common_dtype(bijectors):
    dtypes = [(b.name, b.dtype) for b in bijectors if b.dtype is not None]
    if len({dtype for _, dtype in dtypes}) > 1:
        given = ", ".join(f"{name}: {dtype.name}" for name, dtype in dtypes)
        raise TypeError(f"All layers of a graph work in one dtype. Received: {given}")
    return dtypes[0][1] if dtypes else None
