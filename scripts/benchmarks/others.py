"""The nearest layers of other libraries, where they are installed."""

import numpy as np
import tensorflow as tf

from benchmarks.measure import Effort, side_by_side
from tfp_flowify import FlowModel, layers
from tfp_flowify import bijectors as fb
from tfp_flowify.math.spline import spline_forward

ROWS, BINS, FEATURES = 100_000, 8, 256


def measure_others(effort: Effort) -> list:
    """Milliseconds of value and gradient, ours and theirs, in turns."""
    try:
        import nflows  # noqa: F401
        import torch
        import zuko  # noqa: F401
    except ImportError as error:
        return [{"what": f"not measured: {error}. pip install torch nflows zuko"}]
    torch.set_num_threads(tf.config.threading.get_intra_op_parallelism_threads() or torch.get_num_threads())
    rows = []
    for what, (ours, theirs, name) in {
        f"splines of {BINS} bins, one for each of {ROWS:,} numbers": (_our_spline(), _nflows_spline(), "nflows"),
        f"linear layer by its SVD, {FEATURES} features, 128 vectors": (_our_svd(), _nflows_svd(), "nflows"),
        "spline flow, 16 features, 3 coupling layers, 128 examples, training step": (_our_flow(), _zuko(), "zuko"),
    }.items():
        times = side_by_side({"ours": ours, "theirs": theirs}, effort)
        rows.append({"what": what, "library": name, **times, "ratio": times["theirs"] / times["ours"]})
    return rows


def _numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _our_spline():
    x, parameters = tf.constant(_numbers(ROWS)), tf.Variable(_numbers(ROWS, 3 * BINS - 1))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            y, log_slope = spline_forward(x, parameters, BINS, 3.0)
            loss = tf.reduce_sum(y * y - log_slope)
        return tf.reduce_sum(tape.gradient(loss, parameters))

    return lambda: step().numpy()


def _nflows_spline():
    import torch
    from nflows.transforms.splines.rational_quadratic import unconstrained_rational_quadratic_spline

    x = torch.tensor(_numbers(ROWS))
    parameters = torch.tensor(_numbers(ROWS, 3 * BINS - 1), requires_grad=True)

    def step():
        parameters.grad = None
        widths, heights, slopes = parameters.split([BINS, BINS, BINS - 1], dim=-1)
        y, log_slope = unconstrained_rational_quadratic_spline(x, widths, heights, slopes, tail_bound=3.0)
        (y * y - log_slope).sum().backward()
        return float(parameters.grad.sum())

    return step


def _our_svd():
    x, layer = tf.constant(_numbers(128, FEATURES)), fb.Linear.create(FEATURES, FEATURES, seed=0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            z, log_det = layer.forward_and_log_det(x)
            loss = tf.reduce_sum(z * z) - log_det
        return [tf.reduce_sum(g) for g in tape.gradient(loss, layer.trainable_variables)]

    return lambda: step()[0].numpy()


def _nflows_svd():
    import torch
    from nflows.transforms.svd import SVDLinear

    x, layer = torch.tensor(_numbers(128, FEATURES)), SVDLinear(FEATURES, num_householder=FEATURES)

    def step():
        layer.zero_grad()
        z, log_det = layer.forward_no_cache(x)
        ((z * z).sum() - log_det.sum()).backward()
        return float(layer.bias.grad.sum())

    return step


def _our_flow():
    import keras

    from benchmarks.measure import batches_of, first_step, training_step

    conditioner = lambda: keras.Sequential(  # noqa: E731
        [keras.Input([8]), *(keras.layers.Dense(64, "relu") for _ in range(2)), keras.layers.Dense(8 * (3 * BINS - 1))]
    )
    couplings = [layers.SplineCoupling(swap=bool(i % 2), bins=BINS, conditioner=conditioner()) for i in range(3)]
    flow, batches = FlowModel([keras.Input([16]), *couplings]), batches_of(_numbers(1024, 16), 128)
    flow.compile("adam")
    first_step(flow, batches)
    return training_step(flow, batches)


def _zuko():
    import torch
    import zuko

    flow = zuko.flows.NSF(16, bins=BINS, transforms=3, hidden_features=(64, 64), passes=2)
    optimizer, x = torch.optim.Adam(flow.parameters()), torch.tensor(_numbers(128, 16))

    def step():
        optimizer.zero_grad()
        loss = -flow().log_prob(x).mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
