"""How well a score tells examples of one kind from others."""

import numpy as np

from tfp_flowify.core.types import TensorLike


def auroc(typical: TensorLike, others: TensorLike) -> float:
    """How often a typical example scores higher than another, with ties as halves: the area under the ROC curve.

    Args:
      typical, others: Scores, a number for each example; higher means more typical.

    >>> auroc([1.0, 2.0, 3.0], [0.0, 1.0])
    0.9166666666666666
    """
    typical, others = (np.sort(np.asarray(scores, np.float64).reshape(-1)) for scores in (typical, others))
    if not len(typical) or not len(others) or np.isnan(typical).any() or np.isnan(others).any():
        raise ValueError("auroc takes scores of both kinds, none of them NaN.")
    lower, up_to = (np.searchsorted(others, typical, side=side) for side in ("left", "right"))
    return float(np.mean(lower + up_to) / (2 * len(others)))


def corruptions(x: TensorLike, levels: int, seed: int = 0) -> dict:
    """Images that are no longer what they were: noise in their place, inverted, with shuffled pixels, and turned.

    Args:
      x: Images (n, height, width, channels) of whole numbers 0 ... levels - 1.
      levels: Number of levels.
      seed: Seed for noise and order.

    >>> sorted(corruptions(np.zeros([2, 4, 4, 1], np.uint8), 256))
    ['inverted', 'noise', 'rotated', 'shuffled']
    """
    x, generator = np.asarray(x), np.random.default_rng(seed)
    pixels = x.reshape(len(x), -1, x.shape[-1])
    return {
        "noise": generator.integers(0, levels, size=x.shape).astype(x.dtype),
        "inverted": (levels - 1 - x).astype(x.dtype),
        "shuffled": generator.permuted(pixels, axis=1).reshape(x.shape),
        "rotated": np.rot90(x, axes=(1, 2)),
    }
