"""The flow that the options of a run name."""

import numpy as np

from tfp_flowify import zoo
from tfp_flowify.conversion import flowify
from tfp_flowify.data import Data
from tfp_flowify.experiments.keras_file import load_keras_file
from tfp_flowify.experiments.options import Options, is_file
from tfp_flowify.model import FlowModel
from tfp_flowify.optimizer import FusedAdam


def build_flow(options: Options, data: Data) -> FlowModel:
    """The flow that options name, for data of this shape, with the weights that it starts from by itself."""
    named = {name: getattr(options, name) for name in ("transform", "stages", "density", "dropout")}
    density = {**named, **options.arguments}
    condition = None
    if data.condition is not None:
        condition = zoo.labels(data.classes) if data.classes else data.condition.shape
    if is_file(options.model):
        return _flowified(options, data)
    return zoo.build(str(options.model), data.shape, data.levels, options.noise, options.seed, condition, **density)


def fresh_flow(options: Options, data: Data) -> FlowModel:
    """That flow, looking at some of the data, compiled for its first step."""
    flow = build_flow(options, data)
    spread = np.linspace(0, len(data.train) - 1, min(500, len(data.train))).astype(int)
    flow.adapt(data.train[spread], seed=options.seed, **data.given("train", spread))
    flow.compile(_optimizer(options), jit_compile=uses_xla(options))
    return flow


def _optimizer(options):
    # Only kernels of networks decay: scales and rotations are not large or small, but right or wrong.
    return FusedAdam(
        options.learning_rate,
        global_clipnorm=options.clip_norm or None,
        weight_decay=options.weight_decay or None,
        use_ema=options.average > 0,
        ema_momentum=options.average or 0.99,
        decayed=["kernel"],
    )


def uses_xla(options: Options) -> bool:
    """Whether the training step is compiled by XLA, which does not go with several devices."""
    return bool(options.xla) and options.strategy == "none"


def _flowified(options, data: Data):
    """The network in a file as a flow of the data."""
    if data.condition is not None:
        raise ValueError("A network from a file is flowified without a condition. Leave out condition=...")
    if options.arguments:
        raise ValueError(
            f"arguments are for networks by name, and {options.model} is a file. Received: {options.arguments}"
        )
    model = load_keras_file(options.model, compile=False)
    if tuple(model.input_shape[1:]) != tuple(data.shape):
        raise ValueError(f"{options.model} takes {model.input_shape[1:]}, and the data are {data.shape}.")
    return flowify(model, options.by, levels=data.levels, seed=options.seed)
