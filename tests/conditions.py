"""Small conditional flows, and data with conditions in all forms, for the tests."""

import keras
import numpy as np
import tensorflow as tf
from models import jitter

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl

RNG = np.random.default_rng(0)
C = RNG.normal(size=(40, 3)).astype("float32")
X = (C[:, :2] + 0.3 * RNG.normal(size=(40, 2))).astype("float32")


def coupled(**kwargs):
    """Layers that read the condition, layers that drop and layers that add."""
    stack = [fl.Normalization(), fl.ConditionalAffine(), fl.SplineCoupling(width=8), fl.Dense(3), fl.LeakyReLU()]
    return FlowModel([keras.Input([2]), *stack, fl.ConditionalSpline(4, width=8), fl.Dense(1)], **kwargs)


def plain(**kwargs):
    """No layer reads the condition; the densities do."""
    return FlowModel([keras.Input([2]), fl.Dense(3), fl.LeakyReLU(), fl.Dense(1)], **kwargs)


def adapted_flow():
    """A flow that is not at its start, and that no test changes."""
    keras.utils.set_random_seed(0)
    flow = coupled(condition=(3,))
    flow.adapt(X, condition=C, seed=1)
    jitter(flow)
    return flow


def label_network():
    return keras.Sequential([keras.Input((), dtype="int32"), keras.layers.Embedding(5, 3)])


def forms():
    """The same data in all forms that `fit` takes."""
    both = {"x": X, "condition": C}
    slices = tf.data.Dataset.from_tensor_slices
    return {
        "list": [X, C],
        "tuple": (X, C),
        "dict": both,
        "tensors": [tf.constant(X), tf.constant(C)],
        "dataset of dicts": slices(both).batch(20),
        "dataset of pairs": slices(((X, C),)).batch(20),
        "dataset with labels": slices(((X, C), np.zeros(40))).batch(20),
        "dataset of dicts with weights": slices((both, np.zeros(40), np.ones(40))).batch(20),
        "generator": (((X[i : i + 20], C[i : i + 20]),) for i in (0, 20)),
    }
