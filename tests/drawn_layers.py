"""Strategies of hypothesis for single layers: a kind is a function of the event shape that gives its arguments."""

import math

import keras
from hypothesis import strategies as st

from tfp_flowify import layers as fl

kl = keras.layers


def one_of(*values):
    return st.sampled_from(values)


def arguments(needed=None, **optional):
    return st.fixed_dictionaries(needed or {}, optional=optional)


def or_each(values, ndims):
    """A number for all sides, or one for each."""
    return st.one_of(values, st.tuples(*[values] * ndims))


NOISE = {"noise": one_of("normal", "uniform"), "noise_scale": one_of(0.3, 1.0)}
TRANSFORM = {"transform": one_of("affine", "spline", "affine+spline", "affine+mixture")}
DENSITY = {"density": one_of("funnel", "multiscale"), **TRANSFORM, "depth": st.just(1)}
WIDTH = {"width": st.just(4)}
LINEAR = {
    **NOISE,
    **DENSITY,
    "activation": one_of("linear", "relu", "leaky_relu", "elu", "tanh", "softplus"),
    "use_bias": st.booleans(),
    "orthogonal": one_of("auto", "expm", "cayley", "householder"),
}
units = st.integers(1, 6)


def dense(shape):
    start = one_of({"gain": 1.5}, {"kernel_initializer": "glorot_uniform"})
    plain = arguments({"units": units, **WIDTH}, **LINEAR, stages=st.integers(1, 3))
    return st.one_of(plain, st.builds(lambda a, b: {**a, **b}, plain, start))


def windows(ndims, window="kernel_size"):
    sizes = st.integers(1, 3)
    return {
        window: or_each(sizes, ndims),
        "strides": or_each(sizes, ndims),
        "padding": one_of("same", "valid", "same", *["causal"] * (ndims == 1 and window == "kernel_size")),
    }


def conv(ndims):
    """A convolution; where it has groups or holes, they often fit."""

    def strategy(shape):
        plain = {**WIDTH, "filters": st.integers(1, 4), **windows(ndims)}
        holes = {**plain, "strides": st.just(1), "dilation_rate": or_each(st.integers(1, 2), ndims)}
        groups = {**plain, "groups": st.just(shape[-1]), "filters": one_of(shape[-1], 2 * shape[-1], 3)}
        staged = arguments(plain, **LINEAR, stages=st.integers(1, 2))
        return st.one_of(staged, arguments(holes, **LINEAR), arguments(groups, **LINEAR))

    return strategy


def depthwise(ndims):
    return lambda shape: arguments({**WIDTH, **windows(ndims)}, **LINEAR, depth_multiplier=st.integers(1, 2))


def pooling(ndims):
    return lambda shape: arguments({**WIDTH, **windows(ndims, "pool_size")}, **NOISE, **DENSITY)


def border(name, ndims, **optional):
    sides = st.tuples(*[one_of((0, 0), (0, 1), (1, 0), (1, 1))] * ndims)
    sides = sides.map(lambda pairs: pairs[0]) if ndims == 1 else sides
    return lambda shape: arguments({name: sides}, **optional)


def nothing(shape):
    return st.just({})


