"""Whether posteriors are as wide as they should be: ranks of true parameters, and coverage of credible regions.

Simulation-based calibration (Talts et al. 2018): draw parameters from the prior, data from the simulator, and samples
of the posterior given the data. If the posterior is right, the rank of the true parameter among them is uniform.
"""

import numpy as np
import tensorflow_probability as tfp

from tfp_flowify.core.types import TensorLike


def ranks(truths: TensorLike, draws: TensorLike) -> np.ndarray:
    """How many draws lie below the truth, for each parameter.

    Args:
      truths: True parameters (n, d).
      draws: Samples of the posterior for each of them, (draws, n, d).

    >>> ranks([[0.5]], [[[0.0]], [[1.0]], [[2.0]]]).tolist()
    [[1]]
    """
    truths, draws = np.asarray(truths), np.asarray(draws)
    if draws.ndim != 3 or draws.shape[1:] != truths.shape:
        raise ValueError(f"ranks takes (n, d) and (draws, n, d). Received: {truths.shape} and {draws.shape}")
    return np.sum(draws < truths, axis=0)


def uniformity(ranks: TensorLike, num_draws: int, bins: int = 20) -> np.ndarray:
    """The p-value of a chi-square test that ranks are uniform, for each parameter: small where they are not.

    Args:
      ranks: What `ranks` gives, (n, d), numbers 0 ... num_draws.
      num_draws: Number of draws that they are ranks among; num_draws + 1 a multiple of `bins` makes bins equal.
      bins: Number of bins of the histogram.

    >>> even = np.repeat(np.arange(20), 50)[:, None]
    >>> uniformity(even, num_draws=19).round(3).tolist()
    [1.0]
    """
    ranks = np.asarray(ranks)
    counts, expected = rank_histogram(ranks, num_draws, bins)
    statistic = np.sum((counts - expected[:, None]) ** 2 / expected[:, None], axis=0)
    return np.asarray(tfp.distributions.Chi2(np.float64(bins - 1)).survival_function(statistic))


def rank_histogram(ranks: TensorLike, num_draws: int, bins: int = 20) -> tuple:
    """Counts (bins, d) of ranks, and the counts (bins,) that are expected where ranks are uniform."""
    if not 2 <= bins <= num_draws + 1:
        raise ValueError(f"There are 2 to {num_draws + 1} bins for ranks 0 ... {num_draws}. Received: bins={bins}")
    ranks = np.asarray(ranks)
    if ranks.ndim != 2 or ranks.min() < 0 or ranks.max() > num_draws:
        raise ValueError(f"Ranks are (n, d), numbers 0 ... {num_draws}. Received: shape={ranks.shape}")
    bin_of = np.arange(num_draws + 1) * bins // (num_draws + 1)
    counts = np.stack([np.bincount(bin_of[column], minlength=bins) for column in ranks.T], axis=1)
    return counts, np.bincount(bin_of, minlength=bins) * len(ranks) / (num_draws + 1)


def credible_levels(log_prob_truths: TensorLike, log_prob_draws: TensorLike) -> np.ndarray:
    """The level of the smallest region of highest density that holds the truth, for each of n truths.

    Args:
      log_prob_truths: Log-densities (n,) of the true parameters given their data.
      log_prob_draws: Those of samples of the posterior, (draws, n).

    >>> credible_levels([0.0], [[-1.0], [1.0], [2.0], [-3.0]]).tolist()
    [0.5]
    """
    return np.mean(np.asarray(log_prob_draws) > np.asarray(log_prob_truths), axis=0)


def coverage(levels: TensorLike, nominal: TensorLike | None = None) -> tuple:
    """How often the truth lies in the credible region of each nominal level: the expected coverage.

    Args:
      levels: What `credible_levels` gives, (n,).
      nominal: Levels to look at; 0, 0.05 ... 1 if left out.

    Returns:
      The nominal levels, and how often the truth was inside. Equal where posteriors are calibrated; less is too narrow.

    >>> [x.tolist() for x in coverage([0.1, 0.6], nominal=[0.5, 1.0])]
    [[0.5, 1.0], [0.5, 1.0]]
    """
    nominal = np.linspace(0, 1, 21) if nominal is None else np.asarray(nominal, np.float64)
    return nominal, np.mean(np.asarray(levels)[:, None] <= nominal, axis=0)
