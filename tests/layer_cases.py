"""The one registry of Keras layers: how each is made, what it takes, and the ordinary layer that it must equal.

A case is (constructor, input shape without batch or a list of them, twin). The twin is a function of the built layer
that gives a function of tensors: a Keras layer with the same weights, where there is one.
"""

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import FlowModel
from tfp_flowify import bijectors as fb
from tfp_flowify import layers as fl
from tfp_flowify.math.spline import spline_forward


def with_weights(twin, shape, *weights):
    twin.build((None, *shape))
    twin.set_weights([keras.ops.convert_to_numpy(weight) for weight in weights])
    return twin


def dense(layer):
    twin = keras.layers.Dense(layer.units, use_bias=layer.use_bias)
    weights = [layer.kernel] + ([layer.bias] if layer.use_bias else [])
    return with_weights(twin, (layer.right.size,), *weights)


def conv(layer):
    kind = {1: keras.layers.Conv1D, 2: keras.layers.Conv2D, 3: keras.layers.Conv3D}[layer.ndims]
    twin = kind(
        layer.filters,
        layer.kernel_size,
        layer.strides,
        layer.padding,
        dilation_rate=layer.dilation_rate,
        groups=layer.groups,
    )
    channels = layer.groups * layer.kernel.shape[-2]
    return with_weights(twin, (*[9] * layer.ndims, channels), layer.kernel, layer.bias)


def layer_normalization(layer):
    affine = layer.affine
    twin = keras.layers.LayerNormalization(epsilon=layer.epsilon)
    return with_weights(twin, affine.sign.shape, affine.sign * np.exp(affine.log_scale), affine.offset)


def affine(layer):
    scale = np.asarray(layer.sign) * np.exp(layer.log_scale)
    return lambda x: x * scale + np.asarray(layer.offset)


def density_given(shape, given):
    """A small conditional flow."""
    stack = [keras.Input(shape), fl.Flatten(), fl.ConditionalAffine(), fl.Dense(2)]
    return FlowModel(stack, condition=given)


def pool(kind):
    return lambda layer: kind(layer.pool_size, layer.strides, layer.padding)


def prelu(layer):
    shape = tuple(layer.log_slope.shape)
    return with_weights(keras.layers.PReLU(), shape, np.exp(layer.log_slope))


def normalization(layer):
    layer.log_scale.assign([0.3, -0.2, 0.1])
    layer.shift.assign([0.5, 0.0, -0.5])
    variance = np.exp(-2 * np.asarray(layer.log_scale))
    return keras.layers.Normalization(mean=-np.asarray(layer.shift) * np.sqrt(variance), variance=variance)


def residual(layer):
    first, second = layer.layers[0], layer.layers[-1]
    return lambda x: x + dense(second)(keras.layers.LeakyReLU(0.3)(dense(first)(x)))


def strided_residual(layer):
    return lambda x: conv(layer.layers[0])(x) + conv(layer.shortcut[0])(x)


def spline(layer):
    """The function of tfp_flowify.math, which tests/test_spline.py holds against TFP's."""
    return lambda x: spline_forward(x, tf.convert_to_tensor(layer.parameters), layer.bins, layer.bound)[0]


def coupling(kept):
    """Its two halves by hand."""

    def twin(layer):
        def function(x):
            changed = x.shape[-1] - kept
            given, moved = (x[..., changed:], x[..., :changed]) if layer.swap else (x[..., :kept], x[..., kept:])
            transform = layer.make_transform()
            parameters = tf.reshape(layer.model(given), [*moved.shape, transform.size])
            moved = transform.forward(tf.convert_to_tensor(moved), parameters)[0]
            return tf.concat([moved, given] if layer.swap else [given, moved], axis=-1)

        return function

    return twin


def copy_of_function(shape):
    """The Keras layer inside, made anew with the same weights."""

    def twin(layer):
        inside = layer.function
        return with_weights(type(inside).from_config(inside.get_config()), shape, *inside.weights)

    return twin


