"""Monotone rational-quadratic splines (Durkan et al. 2019, appendix A): the identity outside an interval.

TFP has them too; here they cost less, and the graph is smaller: one spline that all entries share is a small table, and
of a spline for each entry only the numbers of the bin are taken that the entry falls into.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

#: A log-width or log-height beyond this is cut, but its gradient is not, so that it finds its way back.
_LARGEST = 40.0

#: The least width and height of a bin, as a share of the interval; the least slope at a knot.
MIN_BIN, MIN_SLOPE = 1e-3, 1e-3


class Piece(NamedTuple):
    """The bin of a spline that an entry falls into, with the slopes at its ends as shares of its mean slope."""

    left: tf.Tensor
    per_width: tf.Tensor
    bottom: tf.Tensor
    height: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    log_mean: tf.Tensor


class Table(NamedTuple):
    """A spline that entries share, or one for each channel: its knots, and numbers of its pieces, (..., bins, 7)."""

    knots_x: tf.Tensor
    knots_y: tf.Tensor
    pieces: tf.Tensor


def spline_forward(x: tf.Tensor, parameters: tf.Tensor | Table, bins: int, bound: float) -> tuple[tf.Tensor, tf.Tensor]:
    """The spline at x, and the log of its slope.

    Args:
      x: Numbers, of any shape.
      parameters: (..., 3 bins - 1): `bins` log-widths, `bins` log-heights, and the slopes of the `bins - 1` inner knots
        before a softplus. Zeros give the identity. The leading axes are those of x, or none, or some of the last. Or
        what `spline_table` made of them.
      bins, bound: The spline has `bins` pieces from (-bound, -bound) to (bound, bound), with slope one there.
    """
    inner = tf.clip_by_value(x, -bound, bound)
    if _is_own(x, parameters):
        piece = _own_piece(inner, parameters, bins, bound, of_values=False)
        share, log_slope = rational_quadratic((inner - piece.left) * piece.per_width, piece.first, piece.last)
        return piece.bottom + piece.height * share + (x - inner), log_slope + piece.log_mean
    pieces, index = _shared_pieces(inner, parameters, bins, bound, of_values=False)
    y, log_slope = _at(tf.reshape(x, [-1]), tf.reshape(inner, [-1]), pieces, index, bins)
    shape = tf.shape(x)
    return tf.reshape(y, shape), tf.reshape(log_slope, shape)


def spline_inverse(y: tf.Tensor, parameters: tf.Tensor | Table, bins: int, bound: float) -> tuple[tf.Tensor, tf.Tensor]:
    """The point where the spline has the value y, and the log of the inverse's slope there."""
    inner = tf.clip_by_value(y, -bound, bound)
    if _is_own(y, parameters):
        piece = _own_piece(inner, parameters, bins, bound, of_values=True)
    else:
        pieces, index = _shared_pieces(inner, parameters, bins, bound, of_values=True)
        piece = Piece(*(tf.reshape(number, tf.shape(y)) for number in _columns(pieces, index)))
    t = _solve((inner - piece.bottom) / piece.height, piece.first, piece.last)
    log_slope = rational_quadratic(t, piece.first, piece.last)[1] + piece.log_mean
    return piece.left + t / piece.per_width + (y - inner), -log_slope


