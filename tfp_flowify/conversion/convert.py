"""`flowify`: a Keras network that exists, with its weights, becomes a flow."""

import functools
from collections.abc import Callable, Sequence

import keras

from tfp_flowify import layers as fl
from tfp_flowify.conversion.copying import Names
from tfp_flowify.conversion.densities import density_for, output_density
from tfp_flowify.conversion.graph import Stretch, run, stretches_of
from tfp_flowify.conversion.plan import plan
from tfp_flowify.conversion.prepare import default_policy, policy_of, prepared
from tfp_flowify.conversion.registry import converter_of
from tfp_flowify.core.moments import LEAST_SHARE
from tfp_flowify.core.private import calls_between
from tfp_flowify.layers.arguments import one_of
from tfp_flowify.model import FlowModel

#: Scale of the noise that a block adds at the start, in deviations of what it gives.
BLOCK_NOISE = 0.3


def flowify(
    model: keras.Model,
    by: str | Sequence[str] = "auto",
    *,
    levels: int | None = None,
    preprocessing: Callable | None = None,
    density: str | Callable | None = None,
    base: str | FlowModel | None = None,
    trainable: str = "densities",
    deficient: str = "lift",
    seed: int | None = None,
    name: str | None = None,
    verbose: bool = True,
) -> FlowModel:
    """Makes a flow of a Keras model that exists, with its weights; the network of the flow is that model.

    A network widens and narrows. **By layer**, each layer is made a bijection of its own: what it adds is noise, and
    what it drops gets a density. That is the paper's way, and good where the network narrows. Layers that widen add
    much noise, and the bound is loose. **By block**, a whole stretch of layers f is one layer: z = f(x) plus noise, and
    a flow of x given z. `flow.summary()` shows what was chosen, and why.

    The weights are copied; the model itself stays as it is. A softmax or sigmoid at its end is taken off.

    Args:
      model: A functional or sequential Keras model, built. A model of another kind is taken as it is, as one block.
      by: "layer"; "block", each of which ends where fewer numbers pass than anywhere before; "model", all in one
        block; "auto", what adds least noise; or names of layers behind which to cut into blocks.
      levels: For data of whole numbers 0 ... levels - 1, such as 256 for pixels: `Dequantize` then stands in front,
        and behind it what leads back to the numbers that the model was trained on. None for real numbers.
      preprocessing: What was done to data before the model saw them in training, and is no part of it: a Keras layer or
        model, such as `keras.layers.Rescaling(1 / 255)`, or a function of Keras tensors, such as
        `keras.applications.resnet50.preprocess_input`.
      density: The flow of x given z for a block: a name of the zoo; or a function of the shapes of x and z that makes a
        conditional `FlowModel`. If left out, the zoo's network for the shape of x.
      base: The density of the output, see `FlowModel`. If left out, a flow of its own where the output is a vector.
      trainable: "densities", with the network frozen; or "all".
      deficient: What to do with weights that map something to zero, such as dead filters: "lift" them to a small
        singular value, which is reported; or raise an "error".
      seed: Seed for the noise in training.
      name: Name of the flow; that of the model if left out.
      verbose: Whether to print what is done.

    >>> inputs = keras.Input([4])
    >>> model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(inputs))
    >>> flow = flowify(model, verbose=False)
    >>> flow.is_exact, flow.network.output_shape
    (True, (None, 2))
    """
    one_of("trainable", trainable, ("densities", "all"))
    one_of("deficient", deficient, ("lift", "error"))
    network, notes = prepared(model, levels, preprocessing)
    pieces = plan(stretches_of(network), by)
    with default_policy(policy_of(network)) as policy:
        x = inputs = keras.Input(network.input_shape[1:], dtype=policy.variable_dtype)
        x = x if levels is None else fl.Dequantize(levels)(x)
        for i, piece in enumerate(pieces):
            box = (0.0, 1.0) if i == 0 and levels is not None else None
            x = _block(piece.stretch, x, density, box) if piece.as_block else _layers(piece.stretch, x)
            notes.append(f"{piece.stretch.title}: {piece.why}.")
        x = fl.Reshape(tuple(x.shape[1:]))(x) if x is inputs else x  # A network that does nothing.
        flowified = _network(inputs, x, model.name)
        notes += _lifted(flowified, deficient)
        base = output_density(tuple(x.shape[1:]), policy) if base is None else base
        flow = FlowModel(flowified, base, seed, pretrained=True, notes=notes, name=name or model.name)
    flow.network.trainable = trainable == "all"
    if verbose:
        print("\n".join(notes))
    return flow


def _network(inputs, outputs, name):
    """The model between two tensors; layers of the same name, such as those of a layer that is used twice, get others.

    All of them were made here.
    """
    unique = Names().unique
    for layer in dict.fromkeys(call.operation for call in calls_between([inputs], [outputs])):
        layer.name = unique(layer.name)
    return keras.Model(inputs, outputs, name=name)


def _block(stretch: Stretch, x, density, box):
    """The tensor behind a stretch that is one layer."""
    function = stretch.as_model(f"{stretch.names[0]}_to_{stretch.names[-1]}")
    shape, given = tuple(x.shape[1:]), tuple(function.output_shape[1:])
    flow = density_for(shape, given, box, density)
    block = fl.Stochastic(
        function, noise_scale=BLOCK_NOISE, inference=True, density=flow, name=f"block_of_{stretch.names[-1]}"
    )
    return block(x)


def _layers(stretch: Stretch, x):
    """The tensor behind a stretch, converted layer by layer."""
    tensors = {id(stretch.start): x}
    for call in stretch.calls:
        run(call, functools.partial(converter_of(call), call.layer), tensors)
    return tensors[id(stretch.end)]


def _lifted(network, deficient) -> list:
    """Notes about weights that were lifted; or an error that names the first."""
    notes = []
    for layer in network.layers:
        count, change = getattr(layer, "lifted", (0, 0.0))
        if count and deficient == "error":
            raise ValueError(
                f"{layer.name} maps some directions to zero, or next to it: {count} of its singular values are less "
                f'than {LEAST_SHARE:g} of the largest. deficient="lift" lifts them to that, which changes its weights '
                f'by a share of {change:.1g}; by="block" takes it as it is.'
            )
        if count:
            notes.append(f"{layer.name}: {count} singular value(s) were lifted; its weights changed by {change:.1g}.")
    return notes
