"""Samples of densities that are known up to a constant: from fine grids, and from many chains."""

from collections.abc import Callable, Sequence

import numpy as np


def sample_grid(
    log_density: Callable[[np.ndarray], np.ndarray],
    low: Sequence[float] | np.ndarray,
    high: Sequence[float] | np.ndarray,
    n: int,
    generator: np.random.Generator,
    size: int = 200,
    zooms: int = 3,
) -> np.ndarray:
    """Samples of a density in the plane, from a grid that is drawn closer around its mass a few times.

    Args:
      log_density: Function of points (n, 2), up to a constant.
      low, high: The corners of a box that holds its mass, (2,) each.
      n: Number of samples.
      generator: NumPy's random generator.
      size: Points of the grid along each side.
      zooms: How often the box is drawn closer.
    """
    for zoom in range(zooms + 1):
        width = (np.asarray(high) - low) / size
        axes = [low[i] + width[i] * (np.arange(size) + 0.5) for i in range(2)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        values = log_density(points)
        weights = np.exp(values - values.max())
        if zoom < zooms:
            held = points[weights > 1e-9]
            low, high = held.min(axis=0) - width, held.max(axis=0) + width
    chosen = points[generator.choice(len(points), size=n, p=weights / weights.sum())]
    return chosen + width * generator.uniform(-0.5, 0.5, size=(n, 2))


def sample_chains(
    log_density: Callable[[np.ndarray], np.ndarray],
    start: Callable[[int], np.ndarray],
    n: int,
    generator: np.random.Generator,
    chains: int = 1000,
    steps: int = 3000,
) -> np.ndarray:
    """Samples of a density by many chains with differential evolution moves (ter Braak 2006), the ends of all of them.

    Chains start where the density is high among many points, in proportion to it, so that all modes are found. Each
    proposes to move along the difference of two others.

    Args:
      log_density: Function of points (n, d), up to a constant; -inf outside of its support.
      start: Function of a number that gives as many points to choose starts from.
      n: Number of samples.
      generator: NumPy's random generator.
      chains: Number of chains.
      steps: Moves of each chain before the first sample is taken.
    """
    points = start(200 * chains)
    values = log_density(points)
    weights = np.exp(values - values.max())
    state = points[generator.choice(len(points), size=chains, p=weights / weights.sum())]
    value, found, every = log_density(state), [], 50
    size, half, step = state.shape[1], chains // 2, 0
    while len(found) * chains < n:
        step += 1
        for mine, others in ((slice(0, half), slice(half, chains)), (slice(half, chains), slice(0, half))):
            pool = state[others]
            count = len(state[mine])
            first, second = (pool[generator.integers(len(pool), size=count)] for _ in range(2))
            scale = 1.0 if step % 10 == 0 else 2.38 / np.sqrt(2 * size)
            proposal = state[mine] + scale * (first - second) + 1e-4 * generator.normal(size=(count, size))
            proposed = log_density(proposal)
            accept = np.log(generator.uniform(size=count)) < proposed - value[mine]
            state[mine] = np.where(accept[:, None], proposal, state[mine])
            value[mine] = np.where(accept, proposed, value[mine])
        if step >= steps and step % every == 0:
            found.append(state.copy())
    return np.concatenate(found)[:n]
