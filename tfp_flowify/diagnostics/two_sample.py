"""Whether two sets of samples can be told apart."""

import keras
import numpy as np

from tfp_flowify.core.seeds import seeded
from tfp_flowify.core.types import TensorLike

#: Steps in one call of `fit`, at least.
FITTED = 50


def c2st(
    samples: TensorLike,
    reference: TensorLike,
    folds: int = 5,
    width: int | None = None,
    steps: int = 2000,
    seed: int = 0,
) -> float:
    """The classifier two-sample test: how often a network tells samples from reference samples, on held-out ones.

    0.5 means that it cannot, 1 that it always can (Friedman 2004, Lopez-Paz and Oquab 2017). All folds of the
    cross-validation are trained at once, as parts of one Keras model. Values are standardized by the reference.

    Args:
      samples, reference: Arrays (n, d); of the larger set as many are used as the smaller one has.
      folds: Number of parts that are held out in turn.
      width: Units of the two hidden layers; ten for each dimension if left out, and at least 32.
      steps: Training steps, of 200 samples each.
      seed: Seed for the split, the weights and the order.

    >>> points = np.random.default_rng(0).normal(size=(400, 2))
    >>> c2st(points, points + 10.0, steps=300)
    1.0
    """
    samples, reference = (np.asarray(x, np.float64) for x in (samples, reference))
    if samples.ndim != 2 or reference.ndim != 2 or samples.shape[1] != reference.shape[1]:
        raise ValueError(f"c2st takes two arrays (n, d). Received: shapes {samples.shape} and {reference.shape}")
    count = min(len(samples), len(reference))
    if count < 2 * folds:
        raise ValueError(f"c2st needs two samples of each kind for each of {folds} folds. Received: {count}")
    if not (np.isfinite(samples).all() and np.isfinite(reference).all()):
        raise ValueError("c2st takes finite samples. Received: NaN or infinite entries.")
    generator = np.random.default_rng(seed)
    chosen = [x[generator.permutation(len(x))[:count]] for x in (samples, reference)]
    mean, deviation = chosen[1].mean(axis=0), chosen[1].std(axis=0)
    x = ((np.concatenate(chosen) - mean) / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)
    x = np.clip(x, -1e3, 1e3)
    y = np.repeat(np.array([1, 0], np.float32), count)
    fold = np.concatenate([generator.permutation(count) % folds for _ in range(2)])
    with seeded(seed):
        network = _networks(x.shape[1], folds, width or max(32, 10 * x.shape[1]))
        _train(network, x, y, fold, steps, generator)
    logits = np.asarray(network(np.repeat(x[:, None], folds, axis=1)))
    held_out = logits[np.arange(len(x)), fold]
    return float(np.mean((held_out > 0) == (y > 0.5)))


def _networks(features, folds, width):
    """As many classifiers as folds, side by side: (batch, folds, features) -> (batch, folds) logits."""
    inputs = keras.Input((folds, features))
    hidden = inputs
    for _ in range(2):
        hidden = keras.layers.EinsumDense("bki,kij->bkj", (folds, width), bias_axes="kj", activation="relu")(hidden)
    logits = keras.layers.EinsumDense("bki,kij->bkj", (folds, 1), bias_axes="kj")(hidden)
    return keras.Model(inputs, keras.layers.Reshape((folds,))(logits))


def _train(network, x, y, fold, steps, generator, batch_size=200):
    """Trains each classifier on all folds but its own."""
    rows = [np.flatnonzero(fold != k) for k in range(fold.max() + 1)]
    size = min(map(len, rows))
    batch_size = min(batch_size, size)
    per_epoch = size // batch_size
    epochs = -(-FITTED // per_epoch)  # At once, since each call of `fit` takes its time.
    rate = keras.optimizers.schedules.CosineDecay(2e-3, steps)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    network.compile(keras.optimizers.Adam(rate), loss, steps_per_execution=per_epoch * epochs, jit_compile=False)
    for _ in range(-(-steps // (per_epoch * epochs))):
        passes = [[generator.permutation(r)[: per_epoch * batch_size] for r in rows] for _ in range(epochs)]
        order = np.concatenate(passes, axis=1).T
        network.fit(x[order], y[order], batch_size=batch_size, shuffle=False, verbose=0)
