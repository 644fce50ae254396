"""Monotone rational-quadratic splines on an interval, the identity outside (Durkan et al. 2019, appendix A).

TFP has this function too. Here the bin is found by comparisons and its numbers by a product with a one-hot vector:
where all entries share one spline, that is one small matrix product in place of a copy of all knots for each entry and
six gathers. It is also quicker to trace and to compile.
"""

import math

import tensorflow as tf

MIN_BIN, MIN_SLOPE = 1e-3, 1e-3  # Of a bin as a share of the interval; of the slope at a knot.


def spline_knots(parameters, bins: int, bound: float):
    """Knots (..., bins + 1) of x, of y, and slopes there, from 3 bins - 1 free parameters; zeros give the identity.

    Parameters: `bins` log-widths, `bins` log-heights, and the slopes of the `bins - 1` inner knots before a softplus.
    The first and last knot are (-bound, -bound) and (bound, bound), with slope one.
    """
    widths, heights, slopes = tf.split(parameters, [bins, bins, bins - 1], axis=-1)
    slopes = MIN_SLOPE + tf.math.softplus(slopes + math.log(math.expm1(1 - MIN_SLOPE)))
    ends = tf.ones_like(slopes[..., :1])
    return _positions(widths, bins, bound), _positions(heights, bins, bound), tf.concat([ends, slopes, ends], axis=-1)


def spline_forward(x, knots):
    """The spline at x, and the log of its slope. Knots have the shape of x before their last axis, or none."""
    knots_x = knots[0]
    inside = (x > knots_x[..., 0]) & (x < knots_x[..., -1])
    clipped = tf.clip_by_value(x, knots_x[..., 0], knots_x[..., -1])  # Before the formula: no NaN in its gradient.
    left, width, bottom, height, slope, next_slope = _bin(clipped, knots_x, knots)
    position = (clipped - left) / width
    y, log_slope = _rational_quadratic(position, height / width, slope, next_slope)
    return tf.where(inside, bottom + height * y, x), tf.where(inside, log_slope, tf.zeros_like(x))


def spline_inverse(y, knots):
    """The point where the spline has the value y, and the log of the inverse's slope there."""
    knots_y = knots[1]
    inside = (y > knots_y[..., 0]) & (y < knots_y[..., -1])
    clipped = tf.clip_by_value(y, knots_y[..., 0], knots_y[..., -1])
    left, width, bottom, height, slope, next_slope = _bin(clipped, knots_y, knots)
    mean_slope, relative = height / width, (clipped - bottom) / height
    # relative = position's rational-quadratic function: a quadratic equation, in the form that does not cancel.
    bend = (slope + next_slope - 2 * mean_slope) * relative
    a, b, c = mean_slope - slope + bend, slope - bend, -mean_slope * relative
    discriminant = tf.maximum(b * b - 4 * a * c, 0)  # Rounding can take it below zero.
    position = -2 * c / (b + tf.sqrt(discriminant))
    _, log_slope = _rational_quadratic(position, mean_slope, slope, next_slope)
    return tf.where(inside, left + width * position, y), tf.where(inside, -log_slope, tf.zeros_like(y))


def _rational_quadratic(position, mean_slope, slope, next_slope):
    """Share of the bin's height at a position in [0, 1] of its width, and the log-slope dy/dx."""
    rest = 1 - position
    mixed = position * rest
    denominator = mean_slope + (slope + next_slope - 2 * mean_slope) * mixed
    share = (mean_slope * position * position + slope * mixed) / denominator
    rise = next_slope * position * position + 2 * mean_slope * mixed + slope * rest * rest
    return share, tf.math.log(rise) + 2 * tf.math.log(mean_slope / denominator)


def _bin(x, searched, knots):
    """Left, width, bottom, height, slope and next slope of the bin of each x."""
    knots_x, knots_y, slopes = knots
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
        return tf.unstack(tf.tensordot(one_hot, tf.stack(rows, axis=-1), axes=1), axis=-1)
    return [tf.reduce_sum(one_hot * row, axis=-1) for row in rows]


def _positions(logits, bins, bound):
    shares = MIN_BIN + (1 - bins * MIN_BIN) * tf.nn.softmax(logits)
    inner = 2 * bound * tf.cumsum(shares, axis=-1)[..., :-1] - bound
    end = tf.fill(tf.shape(inner[..., :1]), tf.cast(bound, inner.dtype))
    return tf.concat([-end, inner, end], axis=-1)
