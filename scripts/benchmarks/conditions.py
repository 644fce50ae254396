"""What a condition of ten numbers costs: the same network with it and without."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.measure import Effort, first_step, forget, images, side_by_side, training_step
from tfp_flowify import FlowModel, FusedAdam, layers, zoo

NUMBERS = 10


def measure_conditions(effort: Effort) -> list:
    """Times of flows with and without a condition, taken in turns."""
    rows = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
    pictures = images((28, 28, 1), count=128)
    cases = {
        "mnist_fconv2": (pictures, lambda **c: zoo.build("fconv2", (28, 28, 1), levels=256, **c)),
        "mnist_fmlp": (pictures, lambda **c: zoo.build("fmlp", (28, 28, 1), levels=256, **c)),
        "table fmlp, 8 columns": (rows, lambda **c: zoo.build("fmlp", (8,), **c)),
        "4 spline couplings, 8 columns": (rows, _couplings),
    }
    return [_measure(name, x, make, effort) for name, (x, make) in cases.items()]


def _measure(name, x, make, effort):
    forget()
    condition = np.random.default_rng(1).normal(size=(len(x), NUMBERS)).astype("float32")
    plain, given = make(), make(condition=(NUMBERS,))
    steps = {}
    for key, flow, data in (("plain_ms", plain, x), ("given_ms", given, {"x": x, "condition": condition})):
        batches = tf.data.Dataset.from_tensors(data).repeat()
        flow.compile(FusedAdam(), jit_compile=False)
        first_step(flow, batches)
        steps[key] = training_step(flow, batches)
    times = side_by_side(steps, effort)
    scores = side_by_side(
        {
            "plain_log_prob_ms": lambda: plain.log_prob(x, seed=0).numpy(),
            "given_log_prob_ms": lambda: given.log_prob(x, seed=0, condition=condition).numpy(),
        },
        effort,
    )
    return {
        "network": name,
        **times,
        "ratio": times["given_ms"] / times["plain_ms"],
        **scores,
        "log_prob_ratio": scores["given_log_prob_ms"] / scores["plain_log_prob_ms"],
    }


def _couplings(**condition):
    stack = [keras.Input([8]), layers.Normalization()]
    for i in range(4):
        stack += [layers.SplineCoupling(swap=bool(i % 2)), layers.Dense(8)]
    return FlowModel(stack, **condition)