def fourier(layer):
    """The circular filter by hand: a sum over shifts."""
    kernel = layer.bijector.kernel.numpy()
    offsets = [(i, j) for i in range(kernel.shape[0]) for j in range(kernel.shape[1])]
    return lambda x: (
        tf.convert_to_tensor(layer.bijector.bias)
        + sum(tf.roll(x, offset, [1, 2]) @ kernel[offset] for offset in offsets)
    )


def network(outputs, inputs):
    """A conditioner of one's own."""
    stack = [keras.Input(inputs), keras.layers.Dense(8, "tanh"), keras.layers.Dense(outputs)]
    return keras.Sequential(stack)


def flat(outputs):
    return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(outputs)])


def box(x):
    return tf.math.log((x + [5.0, 6.0]) / (7.0 - x))


def spread(layer):
    """The number of each level, in a table."""
    ends = [np.asarray(side) for side in fb.Levels(layer.first_cut, layer.log_gaps).tables()]
    loc, count = np.asarray(layer.loc), layer.levels
    table = ends[0] + (ends[1] - ends[0]) / (1 + np.exp(-loc))
    table[:, 0], table[:, -1] = (ends[1] - np.logaddexp(0, loc))[:, 0], (ends[0] + np.logaddexp(0, loc))[:, -1]
    return lambda x: table[np.arange(table.shape[0]), np.clip(x, 0, count - 1).astype(int)]


SIDES = ((1, 0), (0, 2))

