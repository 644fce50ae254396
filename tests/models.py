"""Small flow models and training runs for the tests."""

import keras
import numpy as np

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl

#: Arguments of a training run that takes seconds.
SMALL_RUN = ["--model", "fmlp", "--transform", "affine", "--no-xla", "--draws", "10", "--weighted-examples", "100"]

#: What a run draws.
PICTURES = ("curves.png", "samples.png", "samples_mean.png", "reconstructions.png")


def small_flow():
    """Vectors of three numbers: two dimensions of noise come in, three are dropped."""
    return FlowModel([keras.Input([3]), fl.Dense(5), fl.LeakyReLU(), fl.Dense(2)])


def digits_flow():
    """The digits that ship with the package: two convolutions, a spline, two dense layers."""
    return FlowModel(
        [
            keras.Input((8, 8, 1)),
            fl.Dequantize(17),
            fl.Rescaling(4.0, -2.0),
            fl.Conv2D(8, 2, 2),
            fl.Spline(),
            fl.Conv2D(16, 2, 2),
            fl.LeakyReLU(),
            fl.Flatten(),
            fl.Dense(16),
            fl.Dense(10),
        ]
    )


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def jitter(model):
    """Moves all weights a little from where they start, so that zeros do not hide anything."""
    generator = np.random.default_rng(2)
    for weight in model.trainable_variables:
        weight.assign_add(0.1 * generator.normal(size=weight.shape))
