"""Random networks: strategies of hypothesis that draw descriptions of them, and functions that build those.

A description is plain data, so that one that fails can be read, and pasted into a test. A layer is (kind, arguments),
with the name of its class. Three kinds make graphs:

    ("Branches", {"branches": [layers, ...], "join": kind or None})  copies of a tensor; None: each is an output
    ("Twice", {"layer": layer})                                      one layer, called twice in a row
    ("Model", {"layers": layers})                                    a model inside the model

Drawing follows the shape from layer to layer, so that most networks can be built. Some cannot: an argument does not fit
the shape. That layer is then the last, and building the network must say so.
"""

import contextlib
import dataclasses
import math

import keras
import numpy as np
from hypothesis import strategies as st

from tfp_flowify import FlowModel, flowify
from tfp_flowify import layers as fl
from tfp_flowify.conversion.prepare import default_policy

kl = keras.layers

#: No tensor has more numbers, so that a network takes about a second.
MANY = 100

#: Functions that reach a part of the line only, or grow fast: one of each in a network, and an exponential only of
#: numbers of unit scale. Others are beyond float32: exp(exp(exp(3))), or a small number once it is mixed with exp(20).
ONCE = ("Exponential", "Tanh", "Sigmoid", "Softsign", "SELU", "ELU", "Softplus")


@dataclasses.dataclass(frozen=True)
class Network:
    """A flow of layers of `tfp_flowify.layers`.

    Args:
      shape: Of one example.
      layers: One after the other.
      policy: Dtype policy.
      levels: Of data of whole numbers; None for real numbers.
      condition: None, a shape, a dict of shapes, or "labels", which a network embeds.
      base: As for `FlowModel`, or "flow".
      scale: Of the data.
      seed: Of the weights and the data.
    """

    shape: tuple
    layers: list
    policy: str = "float32"
    levels: int | None = None
    condition: tuple | dict | str | None = None
    base: str = "normal"
    scale: float = 1.0
    seed: int = 0

    def build(self) -> FlowModel:
        keras.utils.set_random_seed(self.seed)
        with default_policy(self.policy):
            condition, size = condition_of(self.condition)
            front = [] if self.levels is None else [("Dequantize", {"levels": self.levels})]
            layers = [*front, *self.layers]
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
        return x.astype(full_precision(self.policy)), conditions(self.condition, rng, count)


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


# From descriptions to networks.


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


def conditions(condition, rng, count):
    """Raw conditions, one for each of some examples."""
    if condition is None:
        return None
    if condition == "labels":
        return rng.integers(0, 5, size=count)
    if isinstance(condition, dict):
        return {name: conditions(shape, rng, count) for name, shape in condition.items()}
    return rng.normal(size=(count, *condition)).astype("float32")


# Strategies. A kind of layer is a function of the event shape that gives a strategy of its arguments.


def one_of(*values):
    return st.sampled_from(values)


def arguments(needed=None, **optional):
    return st.fixed_dictionaries(needed or {}, optional=optional)


def or_each(values, ndims):
    """A number for all sides, or one for each."""
    return st.one_of(values, st.tuples(*[values] * ndims))


NOISE = {"noise": one_of("normal", "uniform"), "noise_scale": one_of(0.3, 1.0)}
DENSITY = {"density": one_of("funnel", "multiscale"), "transform": one_of("affine", "spline", "affine+spline")}
WIDTH = {"width": st.just(4)}
LINEAR = {
    **NOISE,
    **DENSITY,
    "activation": one_of("linear", "relu", "leaky_relu", "elu", "tanh", "softplus"),
    "use_bias": st.booleans(),
    "orthogonal": one_of("auto", "expm", "cayley", "householder"),
}
units = st.integers(1, 6)


def dense(shape):
    start = one_of({"gain": 1.5}, {"kernel_initializer": "glorot_uniform"})
    plain = arguments({"units": units, **WIDTH}, **LINEAR, stages=st.integers(1, 3))
    return st.one_of(plain, st.builds(lambda a, b: {**a, **b}, plain, start))


def windows(ndims, window="kernel_size"):
    sizes = st.integers(1, 3)
    return {
        window: or_each(sizes, ndims),
        "strides": or_each(sizes, ndims),
        "padding": one_of("same", "valid", "same", *["causal"] * (ndims == 1 and window == "kernel_size")),
    }


