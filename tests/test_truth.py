"""Trained flows against data whose entropy is known: no figure may be better than the truth."""

import keras
import numpy as np
import pytest

from tfp_flowify import zoo

LEVELS, ROWS, COLUMNS, MOVES = 4, 6, 6, 0.2


def walks(count, seed):
    """Images whose rows are walks: each pixel is the one before it, and with some probability the next level."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, LEVELS, [count, ROWS, 1])
    steps = rng.random([count, ROWS, COLUMNS - 1]) < MOVES
    walk = np.concatenate([start, start + np.cumsum(steps, axis=-1)], axis=-1) % LEVELS
    return walk[..., None].astype(np.uint8)


def entropy() -> float:
    """Bits per pixel."""
    choice = -MOVES * np.log2(MOVES) - (1 - MOVES) * np.log2(1 - MOVES)
    return (np.log2(LEVELS) + (COLUMNS - 1) * choice) / COLUMNS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fconv1", "fconv2_nsf", "fmlp", "best_small"])
def test_no_figure_is_better_than_the_entropy(name):
    keras.utils.set_random_seed(0)
    flow = zoo.build(name, (ROWS, COLUMNS, 1), LEVELS, seed=0)
    x, x_test = walks(20_000, seed=1), walks(2_000, seed=2)
    flow.adapt(x[:500], seed=0)
    before = np.mean(flow.bits_per_dim(x_test, seed=0))
    flow.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(3e-3, 942)), jit_compile=False)
    flow.fit(x, batch_size=128, epochs=6, verbose=0)
    single = np.asarray(flow.bits_per_dim(x_test, seed=0))
    weighted = np.asarray(flow.bits_per_dim(x_test[:500], num_draws=200, seed=0))
    for bits in (single, weighted):
        error = bits.std() / np.sqrt(len(bits))
        assert bits.mean() > entropy() - 4 * error
    assert weighted.mean() < single[:500].mean() + 1e-3  # Next to exact, the two are next to the same.
    assert before - single.mean() > 0.3 * (before - entropy())  # It has learned some of what there is to learn.