def reshape(shape):
    size = math.prod(shape)
    factors = [n for n in range(1, size + 1) if size % n == 0]
    return st.sampled_from(factors).map(lambda n: {"target_shape": (n, size // n)})


def permute(shape):
    return st.permutations(range(1, len(shape) + 1)).map(lambda dims: {"dims": tuple(dims)})


def slices(shape):
    step = one_of((None, None, 2), (None, None, -1), (None, 1, None), (None, None, None), (-2, None, None))
    return st.lists(step, min_size=1, max_size=len(shape)).map(lambda axes: {"slices": axes})


def stochastic(shape):
    layers = [("Dense", {"units": 2}), ("LayerNormalization", {}), ("Dropout", {"rate": 0.5})]
    return arguments({**WIDTH, "function": one_of("softmax", "gelu", *layers)}, **NOISE, **DENSITY)


def shaped_noise(shape):
    layers = [st.tuples(st.just(kind), of(shape)) for kind, of in (("Dense", dense), ("Widen", SAME["Widen"]))]
    if len(shape) in (2, 3):
        layers.append(st.tuples(st.just(f"Conv{len(shape) - 1}D"), conv(len(shape) - 1)(shape)))
    return arguments({"layer": st.one_of(layers), **WIDTH})


def box(shape):
    return one_of({"low": -60.0, "high": 70.0}, {"low": [-50.0] * shape[-1], "high": 60.0})


#: Kinds that take any shape.
SAME = {
    "LeakyReLU": lambda shape: arguments(negative_slope=one_of(0.1, 2.0)),
    "PReLU": lambda shape: arguments(negative_slope=one_of(0.1, 2.0)),
    "ReLU": lambda shape: arguments(noise_scale=one_of(0.3, 1.0)),
    "Abs": nothing,
    "ELU": lambda shape: arguments(alpha=one_of(0.5, 1.5)),
    **dict.fromkeys(["SELU", "Tanh", "Sigmoid", "Softplus", "Softsign", "Exponential"], nothing),
    "Spline": lambda shape: arguments(bins=one_of(2, 3, 5), bound=one_of(1.0, 3.0), per_channel=st.booleans()),
    "SplineCoupling": lambda shape: arguments(WIDTH, kept=st.integers(1, 2), swap=st.booleans(), bins=one_of(3)),
    "Coupling": lambda shape: arguments(WIDTH, kept=st.integers(1, 2), swap=st.booleans(), **TRANSFORM),
    "Affine": nothing,
    "Normalization": nothing,
    "Rescaling": lambda shape: arguments({"scale": one_of(0.5, -2.0)}, offset=one_of(-1.0, 3.0)),
    "LayerNormalization": lambda shape: arguments(
        WIDTH, **NOISE, **DENSITY, center=st.booleans(), scale=st.booleans(), rms_scaling=st.booleans()
    ),
    "Dense": dense,
    "Split": lambda shape: arguments({"units": st.integers(1, max(1, shape[-1] - 1)), **WIDTH}, **DENSITY),
    "Widen": lambda shape: arguments({"units": st.integers(shape[-1] + 1, shape[-1] + 3)}, **NOISE),
    "Stochastic": stochastic,
    "ShapedNoise": shaped_noise,
}

#: Kinds that read a condition.
CONDITIONAL = {
    "ConditionalAffine": lambda shape: arguments(WIDTH),
    "ConditionalSpline": lambda shape: arguments({"bins": one_of(3), **WIDTH}),
}

#: Kinds that change the shape, by the number of axes.
SHAPES = {"Flatten": nothing, "Reshape": reshape, "Permute": permute, "Slice": slices}
BY_RANK = {
    1: {"Reshape": reshape, "Slice": slices},
    **{
        ndims + 1: {
            **SHAPES,
            f"Conv{ndims}D": conv(ndims),
            f"MaxPooling{ndims}D": pooling(ndims),
            f"AveragePooling{ndims}D": pooling(ndims),
            f"ZeroPadding{ndims}D": border("padding", ndims, **NOISE),
            f"Cropping{ndims}D": border("cropping", ndims, **DENSITY),
            "GlobalAveragePooling": lambda shape: arguments(WIDTH, **DENSITY),
        }
        for ndims in (1, 2, 3)
    },
}
BY_RANK[2] |= {"DepthwiseConv1D": depthwise(1)}
BY_RANK[3] |= {
    "DepthwiseConv2D": depthwise(2),
    "GlobalAveragePooling2D": lambda shape: arguments(WIDTH, **DENSITY),
    "FourierConv2D": lambda shape: arguments(
        {"filters": st.integers(1, max(1, shape[-1])), **WIDTH}, **DENSITY, kernel_size=one_of(1, 1, 3)
    ),
}


ACTIVATIONS = one_of("linear", "relu", "tanh", "sigmoid", "elu", "gelu", "softmax", "leaky_relu", "silu", "softplus")


EVEN = {"strides": st.integers(1, 3)}  # TensorFlow's depthwise convolutions take no others.


def keras_conv(ndims, fixed=(), **more):
    plain = {"filters": st.integers(1, 4), **windows(ndims), "padding": one_of("same", "valid"), **dict(fixed)}
    return lambda shape: arguments(plain, activation=ACTIVATIONS, use_bias=st.booleans(), **more)


def keras_windows(ndims, window="pool_size"):
    return lambda shape: arguments(windows(ndims, window))


KERAS = {
    "Dense": lambda shape: arguments({"units": units}, activation=ACTIVATIONS, use_bias=st.booleans()),
    "Activation": lambda shape: arguments({"activation": ACTIVATIONS}),
    "LeakyReLU": nothing,
    "ReLU": lambda shape: arguments(max_value=one_of(1.0), negative_slope=one_of(0.1)),
    "PReLU": nothing,
    "BatchNormalization": lambda shape: arguments(center=st.booleans(), scale=st.booleans()),
    "LayerNormalization": nothing,
    "UnitNormalization": nothing,
    "Dropout": lambda shape: st.just({"rate": 0.5}),
    "GaussianNoise": lambda shape: st.just({"stddev": 0.5}),
    "Rescaling": lambda shape: arguments({"scale": one_of(0.5, -2.0)}, offset=one_of(3.0)),
}
KERAS_BY_RANK = {
    1: {"Reshape": reshape, "RepeatVector": lambda shape: st.just({"n": 2})},
    **{
        ndims + 1: {
            "Flatten": nothing,
            "Reshape": reshape,
            "Permute": permute,
            f"Conv{ndims}D": keras_conv(ndims),
            f"Conv{ndims}DTranspose": keras_conv(ndims),
            f"MaxPooling{ndims}D": keras_windows(ndims),
            f"AveragePooling{ndims}D": keras_windows(ndims),
            f"GlobalAveragePooling{ndims}D": lambda shape: arguments(keepdims=st.booleans()),
            f"GlobalMaxPooling{ndims}D": nothing,
            f"ZeroPadding{ndims}D": border("padding", ndims),
            f"Cropping{ndims}D": border("cropping", ndims),
            f"UpSampling{ndims}D": lambda shape: st.just({"size": 2}),
        }
        for ndims in (1, 2, 3)
    },
}
KERAS_BY_RANK[2] |= {
    "LSTM": lambda shape: arguments({"units": st.integers(1, 3)}, return_sequences=st.booleans()),
    "GRU": lambda shape: arguments({"units": st.integers(1, 3)}, return_sequences=st.booleans()),
}
KERAS_BY_RANK[3] |= {
    "SeparableConv2D": keras_conv(2, EVEN, depth_multiplier=st.integers(1, 2)),
    "DepthwiseConv2D": lambda shape: arguments({**windows(2), **EVEN}, activation=ACTIVATIONS),
}

#: Kinds for branches, which keep the sides.
KEEPING = {
    fl: {kind: SAME[kind] for kind in ("LeakyReLU", "ReLU", "Spline", "Affine", "Dense", "Normalization", "Widen")},
    kl: {
        "Dense": lambda shape: arguments({"units": units}, activation=one_of("relu", "tanh", "gelu")),
        "LeakyReLU": nothing,
        "BatchNormalization": nothing,
        "LayerNormalization": nothing,
        "Dropout": lambda shape: st.just({"rate": 0.5}),
    },
}
