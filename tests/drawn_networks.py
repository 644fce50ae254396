"""Random networks: strategies of hypothesis that draw descriptions of them.

Drawing follows the shape from layer to layer, so that most networks can be built. Some cannot: an argument does not fit
the shape. That layer is then the last, and building the network must say so.
"""

import contextlib
import math

import keras
from drawn_layers import (
    BY_RANK,
    CONDITIONAL,
    DENSITY,
    KEEPING,
    KERAS,
    KERAS_BY_RANK,
    NOISE,
    SAME,
    WIDTH,
    arguments,
    box,
    one_of,
)
from hypothesis import strategies as st
from network_descriptions import KerasNetwork, Network, shape_behind

from tfp_flowify import layers as fl

kl = keras.layers

#: No tensor has more numbers, so that a network takes about a second.
MANY = 100

#: Functions that reach a part of the line only, or grow fast: one of each in a network, and an exponential only of
#: numbers of unit scale. Others are beyond float32: exp(exp(exp(3))), or a small number once it is mixed with exp(20).
ONCE = ("Exponential", "Tanh", "Sigmoid", "Softsign", "SELU", "ELU", "Softplus")


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


SHAPES_OF_DATA = st.one_of(
    st.tuples(st.integers(1, 6)),
    st.tuples(st.integers(1, 8), st.integers(1, 3)),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)),
    st.tuples(*[st.integers(1, 3)] * 3, st.integers(1, 2)),
)

CONDITIONS = one_of(None, None, None, (3,), (), (2, 2, 1), {"a": (2,), "b": ()}, "labels")


@st.composite
def fronts(draw, shape, levels):
    """Layers from whole numbers to real ones."""
    kind = draw(one_of("Dequantize", "Spread"))
    options = {"variational": draw(st.booleans()), "width": 4} if kind == "Spread" else {}
    front = [(kind, {"levels": levels, **options})]
    # Of many levels, rounding takes one in some ten thousand to its neighbour.
    if levels == 2 and len(shape) in (2, 3, 4) and max(shape[:-1]) > 1 and draw(st.booleans()):
        sizes = draw(arguments({**WIDTH, "levels": st.just(2)}, mixtures=one_of(1, 2), depth=one_of(2)))
        front = [("Subsample", sizes), *front]
    return tuple(front)


@st.composite
def networks(draw, policies=("float32", "float32", "float64", "mixed_bfloat16"), conditions=CONDITIONS):
    """Descriptions of flows."""
    shape, condition, levels = draw(SHAPES_OF_DATA), draw(conditions), draw(one_of(None, None, 2, 256))
    reading = {} if condition is None else {**CONDITIONAL, **CONDITIONAL}

    def kinds(shape):
        known = {**SAME, **BY_RANK.get(len(shape), {}), **reading}
        rare = () if shape[-1] > 1 or draw(st.integers(0, 9)) == 0 else ("Split", "Coupling", "SplineCoupling")
        return {kind: known[kind] for kind in known if kind not in rare}

    drawing = Drawing(draw, fl, kinds, ("Add", "Concatenate", "Multiply"))
    front = () if levels is None else draw(fronts(shape, levels))
    layers, behind = drawing.layers(shape_behind(fl, front, shape) if front else shape, 1, 5)
    if front and front[-1][0] == "Dequantize" and draw(st.booleans()):
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
    options |= {"levels": levels, "front": front, "condition": condition, "scale": draw(one_of(1.0, 5.0))}
    return Network(shape, layers, **options)


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
