"""The growth of the cost of a training step."""

import keras
import numpy as np

from benchmarks.measure import Effort, batches_of, exponent, first_step, forget, images, milliseconds, training_step
from tfp_flowify import FlowModel, layers, zoo


def measure_scaling(effort: Effort) -> dict:
    """For each quantity: its values, milliseconds, and the power with which they grow at the end."""
    return {
        "width": _series(_width_step, (64, 128, 256, 512, 1024), effort),
        "depth": _series(_depth_step, (2, 4, 8, 16), effort),
        "batch": _series(_batch_step, (32, 128, 512, 2048), effort),
        "image side": _series(_side_step, (8, 16, 32, 64), effort),
        "draws": _series(_draws, (16, 64, 256, 1024), effort),
    }


def _series(make, sizes, effort):
    sizes = sizes[:-1] if effort.quick else sizes
    times = []
    for size in sizes:
        forget()
        times.append(milliseconds(make(size), effort))
    return {"sizes": list(sizes), "ms": times, "exponent": exponent(sizes, times)}


def _width_step(width):
    return _dense_step(width, depth=2)


def _depth_step(depth):
    return _dense_step(128, depth)


def _dense_step(width, depth):
    """Square layers: what is measured is the linear map, not the density of what is dropped."""
    network = [layer for _ in range(depth) for layer in (layers.Dense(width), layers.Spline())]
    x = np.random.default_rng(0).normal(size=(512, width)).astype(np.float32)
    return _step(FlowModel([keras.Input([width]), *network]), x, 128)


def _batch_step(batch_size):
    return _step(_image_flow(16), images((16, 16, 1), max(batch_size, 128)), batch_size)


def _side_step(side):
    return _step(_image_flow(side), images((side, side, 1), 128), 128)


def _image_flow(side):
    return zoo.build("fconv2", (side, side, 1), levels=256, seed=0)


def _step(flow, x, batch_size):
    batches = batches_of(x, batch_size)
    flow.compile("adam")
    first_step(flow, batches)
    return training_step(flow, batches)


def _draws(num_draws):
    """The density by importance weighting, of networks that overlap."""
    flow, x = zoo.build("fconv1", (8, 8, 1), levels=256, seed=0), images((8, 8, 1), 32)
    return lambda: flow.log_prob(x, num_draws=num_draws, seed=0).numpy()