def spline_knots(parameters: tf.Tensor, bins: int, bound: float) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Knots (..., bins + 1) of x, of y, and slopes there."""
    logits, slopes = parameters[..., : 2 * bins], _slope(parameters[..., 2 * bins :])
    shape = tf.concat([tf.shape(parameters)[:-1], [2, bins]], axis=0)
    knots_x, knots_y = tf.unstack(_knots(tf.reshape(logits, shape), bins, bound), axis=-2)
    ends = tf.ones_like(slopes[..., :1])
    return knots_x, knots_y, tf.concat([ends, slopes, ends], axis=-1)


def spline_table(parameters: tf.Tensor, bins: int, bound: float) -> Table:
    """Computes the table that entries look up which share splines."""
    knots = spline_knots(parameters, bins, bound)
    (left, bottom, slope), (right, top, next_slope) = zip(*((k[..., :-1], k[..., 1:]) for k in knots), strict=True)
    return Table(*knots[:2], tf.stack(_piece(left, right - left, bottom, top - bottom, slope, next_slope), axis=-1))


def _piece(left, width, bottom, height, slope, next_slope):
    mean, per_mean = height / width, width / height
    return Piece(left, 1 / width, bottom, height, slope * per_mean, next_slope * per_mean, tf.math.log(mean))


def _with_gradient(t, first, last):
    """The share of a bin's height at t in [0, 1] of its width, and the log of the slope there as one of the mean slope.

    `first` and `last` are the slopes at both ends as shares of the mean slope. Sums of terms that are not negative, so
    that nothing cancels:

        share = (t^2 + first t (1 - t)) / D,   D = 1 + (first + last - 2) t (1 - t) >= 1/2
        slope = (last t^2 + 2 t (1 - t) + first (1 - t)^2) / D^2

    Returns them and their gradient, as `tf.custom_gradient` takes it: in closed form, with a third of TensorFlow's
    operations.
    """
    rest = 1 - t
    mixed, square, other, excess = t * rest, t * t, rest * rest, first + last - 2
    per_denominator = tf.math.reciprocal(1 + excess * mixed)
    share = (square + first * mixed) * per_denominator
    steepness = last * square + 2 * mixed + first * other

    def gradient(d_share, d_log_slope):
        d_numerator, d_steepness = d_share * per_denominator, d_log_slope / steepness
        d_denominator = -(d_numerator * share + 2 * d_log_slope * per_denominator)
        tilt = rest - t
        d_t = (
            d_numerator * (2 * t + first * tilt)
            + d_denominator * excess * tilt
            + 2 * d_steepness * (last * t + tilt - first * rest)
        )
        common = d_denominator * mixed
        return d_t, d_numerator * mixed + d_steepness * other + common, d_steepness * square + common

    return (share, tf.math.log(steepness * per_denominator * per_denominator)), gradient


rational_quadratic = tf.custom_gradient(_with_gradient)


def _solve(share, first, last):
    """The t at which `rational_quadratic` has this share: (1 - b) t^2 + b t = share.

    Of the two forms of the solution, the one that does not cancel: which one that is depends on the sign of b.
    """
    b = first - (first + last - 2) * share
    root = tf.sqrt(tf.maximum(b * b + 4 * (1 - b) * share, 0))  # Rounding can take it below zero.
    rises = b >= 0
    numerator = tf.where(rises, 2 * share, root - b)
    return numerator / tf.where(rises, b + root, 2 * (1 - b))


def _at(x, inner, pieces, index, bins):
    """A spline at x, beyond `inner` a straight line, from the pieces (pieces, 7) at an index for each entry.

    There are `bins` pieces for each of some splines, which take turns over the entries.
    """

    @tf.custom_gradient
    def function(x, pieces):
        left, per_width, bottom, height, first, last, log_mean = _columns(pieces, index)
        t = (inner - left) * per_width
        (share, log_slope), gradient = _with_gradient(t, first, last)

        def gradient_of_all(d_y, d_log_slope):
            d_t, d_first, d_last = gradient(d_y * height, d_log_slope)
            entries = tf.stack([d_t, d_t * t, d_y, d_y * share, d_first, d_last, d_log_slope])
            d_start, d_stretch, *others = tf.unstack(_sum_by_piece(entries, index, pieces.shape[0] // bins, bins))
            d_pieces = [-d_start * pieces[:, 1], d_stretch / pieces[:, 1], *others]
            return tf.where(tf.equal(x, inner), d_t * per_width, d_y), tf.stack(d_pieces, axis=1)

        return (bottom + height * share + (x - inner), log_slope + log_mean), gradient_of_all

    return function(x, pieces)


def _sum_by_piece(entries, index, splines, bins):
    """Sums entries (7, n) that have the same index to (7, pieces), as products of matrices, one for each spline.

    TensorFlow's own gradient of gather is slow: it adds one row after the other.
    """
    if splines == 1:
        return entries @ tf.one_hot(index, bins, dtype=entries.dtype)
    entries = tf.transpose(tf.reshape(entries, [entries.shape[0], -1, splines]), [2, 0, 1])
    bin_of = tf.transpose(tf.reshape(index % bins, [-1, splines]))
    sums = tf.matmul(entries, tf.one_hot(bin_of, bins, dtype=entries.dtype))  # (splines, 7, bins)
    return tf.reshape(tf.transpose(sums, [1, 0, 2]), [entries.shape[1], splines * bins])


def _columns(pieces, index):
    """The numbers of the pieces at an index: a row at a time, then turned, is the fastest way to vectors of each."""
    return tf.unstack(tf.transpose(tf.gather(pieces, index)))


def _slope(parameter):
    return MIN_SLOPE + tf.math.softplus(parameter + math.log(math.expm1(1 - MIN_SLOPE)))


def _knots(logits, bins, bound):
    shares = MIN_BIN + (1 - bins * MIN_BIN) * tf.nn.softmax(logits)
    inner = 2 * bound * tf.cumsum(shares, axis=-1)[..., :-1] - bound
    end = tf.fill(tf.shape(inner[..., :1]), tf.cast(bound, inner.dtype))
    return tf.concat([-end, inner, end], axis=-1)


def _is_own(x, parameters):
    """Whether each entry has a spline of its own."""
    return not isinstance(parameters, Table) and parameters.shape[:-1].is_compatible_with(x.shape)


def _shared_pieces(x, parameters, bins, bound, of_values):
    """All pieces of a table, (pieces, 7), and which is that of each x, or with `of_values` that of the value x."""
    table = parameters if isinstance(parameters, Table) else spline_table(parameters, bins, bound)
    searched = (table.knots_y if of_values else table.knots_x)[..., 1:-1]
    if searched.shape.rank == 1:
        return table.pieces, tf.reduce_sum(tf.cast(tf.reshape(x, [-1]) >= searched[:, None], tf.int32), axis=0)
    tables = searched.shape[:-1]
    first = bins * np.arange(tables.num_elements(), dtype=np.int32).reshape(tables)
    index = first + tf.reduce_sum(tf.cast(x[..., None] >= searched, tf.int32), axis=-1)
    return tf.reshape(table.pieces, [-1, table.pieces.shape[-1]]), tf.reshape(index, [-1])


def _own_piece(x, parameters, bins, bound, of_values):
    """The piece of each x in a spline of its own."""
    shape, flat = tf.shape(x), tf.reshape(parameters, [-1, 3 * bins - 1])
    numbers = _look_up(flat, tf.reshape((x / bound + 1) / 2, [-1]), bins, of_values)
    left, width, bottom, height, slope, next_slope = (tf.reshape(number, shape) for number in numbers)
    scale = 2 * bound
    return _piece(
        scale * left - bound, scale * width, scale * bottom - bound, scale * height, _slope(slope), _slope(next_slope)
    )


def _look_up(parameters, position, bins, of_values):
    """The bin at each position in an interval of length one, with the parameters of its slopes.

    Args:
      parameters: (n, 3 bins - 1).
      position: (n,), in [0, 1].
      bins: Number of bins.
      of_values: Whether positions are those of values of the spline, not of its argument.

    Returns:
      Left, width, bottom, height, and the parameters of the slopes at both sides, (n,) each.
    """
    dtype, free = parameters.dtype, 1 - bins * MIN_BIN
    # From shares before they are divided by their sum: where each bin starts, and that sum.
    starts_of = tf.constant(
        np.vstack([free * np.tri(bins, k=-1) + MIN_BIN * np.arange(bins)[:, None], np.ones(bins)]), dtype
    )

    @tf.custom_gradient
    def function(parameters):
        logits, slopes = tf.split(tf.transpose(parameters), [2 * bins, bins - 1])
        logits = tf.reshape(logits, [2, bins, -1])  # Of widths, then of heights.
        shares = tf.exp(tf.clip_by_value(logits, -_LARGEST, _LARGEST))
        starts, total = tf.split(tf.matmul(starts_of, shares), [bins, 1], axis=1)
        total = total[:, 0]
        searched = int(of_values)
        passed = tf.cast(position * total[searched] >= starts[searched, 1:], dtype)  # (bins - 1, n)
        zero = tf.zeros_like(passed[:1])
        earlier = tf.concat([passed, zero], axis=0)  # Bins before that of the position, and that bin: (bins, n).
        here = tf.concat([zero + 1, passed], axis=0) - earlier
        start = tf.reduce_sum(here * starts, axis=1) / total
        size = free * tf.reduce_sum(here * shares, axis=1) / total
        # At both ends the slope is one, of parameter zero: there is no such row.
        ends = [tf.reduce_sum(rows * slopes, axis=0) for rows in (here[1:], here[:-1])]

        def gradient(d_left, d_width, d_bottom, d_height, d_slope, d_next_slope):
            """The start of bin k is the sum of shares before it, its size is its share, all by their sum."""
            d_start, d_size = tf.stack([d_left, d_bottom]) / total, tf.stack([d_width, d_height]) / total
            least = MIN_BIN * tf.reduce_sum(passed, axis=0)
            known = d_start * (start - least) + d_size * size
            weight = free * (d_start[:, None] * earlier + d_size[:, None] * here) - known[:, None]
            of_slopes = here[1:] * d_slope + here[:-1] * d_next_slope
            return tf.transpose(tf.concat([tf.reshape(shares * weight, [2 * bins, -1]), of_slopes], axis=0))

        (left, bottom), (width, height) = tf.unstack(start), tf.unstack(size + MIN_BIN)
        return (left, width, bottom, height, *ends), gradient

    return function(parameters)
