"""The one registry of cases: every bijector, small, with parameters that are not special. A new layer is one line here.

A case is a function of a dtype that returns a bijector; every test in test_bijectors.py runs on all of them.
"""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from nets import ConditionalConvNet, ConditionalNet, ConvNet, Net, values

from tfp_flowify import bijectors as fb
from tfp_flowify import transforms
from tfp_flowify.bijectors.conditional import stage_sizes
from tfp_flowify.bijectors.context import InContext
from tfp_flowify.bijectors.convolution import per_side
from tfp_flowify.bijectors.orthogonal import random_orthogonal
from tfp_flowify.bijectors.pooling import MaxWindows, MeanWindows
from tfp_flowify.bijectors.subsample import groups
from tfp_flowify.core.checks import bundle
from tfp_flowify.math.patches import Patches

tfb = tfp.bijectors


def given(layer, dtype):
    """A conditional layer at one condition, which counts as a parameter: gradients for it are tested too."""
    return fb.Given(layer, tf.Variable([0.7, -0.4], dtype=dtype, name="condition"))


def weight(shape, dtype, scale=0.4, seed=0):
    return tf.Variable(scale * values(shape, dtype, seed), name=f"weight{seed}")


def orthogonal(kind, size, dtype, seed=0):
    start = tf.constant(random_orthogonal(size, seed + 1), dtype)
    if kind == "householder":
        return fb.Householder(weight((max(size - 1, 1), size), dtype, 1.0, seed), start if seed % 2 else None)
    return {"expm": fb.Expm, "cayley": fb.Cayley}[kind](weight((size * (size - 1) // 2,), dtype, 0.4, seed), start)


def linear(features, units, dtype, kind="expm", noise="normal", bias=True, spread=0.3):
    scales = spread * values((units,), dtype, 2)
    return fb.Linear(
        orthogonal(kind, features, dtype, 1),
        tf.Variable(scales[:features]),
        orthogonal(kind, units, dtype, 2),
        weight((units,), dtype, 0.5, 3) if bias else None,
        tf.Variable(scales[features:]) if units > features else 0.0,
        noise,
    )


def funnel(features, units, dtype, net=Net, transform=None, spread=0.3):
    size = (transform or transforms.Standardize()).size
    return fb.Funnel(
        linear(features, units, dtype, spread=spread), net(units, size * (features - units), dtype), transform
    )


def staged(features, units, dtype, stages, net=Net, transform=None):
    size, nets, given = (transform or transforms.Standardize()).size, [], units
    for leaving in stage_sizes(features - units, stages):
        nets.append(net(given, size * leaving, dtype))
        given += leaving
    return fb.StagedFunnel(linear(features, units, dtype), nets, transform)


def scalar(value, dtype):
    return tf.Variable(value, dtype=dtype)


def conv(image, filters, dtype, kernel, strides=1, padding="valid", noise="normal", layer=linear):
    features = np.prod(per_side(kernel, 2)) * image[-1]
    return fb.Conv2D(
        image, layer(int(features), filters, dtype), kernel, strides, padding,
        log_noise_scale=scalar(-0.3, dtype), log_pad_scale=scalar(0.2, dtype), noise=noise,
    )  # fmt: skip


def deep(dtype, layers=20):
    """Twenty layers that widen, narrow, bend and branch."""
    parts, width = [], 6
    for i, units in enumerate([6, 9, 7, 7, 4, 8, 6]):
        parts.append((linear if units >= width else funnel)(width, units, dtype, spread=0.1))
        parts.append(fb.LeakyReLU(0.5) if i % 2 else fb.Spline(weight((23,), dtype)))
        width = units
    parts.append(fb.Residual(linear(6, 6, dtype), log_noise_scale=scalar(-1.0, dtype)))
    parts += [fb.Coupling(6, Net(3, 3 * 23, dtype), swap=swap, dtype=dtype) for swap in (False, True)]
    parts += [
        fb.Diagonal(weight((6,), dtype), weight((6,), dtype)),
        linear(6, 6, dtype),
        tfb.SinhArcsinh(tailweight=tf.constant(0.9, dtype)),
    ]
    assert len(parts) == layers, len(parts)
    return fb.Sequential(parts)


def branching(dtype):
    """Three copies, one of them through a layer, two summed, one concatenated."""
    return fb.Graph(
        [
            fb.Node(fb.Duplicate((4,), 3, scalar(-0.4, dtype)), ("x",), ("a", "b", "c")),
            fb.Node(linear(4, 4, dtype), ("a",), ("a",)),
            fb.Node(fb.Sum((4,), dtype=dtype), ("a", "b"), ("d",)),
            fb.Node(funnel(4, 2, dtype), ("c",), ("c",)),
            fb.Node(fb.Concatenate([2, 4]), ("c", "d"), ("z",)),
        ],
        inputs={"x": (4,)},
        outputs=("z",),
    )


def fourier(image, filters, dtype):
    n = image[-1]
    return fb.FourierConv2D(
        image, weight((3, 3, n, n), dtype, 0.3, 1), weight((3, 1, filters), dtype, 0.2, 2),
        weight((1, 3, filters, filters), dtype, 0.3, 3), weight((filters,), dtype, 0.3, 4),
    )  # fmt: skip


def grouped(cells, groups, features, units, dtype):
    """A linear layer of groups of patches."""
    sizes = {"right": features, "left": units}
    rotations = [
        fb.GroupedExpm(
            weight((groups, size * (size - 1) // 2), dtype, 0.4, i),
            tf.stack([tf.constant(random_orthogonal(size, seed), dtype) for seed in range(groups)]),
        )
        for i, size in enumerate(sizes.values())
    ]
    scale = weight((units - features,), dtype, 0.3, 5) if units > features else 0.0
    singular, bias = weight((groups, min(features, units)), dtype, 0.3, 3), weight((groups * units,), dtype, 0.5, 4)
    return fb.GroupedLinear(cells, rotations[0], singular, rotations[1], bias, scale)


def block(dtype, function=tf.nn.softmax):
    """A function of three numbers as one layer, with a flow of what it takes given what it gives."""
    net = fb.Sequential([fb.ConditionalTransform((3,), Net(3, 6, dtype), dtype=dtype), linear(3, 4, dtype)])
    layer = fb.Stochastic(function, (3,), (3,), weight((3,), dtype, 0.3, 7))
    whiten = fb.WhitenByFlow((3,), net, Net(3, 3, dtype))
    return fb.Graph([fb.Node(layer, "x", ("z", "d")), fb.Node(whiten, ("z", "d"), "z")], {"x": (3,)}, "z")


class Joined(InContext):
    """A conditioner of several tensors side by side."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def __call__(self, inputs, context):
        return context.run(self.net, tf.concat(inputs, axis=-1))


def line(channels, levels, dtype):
    """Levels as intervals of a line."""
    return fb.Levels(weight((channels,), dtype, seed=1), weight((channels, levels - 2), dtype, seed=2))


def spread(shape, dtype, levels=5, conditioner=None):
    table = (shape[-1], levels)
    return fb.Spread(
        shape, line(*table, dtype), weight(table, dtype, seed=3), weight(table, dtype, seed=4), conditioner
    )


def subsample(shape, dtype, levels=5, mixtures=2, net=Net, state=3):
    """Every second pixel, with networks that see each pixel, and those of the stages before by the state."""
    channels = shape[-1]
    stages = []
    for i in range(len(groups(shape[:-1]))):
        update = Joined(net(2 * channels + (state if i else 0), state, dtype))
        heads = [Joined(Net(state + 2 * c, 3 * mixtures, dtype)) for c in range(channels)]
        stages.append(fb.Stage(update, heads))
    return fb.Subsample(shape, line(channels, levels, dtype), stages)


def relu(dtype, shape=(4,)):
    return fb.ReLU(shape, weight(shape, dtype, 0.3, 1), weight(shape, dtype, 0.5, 2), weight(shape, dtype, 0.3, 3))


CASES = {
    "expm": lambda t: orthogonal("expm", 5, t),
    "expm_one": lambda t: orthogonal("expm", 1, t),
    "cayley": lambda t: orthogonal("cayley", 5, t),
    "householder": lambda t: orthogonal("householder", 5, t),
    "householder_start": lambda t: orthogonal("householder", 5, t, seed=1),
    "diagonal": lambda t: fb.Diagonal(weight((4,), t), weight((4,), t, seed=1), sign=[1.0, -1.0, -1.0, 1.0]),
    "shift": lambda t: fb.Diagonal(shift=weight((4,), t)),
    "split": lambda t: fb.Split(5, 2, t),
    "select": lambda t: fb.Select((2, 3), [4, 0, 1], t),
    "widen": lambda t: fb.Widen(2, 5, weight((3,), t)),
    "widen_uniform": lambda t: fb.Widen(2, 5, scalar(0.3, t), "uniform"),
    "concatenate": lambda t: fb.Concatenate([2, 3]),
    "whiten": lambda t: fb.Whiten((3,), (2,), Net(3, 4, t), dtype=t),
    "whiten_spline": lambda t: fb.Whiten(
        (3,), (2,), Net(3, 2 * 25, t), transforms.Stack([transforms.Standardize(), transforms.Spline(bound=3.0)]), t
    ),
    "whiten_mixture": lambda t: fb.Whiten((3,), (2,), Net(3, 2 * 9, t), transforms.Mixture(3), t),
    "whiten_constant_mixture": lambda t: fb.Whiten(
        (3,), (2,), functools.partial(_constant, weight((12,), t)), transforms.Mixture(2), t
    ),
    "whiten_affine_mixture": lambda t: fb.Whiten(
        (3,), (2,), Net(3, 2 * 8, t), transforms.Stack([transforms.Standardize(), transforms.Mixture(2)]), t
    ),
    "whiten_constant": lambda t: fb.Whiten((3,), (2,), functools.partial(_constant, weight((4,), t)), dtype=t),
    "linear_fewer": lambda t: linear(6, 4, t),
    "linear_equal": lambda t: linear(5, 5, t),
    "linear_more": lambda t: linear(4, 6, t),
    "linear_more_uniform": lambda t: linear(4, 6, t, noise="uniform"),
    "linear_no_bias": lambda t: linear(6, 4, t, bias=False),
    "linear_householder": lambda t: linear(6, 4, t, kind="householder"),
    "linear_cayley": lambda t: linear(4, 6, t, kind="cayley"),
    "funnel": lambda t: funnel(6, 4, t),
    "funnel_spline": lambda t: funnel(5, 3, t, transform=transforms.Spline(bins=4)),
    "staged_funnel": lambda t: staged(6, 2, t, stages=3),
    "staged_funnel_spline": lambda t: staged(
        5, 2, t, stages=2, transform=transforms.Stack([transforms.Standardize(), transforms.Spline(bins=4)])
    ),
    "linear_per_pixel": lambda t: fb.bind(funnel(5, 3, t), (2, 2, 5)),
    "linear_more_per_pixel": lambda t: fb.bind(linear(2, 3, t), (2, 2, 2)),
    "pad": lambda t: fb.Pad((3, 2, 2), ((1, 0), (0, 2)), scalar(-0.3, t)),
    "pad_uniform": lambda t: fb.Pad((2, 2, 1), ((1, 1), (1, 1)), scalar(0.3, t), "uniform"),
    "crop": lambda t: fb.Crop((4, 4, 2), ((1, 0), (1, 2)), t),
    "unfold_overlap": lambda t: fb.Unfold(Patches((4, 5, 2), (3, 2), (1, 1)), scalar(-0.3, t)),
    "unfold_overlap_uniform": lambda t: fb.Unfold(Patches((4, 4, 1), (3, 3), (1, 1)), scalar(-0.3, t), "uniform"),
    "unfold_tiles": lambda t: fb.Unfold(Patches((4, 6, 2), (2, 3), (2, 3)), scalar(-0.3, t)),
    "unfold_gaps": lambda t: fb.Unfold(Patches((5, 7, 2), (1, 2), (2, 3)), scalar(-0.3, t)),
    "unfold_mixed": lambda t: fb.Unfold(Patches((6, 5, 1), (3, 2), (2, 3)), scalar(0.3, t)),
    "unfold_per_frame": lambda t: fb.bind(fb.Unfold(Patches((3, 3, 1), (2, 2), (1, 1)), scalar(-0.3, t)), (2, 3, 3, 1)),
    "conv_overlap_same": lambda t: conv((4, 4, 2), 5, t, kernel=3, strides=2, padding="same"),
    "conv_overlap_valid": lambda t: conv((4, 3, 1), 2, t, kernel=(3, 2)),
    "conv_uniform": lambda t: conv((4, 4, 1), 3, t, kernel=3, strides=1, padding="same", noise="uniform"),
    "conv_tiles_funnel": lambda t: conv(
        (4, 4, 2), 3, t, kernel=2, strides=2, layer=functools.partial(funnel, net=ConvNet)
    ),
    "conv_gaps": lambda t: conv((5, 5, 2), 2, t, kernel=1, strides=2),
    "conv_more_filters": lambda t: conv((3, 3, 1), 6, t, kernel=2),
    "conv1d": lambda t: fb.Conv1D((7, 2), linear(6, 4, t), 3, 2, padding="same", log_noise_scale=scalar(0.1, t)),
    "conv1d_causal": lambda t: fb.Conv((7, 2), linear(6, 4, t), 3, padding="causal", dilation=2),
    "conv3d": lambda t: fb.Conv((3, 2, 4, 1), linear(8, 3, t), 2, padding="same", log_noise_scale=scalar(0.1, t)),
    "conv_householder": lambda t: conv(
        (5, 4, 1), 5, t, kernel=3, strides=2, padding="same", layer=functools.partial(linear, kind="householder")
    ),
    "conv_as_many": lambda t: conv((4, 2, 1), 4, t, kernel=2, strides=2),
    "conv_staged_funnel": lambda t: conv(
        (4, 4, 1), 1, t, kernel=3, strides=1, padding="same", layer=functools.partial(staged, stages=2, net=ConvNet)
    ),
    "conv_per_frame": lambda t: fb.bind(conv((3, 3, 1), 5, t, kernel=2), (2, 3, 3, 1)),
    "conv_dilated": lambda t: fb.Conv((4, 5, 1), linear(4, 3, t), 2, padding="same", dilation=(2, 3)),
    "conv_groups": lambda t: fb.Conv((3, 3, 4), grouped(4, 2, 8, 3, t), 2, padding="same"),
    "conv_depthwise": lambda t: fb.Conv((4, 4, 3), fb.Funnel(grouped(4, 3, 4, 1, t), ConvNet(3, 18, t)), 2, 2),
    "grouped_equal": lambda t: grouped(2, 3, 2, 2, t),
    "grouped_more": lambda t: grouped(1, 3, 2, 4, t),
    "grouped_funnel": lambda t: fb.Funnel(grouped(2, 2, 4, 1, t), Net(2, 12, t)),
    "normalize": lambda t: fb.Normalize(4, log_noise_scale=weight((2,), t)),
    "normalize_rms": lambda t: fb.Funnel(fb.Normalize(3, False, 0.1, weight((1,), t)), Net(3, 2, t)),
    "normalize_per_place": lambda t: fb.bind(fb.Normalize(4, log_noise_scale=weight((2,), t)), (2, 4)),
    "multiply": lambda t: fb.Multiply((2, 3), dtype=t),
    "multiply_gate": lambda t: fb.Funnel(fb.Multiply((2, 2, 3), (1, 1, 3), t), _flat(Net(12, 6, t))),
    "pad_volume": lambda t: fb.Pad((2, 1, 2, 1), ((1, 0), (0, 2), (1, 1)), scalar(-0.3, t)),
    "crop_sequence": lambda t: fb.Crop((5, 2), ((1, 2),), t),
    "max_pool_volume": lambda t: fb.MaxPool((3, 2, 2, 1), 2, padding="same", dtype=t),
    "average_pool_sequence": lambda t: fb.AveragePool((5, 2), 3, 2, log_noise_scale=scalar(-1.0, t)),
    "block": block,
    "duplicate": lambda t: fb.Duplicate((2, 3), 2, scalar(-0.3, t)),
    "duplicate_uniform": lambda t: fb.Duplicate((3,), 4, scalar(-0.3, t), "uniform"),
    "sum": lambda t: fb.Sum((2, 3), 2, t),
    "sum_funnel": lambda t: fb.Funnel(fb.Sum((3,), 3, t), Net(3, 12, t)),
    "residual": lambda t: fb.Residual(
        fb.Sequential([linear(3, 5, t), fb.LeakyReLU(0.3), funnel(5, 3, t)]),
        conditioner=Net(3, 6, t), log_noise_scale=scalar(-1.0, t),
    ),
    "residual_conv": lambda t: fb.Residual(
        conv((3, 3, 1), 2, t, kernel=3, strides=2, padding="same"),
        shortcut=conv((3, 3, 1), 2, t, kernel=2, strides=2, padding="same"), log_noise_scale=scalar(-1.0, t),
    ),
    "leaky_relu": lambda t: fb.bind(fb.LeakyReLU(0.2), (4,)),
    "prelu": lambda t: fb.PReLU(weight((4,), t)),
    "elu": lambda t: fb.bind(fb.ELU(1.3), (4,)),
    "selu": lambda t: fb.bind(fb.SELU(), (4,)),
    "tanh": lambda t: fb.bind(tfb.Tanh(), (4,)),
    "sigmoid": lambda t: fb.bind(fb.Sigmoid(), (4,)),
    "sigmoid_of_tfp": lambda t: fb.bind(tfb.Sigmoid(), (4,)),
    "softplus": lambda t: fb.bind(tfb.Softplus(), (4,)),
    "logit": lambda t: fb.Sequential([fb.bind(tfb.Sigmoid(), (3,)), fb.Logit(-0.2, [1.1, 2.0, 1.5], t)]),
    "spline_shared": lambda t: fb.bind(fb.Spline(weight((23,), t, 1.0)), (2, 3)),
    "spline_per_channel": lambda t: fb.bind(fb.Spline(weight((3, 14), t, 1.0), bound=1.0), (2, 3)),
    "relu": relu,
    "relu_shared": lambda t: fb.bind(relu(t, ()), (2, 3)),
    "relu_conditional": lambda t: fb.ReLU(
        (3,), scalar(-0.5, t) * tf.ones([3], t), sign_logit=Net(3, 3, t), log_scale=Net(3, 3, t),
    ),
    "abs": lambda t: fb.bind(fb.Abs(scalar(0.4, t)), (4,)),
    "abs_conditional": lambda t: fb.bind(fb.Abs(tf.sin, t), (4,)),
    "max_windows": lambda t: MaxWindows(Patches((4, 2, 2), (2, 2), (2, 2)), t),
    "mean_windows": lambda t: MeanWindows(Patches((4, 2, 2), (2, 2), (2, 2)), dtype=t),
    "max_pool": lambda t: fb.MaxPool2D((4, 4, 2), 2, dtype=t),
    "max_pool_same": lambda t: fb.MaxPool2D((5, 3, 1), 2, padding="same", dtype=t),
    "max_pool_overlap_same": lambda t: fb.MaxPool2D((5, 4, 1), 3, 2, "same", log_noise_scale=scalar(-1.0, t)),
    "max_pool_same_funnel": lambda t: fb.MaxPool2D(
        (3, 3, 1), 2, padding="same", conditioner=_flat(Net(4, 5 * 12, t)),
        transform=transforms.Stack([transforms.Standardize(shift=False), transforms.Spline(4, odd=True)]), dtype=t,
    ),
    "max_pool_gaps": lambda t: fb.MaxPool2D((5, 5, 1), 2, 3, dtype=t),
    "max_pool_funnel": lambda t: fb.Funnel(fb.MaxPool2D((2, 4, 1), 2, dtype=t), _flat(Net(2, 6, t))),
    "average_pool_funnel": lambda t: fb.Funnel(fb.AveragePool2D((2, 4, 1), 2, dtype=t), _flat(Net(2, 12, t))),
    "average_pool": lambda t: fb.AveragePool2D((4, 4, 2), 2, dtype=t),
    "average_pool_overlap_same": lambda t: fb.AveragePool2D((5, 4, 1), 3, 2, "same", log_noise_scale=scalar(-1.0, t)),
    "average_pool_same": lambda t: fb.AveragePool2D((5, 3, 1), 2, padding="same", dtype=t),
    "global_average_pool": lambda t: fb.GlobalAveragePool2D((3, 2, 2), dtype=t),
    "coupling": lambda t: fb.Coupling(5, Net(2, 3 * 23, t), dtype=t),
    "coupling_swapped_affine": lambda t: fb.Coupling(5, Net(3, 4, t), 3, True, transforms.Standardize(), t),
    "coupling_conv": lambda t: fb.bind(fb.Coupling(4, ConvNet(2, 2 * 23, t), dtype=t), (2, 3, 4)),
    "stochastic": lambda t: fb.Stochastic(Net(3, 2, t), (3,), (2,), scalar(-0.5, t)),
    "stochastic_scales": lambda t: fb.Stochastic(Net(3, 2, t), (3,), (2,), weight((2,), t)),
    "stochastic_funnel": lambda t: fb.Funnel(
        fb.Stochastic(tf.nn.softmax, (3,), (3,), scalar(-0.5, t)), Net(3, 6, t)
    ),
    "fourier_equal": lambda t: fourier((4, 5, 2), 2, t),
    "fourier_fewer": lambda t: fourier((3, 4, 3), 2, t),
    "dequantize": lambda t: fb.bind(fb.Dequantize(5, t), (4,)),
    "spread": lambda t: spread((3, 1), t),
    "spread_channels": lambda t: spread((2, 3), t, levels=3),
    "spread_two_levels": lambda t: spread((4, 1), t, levels=2),
    "spread_variational": lambda t: spread((2, 2), t, conditioner=Net(4, 4, t)),
    "spread_deep": lambda t: fb.Sequential([spread((2, 2), t), tfb.Reshape((4,), (2, 2)), funnel(4, 2, t)]),
    "subsample": lambda t: subsample((3, 4, 1), t),
    "subsample_channels": lambda t: subsample((2, 2, 3), t, mixtures=1),
    "subsample_sequence": lambda t: subsample((5, 1, 1), t, mixtures=3),
    "subsample_two_levels": lambda t: subsample((2, 1, 2, 1), t, levels=2),
    "subsample_twice": lambda t: fb.Sequential(
        [subsample((4, 3, 1), t), subsample((2, 2, 1), t), fb.Dequantize(5, t), linear(1, 1, t)]
    ),
    "given_subsample": lambda t: given(subsample((2, 3, 1), t, net=ConditionalNet), t),
    "flatten": lambda t: fb.bind(tfb.Reshape((6,), (2, 3)), (2, 3)),
    "reshape": lambda t: fb.bind(tfb.Reshape((3, 2, 1), (2, 3)), (2, 3)),
    "permute": lambda t: fb.bind(tfb.Transpose([2, 0, 1]), (2, 3, 1)),
    "shaped_widen": lambda t: fb.ShapedNoise(fb.Widen(2, 5, weight((3,), t)), [Net(2, 6, t)]),
    "shaped_linear_uniform": lambda t: fb.ShapedNoise(linear(4, 6, t, noise="uniform"), [Net(4, 4, t)]),
    "shaped_conv": lambda t: fb.ShapedNoise(
        conv((3, 3, 1), 4, t, kernel=2, padding="same"), [_flat(Net(9, 14, t)), _flat(Net(9, 52, t))],
    ),
    "shaped_duplicate": lambda t: fb.ShapedNoise(fb.Duplicate((3,), 3, scalar(-0.3, t)), [Net(3, 12, t)]),
    "given_affine": lambda t: given(fb.ConditionalTransform((3,), Net(2, 6, t), dtype=t), t),
    "given_spline": lambda t: given(fb.ConditionalTransform((3,), Net(2, 69, t), transforms.Spline(), t), t),
    "given_affine_per_pixel": lambda t: given(
        fb.bind(fb.ConditionalTransform((2,), Net(2, 4, t), dtype=t), (3, 2, 2)), t
    ),
    "given_spline_per_pixel": lambda t: given(
        fb.bind(fb.ConditionalTransform((2,), Net(2, 22, t), transforms.Spline(4), t), (2, 2)), t
    ),
    "given_whiten": lambda t: given(fb.Whiten((3,), (2,), ConditionalNet(3, 4, t), dtype=t), t),
    "given_funnel": lambda t: given(funnel(6, 4, t, net=ConditionalNet), t),
    "given_funnel_per_pixel": lambda t: given(fb.bind(funnel(5, 3, t, net=ConditionalNet), (2, 2, 5)), t),
    "given_staged_funnel": lambda t: given(staged(6, 2, t, stages=3, net=ConditionalNet), t),
    "given_conv": lambda t: given(
        conv((4, 4, 2), 3, t, kernel=2, strides=2, layer=functools.partial(funnel, net=ConditionalConvNet)), t
    ),
    "given_coupling": lambda t: given(fb.Coupling(5, ConditionalNet(2, 3 * 23, t), dtype=t), t),
    "given_coupling_conv": lambda t: given(
        fb.bind(fb.Coupling(4, ConditionalConvNet(2, 2 * 23, t), dtype=t), (2, 3, 4)), t
    ),
    "given_residual": lambda t: given(
        fb.Residual(linear(3, 3, t), conditioner=ConditionalNet(3, 6, t), log_noise_scale=scalar(-1.0, t)), t
    ),
    "given_relu": lambda t: given(
        fb.ReLU((3,), weight((3,), t, 0.3, 1), ConditionalNet(3, 3, t), ConditionalNet(3, 3, t)), t
    ),
    "given_abs": lambda t: given(fb.bind(fb.Abs(ConditionalNet(4, 4, t), t), (4,)), t),
    "given_max_pool": lambda t: given(
        fb.Funnel(fb.MaxPool2D((2, 4, 1), 2, dtype=t), _flat(ConditionalNet(2, 6, t))), t
    ),
    "given_stochastic": lambda t: given(
        fb.Funnel(fb.Stochastic(ConditionalNet(3, 2, t), (3,), (2,), scalar(-0.5, t)), ConditionalNet(2, 6, t)), t
    ),
    "given_shaped_noise": lambda t: given(
        fb.ShapedNoise(linear(2, 4, t), [ConditionalNet(2, 4, t)]), t
    ),
    "given_deep": lambda t: given(
        fb.Sequential(
            [
                fb.ConditionalTransform((4,), Net(2, 8, t), dtype=t), linear(4, 5, t), fb.LeakyReLU(0.4),
                funnel(5, 3, t, net=ConditionalNet), fb.Coupling(3, ConditionalNet(1, 2 * 23, t), dtype=t),
            ]
        ), t
    ),
    "graph": branching,
    "deep": deep,
}  # fmt: skip


def flow_layer(name, dtype):
    """The bijector of a case; where it hands on whole numbers, which have no density, with Dequantize behind it."""
    bijector = CASES[name](dtype)
    levels = bijector.output_levels
    return bijector if levels is None else fb.Sequential([bijector, fb.Dequantize(levels, dtype)])


def _constant(parameters, _):
    return tf.convert_to_tensor(parameters)


class _flat(InContext):  # noqa: N801
    """A conditioner on the flattened event."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def __call__(self, x, context):
        return context.run(self.net, tf.reshape(x, tf.concat([tf.shape(x)[:-3], [np.prod(x.shape[-3:])]], axis=0)))


def draw_inputs(bijector, dtype, batch=(), seed=0):
    """Parts to go forward with: inputs normal (whole numbers where they must be), noise from its own distribution."""
    inputs = [values((*batch, *shape), dtype, seed + i) for i, shape in enumerate(bijector.inputs)]
    if bijector.takes_integers:
        inputs = [tf.cast(tf.math.floormod(tf.round(3 * x), bijector.levels), dtype) for x in inputs]
    noise = [d.sample(batch, seed=(seed, i)) for i, d in enumerate(bijector.noise)]
    return bundle(inputs + noise)
