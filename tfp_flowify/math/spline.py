"""Monotone rational-quadratic splines on an interval, the identity outside (Durkan et al. 2019, appendix A).

TFP has this function too. Here it costs less, and the graph is smaller. One spline that all entries share is a small
table, looked up by a product with one-hot vectors. Where each entry has a spline of its own, only the numbers of the
bin that it falls into are taken from its parameters, with the gradient of that lookup in closed form.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

MIN_BIN, MIN_SLOPE = 1e-3, 1e-3  # Of a bin as a share of the interval; of the slope at a knot.


class Bin(NamedTuple):
    """The piece of a spline that an entry falls into."""

    left: tf.Tensor
    width: tf.Tensor
    bottom: tf.Tensor
    height: tf.Tensor
    slope: tf.Tensor
    next_slope: tf.Tensor


def spline_forward(x, parameters, bins: int, bound: float):
    """The spline at x, and the log of its slope.

    Args:
      x: any shape.
      parameters: (..., 3 bins - 1): `bins` log-widths, `bins` log-heights, and the slopes of the `bins - 1` inner knots
        before a softplus. Zeros give the identity. The leading axes are those of x, or none, or some of the last.
      bins, bound: the spline has so many pieces from (-bound, -bound) to (bound, bound), with slope one there.
    """
    inside = tf.abs(x) < bound
    clipped = tf.clip_by_value(x, -bound, bound)  # Before the formula: no NaN in its gradient.
    piece = _bin_at(clipped, parameters, bins, bound, of_values=False)
    position = (clipped - piece.left) / piece.width
    y, log_slope = _rational_quadratic(position, piece.height / piece.width, piece.slope, piece.next_slope)
    return tf.where(inside, piece.bottom + piece.height * y, x), tf.where(inside, log_slope, tf.zeros_like(x))


def spline_inverse(y, parameters, bins: int, bound: float):
    """The point where the spline has the value y, and the log of the inverse's slope there."""
    inside = tf.abs(y) < bound
    clipped = tf.clip_by_value(y, -bound, bound)
    piece = _bin_at(clipped, parameters, bins, bound, of_values=True)
    mean_slope, relative = piece.height / piece.width, (clipped - piece.bottom) / piece.height
    # relative = position's rational-quadratic function: a quadratic equation, in the form that does not cancel.
    bend = (piece.slope + piece.next_slope - 2 * mean_slope) * relative
    a, b, c = mean_slope - piece.slope + bend, piece.slope - bend, -mean_slope * relative
    discriminant = tf.maximum(b * b - 4 * a * c, 0)  # Rounding can take it below zero.
    position = -2 * c / (b + tf.sqrt(discriminant))
    _, log_slope = _rational_quadratic(position, mean_slope, piece.slope, piece.next_slope)
    return tf.where(inside, piece.left + piece.width * position, y), tf.where(inside, -log_slope, tf.zeros_like(y))


def spline_knots(parameters, bins: int, bound: float):
    """Knots (..., bins + 1) of x, of y, and slopes there."""
    widths, heights, slopes = tf.split(parameters, [bins, bins, bins - 1], axis=-1)
    ends = tf.ones_like(slopes[..., :1])
    slopes = tf.concat([ends, _slope(slopes), ends], axis=-1)
    return *(_knots(logits, bins, bound) for logits in (widths, heights)), slopes


def _rational_quadratic(position, mean_slope, slope, next_slope):
    """Share of the bin's height at a position in [0, 1] of its width, and the log-slope dy/dx."""
    rest = 1 - position
    mixed = position * rest
    denominator = mean_slope + (slope + next_slope - 2 * mean_slope) * mixed
    share = (mean_slope * position * position + slope * mixed) / denominator
    rise = next_slope * position * position + 2 * mean_slope * mixed + slope * rest * rest
    return share, tf.math.log(rise) + 2 * tf.math.log(mean_slope / denominator)


def _slope(parameter):
    return MIN_SLOPE + tf.math.softplus(parameter + math.log(math.expm1(1 - MIN_SLOPE)))


def _knots(logits, bins, bound):
    shares = MIN_BIN + (1 - bins * MIN_BIN) * tf.nn.softmax(logits)
    inner = 2 * bound * tf.cumsum(shares, axis=-1)[..., :-1] - bound
    end = tf.fill(tf.shape(inner[..., :1]), tf.cast(bound, inner.dtype))
    return tf.concat([-end, inner, end], axis=-1)


