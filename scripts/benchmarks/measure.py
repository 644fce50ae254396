"""Time, memory and size of graphs."""

import statistics
import time

import keras
import numpy as np
import tensorflow as tf


class Effort:
    """The length of a measurement.

    Args:
      quick: Whether this is a first look: the same figures from fewer repetitions.
    """

    def __init__(self, quick: bool):
        self.quick = quick
        self.seconds, self.least, self.rounds = (0.4, 3, 1) if quick else (1.5, 10, 2)


def milliseconds(function, effort: Effort) -> float:
    """The median time of a call, once it is warm; the function must wait for its result."""
    function(), function()
    times, begun = [], time.perf_counter()
    while len(times) < effort.least or time.perf_counter() - begun < effort.seconds:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def side_by_side(functions: dict, effort: Effort) -> dict:
    """Milliseconds of each of some functions, in turns, so that what else the machine does meets all of them."""
    rounds = [{name: milliseconds(function, effort) for name, function in functions.items()}]
    rounds += [{name: milliseconds(f, effort) for name, f in functions.items()} for _ in range(effort.rounds - 1)]
    return {name: min(times[name] for times in rounds) for name in functions}


def first_step(model, batches) -> float:
    """Seconds from `fit` to the end of its first step."""
    begun = time.perf_counter()
    model.fit(batches, steps_per_epoch=1, shuffle=False, verbose=0)
    return time.perf_counter() - begun


def training_step(model, batches):
    """A function that does one step of `fit`, of a model that has done one."""
    iterator, function = iter(batches), model.train_function
    return lambda: float(tf.reduce_sum(tf.nest.flatten(function(iterator))[0]))


def graph_size(model, batches) -> int:
    """Operations of the training step, those of functions inside too."""
    step = tf.function(model.train_step).get_concrete_function(batches.element_spec)
    graph = step.graph.as_graph_def()
    return len(graph.node) + sum(len(function.node_def) for function in graph.library.function)


def images(shape, count=1024, seed=0) -> np.ndarray:
    """Smooth images with borders of black, as whole numbers 0 ... 255."""
    height, width, channels = shape
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / np.array([height, width]).reshape(2, 1, 1)
    waves = generator.normal(size=(count, 1, 1, channels, 3)) * 3
    values = np.sin(waves[..., 0] * x[..., None] + waves[..., 1] * y[..., None] + waves[..., 2])
    noisy = 255 * (0.4 + 0.5 * values) + generator.normal(scale=8, size=(count, *shape))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def batches_of(x, batch_size) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(x).batch(batch_size, drop_remainder=True).cache().repeat().prefetch(2)


def forget():
    """Frees what the models before have left behind."""
    keras.backend.clear_session(free_memory=True)


def exponent(sizes, times) -> float:
    """The power of the size with which the time grows, fitted to the larger half of the sizes."""
    half = max(2, len(sizes) // 2 + 1)
    return float(np.polyfit(np.log(sizes[-half:]), np.log(times[-half:]), 1)[0])
