"""Every network of the zoo beside its plain twin."""

import subprocess
import sys

import numpy as np
import tensorflow as tf

from benchmarks.measure import (
    Effort,
    batches_of,
    first_step,
    forget,
    graph_size,
    images,
    side_by_side,
    training_step,
)
from benchmarks.twin import twin_of
from tfp_flowify import FusedAdam, zoo
from tfp_flowify.experiments.machine import peak_memory

SHAPES = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3)}

#: Milliseconds of a training step of the paper's own code on two cores, batches of 128.
PAPER = {
    **{"mnist_fmlp": 1600, "mnist_fconv1": 1300, "mnist_fconv2": 670, "mnist_fconv1_nsf": 1150},
    **{"mnist_fconv2_nsf": 1000, "cifar10_fmlp": 65000, "cifar10_fconv1": 11700, "cifar10_fconv2": 3300},
    **{"cifar10_fconv1_nsf": 10300, "cifar10_fconv2_nsf": 4300},
}

#: The most memory that it holds, in GB, where known.
PAPER_MEMORY = {"mnist_fconv2": 0.76, "cifar10_fconv1_nsf": 3.3}

BATCH_SIZE = 128


def measure_network(name: str, xla: bool, effort: Effort) -> dict:
    """Figures of a flow and its twin, taken in turns."""
    forget()
    data, _, network = name.partition("_")
    x = images(SHAPES[data])
    batches = batches_of(x, BATCH_SIZE)
    flow = _flow(network, x, xla)
    twin = twin_of(flow)
    models = {"flow": flow, "twin": twin, "floor": twin_of(flow, as_many=True)}
    for plain in (twin, models["floor"]):
        plain.compile(FusedAdam(), jit_compile=xla)
    first = {name: first_step(model, batches) for name, model in models.items()}
    step = side_by_side({name: training_step(model, batches) for name, model in models.items()}, effort)
    row = {
        "network": name,
        "xla": xla,
        "weights": sum(int(np.prod(w.shape)) for w in flow.trainable_variables),
        "step_ms": step["flow"],
        "twin_step_ms": step["twin"],
        "ratio": step["flow"] / step["twin"],
        "floor_step_ms": step["floor"],
        "floor_ratio": step["flow"] / step["floor"],
        "first_step_s": first["flow"],
        "twin_first_step_s": first["twin"],
        "graph": graph_size(flow, batches),
        "twin_graph": graph_size(twin, batches),
        "paper_step_ms": PAPER.get(name),
        "paper_memory_gb": PAPER_MEMORY.get(name),
    }
    return row if xla else {**row, **_without_training(flow, twin, x[:BATCH_SIZE], effort)}


def _without_training(flow, twin, x, effort):
    """The density, whose cost is that of the twin's forward pass, and samples."""
    x, forward = np.asarray(x), tf.function(twin)
    times = side_by_side(
        {
            "log_prob_ms": lambda: flow.log_prob(x, seed=0).numpy(),
            "twin_forward_ms": lambda: forward(tf.constant(x))[0].numpy(),
            "sample_ms": lambda: flow.sample(BATCH_SIZE, seed=0).numpy(),
        },
        effort,
    )
    return {**times, "log_prob_ratio": times["log_prob_ms"] / times["twin_forward_ms"]}


def _flow(network, x, xla):
    flow = zoo.build(network, x.shape[1:], levels=256, seed=0)
    flow.adapt(x[:256], seed=0)
    flow.compile(FusedAdam(), jit_compile=xla)
    return flow


def memory_of(name: str, num_draws=0) -> float:
    """Peak GB of a process that trains the network for some steps, or scores images, and does nothing else."""
    command = [sys.executable, sys.argv[0], "--memory-of", name, str(num_draws)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def work(name: str, num_draws: int, steps=10) -> float:
    """Does the work of which `memory_of` measures the memory; "nothing" only imports."""
    if name == "nothing":
        return peak_memory() / 1e9
    data, _, network = name.partition("_")
    x = images(SHAPES[data], count=2 * BATCH_SIZE)
    flow = _flow(network, x, xla=False)
    if num_draws:
        flow.log_prob(x[:16], num_draws=num_draws, seed=0)
    else:
        flow.fit(batches_of(x, BATCH_SIZE), steps_per_epoch=steps, shuffle=False, verbose=0)
    return peak_memory() / 1e9


def measure_draws() -> list:
    """Memory against the draws of the noise for each image."""
    return [{"draws": draws, "memory_gb": memory_of("mnist_fconv1", draws)} for draws in (16, 1000)]


def names(wanted) -> list:
    """Networks by name, `mnist_fconv2`; all if none are named."""
    known = [f"{data}_{network}" for data in SHAPES for network in zoo.IMAGE_MODELS]
    unknown = [name for name in wanted or [] if name not in known]
    if unknown:
        raise ValueError(f"--models are {', '.join(known)}. Received: {', '.join(unknown)}")
    return wanted or known