def _bin_at(x, parameters, bins, bound, of_values):
    """The bin of each x, or with `of_values` that in which the spline has the values x."""
    if parameters.shape[:-1].is_compatible_with(x.shape):
        return _own_bin(x, parameters, bins, bound, of_values)
    return _shared_bin(x, spline_knots(parameters, bins, bound), of_values)


def _shared_bin(x, knots, of_values):
    """Numbers of a table by a product with one-hot vectors."""
    knots_x, knots_y, slopes = knots
    searched = knots_y if of_values else knots_x
    rows = [
        knots_x[..., :-1],
        knots_x[..., 1:] - knots_x[..., :-1],
        knots_y[..., :-1],
        knots_y[..., 1:] - knots_y[..., :-1],
        slopes[..., :-1],
        slopes[..., 1:],
    ]
    behind = tf.cast(x[..., None] >= searched[..., 1:-1], x.dtype)
    one = tf.ones_like(behind[..., :1])
    one_hot = tf.concat([one, behind], axis=-1) - tf.concat([behind, tf.zeros_like(one)], axis=-1)
    if knots_x.shape.rank == 1:
        return Bin(*tf.unstack(tf.tensordot(one_hot, tf.stack(rows, axis=-1), axes=1), axis=-1))
    return Bin(*(tf.reduce_sum(one_hot * row, axis=-1) for row in rows))


def _own_bin(x, parameters, bins, bound, of_values):
    """The bin of each x in a spline of its own."""
    shape, flat = tf.shape(x), tf.reshape(parameters, [-1, 3 * bins - 1])
    numbers = _look_up(flat, tf.reshape((x / bound + 1) / 2, [-1]), bins, of_values)
    left, width, bottom, height, slope, next_slope = (tf.reshape(number, shape) for number in numbers)
    scale = 2 * bound
    return Bin(
        scale * left - bound, scale * width, scale * bottom - bound, scale * height, _slope(slope), _slope(next_slope)
    )


def _look_up(parameters, position, bins, of_values):
    """The bin at each position in an interval of length one, with the parameters of its slopes.

    Args:
      parameters: (n, 3 bins - 1).
      position: (n,), in [0, 1].
      bins: how many.
      of_values: whether the positions are of values.

    Returns:
      Left, width, bottom, height, and the parameters of the slopes at both sides, (n,) each.
    """
    free, dtype = 1 - bins * MIN_BIN, parameters.dtype
    below = tf.constant(np.tri(bins, k=-1), dtype)  # below[i, j] = 1 where j < i.
    identity = tf.eye(bins, dtype=dtype)

    @tf.custom_gradient
    def function(parameters):
        rows = tf.range(tf.shape(parameters)[0])
        softs = [tf.nn.softmax(parameters[:, :bins]), tf.nn.softmax(parameters[:, bins : 2 * bins])]
        befores = [tf.matmul(soft, below, transpose_b=True) for soft in softs]  # Sums of what is before each bin.
        starts = free * befores[of_values][:, 1:] + MIN_BIN * tf.range(1, bins, dtype=dtype)
        index = tf.reduce_sum(tf.cast(position[:, None] >= starts, tf.int32), axis=-1)
        totals, owns = ([_pick(v, rows * bins + index) for v in values] for values in (befores, softs))
        padded = tf.pad(
            parameters[:, 2 * bins :], [(0, 0), (1, 1)]
        )  # At both ends the slope is one, of parameter zero.
        slopes = [_pick(padded, rows * (bins + 1) + index + side) for side in (0, 1)]

        def gradient(d_left, d_width, d_bottom, d_height, d_slope, d_next_slope):
            earlier, here = tf.gather(below, index), tf.gather(identity, index)

            def of_logits(i, d_start, d_size):
                """The start of bin k is the sum of soft before k, its size soft_k; d soft_i / d logit_j is known."""
                constant = d_start * totals[i] + d_size * owns[i]
                weight = earlier * d_start[:, None] + here * d_size[:, None]
                return free * softs[i] * (weight - constant[:, None])

            of_slopes = here[:, 1:] * d_slope[:, None] + here[:, :-1] * d_next_slope[:, None]
            return tf.concat([of_logits(0, d_left, d_width), of_logits(1, d_bottom, d_height), of_slopes], axis=-1)

        least = MIN_BIN * tf.cast(index, dtype)
        left, bottom = (free * total + least for total in totals)
        width, height = (free * own + MIN_BIN for own in owns)
        return (left, width, bottom, height, *slopes), gradient

    return function(parameters)


def _pick(table, places):
    return tf.gather(tf.reshape(table, [-1]), places)
