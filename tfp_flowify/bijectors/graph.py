"""Layers put together: a graph of bijectors is a bijector, with all their noise and all their residuals."""

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.augmentation import Code, SignedNormal
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.binding import bind
from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import as_shape
from tfp_flowify.core.types import Shape

tfb = tfp.bijectors


class Node(NamedTuple):
    """A bijector in a graph, and the names of the wires that it joins.

    `outputs` names the parts that go on. Residuals may be named too, behind them: then another node can take them;
    residuals without a name leave the graph. `layer` is the name of the Keras layer that the bijector is of, if any.

    >>> Node(tfb.Exp(), ("x",), ("z",)).inputs
    ('x',)
    """

    bijector: tfb.Bijector
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer: str = ""

    @property
    def named_residuals(self) -> dict:
        """The residuals that another node takes, by the name of their wire."""
        names = self.outputs[len(self.bijector.outputs) :]
        return dict(zip(names, self.bijector.residuals, strict=False))

    @property
    def loose_residuals(self) -> list:
        """The residuals that leave the graph."""
        return self.bijector.residuals[len(self.named_residuals) :]


class Graph(FlowBijector):
    """A directed acyclic graph of bijectors, each node fed by wires of earlier ones.

        forward:  [*inputs, *noise of all nodes] -> [*outputs, *residuals of all nodes],  log_det = sum over nodes.

    A wire is used once, else the map would not be a bijection: to use a value twice, put `Duplicate` behind it.

    Args:
      nodes: Nodes, each after those it depends on. TFP's own bijectors may stand in them as they are.
      inputs: Event shape of each input wire, by name.
      outputs: Names of the output wires.

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

    def __init__(
        self, nodes: Iterable[Node], inputs: dict[str, Shape], outputs: str | Iterable[str], name: str | None = None
    ) -> None:
        self._input_names, self._output_names = tuple(inputs), _names(outputs)
        self.nodes, open_wires, whole = _connect(nodes, inputs)
        _check_ends(open_wires, self._output_names)
        self.output_levels = whole.get(self._output_names[0])
        super().__init__(
            inputs=inputs.values(),
            outputs=[open_wires[wire] for wire in self._output_names],
            noise=[d for node in self.nodes for d in node.bijector.noise],
            residuals=[d for node in self.nodes for d in node.loose_residuals],
            dtype=_common_dtype(self.bijectors),
            name=name,
        )

    @property
    def bijectors(self) -> list[FlowBijector]:
        return [node.bijector for node in self.nodes]

    @property
    def is_onto(self) -> bool:
        return all(bijector.is_onto for bijector in self.bijectors)

    @property
    def levels(self) -> int | None:
        wire = self._input_names[0]
        for node in self.nodes:
            if wire in node.inputs and not node.bijector.only_moves:
                return node.bijector.levels
            if wire in node.inputs:
                wire = node.outputs[0]
        return None

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return self.walk(parts, lambda bijector, taken: bijector.forward_and_log_det(taken, context))

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        return self.walk(parts, lambda bijector, taken: bijector.inverse_and_log_det(taken, context), backward=True)

    def walk(
        self,
        parts: list[tf.Tensor],
        run: Callable[[FlowBijector, list[tf.Tensor]], tuple[list[tf.Tensor], tf.Tensor | float]],
        backward: bool = False,
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Goes through all nodes, each taken by `run(bijector, parts) -> (parts, log_det)`.

        Backward, wires and loose parts change their roles: residuals come in, noise goes out.
        """
        entry, exit_ = self._input_names, self._output_names
        sides = [(node.inputs, len(node.bijector.noise), node.outputs) for node in self.nodes]
        if backward:
            entry, exit_ = exit_, entry
            sides = [(node.outputs, len(node.loose_residuals), node.inputs) for node in self.nodes]
        wires, loose = dict(zip(entry, parts, strict=False)), iter(parts[len(entry) :])
        loose_in = [list(itertools.islice(loose, count)) for _, count, _ in sides]
        loose_out: list[list[tf.Tensor]] = [[] for _ in sides]
        log_dets: list[tf.Tensor | float] = []
        for i in range(len(sides))[:: -1 if backward else 1]:
            taken, _, given = sides[i]
            results, log_det = run(self.nodes[i].bijector, [wires.pop(wire) for wire in taken] + loose_in[i])
            wires.update(zip(given, results, strict=False))
            loose_out[i] = results[len(given) :]
            log_dets.append(log_det)
        return [wires[wire] for wire in exit_] + list(itertools.chain(*loose_out)), _total(log_dets)


