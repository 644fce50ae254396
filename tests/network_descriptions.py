"""Descriptions of networks as plain data, so that one that fails can be read, and what builds them.

A layer is (kind, arguments), with the name of its class. Three kinds make graphs:

    ("Branches", {"branches": [layers, ...], "join": kind or None})  copies of a tensor; None: each is an output
    ("Twice", {"layer": layer})                                      one layer, called twice in a row
    ("Model", {"layers": layers})                                    a model inside the model
"""

import dataclasses
import math

import keras
import numpy as np

from tfp_flowify import FlowModel, flowify
from tfp_flowify import layers as fl
from tfp_flowify.conversion.prepare import default_policy

kl = keras.layers

#: Kinds that only a functional model can hold.
GRAPHS = ("Branches", "Twice")


@dataclasses.dataclass(frozen=True)
class Network:
    """A flow of layers of `tfp_flowify.layers`.

    Args:
      shape: Of one example.
      layers: One after the other.
      policy: Dtype policy.
      levels: Of data of whole numbers; None for real numbers.
      front: Layers that take the whole numbers to real ones.
      condition: None, a shape, a dict of shapes, or "labels", which a network embeds.
      base: As for `FlowModel`, or "flow".
      scale: Of the data.
      seed: Of the weights and the data.
    """

    shape: tuple
    layers: list
    policy: str = "float32"
    levels: int | None = None
    front: tuple = ()
    condition: tuple | dict | str | None = None
    base: str = "normal"
    scale: float = 1.0
    seed: int = 0

    def build(self) -> FlowModel:
        keras.utils.set_random_seed(self.seed)
        with default_policy(self.policy):
            condition, size = condition_of(self.condition)
            layers = [*self.front, *self.layers]
            network = [keras.Input(self.shape), *(make(fl, layer) for layer in layers)]
            if any(kind in GRAPHS for kind, _ in layers):
                network = graph(fl, self.shape, layers, size)
            base = self.base
            if base == "flow":
                shape = shape_behind(fl, layers, self.shape)
                base = FlowModel([keras.Input(shape), fl.Normalization(), fl.LeakyReLU(), fl.Dense(shape[-1])])
            return FlowModel(network, base, seed=1, condition=condition)

    def data(self, count=12) -> tuple:
        """Examples and their conditions."""
        rng = np.random.default_rng(self.seed)
        if self.levels is not None:
            x = rng.integers(0, self.levels, size=(count, *self.shape))
        else:
            x = self.scale * rng.normal(size=(count, *self.shape))
        return x.astype(full_precision(self.policy)), raw_conditions(self.condition, rng, count)


@dataclasses.dataclass(frozen=True)
class KerasNetwork:
    """A network of Keras' own layers, for `flowify`.

    Args:
      shape: Of one example.
      layers: One after the other.
      policy: Dtype policy.
      levels: Of data of whole numbers; None for real numbers.
      by, trainable: As for `flowify`.
      seed: Of the weights and the data.
    """

    shape: tuple
    layers: list
    policy: str = "float32"
    levels: int | None = None
    by: str = "layer"
    trainable: str = "all"
    seed: int = 0

    def model(self) -> keras.Model:
        """The network itself, with weights that are not special."""
        keras.utils.set_random_seed(self.seed)
        with default_policy(self.policy):
            model = graph(kl, self.shape, self.layers, dtype="int32" if self.layers[0][0] == "Embedding" else None)
        rng = np.random.default_rng(self.seed)
        for weight in model.weights:
            if "variance" in weight.path:
                weight.assign(rng.uniform(0.5, 2.0, weight.shape))
            elif "float" in weight.dtype:
                weight.assign_add(0.1 * rng.normal(size=weight.shape))
        return model

    def build(self) -> FlowModel:
        options = {"levels": self.levels, "trainable": self.trainable, "density": small_density, "base": "normal"}
        return flowify(self.model(), self.by, seed=1, verbose=False, **options)

    def data(self, count=12) -> tuple:
        rng = np.random.default_rng(self.seed)
        x = rng.normal(size=(count, *self.shape))
        x = x if self.levels is None else rng.integers(0, self.levels, size=x.shape)
        return x.astype(full_precision(self.policy)), None


