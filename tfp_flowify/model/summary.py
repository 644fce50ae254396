"""A table of a flow: its layers, their weights, and where dimensions are added and dropped."""

import math

import keras

from tfp_flowify.core.checks import event_shapes
from tfp_flowify.core.private import calls_of
from tfp_flowify.layers.graph import Copies

HEAD = ("layer", "output shape", "weights", "densities", "adds noise", "drops")

#: Beyond so many dimensions of noise for each of the data, the bound is likely to be loose.
MUCH_NOISE = 4


def flow_summary(flow: keras.Model) -> str:
    """The table of a built `FlowModel` as text."""
    bijector = flow.distribution.bijector
    rows = [("data", _shape(bijector.inputs[0]), "", "", "", ""), *_layer_rows(flow, bijector)]
    widths = [max(len(row[i]) for row in [HEAD, *rows]) for i in range(len(HEAD))]
    lines = [_line(row, widths) for row in [HEAD, *rows]]
    rule = "-" * len(lines[0])
    return "\n".join([f"Flow {flow.name!r}", rule, lines[0], rule, *lines[1:], rule, *_totals(flow, bijector)])


def _layer_rows(flow, bijector):
    pairs = iter(zip(calls_of(flow.network), flow.densities.parts, strict=True))
    for inside in bijector.bijectors:
        shapes = ", ".join(map(_shape, inside.outputs))
        noise, dropped = (" ".join(map(_shape, event_shapes(d))) for d in (inside.noise, inside.residuals))
        if isinstance(inside, Copies):
            yield ("(used more than once)", shapes, "", "1", noise, dropped)
        else:
            call, part = next(pairs)
            layer = call.operation
            title = f"{layer.name} ({type(layer).__name__})"
            yield (title, shapes, f"{layer.count_params():,}", f"{part.count_params():,}", noise, dropped)


def _totals(flow, bijector):
    network, densities = flow.network.count_params(), flow.densities.count_params()
    data, output = (sum(map(math.prod, shapes)) for shapes in (bijector.inputs, bijector.outputs))
    noise, dropped = (sum(d.dimension for d in parts) for parts in (bijector.noise, bijector.residuals))
    noise -= data if bijector.takes_integers else 0  # It makes real numbers of whole ones, which are the data here.
    trained = sum(math.prod(variable.shape) for variable in flow.trainable_variables)
    lines = [
        f"Weights: {network:,} of the network, {densities:,} of densities; {trained:,} are trained.",
        f"Dimensions: {data:,} of data + {noise:,} of noise = {output:,} of output + {dropped:,} dropped.",
        f"The likelihood is {'exact' if flow.is_exact else 'a lower bound'}.",
    ]
    lines += flow.notes
    if flow.condition_network is not None:
        lines.insert(0, flow.describe_condition())
    if noise > MUCH_NOISE * data:
        lines.append(
            f"Warning: there are {noise / data:.0f} dimensions of noise for each of the data, so this bound is likely "
            "to be loose. See docs/choose.md for what to do."
        )
    return lines


def _shape(shape):
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _line(row, widths):
    return (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        .rstrip()
        .ljust(sum(widths) + 2 * (len(widths) - 1))
    )
