"""Posterior estimation: a flow of parameters given data, trained on simulations."""

import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import layers
from tfp_flowify.core.types import RawCondition, Shape, TensorLike
from tfp_flowify.model import FlowModel
from tfp_flowify.optimizer import FusedAdam

#: The learning rate at the start; it falls to zero along a cosine, over the time that there is.
LEARNING_RATE = 2e-3

#: Each time that validation does not improve, the best weights are taken back and the rate is multiplied by this.
LOWER = 0.3

#: How often that is done before training ends.
TIMES = 4

#: With fewer simulations there would be next to none to validate on.
FEWEST = 20

#: Steps that are taken between two looks at the clock.
AT_ONCE = 8

#: After so many steps without improvement, in whole epochs and at least two.
PATIENCE = 400


def posterior_flow(
    features: int,
    condition: keras.Model | Shape | dict[str, Shape],
    low: Sequence[float] | np.ndarray | None = None,
    high: Sequence[float] | np.ndarray | None = None,
    blocks: int = 5,
    width: int = 64,
    bins: int = 8,
    seed: int | None = None,
) -> FlowModel:
    """A flow for parameters given data: splines coupled in turns, with rotations between them. Exact.

    Args:
      features: Number of parameters.
      condition: The data: a shape, a dict of shapes, or a Keras model that embeds them. See `FlowModel`.
      low, high: The box that parameters are in, a number for each; samples never leave it. None for no bounds.
      blocks: Number of couplings.
      width: Units of the hidden layers of their networks.
      bins: Number of pieces of the splines.
      seed: Seed for the noise in training; there is none in this flow but in a network of yours.

    >>> posterior_flow(2, condition=(3,), low=[-1.0, -1.0], high=[1.0, 1.0]).is_exact
    True
    """
    if (low is None) != (high is None):
        raise ValueError(f"A box has both sides, low and high. Received: low={low}, high={high}")
    front = [
        keras.Input([features]),
        *([] if low is None or high is None else [layers.Logit(low, high)]),
        layers.Normalization(),
    ]
    body = [layers.ConditionalAffine(width=width)]
    for i in range(blocks if features > 1 else 0):
        body += [layers.SplineCoupling(swap=bool(i % 2), bins=bins, bound=4.0, width=width), layers.Dense(features)]
    return FlowModel([*front, *body], "spline" if features == 1 else "normal", seed, condition, name="posterior")