def conv(ndims):
    """A convolution; where it has groups or holes, they often fit."""

    def strategy(shape):
        plain = {**WIDTH, "filters": st.integers(1, 4), **windows(ndims)}
        holes = {**plain, "strides": st.just(1), "dilation_rate": or_each(st.integers(1, 2), ndims)}
        groups = {**plain, "groups": st.just(shape[-1]), "filters": one_of(shape[-1], 2 * shape[-1], 3)}
        staged = arguments(plain, **LINEAR, stages=st.integers(1, 2))
        return st.one_of(staged, arguments(holes, **LINEAR), arguments(groups, **LINEAR))

    return strategy


def depthwise(ndims):
    return lambda shape: arguments({**WIDTH, **windows(ndims)}, **LINEAR, depth_multiplier=st.integers(1, 2))


def pooling(ndims):
    return lambda shape: arguments({**WIDTH, **windows(ndims, "pool_size")}, **NOISE, **DENSITY)


def border(name, ndims, **optional):
    sides = st.tuples(*[one_of((0, 0), (0, 1), (1, 0), (1, 1))] * ndims)
    sides = sides.map(lambda pairs: pairs[0]) if ndims == 1 else sides
    return lambda shape: arguments({name: sides}, **optional)


def nothing(shape):
    return st.just({})