CASES = {
    "dense_fewer": (lambda: fl.Dense(3), (5,), dense),
    "dense_more": (lambda: fl.Dense(7, noise_scale=0.5), (5,), dense),
    "dense_equal": (lambda: fl.Dense(5, gain=2.0), (5,), dense),
    "dense_no_bias": (lambda: fl.Dense(3, use_bias=False), (5,), dense),
    "dense_householder": (lambda: fl.Dense(3, orthogonal="householder"), (5,), dense),
    "dense_cayley": (lambda: fl.Dense(7, orthogonal="cayley", noise="uniform"), (5,), dense),
    "dense_multiscale": (lambda: fl.Dense(3, density="multiscale"), (5,), dense),
    "dense_spline": (lambda: fl.Dense(3, transform="spline"), (5,), dense),
    "dense_affine_spline": (lambda: fl.Dense(3, transform="affine+spline"), (5,), dense),
    "dense_affine_mixture": (lambda: fl.Dense(3, transform="affine+mixture"), (5,), dense),
    "dense_pieces": (lambda: fl.Dense(3, transform="spline", pieces=5), (5,), dense),
    "dense_deep": (lambda: fl.Dense(3, depth=2, width=16, dropout=0.1), (5,), dense),
    "conv2d_deep": (lambda: fl.Conv2D(3, 2, 2, depth=1, width=8), (4, 4, 2), conv),
    "dense_stages": (lambda: fl.Dense(2, stages=2), (5,), dense),
    "dense_more_stages_than_dropped": (lambda: fl.Dense(3, stages=9, transform="affine+spline"), (5,), dense),
    "dense_own_conditioner": (lambda: fl.Dense(3, density=network(4, (3,))), (5,), dense),
    "dense_one": (lambda: fl.Dense(1), (3,), dense),
    "dense_on_sequences": (lambda: fl.Dense(3), (4, 5), dense),
    "conv2d_valid": (lambda: fl.Conv2D(3, 2, 2), (4, 4, 2), conv),
    "conv2d_same": (lambda: fl.Conv2D(5, 3, 2, "same"), (5, 4, 2), conv),
    "conv2d_more": (lambda: fl.Conv2D(6, (2, 1), noise="uniform"), (3, 3, 2), conv),
    "conv2d_multiscale": (lambda: fl.Conv2D(2, 3, density="multiscale"), (4, 4, 1), conv),
    "conv2d_gaps": (lambda: fl.Conv2D(2, 1, 2), (5, 4, 2), conv),
    "conv2d_own_conditioner": (lambda: fl.Conv2D(3, 2, 2, density=network(10, (2, 2, 3))), (4, 4, 2), conv),
    "conv1d": (lambda: fl.Conv1D(3, 3, 2, "same"), (7, 2), conv),
    "conv2d_stages": (lambda: fl.Conv2D(3, 2, 2, stages=3), (4, 4, 2), conv),
    "conv1d_stages": (lambda: fl.Conv1D(2, 2, 2, stages=2), (6, 3), conv),
    "conv1d_valid": (lambda: fl.Conv1D(2, 2, 2, transform="spline"), (6, 2), conv),
    "conv1d_causal": (lambda: fl.Conv1D(3, 3, padding="causal", dilation_rate=2), (7, 2), conv),
    "conv2d_dilated": (lambda: fl.Conv2D(3, 2, padding="same", dilation_rate=2), (5, 4, 2), conv),
    "conv2d_groups": (lambda: fl.Conv2D(4, 2, groups=2), (4, 4, 4), conv),
    "conv3d": (lambda: fl.Conv3D(3, 2, 2), (4, 2, 2, 2), conv),
    "depthwise1d": (lambda: fl.DepthwiseConv1D(3, 2, "same"), (6, 3), conv),
    "depthwise2d": (lambda: fl.DepthwiseConv2D(2, depth_multiplier=5), (3, 3, 2), conv),
    "fourier_conv2d": (lambda: fl.FourierConv2D(2), (4, 5, 3), fourier),
    "leaky_relu": (lambda: fl.LeakyReLU(0.2), (5,), lambda _: keras.layers.LeakyReLU(0.2)),
    "prelu": (lambda: fl.PReLU(0.4), (5,), prelu),
    "relu": (lambda: fl.ReLU(), (2, 3), lambda _: keras.layers.ReLU()),
    "abs": (lambda: fl.Abs(), (5,), lambda _: tf.abs),
    "elu": (lambda: fl.ELU(1.3), (5,), lambda _: keras.layers.ELU(1.3)),
    "selu": (lambda: fl.SELU(), (5,), lambda _: keras.layers.Activation("selu")),
    "tanh": (lambda: fl.Tanh(), (5,), lambda _: keras.layers.Activation("tanh")),
    "sigmoid": (lambda: fl.Sigmoid(), (5,), lambda _: keras.layers.Activation("sigmoid")),
    "softplus": (lambda: fl.Softplus(), (5,), lambda _: keras.layers.Activation("softplus")),
    "softsign": (lambda: fl.Softsign(), (5,), lambda _: keras.layers.Activation("softsign")),
    "exponential": (lambda: fl.Exponential(), (5,), lambda _: keras.layers.Activation("exponential")),
    "logit": (lambda: fl.Logit(), (5,), lambda _: lambda x: tf.math.log(x / (1 - x))),
    "logit_box": (lambda: fl.Logit([-5.0, -6.0], 7.0), (3, 2), lambda _: box),
    "spline": (lambda: fl.Spline(), (2, 3), spline),
    "spline_per_channel": (lambda: fl.Spline(4, 1.5, per_channel=True), (2, 3), spline),
    "coupling": (lambda: fl.Coupling(), (5,), coupling(2)),
    "coupling_mixture": (lambda: fl.Coupling(transform="affine+mixture", depth=1, width=8), (3, 3, 4), coupling(2)),
    "spline_coupling": (lambda: fl.SplineCoupling(), (5,), coupling(2)),
    "spline_coupling_conv": (lambda: fl.SplineCoupling(swap=True, bins=4), (3, 3, 4), coupling(2)),
    "spline_coupling_own": (lambda: fl.SplineCoupling(2, conditioner=network(69, (2,))), (5,), coupling(2)),
    "max_pooling": (lambda: fl.MaxPooling2D(), (4, 4, 2), pool(keras.layers.MaxPooling2D)),
    "max_pooling_same": (lambda: fl.MaxPooling2D(3, 2, "same"), (5, 4, 2), pool(keras.layers.MaxPooling2D)),
    "max_pooling_partial": (lambda: fl.MaxPooling2D(2, padding="same"), (5, 3, 1), pool(keras.layers.MaxPooling2D)),
    "max_pooling_gaps": (lambda: fl.MaxPooling2D(2, 3), (5, 5, 1), pool(keras.layers.MaxPooling2D)),
    "max_pooling_own": (
        lambda: fl.MaxPooling2D(2, padding="same", density=flat(9)), (5, 3, 1), pool(keras.layers.MaxPooling2D)
    ),
    "max_pooling1d": (lambda: fl.MaxPooling1D(), (4, 2), pool(keras.layers.MaxPooling1D)),
    "max_pooling3d": (lambda: fl.MaxPooling3D(), (2, 4, 2, 1), pool(keras.layers.MaxPooling3D)),
    "average_pooling1d": (lambda: fl.AveragePooling1D(3, 2), (5, 2), pool(keras.layers.AveragePooling1D)),
    "average_pooling3d": (lambda: fl.AveragePooling3D(), (2, 4, 2, 1), pool(keras.layers.AveragePooling3D)),
    "global_average": (lambda: fl.GlobalAveragePooling(), (6, 2), lambda _: keras.layers.GlobalAveragePooling1D()),
    "average_pooling": (lambda: fl.AveragePooling2D(), (4, 4, 2), pool(keras.layers.AveragePooling2D)),
    "average_pooling_same": (
        lambda: fl.AveragePooling2D(3, 2, "same", density="multiscale"), (5, 4, 2), pool(keras.layers.AveragePooling2D)
    ),
    "global_average_pooling": (
        lambda: fl.GlobalAveragePooling2D(), (3, 2, 2), lambda _: keras.layers.GlobalAveragePooling2D()
    ),
    "flatten": (lambda: fl.Flatten(), (2, 3), lambda _: keras.layers.Flatten()),
    "reshape": (lambda: fl.Reshape((3, -1)), (6,), lambda _: keras.layers.Reshape((3, -1))),
    "permute": (lambda: fl.Permute((3, 1, 2)), (2, 3, 4), lambda _: keras.layers.Permute((3, 1, 2))),
    "zero_padding": (lambda: fl.ZeroPadding2D(SIDES), (3, 3, 2), lambda _: keras.layers.ZeroPadding2D(SIDES)),
    "cropping": (lambda: fl.Cropping2D(SIDES), (4, 4, 2), lambda _: keras.layers.Cropping2D(SIDES)),
    "zero_padding1d": (lambda: fl.ZeroPadding1D((1, 2)), (3, 2), lambda _: keras.layers.ZeroPadding1D((1, 2))),
    "zero_padding3d": (lambda: fl.ZeroPadding3D(1), (2, 1, 2, 2), lambda _: keras.layers.ZeroPadding3D(1)),
    "cropping1d": (lambda: fl.Cropping1D((0, 2)), (4, 2), lambda _: keras.layers.Cropping1D((0, 2))),
    "cropping3d": (lambda: fl.Cropping3D((0, 1, 0)), (2, 3, 2, 2), lambda _: keras.layers.Cropping3D((0, 1, 0))),
    "split": (lambda: fl.Split(2), (3, 5), lambda _: lambda x: x[..., :2]),
    "slice": (lambda: fl.Slice([(None, None, 2), (1, None, None)]), (4, 3, 2), lambda _: lambda x: x[:, ::2, 1:]),
    "slice_all": (lambda: fl.Slice([(None, None, -1)]), (3, 2), lambda _: lambda x: x[:, ::-1]),
    "shaped_noise": (lambda: fl.ShapedNoise(fl.Dense(7), width=8), (5,), lambda layer: dense(layer.layer)),
    "shaped_noise_conv": (
        lambda: fl.ShapedNoise(fl.Conv2D(3, 2, padding="same")), (3, 3, 1), lambda layer: conv(layer.layer)
    ),
    "widen": (lambda: fl.Widen(4), (3, 2), lambda _: lambda x: tf.pad(x, [(0, 0), (0, 0), (0, 2)])),
    "rescaling": (lambda: fl.Rescaling(-2.0, 1.0), (5,), lambda _: keras.layers.Rescaling(-2.0, 1.0)),
    "affine": (lambda: fl.Affine(), (2, 3), affine),
    "layer_normalization": (lambda: fl.LayerNormalization(), (2, 4), layer_normalization),
    "normalization": (lambda: fl.Normalization(), (2, 3), normalization),
    "dequantize": (lambda: fl.Dequantize(4), (5,), lambda _: keras.layers.Rescaling(1 / 4, 1 / 8)),
    "spread": (lambda: fl.Spread(4), (3, 2), spread),
    "spread_variational": (lambda: fl.Spread(3, variational=True, width=8), (4, 4, 1), spread),
    "subsample": (lambda: fl.Subsample(4, mixtures=2, width=8), (5, 4, 1), lambda _: lambda x: x[:, ::2, ::2]),
    "subsample_colours": (
        lambda: fl.Subsample(3, mixtures=1, width=8, dropout=0.2), (2, 2, 2), lambda _: lambda x: x[:, ::2, ::2]
    ),
    "subsample_sequence": (lambda: fl.Subsample(4, width=8, depth=2), (6, 1), lambda _: lambda x: x[:, ::2]),
    "stochastic_function": (
        lambda: fl.Stochastic(keras.activations.softmax), (5,), lambda _: keras.layers.Activation("softmax")
    ),
    "stochastic_layer": (lambda: fl.Stochastic(keras.layers.LayerNormalization()), (5,), copy_of_function((5,))),
    "stochastic_conv": (lambda: fl.Stochastic(keras.layers.Conv2D(3, 3, 2)), (5, 5, 2), copy_of_function((5, 5, 2))),
    "stochastic_block": (
        lambda: fl.Stochastic(keras.layers.Dense(2), density=density_given((2, 3), (2, 2))), (2, 3),
        copy_of_function((2, 3)),
    ),
    "duplicate": (lambda: fl.Duplicate(3), (4,), lambda _: lambda x: [x, x, x]),
    "add": (lambda: fl.Add(), [(2, 3), (2, 3)], lambda _: keras.layers.Add()),
    "multiply": (lambda: fl.Multiply(), [(2, 3), (2, 3)], lambda _: keras.layers.Multiply()),
    "concatenate": (lambda: fl.Concatenate(), [(2, 3), (2, 1)], lambda _: keras.layers.Concatenate()),
    "residual": (lambda: fl.Residual([fl.Dense(6), fl.LeakyReLU(), fl.Dense(4)], noise_scale=0.3), (4,), residual),
    "residual_shortcut": (
        lambda: fl.Residual([fl.Conv2D(3, 3, 2, "same")], shortcut=[fl.Conv2D(3, 2, 2, "same")]), (5, 5, 2),
        strided_residual,
    ),
}  # fmt: skip


def in_flow(layer, dtype=None) -> list:
    """The layer, and what must stand behind it in a flow: whole numbers have no density."""
    whole = isinstance(layer, fl.Subsample)
    return [layer, fl.Dequantize(layer.levels, dtype=dtype)] if whole else [layer]


def draw_input(name, shape, batch=6, dtype="float32"):
    """Data that the layer takes: real numbers, those in (0, 1) for a logit, whole ones for Dequantize."""
    generator = np.random.default_rng(0)
    if isinstance(shape, list):
        return [generator.normal(size=(batch, *s)).astype(dtype) for s in shape]
    if name == "logit":
        return generator.uniform(0.05, 0.95, size=(batch, *shape)).astype(dtype)
    if name.startswith(("dequantize", "spread", "subsample")):
        return generator.integers(0, 3, size=(batch, *shape)).astype(dtype)
    return generator.normal(size=(batch, *shape)).astype(dtype)