class Sequential(Graph):
    """Bijectors one after the other.

        forward:  [x, *noise] -> [z, *residuals],  both in layer order.

    Args:
      bijectors: With one input and one output each, beside noise and residuals.
      event_shape: Shape of x; may be left out where the first layer knows it.

    >>> net = Sequential([tfb.Scale(2.0), tfb.Shift(1.0)], event_shape=(3,))
    >>> net.forward(tf.zeros([3])).numpy().tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(
        self, bijectors: Iterable[tfb.Bijector], event_shape: Shape | None = None, name: str | None = None
    ) -> None:
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


def _total(log_dets):
    """Their sum; those of rotations and the like, zero whatever comes, are left out of graphs to keep them small."""
    log_dets = [tf.convert_to_tensor(log_det) for log_det in log_dets]
    if not tf.executing_eagerly():
        log_dets = [x for x in log_dets if x.shape.rank or tf.get_static_value(x) != 0] or log_dets[:1]
    return sum(log_dets[1:], start=log_dets[0])


def _connect(nodes, inputs):
    """Nodes whose bijectors know their shapes; shapes of the wires that stay open; levels of those of whole numbers."""
    connected, wires, signed, whole = [], {wire: as_shape(shape) for wire, shape in inputs.items()}, set(), {}
    for given in nodes:
        node = given._replace(inputs=_names(given.inputs), outputs=_names(given.outputs))
        _check_inputs(node, wires)
        node = node._replace(bijector=bind(node.bijector, *(wires.pop(wire) for wire in node.inputs)))
        _check_residuals(node)
        if signed.intersection(node.inputs) and not node.bijector.keeps_signs:
            raise ValueError(
                f"{node.bijector.name} takes {sorted(signed.intersection(node.inputs))}, whose signs came from a code: "
                "no density may depend on them. Only Whiten with an odd transform may take them."
            )
        whole.update(_whole_numbers(node, whole))
        signed -= set(node.inputs)
        signed |= {wire for wire, d in node.named_residuals.items() if isinstance(d, SignedNormal)}
        taken = [wire for wire in node.outputs if wire in wires]
        if taken or len(set(node.outputs)) < len(node.outputs):
            raise ValueError(
                f"{node.bijector.name} needs new names for its outputs. Received: outputs={node.outputs}, "
                f"of which these wires are open: {taken}"
            )
        wires.update(zip(node.outputs, node.bijector.shapes_out, strict=False))
        connected.append(node)
    return connected, wires, whole


def _whole_numbers(node, whole) -> dict:
    """The output of a node, by the number of its levels, where it hands on whole numbers; an error where it cannot.

    Args:
      node: A node.
      whole: Number of levels of the wires that carry whole numbers; those that the node takes are removed.
    """
    bijector, taken = node.bijector, {wire: whole.pop(wire) for wire in node.inputs if wire in whole}
    if taken and bijector.only_moves:
        return {node.outputs[0]: next(iter(taken.values()))}
    if any(bijector.levels != levels for levels in taken.values()):
        raise ValueError(
            f"{bijector.name} takes {taken}, whole numbers by wire and number of levels, and they have no density. Put "
            "Dequantize(levels) in front of it."
        )
    return {} if bijector.output_levels is None else {node.outputs[0]: bijector.output_levels}


def _names(wires) -> tuple:
    """Names of wires; a lone one may be given as it is."""
    return (wires,) if isinstance(wires, str) else tuple(wires)


def _check_inputs(node, wires):
    for wire in node.inputs:
        if wire not in wires or node.inputs.count(wire) > 1:
            raise ValueError(
                f"{node.bijector.name} takes the wire {wire!r}, which is not there or used already. "
                f"There are: {sorted(wires)}. To use a value twice, put Duplicate behind it."
            )


def _check_residuals(node):
    bijector, named = node.bijector, len(node.outputs) - len(node.bijector.outputs)
    if not 0 <= named <= len(bijector.residuals):
        raise ValueError(
            f"{bijector.name} gives {len(bijector.outputs)} output(s) and {len(bijector.residuals)} residual(s). "
            f"Received: outputs={node.outputs}"
        )
    if any(isinstance(d, Code) for d in node.named_residuals.values()):
        raise ValueError(
            f"{bijector.name} has a Code among the residuals named in outputs={node.outputs}. "
            "A code must leave the graph as it is: no density may depend on it."
        )


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
