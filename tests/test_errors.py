"""Bad input gets an error that names the thing, the sizes and the way out, when it is given and not later."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import Net, linear, values

from tfp_flowify import FlowDistribution, transforms
from tfp_flowify import bijectors as fb
from tfp_flowify.distributions import StandardNormal
from tfp_flowify.math.patches import Patches

tfb, tfd = tfp.bijectors, tfp.distributions
T = tf.float32


def zeros(*shape):
    return tf.zeros(shape)


CASES = {
    # Wrong rank, wrong size, wrong number of parts, wrong type.
    "rank": (lambda: fb.bind(tfb.Scale(2.0), (2, 3)).forward(zeros(3)), r"scale takes parts.*2, 3\).*\(3,\)"),
    "size": (lambda: linear(4, 2, T).forward(zeros(5, 3)), r"Linear takes parts of shape \(..., 4\).*\(5, 3\)"),
    "inverse size": (lambda: linear(4, 2, T).inverse([zeros(5, 2), zeros(5, 3)]), r"Linear takes.*\(5, 2\), \(5, 3\)"),
    "parts": (lambda: linear(2, 4, T).forward([zeros(5, 2)] * 3), r"takes 2 part\(s\).*Received: 3"),
    "lone part": (lambda: fb.Sum((2,)).forward(zeros(5, 2)), r"takes 2 part\(s\)"),
    "integers": (lambda: linear(4, 2, T).forward(tf.zeros([5, 4], tf.int32)), "takes floats.*int32.*Dequantize"),
    "numpy integers": (lambda: linear(4, 2, T).forward(np.zeros([5, 4], int)), "takes floats.*int64.*Dequantize"),
    "dtype": (lambda: linear(4, 2, T).forward(tf.zeros([5, 4], tf.float64)), "works in float32.*float64.*tf.cast"),
    "flow size": (lambda: FlowDistribution(linear(4, 2, T)).log_prob(zeros(5, 3)), r"\(..., 4\).*\(5, 3\)"),
    "flow integers": (
        lambda: FlowDistribution(linear(4, 2, T)).log_prob(np.zeros([5, 4], "uint8")), "uint8.*Dequantize"
    ),
    "temperature": (
        lambda: FlowDistribution(linear(2, 1, T), tfd.MultivariateNormalDiag([1.0])).sample(temperature=0.5),
        "a normal base",
    ),
    "draws": (lambda: FlowDistribution(linear(2, 4, T)).log_prob(zeros(5, 2), num_draws=0), "num_draws=0"),
    "base": (lambda: FlowDistribution(linear(4, 2, T), StandardNormal((3,))), r"\(2,\).*\(3,\)"),
    "flow inputs": (lambda: FlowDistribution(fb.Sum((2,))), "one input"),
    "event shape": (lambda: linear(4, 2, T).forward_event_shape([7, 5]), r"\(4,\).*\(7, 5\)"),
    # Parameters.
    "nan": (lambda: fb.Diagonal([0.0, np.nan]), "log_scale must be finite.*1 of 2"),
    "infinite": (lambda: fb.Expm([np.inf, 0.0, 0.0]), "skew must be finite"),
    "nan weight": (lambda: fb.Linear.from_weights([[1.0, np.nan]]), "must be finite"),
    "integer parameter": (lambda: fb.Diagonal(tf.constant([1, 2])), "log_scale must be of a floating type.*int32"),
    "parameter shape": (lambda: fb.Diagonal(zeros(3), zeros(2)), r"shift must have shape \(3,\).*\(2,\)"),
    "rank deficient": (lambda: fb.Linear.from_weights(np.ones([4, 3])), "rank 3.*Received: rank 1.*Stochastic"),
    "zero kernel": (lambda: fb.Linear.from_weights(np.zeros([4, 3])), "Received: rank 0"),
    "kernel rank": (lambda: fb.Linear.from_weights(np.ones([4])), r"\(features, units\).*\(4,\)"),
    "triangle": (lambda: fb.Expm(zeros(4)), r"n \(n - 1\) / 2.*4"),
    "reflections": (lambda: fb.Householder(values((4, 3), T)), "at most as many.*4 reflections for 3 dimensions"),
    "zero reflection": (lambda: fb.Householder(zeros(1, 3)), "other than zero"),
    "not orthogonal": (lambda: fb.Expm.from_matrix(2 * np.eye(3)), "not orthogonal.*3"),
    "not square": (lambda: fb.Cayley.from_matrix(np.ones([3, 2])), r"square.*\(3, 2\)"),
    "start size": (lambda: fb.Expm(zeros(3), np.eye(4)), r"start must have shape \(3, 3\).*\(4, 4\)"),
    "kind": (lambda: fb.Linear.create(3, 2, "qr"), "orthogonal='qr'"),
    "noise": (lambda: fb.Linear.create(2, 3, noise="cauchy"), "noise='cauchy'"),
    "sign": (lambda: fb.Diagonal(zeros(2), sign=[1, 2]), r"sign=\[1, 2\]"),
    "nothing": (lambda: fb.Diagonal(), "log_scale, a shift or both"),
    "log singular": (
        lambda: fb.Linear(fb.Expm(zeros(3)), zeros(3), fb.Expm(zeros(1))), r"log_singular must have shape \(2,\)"
    ),
    "slope": (lambda: fb.LeakyReLU(0.0), "negative_slope=0.0.*ReLU"),
    "alpha": (lambda: fb.ELU(-1.0), "alpha=-1.0"),
    "spline": (lambda: fb.Spline(zeros(24)), "3 k - 1.*24"),
    "bins": (lambda: transforms.Spline(bins=1), "bins=1"),
    "levels": (lambda: fb.Dequantize(1), "levels=1"),
    # Sizes of layers that must fit.
    "split": (lambda: fb.Split(2, 3), "2 -> 3. Use Widen"),
    "widen": (lambda: fb.Widen(3, 2), "3 -> 2. Use Split"),
    "widen scale": (lambda: fb.Widen(2, 4, zeros(3)), r"from 2 to 4.*\(\) or \(2,\).*shape=\(3,\)"),
    "coupling": (lambda: fb.Coupling(3, None, kept=3), "kept=3 of 3"),
    "funnel": (lambda: fb.Funnel(linear(2, 3, T), Net(3, 2, T)), "nothing to whiten"),
    "conditioner": (
        lambda: fb.Funnel(linear(4, 2, T), Net(2, 3, T)).forward(zeros(5, 4)), "gives 3 numbers.*needs 2 for each: 4"
    ),
    "conv": (lambda: fb.Conv2D((4, 4, 2), linear(4, 2, T), 2), "takes 8 features.*4"),
    "kernel": (lambda: fb.Conv2D((2, 2, 1), linear(9, 2, T), 3), 'kernel of size 3.*side of 2.*padding="same"'),
    "padding": (lambda: Patches((4, 4, 1), (2, 2), (1, 1), "full"), "padding='full'"),
    "image": (lambda: Patches((4, 4), (2, 2), (1, 1)), r"\(\*sides, channels\)"),
    "strides": (lambda: Patches((4, 4, 1), (2, 2), (0, 1)), "strides=0"),
    "border": (lambda: fb.Pad((2, 2, 1), ((0, 0), (0, 0))), "positive width"),
    "crop": (lambda: fb.Crop((2, 2, 1), ((1, 1), (0, 0))), "must leave an image"),
    "pool": (lambda: fb.MaxPool2D((4, 4, 1), 1), "two cells or more, or strides"),
    "residual": (lambda: fb.Residual(linear(3, 2, T)), r"branch \(3,\) -> \(2,\).*shortcut"),
    "copies": (lambda: fb.Duplicate((2,), 1), "copies=1"),
    "branches": (lambda: fb.Sum((2,), 1), "branches=1"),
    "fourier": (
        lambda: fb.FourierConv2D((4, 4, 1), zeros(3, 3, 1, 1), zeros(3, 3, 2), zeros(3, 3, 2, 2)), "1 -> 2. Use Conv2D"
    ),
    "fourier kernel": (
        lambda: fb.FourierConv2D((4, 4, 1), zeros(2, 3, 1, 1), zeros(3, 3, 1), zeros(3, 3, 1, 1)), r"odd.*\(2, 3\)"
    ),
    "function": (
        lambda: fb.Stochastic(lambda x: x[..., :1], (3,), (2,)).forward([zeros(5, 3), zeros(5, 2)]), r"must give \(2,\)"
    ),
    "code alone": (lambda: fb.Funnel(fb.Sequential([fb.Abs()], (2,)), Net(2, 4, T)), "nothing to whiten"),
    "leading axes": (lambda: fb.Sum((2,)).forward([zeros(5, 2), zeros(4, 2)]), r"same leading axes.*\(5, 2\), \(4,"),
    "base batch": (
        lambda: FlowDistribution(linear(4, 2, T), tfd.MultivariateNormalDiag(zeros(3, 2))), r"no batch shape.*\(3,\)"
    ),
    "base dtype": (lambda: FlowDistribution(linear(4, 2, T), StandardNormal((2,), tf.float64)), "float32.*float64"),
    "raw TFP flow": (lambda: FlowDistribution(tfb.Tanh()), r"bind\(bijector, event_shape\)"),
    "two shapes for one": (lambda: fb.bind(tfb.Tanh(), (2,), (3,)), r"takes one input.*\(2,\), \(3,\)"),
    "raw TFP branch": (lambda: fb.Residual(tfb.Tanh()), "Residual takes a layer.*bind"),
    "staged funnel": (lambda: fb.StagedFunnel(linear(3, 2, T), [None, None]), "in 1 to 1 stages.*stages=2"),
    "raw TFP funnel": (lambda: fb.Funnel(tfb.Tanh(), None), "Funnel takes a layer.*bind"),
    "shape as number": (lambda: fb.Sequential([tfb.Tanh()], event_shape=5), r"such as \(5,\). Received: 5"),
    "not a bijector": (lambda: fb.Sequential([tf.nn.relu], event_shape=(5,)), "layer is a bijector.*Stochastic"),
    "changed dimension": (
        lambda: fb.Sequential([tfp.bijectors.IteratedSigmoidCentered()], event_shape=(3,)), "not as many numbers"
    ),
    "conditioner dtype": (
        lambda: fb.Funnel(linear(4, 2, tf.float64), lambda z: tf.zeros([4])).forward(tf.zeros([5, 4], tf.float64)),
        "conditioner.*float32.*float64",
    ),
    "function dtype": (
        lambda: fb.Stochastic(lambda x: tf.cast(x, tf.float64), (3,), (3,)).forward([zeros(3), zeros(3)]),
        "function.*float64.*float32",
    ),
    "shift dtype": (lambda: fb.Diagonal(zeros(3), tf.zeros([3], tf.float64)), "float64.*float32"),
    "sign shape": (lambda: fb.Diagonal(zeros(3), sign=np.ones([2, 3])), r"\(3,\)"),
    "half precision": (lambda: fb.Expm(tf.zeros([3], tf.bfloat16)).matrix(), "bfloat16"),
    # Graphs.
    "outputs twice": (
        lambda: fb.Graph([fb.Node(fb.LeakyReLU(), "x", "z")], {"x": (2,)}, ("z", "z")), "must be an output, once"
    ),
    "code fed on": (
        lambda: fb.Graph([fb.Node(fb.Abs(), "x", ("z", "code"))], {"x": (2,)}, ("z", "code")), "A code must leave"
    ),
    "wire name taken": (
        lambda: fb.Graph(
            [fb.Node(fb.Duplicate((2,)), "x", ("a", "b")), fb.Node(fb.LeakyReLU(), "a", "b")], {"x": (2,)}, ("b",)
        ),
        r"new names.*\['b'\]",
    ),
    "chain": (lambda: fb.Sequential([linear(4, 3, T), linear(4, 3, T)]), r"Linear takes event shapes.*4.*3"),
    "empty": (lambda: fb.Sequential([]), "at least one"),
    "unknown shape": (lambda: fb.Sequential([fb.LeakyReLU()]), "LeakyReLU, takes any shape"),
    "unknown shape of TFP": (lambda: fb.Sequential([tfb.Tanh()]), "tanh, takes any shape"),
    "dtypes": (lambda: fb.Sequential([linear(3, 3, T), linear(3, 3, tf.float64)]), "one dtype"),
    "wire twice": (
        lambda: fb.Graph([fb.Node(fb.Sum((2,)), ("x", "x"), ("z",))], {"x": (2,)}, ("z",)),
        "'x'.*used already.*Duplicate",
    ),
    "loose wire": (
        lambda: fb.Graph([fb.Node(fb.Duplicate((2,)), ("x",), ("a", "b"))], {"x": (2,)}, ("a",)), r"left over: \['b'\]"
    ),
    "wires": (
        lambda: fb.Graph([fb.Node(fb.Duplicate((2,)), ("x",), ("a",))], {"x": (2,)}, ("a",)), r"gives 2 output\(s\)"
    ),
    "inputs": (
        lambda: fb.Graph([fb.Node(fb.Sum((2,)), ("x",), ("z",))], {"x": (2,)}, ("z",)), r"takes 2 input\(s\)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_named(name):
    act, message = CASES[name]
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        act()


def test_samples_without_preimage_are_reported():
    far = fb.Sequential([tfb.Tanh(), fb.Diagonal(shift=tf.constant([100.0]))], event_shape=(1,))
    flow = FlowDistribution(far)
    with pytest.raises(ValueError, match=r"no preimage in 500 rounds.*Stochastic"):
        flow.sample(5, seed=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no preimage in 500 rounds"):
        tf.function(flow.sample)(5, seed=1)