def small_density(shape, given):
    """The flow of what a block takes given what it gives."""
    stack = [fl.Flatten(), fl.Normalization(), fl.ConditionalAffine(width=4), fl.Dense(2, width=4)]
    return FlowModel([keras.Input(shape), *stack], condition=given)


def graph(module, shape, layers, condition=None, dtype=None) -> keras.Model:
    """A functional model of layers, with a second input where a layer reads the condition, of some size."""
    x = keras.Input(shape, dtype=dtype)
    given = None if condition is None else keras.Input((condition,))
    outputs, reads = _run(module, layers, x, given)
    return keras.Model([x, given] if reads else x, outputs)


def _run(module, layers, x, given):
    """The tensor behind layers, and whether one of them read the condition."""
    reads = False
    for kind, arguments in layers:
        if kind == "Branches":
            ends = [_run(module, branch, x, given) for branch in arguments["branches"]]
            reads |= any(read for _, read in ends)
            x = [end for end, _ in ends]
            x = x if arguments["join"] is None else make(module, (arguments["join"], {}))(x)
            continue
        layer = make(module, arguments["layer"] if kind == "Twice" else (kind, arguments))
        reads_here = given is not None and getattr(layer, "takes_condition", False)
        reads |= reads_here
        for _ in range(2 if kind == "Twice" else 1):
            x = layer([x, given]) if reads_here else layer(x)
    return x, reads


def make(module, layer):
    """The layer of a description, of Keras or of this package."""
    kind, arguments = layer
    if kind == "Branches":
        return None  # Only a graph can hold them.
    if kind == "Twice":
        return make(module, arguments["layer"])
    if kind == "Model":
        return keras.Sequential([make(module, inside) for inside in arguments["layers"]])
    if kind == "Stochastic":
        function = arguments["function"]
        function = function if isinstance(function, str) else make(kl, function)
        function = getattr(keras.activations, function) if isinstance(function, str) else function
        return fl.Stochastic(**{**arguments, "function": function})
    arguments = {name: make(module, value) if name == "layer" else value for name, value in arguments.items()}
    if kind == "Residual":
        sides = {side: [make(module, inside) for inside in arguments[side]] for side in ("layers", "shortcut")}
        arguments = {**arguments, **sides}
    return getattr(module, kind)(**arguments)


def shape_behind(module, layers, shape):
    """The event shape behind layers."""
    for kind, arguments in layers:
        if kind == "Branches":
            shapes = [shape_behind(module, branch, shape) for branch in arguments["branches"]]
            if arguments["join"] is None:
                return shapes
            shape = shapes[0]
            if arguments["join"] == "Concatenate":
                shape = (*shape[:-1], sum(branch[-1] for branch in shapes))
        elif kind == "Model":
            shape = shape_behind(module, arguments["layers"], shape)
        else:
            shape = make(module, (kind, arguments)).compute_output_shape((None, *shape))[1:]
    return tuple(shape)


def full_precision(policy) -> str:
    return "float64" if policy == "float64" else "float32"


def condition_of(condition) -> tuple:
    """What a flow takes for a condition, and the size of the vector that it makes of it."""
    if condition == "labels":
        network = keras.Sequential([keras.Input((), dtype="int32"), kl.Embedding(5, 3)])
        return network, 3
    if condition is None:
        return None, None
    shapes = condition.values() if isinstance(condition, dict) else [condition]
    return condition, sum(math.prod(shape) for shape in shapes)


def raw_conditions(condition, rng, count):
    """Raw conditions, one for each of some examples."""
    if condition is None:
        return None
    if condition == "labels":
        return rng.integers(0, 5, size=count)
    if isinstance(condition, dict):
        return {name: raw_conditions(shape, rng, count) for name, shape in condition.items()}
    return rng.normal(size=(count, *condition)).astype("float32")