def reshape(shape):
    size = math.prod(shape)
    factors = [n for n in range(1, size + 1) if size % n == 0]
    return st.sampled_from(factors).map(lambda n: {"target_shape": (n, size // n)})


def permute(shape):
    return st.permutations(range(1, len(shape) + 1)).map(lambda dims: {"dims": tuple(dims)})


def slices(shape):
    step = one_of((None, None, 2), (None, None, -1), (None, 1, None), (None, None, None), (-2, None, None))
    return st.lists(step, min_size=1, max_size=len(shape)).map(lambda axes: {"slices": axes})


def stochastic(shape):
    layers = [("Dense", {"units": 2}), ("LayerNormalization", {}), ("Dropout", {"rate": 0.5})]
    return arguments({**WIDTH, "function": one_of("softmax", "gelu", *layers)}, **NOISE, **DENSITY)


def shaped_noise(shape):
    layers = [st.tuples(st.just(kind), of(shape)) for kind, of in (("Dense", dense), ("Widen", SAME["Widen"]))]
    if len(shape) in (2, 3):
        layers.append(st.tuples(st.just(f"Conv{len(shape) - 1}D"), conv(len(shape) - 1)(shape)))
    return arguments({"layer": st.one_of(layers), **WIDTH})


def box(shape):
    return one_of({"low": -60.0, "high": 70.0}, {"low": [-50.0] * shape[-1], "high": 60.0})


#: Kinds that take any shape.
SAME = {
    "LeakyReLU": lambda shape: arguments(negative_slope=one_of(0.1, 2.0)),
    "PReLU": lambda shape: arguments(negative_slope=one_of(0.1, 2.0)),
    "ReLU": lambda shape: arguments(noise_scale=one_of(0.3, 1.0)),
    "Abs": nothing,
    "ELU": lambda shape: arguments(alpha=one_of(0.5, 1.5)),
    **dict.fromkeys(["SELU", "Tanh", "Sigmoid", "Softplus", "Softsign", "Exponential"], nothing),
    "Spline": lambda shape: arguments(bins=one_of(2, 3, 5), bound=one_of(1.0, 3.0), per_channel=st.booleans()),
    "SplineCoupling": lambda shape: arguments(WIDTH, kept=st.integers(1, 2), swap=st.booleans(), bins=one_of(3)),
    "Affine": nothing,
    "Normalization": nothing,
    "Rescaling": lambda shape: arguments({"scale": one_of(0.5, -2.0)}, offset=one_of(-1.0, 3.0)),
    "LayerNormalization": lambda shape: arguments(
        WIDTH, **NOISE, **DENSITY, center=st.booleans(), scale=st.booleans(), rms_scaling=st.booleans()
    ),
    "Dense": dense,
    "Split": lambda shape: arguments({"units": st.integers(1, max(1, shape[-1] - 1)), **WIDTH}, **DENSITY),
    "Widen": lambda shape: arguments({"units": st.integers(shape[-1] + 1, shape[-1] + 3)}, **NOISE),
    "Stochastic": stochastic,
    "ShapedNoise": shaped_noise,
}

#: Kinds that read a condition.
CONDITIONAL = {
    "ConditionalAffine": lambda shape: arguments(WIDTH),
    "ConditionalSpline": lambda shape: arguments({"bins": one_of(3), **WIDTH}),
}

#: Kinds that change the shape, by the number of axes.
SHAPES = {"Flatten": nothing, "Reshape": reshape, "Permute": permute, "Slice": slices}
BY_RANK = {
    1: {"Reshape": reshape, "Slice": slices},
    **{
        ndims + 1: {
            **SHAPES,
            f"Conv{ndims}D": conv(ndims),
            f"MaxPooling{ndims}D": pooling(ndims),
            f"AveragePooling{ndims}D": pooling(ndims),
            f"ZeroPadding{ndims}D": border("padding", ndims, **NOISE),
            f"Cropping{ndims}D": border("cropping", ndims, **DENSITY),
            "GlobalAveragePooling": lambda shape: arguments(WIDTH, **DENSITY),
        }
        for ndims in (1, 2, 3)
    },
}
BY_RANK[2] |= {"DepthwiseConv1D": depthwise(1)}
BY_RANK[3] |= {
    "DepthwiseConv2D": depthwise(2),
    "GlobalAveragePooling2D": lambda shape: arguments(WIDTH, **DENSITY),
    "FourierConv2D": lambda shape: arguments(
        {"filters": st.integers(1, max(1, shape[-1])), **WIDTH}, **DENSITY, kernel_size=one_of(1, 1, 3)
    ),
}
GRAPHS = ("Branches", "Twice")


class Drawing:
    """Draws layers one by one, and follows the shape.

    Args:
      draw: As hypothesis gives it.
      module: That of the layers.
      kinds: A function of the shape that gives the kinds of layers for it.
      joins: Kinds of layers that join branches.
    """

    def __init__(self, draw, module, kinds, joins):
        self.draw, self.module, self.kinds, self.joins = draw, module, kinds, joins
        self.drawn_once = set()

    def layers(self, shape, least, most, depth=0) -> tuple:
        """Layers, and the shape behind them; None where the last of them cannot be built."""
        layers = []
        for _ in range(self.draw(st.integers(least, most))):
            layer = self.layer(shape, depth)
            try:
                behind = shape_behind(self.module, [layer], shape)
            except (ValueError, TypeError):
                return [*layers, layer], None
            if math.prod(behind) > MANY:
                continue
            if 0 in behind or None in behind:
                return [*layers, layer], None
            layers.append(layer)
            shape = behind
        return layers, shape

    def layer(self, shape, depth):
        kinds = self.kinds(shape)
        graphs = [] if depth else ["Branches", "Branches", "Twice", "Model", *["Residual"] * (self.module is fl)]
        kind = self.draw(st.sampled_from([*graphs, *(kind for kind in kinds if kind not in self.drawn_once)]))
        if kind in ONCE:
            self.drawn_once.add(kind)
        if kind == "Branches":
            return self.branches(shape, depth)
        if kind == "Residual":
            return self.residual(shape, depth)
        if kind == "Model":
            inside = self.layers(shape, 1, 2, depth + 1)[0]
            return kind, {"layers": inside or [("LeakyReLU", {})]}
        if kind == "Twice":
            kind = self.draw(one_of("LeakyReLU", "PReLU", "Dense"))
            known = kinds[kind](shape) if kind != "Dense" else st.just({"units": shape[-1]})
            return "Twice", {"layer": (kind, self.draw(known))}
        if kind == "Exponential":
            return "Model", {"layers": [("Normalization", {}), (kind, {})]}
        return kind, self.draw(kinds[kind](shape))

    def side(self, shape, width, depth):
        """Layers that keep the sides, and give some number of channels."""
        kinds, self.kinds = self.kinds, lambda shape: KEEPING[self.module]
        layers, _ = self.layers(shape, 0, 2, depth + 1)
        self.kinds = kinds
        return layers if width is None else [*layers, ("Dense", {"units": width})]

    def branches(self, shape, depth):
        join, count = self.draw(st.sampled_from(self.joins)), self.draw(st.integers(2, 3))
        count = 2 if join in ("Multiply", "Subtract") else count
        if join == "Concatenate":
            return "Branches", {"branches": [self.side(shape, None, depth) for _ in range(count)], "join": join}
        width = self.draw(st.integers(1, 4))
        first = self.side(shape, shape[-1] if self.draw(st.booleans()) else width, depth)
        width = first[-1][1]["units"]
        others = [self.side(shape, width, depth) for _ in range(count - 1)]
        if width == shape[-1] and self.draw(st.booleans()):
            others[-1] = []
        return "Branches", {"branches": [first, *others], "join": join}

    def residual(self, shape, depth):
        width = self.draw(one_of(shape[-1], shape[-1], 2))
        shortcut = [] if width == shape[-1] and self.draw(st.booleans()) else self.side(shape, width, depth)
        options = self.draw(arguments(WIDTH, **NOISE, **DENSITY))
        return "Residual", {"layers": self.side(shape, width, depth), "shortcut": shortcut, **options}


#: Kinds for branches, which keep the sides.
KEEPING = {
    fl: {kind: SAME[kind] for kind in ("LeakyReLU", "ReLU", "Spline", "Affine", "Dense", "Normalization", "Widen")},
    kl: {
        "Dense": lambda shape: arguments({"units": units}, activation=one_of("relu", "tanh", "gelu")),
        "LeakyReLU": nothing,
        "BatchNormalization": nothing,
        "LayerNormalization": nothing,
        "Dropout": lambda shape: st.just({"rate": 0.5}),
    },
}

SHAPES_OF_DATA = st.one_of(
    st.tuples(st.integers(1, 6)),
    st.tuples(st.integers(1, 8), st.integers(1, 3)),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)),
    st.tuples(*[st.integers(1, 3)] * 3, st.integers(1, 2)),
)

CONDITIONS = one_of(None, None, None, (3,), (), (2, 2, 1), {"a": (2,), "b": ()}, "labels")


@st.composite
def networks(draw, policies=("float32", "float32", "float64", "mixed_bfloat16"), conditions=CONDITIONS):
    """Descriptions of flows."""
    shape, condition, levels = draw(SHAPES_OF_DATA), draw(conditions), draw(one_of(None, None, 2, 256))
    reading = {} if condition is None else {**CONDITIONAL, **CONDITIONAL}

    def kinds(shape):
        known = {**SAME, **BY_RANK.get(len(shape), {}), **reading}
        rare = () if shape[-1] > 1 or draw(st.integers(0, 9)) == 0 else ("Split", "SplineCoupling")
        return {kind: known[kind] for kind in known if kind not in rare}

    drawing = Drawing(draw, fl, kinds, ("Add", "Concatenate", "Multiply"))
    layers, behind = drawing.layers(shape, 1, 5)
    if levels is not None and draw(st.booleans()):
        layers = [("Logit", {}), *layers]
    if levels is None and draw(st.integers(0, 4)) == 0:
        layers = [("Logit", draw(box(shape))), *layers]
    bases = ["normal", "standard"]
    if behind is not None and draw(st.integers(0, 3)) == 0:  # Several outputs.
        layers = [*layers, ("Branches", {"branches": [drawing.side(behind, 2, 1), []], "join": None})]
    elif behind is not None:
        bases += ["flow"]
    bases += [] if condition is None else ["spline"]
    options = {"policy": draw(st.sampled_from(policies)), "base": draw(st.sampled_from(bases))}
    layers = layers or [("LeakyReLU", {})]
    return Network(shape, layers, levels=levels, condition=condition, scale=draw(one_of(1.0, 5.0)), **options)


# Networks of Keras.

ACTIVATIONS = one_of("linear", "relu", "tanh", "sigmoid", "elu", "gelu", "softmax", "leaky_relu", "silu", "softplus")


EVEN = {"strides": st.integers(1, 3)}  # TensorFlow's depthwise convolutions take no others.


def keras_conv(ndims, fixed=(), **more):
    plain = {"filters": st.integers(1, 4), **windows(ndims), "padding": one_of("same", "valid"), **dict(fixed)}
    return lambda shape: arguments(plain, activation=ACTIVATIONS, use_bias=st.booleans(), **more)


def keras_windows(ndims, window="pool_size"):
    return lambda shape: arguments(windows(ndims, window))


KERAS = {
    "Dense": lambda shape: arguments({"units": units}, activation=ACTIVATIONS, use_bias=st.booleans()),
    "Activation": lambda shape: arguments({"activation": ACTIVATIONS}),
    "LeakyReLU": nothing,
    "ReLU": lambda shape: arguments(max_value=one_of(1.0), negative_slope=one_of(0.1)),
    "PReLU": nothing,
    "BatchNormalization": lambda shape: arguments(center=st.booleans(), scale=st.booleans()),
    "LayerNormalization": nothing,
    "UnitNormalization": nothing,
    "Dropout": lambda shape: st.just({"rate": 0.5}),
    "GaussianNoise": lambda shape: st.just({"stddev": 0.5}),
    "Rescaling": lambda shape: arguments({"scale": one_of(0.5, -2.0)}, offset=one_of(3.0)),
}
KERAS_BY_RANK = {
    1: {"Reshape": reshape, "RepeatVector": lambda shape: st.just({"n": 2})},
    **{
        ndims + 1: {
            "Flatten": nothing,
            "Reshape": reshape,
            "Permute": permute,
            f"Conv{ndims}D": keras_conv(ndims),
            f"Conv{ndims}DTranspose": keras_conv(ndims),
            f"MaxPooling{ndims}D": keras_windows(ndims),
            f"AveragePooling{ndims}D": keras_windows(ndims),
            f"GlobalAveragePooling{ndims}D": lambda shape: arguments(keepdims=st.booleans()),
            f"GlobalMaxPooling{ndims}D": nothing,
            f"ZeroPadding{ndims}D": border("padding", ndims),
            f"Cropping{ndims}D": border("cropping", ndims),
            f"UpSampling{ndims}D": lambda shape: st.just({"size": 2}),
        }
        for ndims in (1, 2, 3)
    },
}
KERAS_BY_RANK[2] |= {
    "LSTM": lambda shape: arguments({"units": st.integers(1, 3)}, return_sequences=st.booleans()),
    "GRU": lambda shape: arguments({"units": st.integers(1, 3)}, return_sequences=st.booleans()),
}
KERAS_BY_RANK[3] |= {
    "SeparableConv2D": keras_conv(2, EVEN, depth_multiplier=st.integers(1, 2)),
    "DepthwiseConv2D": lambda shape: arguments({**windows(2), **EVEN}, activation=ACTIVATIONS),
}


@st.composite
def keras_networks(draw, policies=("float32", "float32", "float64", "mixed_bfloat16")):
    """Descriptions of networks of Keras' own layers, all of which can be built."""
    shape, layers, levels = draw(SHAPES_OF_DATA), [], draw(one_of(None, None, 2, 256))
    if len(shape) == 1 and draw(st.integers(0, 3)) == 0:
        levels, layers = 7, [("Embedding", {"input_dim": 7, "output_dim": draw(st.integers(1, 3))})]

    def kinds(shape):
        return {**KERAS, **KERAS_BY_RANK.get(len(shape), {})}

    joins = ("Add", "Concatenate", "Multiply", "Subtract", "Average", "Maximum", "Minimum")
    start = (*shape, layers[0][1]["output_dim"]) if layers else shape
    with contextlib.suppress(IndexError):
        drawn, behind = Drawing(draw, kl, kinds, joins).layers(start, 1, 5)
        drawn = drawn if behind is not None else drawn[:-1]
        layers = [*layers, *drawn]
    options = {"by": draw(one_of("layer", "layer", "auto", "block", "model")), "levels": levels}
    options |= {"trainable": draw(one_of("all", "densities")), "policy": draw(st.sampled_from(policies))}
    if "Pooling3D" in str(layers):  # TensorFlow has no kernels for other types on CPUs.
        options["policy"] = "float32"
    return KerasNetwork(shape, layers or [("Dense", {"units": 2})], **options)