def fit_posterior(
    flow: FlowModel,
    theta: TensorLike,
    x: RawCondition,
    minutes: float = 1.0,
    batch_size: int = 128,
    seed: int = 0,
    adapt: bool = True,
    verbose: int | str = 0,
) -> dict:
    """Trains a flow on simulations, until validation no longer improves or time is used up; keeps the best weights.

    A tenth of the simulations, chosen at random, is for validation. Where it no longer improves, training goes on from
    the best weights with a lower learning rate, a few times.

    Args:
      flow: A conditional `FlowModel`.
      theta, x: Parameters and data of simulations, (n, ...) each; x in the structure that the flow takes.
      minutes: Time for training.
      batch_size: Size of batches; larger ones for more simulations.
      seed: Seed for the choice and the order of simulations.
      adapt: Whether to set scales and shifts to these simulations first, as a fresh flow needs it. It would undo what a
        trained one has learned: with False training goes on, and what it began with stays if nothing better is found.
        Then give new simulations alone: the flow knows those of before too well for a fair comparison.
      verbose: As in Keras.

    Returns:
      The best validation figure in nats, epochs, and seconds.

    >>> fit_posterior(flow, theta, x, minutes=1.0)["validation"]  # doctest: +SKIP
    """
    theta, begun = np.asarray(theta, flow.variable_dtype), time.perf_counter()
    if len(theta) < FEWEST:
        raise ValueError(f"A posterior is learned from {FEWEST} simulations or more. Received: {len(theta)}")
    order = np.random.default_rng(seed).permutation(len(theta))
    held_out, used = np.split(order, [len(theta) // 10])
    if adapt:
        flow.adapt(theta[used], condition=_rows(x, used), seed=seed)
    _check_support(flow, theta, x)
    steps, validation = -(-len(used) // batch_size), {"x": theta[held_out], "condition": _rows(x, held_out)}
    validation_batch_size = max(batch_size, min(len(held_out), 2000))
    plateau = Plateau(max(2, -(-PATIENCE // steps)), minutes, begun)
    flow.compile(FusedAdam(LEARNING_RATE, global_clipnorm=5.0), steps_per_execution=min(AT_ONCE, steps))
    if not adapt:
        before = flow.evaluate(validation, batch_size=validation_batch_size, verbose=0, return_dict=True)
        plateau.consider(flow, before["nll"])
    flow.fit(
        _batches(theta, x, used, batch_size, seed),
        validation_data=(validation,),
        validation_batch_size=validation_batch_size,
        epochs=10**6,
        shuffle=False,  # The batches are.
        callbacks=[plateau],
        verbose=verbose,
    )
    if plateau.weights is None:
        raise FloatingPointError("Training diverged: no epoch had a finite validation figure.")
    if not adapt and plateau.best >= before["nll"]:
        warnings.warn("No epoch was better than what training began with: the flow is as it was.", stacklevel=2)
    return {"validation": -plateau.best, "epochs": plateau.epochs, "seconds": time.perf_counter() - begun}


def _check_support(flow, theta, x):
    """Raises an error where parameters lie where the flow has no density, such as on the sides of a box."""
    extreme = np.unique(np.concatenate([theta.argmin(axis=0), theta.argmax(axis=0)]))
    log_prob = np.asarray(flow.log_prob(theta[extreme], condition=_rows(x, extreme)))
    if np.isneginf(log_prob).any():
        outside = theta[extreme][np.isneginf(log_prob)][0]
        raise ValueError(
            f"The flow has no density at {outside}: parameters lie between the sides of the box, not on them."
        )


def _batches(theta, x, rows, batch_size, seed) -> tf.data.Dataset:
    """Batches of simulations in an order that depends on the seed alone, another one in each epoch."""
    inputs = keras.tree.map_structure(tf.convert_to_tensor, {"x": theta, "condition": x})
    order = tf.data.Dataset.from_tensor_slices(rows).shuffle(len(rows), seed=seed).batch(batch_size)

    def take(chosen):
        return keras.tree.map_structure(lambda value: tf.gather(value, chosen), inputs)

    return order.map(take, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


class Plateau(keras.callbacks.Callback):
    """Keeps the best weights by validation; lowers the learning rate from there, and ends training after a few times.

    Args:
      patience: Epochs without improvement before the rate is lowered.
      minutes: Time for training, over which the rate falls.
      begun: When it began, by `time.perf_counter`.
    """

    def __init__(self, patience: int, minutes: float, begun: float):
        super().__init__()
        self.patience, self.minutes, self.begun = patience, minutes, begun
        self.best, self.weights, self.epochs, self.waited, self.lowered = np.inf, None, 0, 0, 0

    def consider(self, model: keras.Model, nll: float) -> None:
        """Keeps the weights of a model if its validation figure is the best so far."""
        if nll < self.best:
            self.best, self.weights, self.waited = nll, model.get_weights(), 0

    def _share(self):
        """The share of the time that is used up."""
        return min(1.0, (time.perf_counter() - self.begun) / (60 * self.minutes))

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        rate = LEARNING_RATE * LOWER**self.lowered * 0.5 * (1 + math.cos(math.pi * self._share()))
        self.model.optimizer.learning_rate = rate

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self._share() >= 1:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs, self.waited = self.epochs + 1, self.waited + 1
        self.consider(self.model, logs["val_nll"])
        if self.waited < self.patience:
            return
        self._take_best()
        self.waited, self.lowered = 0, self.lowered + 1
        if self.lowered == TIMES:
            self.model.stop_training = True

    def on_train_end(self, logs: dict | None = None) -> None:
        self._take_best()

    def _take_best(self):
        if self.weights is not None:
            self.model.set_weights(self.weights)


def _rows(x, rows):
    return keras.tree.map_structure(lambda value: np.asarray(value)[rows], x)
