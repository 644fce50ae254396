"""Whole numbers as intervals of a line, and codes in place of those that are dropped."""

import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import TensorLike
from tfp_flowify.math.logistics import below, log_interval

#: So much of [0, 1] is shared out to all levels evenly, or more where rounding asks for it: see `Levels.floor`.
FLOOR = 1e-4


class Levels(tf.Module):
    """Levels 0 ... levels - 1 as neighbouring intervals of the line, cut by points that are trained, for each channel.

    A density of the line, here a mixture of logistics, then gives each level a probability. The cuts make frequent
    levels wide: with those of `cuts_for(counts)`, the standard logistic gives each level its share of the data.

        P(level) = (1 - e) (F(cut above) - F(cut below)) + e / levels,    e = 1e-4 or a bit more

    Args:
      first_cut: (channels,): the lowest cut.
      log_gaps: (channels, levels - 2): logs of the distances between neighbouring cuts.

    >>> levels = Levels(tf.zeros([1]), tf.zeros([1, 2]))  # Four levels, with cuts at 0, 1 and 2.
    >>> levels.count, levels.cuts().numpy().tolist()
    (4, [[0.0, 1.0, 2.0]])
    """

    def __init__(self, first_cut: TensorLike, log_gaps: TensorLike) -> None:
        super().__init__()
        self.first_cut = parameter(first_cut, "Levels first_cut", (None,))
        self.log_gaps = parameter(log_gaps, "Levels log_gaps", (self.first_cut.shape[0], None))
        self.count = self.log_gaps.shape[1] + 2

    @property
    def floor(self) -> float:
        """The probability that is shared out evenly, so that codes tell all levels apart, whatever the rounding."""
        spacing = np.finfo(tf.as_dtype(self.first_cut.dtype).as_numpy_dtype).eps
        return max(FLOOR, 4 * spacing * self.count)

    @property
    def channels(self) -> int:
        return self.first_cut.shape[0]

    def cuts(self) -> tf.Tensor:
        """The points between neighbouring levels, (channels, levels - 1)."""
        first = tf.convert_to_tensor(self.first_cut)[:, tf.newaxis]
        gaps = tf.exp(tf.convert_to_tensor(self.log_gaps))
        return first + tf.pad(tf.cumsum(gaps, axis=1), [(0, 0), (1, 0)])

    def features(self, x: tf.Tensor, channel: int | None = None) -> tf.Tensor:
        """What a network sees of levels x: how high they are, and where they are on the line.

        Frequent neighbours, such as 253 and 254 in scanned digits, are far apart there.

        Args:
          x: Levels, (..., channels), or (...) of one channel.
          channel: Which channel x is of.

        Returns:
          (..., 2 channels), or (..., 2).
        """
        if channel is None:
            return tf.concat([self.features(x[..., i], i) for i in range(self.channels)], axis=-1)
        low, high = self.tables()
        middles = 0.5 * tf.stop_gradient(low + high)[channel]
        height = 2 * x / (self.count - 1) - 1
        return tf.stack([height, 0.5 * tf.gather(middles, self._index(x))], axis=-1)

    def tables(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The ends of all intervals, (channels, levels) each; the lowest and the highest are taken for one wide."""
        cuts = self.cuts()
        return tf.concat([cuts[:, :1] - 1, cuts], 1), tf.concat([cuts, cuts[:, -1:] + 1], 1)

    def log_widths(self) -> tf.Tensor:
        """The logs of the lengths of all intervals, (channels, levels), from what they are made of."""
        return tf.pad(tf.convert_to_tensor(self.log_gaps), [(0, 0), (1, 1)])

    def look_up(self, table: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """The rows of a table (channels, levels, columns) for levels x, (..., channels)."""
        first = self.count * tf.range(self.channels)
        return tf.gather(tf.reshape(table, [self.channels * self.count, -1]), self._index(x) + first)

    def at(self, z: tf.Tensor) -> tf.Tensor:
        """The levels whose intervals hold points z, (..., channels)."""
        columns = tf.transpose(tf.reshape(z, [-1, self.channels]))
        found = tf.searchsorted(tf.stop_gradient(self.cuts()), columns, side="right")
        return tf.cast(tf.reshape(tf.transpose(found), tf.shape(z)), z.dtype)

    def encode(self, x: tf.Tensor, code: tf.Tensor, channel: int, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Squeezes codes into the parts of [0, 1] that stand for levels x.

        Returns:
          P(below x) + code P(x), and the log-det, log P(x).
        """
        low, high, log_probability = self._ends(x, channel, parameters)
        return low + code * (high - low), log_probability

    def decode(
        self, squeezed: tf.Tensor, channel: int, parameters: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The levels that squeezed codes stand for, the codes, and the log-det of the way back."""
        x = self._find(squeezed, channel, parameters)
        low, high, log_probability = self._ends(x, channel, parameters)
        return x, (squeezed - low) / (high - low), -log_probability

    def _ends(self, x, channel, parameters):
        """The ends of the part of [0, 1] that stands for x, and the log of its length."""
        cuts, index = self.cuts()[channel], self._index(x)
        at_bottom, at_top = index == 0, index == self.count - 1
        low, high = tf.gather(cuts, tf.maximum(index - 1, 0)), tf.gather(cuts, tf.minimum(index, self.count - 2))
        log_inside = log_interval(low, high, parameters, at_bottom, at_top)
        even = tf.cast(self.floor / self.count, x.dtype)
        log_probability = tf.reduce_logsumexp(
            tf.stack([np.log1p(-self.floor) + log_inside, tf.fill(tf.shape(x), tf.math.log(even))]), axis=0
        )
        bottom = tf.where(at_bottom, tf.zeros_like(x), self._share_below(low, x, parameters))
        top = tf.where(at_top, tf.ones_like(x), self._share_below(high, x + 1, parameters))
        return bottom, top, log_probability

    def _share_below(self, cut, level, parameters):
        share = tf.minimum(below(cut, parameters), 1)  # A sum of shares can round to more than one.
        return (1 - self.floor) * share + self.floor / self.count * level

    def _find(self, squeezed, channel, parameters):
        """The level whose part of [0, 1] a code lies in, by bisection."""
        cuts = self.cuts()[channel]
        low, high = tf.zeros_like(squeezed), tf.fill(tf.shape(squeezed), tf.cast(self.count - 1, squeezed.dtype))
        for _ in range((self.count - 1).bit_length()):
            middle = tf.math.ceil(0.5 * (low + high))
            cut = tf.gather(cuts, tf.maximum(self._index(middle) - 1, 0))
            above = (squeezed >= self._share_below(cut, middle, parameters)) & (middle > 0)
            low, high = tf.where(above, middle, low), tf.where(above, high, tf.maximum(middle - 1, 0))
        return tf.stop_gradient(low)

    def _index(self, x):
        return tf.clip_by_value(tf.cast(x, tf.int32), 0, self.count - 1)


def cuts_for(counts: TensorLike) -> tuple[np.ndarray, np.ndarray]:
    """The first cut and the log-gaps with which the standard logistic gives levels the shares of these counts.

    Args:
      counts: (channels, levels): how often each level is in some data. One is added to each, so that none is zero.

    >>> [array.round(3).tolist() for array in cuts_for([[0, 0, 0, 0]])]  # An even chance: cuts at the quartiles.
    [[-1.099], [[0.094, 0.094]]]
    """
    shares = np.asarray(counts, np.float64) + 1
    cumulated = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)[:, :-1]
    cuts = np.log(cumulated / (1 - cumulated))
    return cuts[:, 0], np.log(np.maximum(np.diff(cuts, axis=1), 1e-6))
