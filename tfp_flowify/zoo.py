"""The networks of the paper by name, as flows: for its images, for images of any size, and for tables."""

import itertools
import math
import re

import keras

from tfp_flowify import layers
from tfp_flowify.model import FlowModel

#: Networks for images.
IMAGE_MODELS = ("fmlp", "fconv1", "fconv2", "fconv1_nsf", "fconv2_nsf")

#: Networks for tables that the paper tried: layers that keep the width; of one width; of widths designed by hand.
TABULAR_MODELS = (
    *(f"fmlp_same_x{depth}" for depth in (3, 5, 7, 9, 21)),
    *(f"fmlp_{width}x{depth}" for width in (256, 128, 64, 32, 16) for depth in (3, 5, 7)),
    *("fmlp_128_128_128_64_32", "fmlp_128_64_32_16_8", "fmlp_8_16_32_64_128", "fmlp_32_64_128_128_128"),
)


def build(name: str, shape, levels=None, noise="normal", seed=None, condition=None, box=None, **density) -> FlowModel:
    """A flow by the name of its network.

    Whole numbers are dequantized and spread over the line, real numbers standardized; call `adapt` with some examples
    before training.

    Args:
      name: For images one of `IMAGE_MODELS`; for tables one of `TABULAR_MODELS`, or any other of their kind:
        `fmlp_64_32_16` has layers of these widths, `fmlp_64x3` three of 64, `fmlp_same_x5` five that keep the width;
        or `fmlp`, which narrows to one in at most twelve steps, so that it needs no noise.
      shape: Shape of one example: (height, width, channels) or (features,). A sequence (length, channels) is an image
        of width one; with more axes it is made a vector.
      levels: How many whole numbers the data have; None for real numbers.
      noise: "normal" or "uniform", for the dimensions that layers add.
      seed: Seed for the noise in training.
      condition: What the density is given, see `FlowModel`; `labels(10)` for one of ten classes.
      box: The sides (low, high) that real numbers lie between; None for any.
      **density: How what is dropped is modelled, `density`, `transform`, `stages`, `width`: see `layers.Linear`.

    >>> flow = build("fconv2", (8, 8, 1), levels=17)
    >>> flow.network.output_shape
    (None, 8)
    """
    given, shape = tuple(shape), _plain(shape)
    if len(shape) == 3:
        body = _image_network(name, shape, {"noise": noise, **density})
    else:
        body = _tabular_network(name, shape[0], {"noise": noise, "transform": "affine+spline", "width": 128, **density})
    base = "spline" if condition is not None and len(shape) == 1 else "normal"
    reshape = [] if given == shape else [layers.Reshape(shape)]
    stack = [keras.Input(given), *reshape, *_front(levels, box), *body]
    return FlowModel(stack, base, seed, condition, name=name)


def name_for(shape) -> str:
    """The name of a network for examples of any shape.

    >>> name_for((28, 28, 1)), name_for((6,)), name_for((256,))
    ('fconv2', 'fmlp', 'fmlp_128_64_32_16_8')
    """
    shape = _plain(shape)
    if len(shape) == 3:
        return "fconv2"
    return "fmlp" if shape[0] <= 64 else f"fmlp_{'_'.join(map(str, fmlp_units(shape)))}"


def _plain(shape) -> tuple:
    """The shape as that of an image or a vector."""
    shape = tuple(shape)
    if len(shape) in (1, 3):
        return shape
    return (shape[0], 1, shape[1]) if len(shape) == 2 else (math.prod(shape),)


def labels(classes: int) -> keras.Model:
    """A condition network for labels 0 ... classes - 1: a vector for each class, at the start the unit vectors.

    >>> labels(3)(tf.constant([2])).numpy().tolist()
    [[0.0, 0.0, 1.0]]
    """
    embed = keras.layers.Embedding(classes, classes, embeddings_initializer=keras.initializers.Identity())
    return keras.Sequential([keras.Input((), dtype="int32", name="label"), embed], name="labels")


def _front(levels, box):
    """From data to numbers of the whole line, and of unit scale where they have none by nature."""
    if box is not None:
        return [layers.Logit(*box), layers.Spline(bins=32, bound=10.0)]
    if levels is None:
        return [layers.Normalization(), layers.Spline(bins=32, bound=5.0, per_channel=True)]
    return [layers.Dequantize(levels), layers.Logit(), layers.Spline(bins=32, bound=10.0)]


def _image_network(name, shape, kwargs):
    kind, _, couplings = name.partition("_")
    if name not in IMAGE_MODELS:
        raise ValueError(f"Networks for images are {', '.join(IMAGE_MODELS)}. Received: {name!r} for data of {shape}")
    if kind == "fmlp":
        return [layers.Flatten(), *_dense(fmlp_units(shape), kwargs)[:-1]]  # No activation behind the last.
    convolutions, units = (fconv1_sizes if kind == "fconv1" else fconv2_sizes)(shape)
    network, channels = [], shape[-1]
    for i, (filters, kernel_size, strides, padding) in enumerate(convolutions):
        conv = layers.Conv2D(filters, kernel_size, strides, padding, **kwargs)
        network += [conv, layers.Spline()]
        if couplings and 1 < filters <= math.prod(conv.kernel_size) * channels:  # Where nothing but data goes in.
            network.append(layers.SplineCoupling(swap=bool(i % 2), bins=4, width=32))
        channels = filters
    return [*network, layers.Flatten(), *_dense(units, kwargs)]


def _dense(units, kwargs):
    return [layer for size in units for layer in (layers.Dense(size, **kwargs), layers.Spline())]


def fmlp_units(shape) -> list:
    """Units of the dense layers: the appendix's for its images, else halved from half the dimensions down to 8.

    >>> fmlp_units((28, 28, 1)), fmlp_units((8, 8, 1))
    ([512, 256, 128, 64, 32, 8], [32, 16, 8])
    """
    known = {(28, 28, 1): [512, 256, 128, 64, 32, 8], (32, 32, 3): [1024, 512, 512, 256, 128]}
    if shape in known:
        return known[shape]
    size = math.prod(shape)
    if size > 4096:
        raise ValueError(
            f"fmlp rotates all numbers of an image at once, which is for 4096 of them at most. Received: {shape}, "
            f"{size} numbers. Use fconv1 or fconv2, or smaller images (image_size=(height, width))."
        )
    halves = [min(1024, size >> i) for i in itertools.takewhile(lambda i: size >> i >= 8, itertools.count(1))]
    return list(dict.fromkeys(halves)) or [size]


def fconv1_sizes(shape) -> tuple:
    """Filters, kernel size, strides and padding of overlapping convolutions down to one pixel; units of dense layers.

    >>> fconv1_sizes((8, 8, 1))
    ([(16, 3, 2, 'same'), (24, 3, 2, 'same'), (32, (2, 2), 1, 'valid')], [32, 32, 16, 16, 8])
    """
    if shape == (28, 28, 1):
        return [
            *[(16, 3, 2, "same"), (24, 2, 2, "valid"), (32, 3, 2, "valid"), (48, 2, 1, "valid"), (64, 2, 1, "valid")]
        ], [64] * 6 + [32] * 7 + [8]
    if shape == (32, 32, 3):
        filters = [27, 64, 100, 112]
        return [*((count, 3, 2, "same") for count in filters), (128, 2, 2, "valid")], [128] * 10
    *sides, channels = shape
    first = [16, 24, 32, 48, 64] if channels == 1 else [27, 64, 100, 112, 128]
    filters, convolutions = itertools.chain(first, itertools.repeat(first[-1])), []
    while max(sides) > 2:
        convolutions.append((next(filters), 3, 2, "same"))
        sides = [-(-side // 2) for side in sides]
    last = next(filters)
    return [*convolutions, (last, tuple(sides), 1, "valid")], _tail(last)


def fconv2_sizes(shape) -> tuple:
    """The same with kernels of 2 x 2 that do not overlap; the paper does not print its own.

    Each keeps half of what it sees, and 128 filters at most, so that nothing but borders of odd sides adds noise.

    >>> fconv2_sizes((8, 8, 1))
    ([(2, 2, 2, 'same'), (4, 2, 2, 'same'), (8, 2, 2, 'same')], [8, 8, 8])
    """
    *sides, channels = shape
    convolutions, filters = [], channels
    while max(sides) > 1:
        filters = min(2 * filters, 128)
        convolutions.append((filters, 2, 2, "same"))
        sides = [-(-side // 2) for side in sides]
    return convolutions, _tail(math.prod(sides) * filters)


def _tail(size):
    """Units of dense layers that narrow slowly."""
    least = min(size, 8)
    return [max(size >> i // 2, least) for i in range(2 * max(1, (size // least).bit_length() - 1))] + [least]


def _tabular_network(name, features, kwargs):
    """Dense layers, each with a leaky ReLU of slope 0.5."""
    widths = tabular_widths(name, features)
    return [layer for width in widths for layer in (layers.Dense(width, **kwargs), layers.LeakyReLU(0.5))]


def tabular_widths(name: str, features: int) -> list:
    """The widths that the name of a network for tables stands for.

    >>> tabular_widths("fmlp_64x3", 6), tabular_widths("fmlp_same_x2", 6), tabular_widths("fmlp_32_8", 6)
    ([64, 64, 64], [6, 6], [32, 8])
    >>> tabular_widths("fmlp", 6), tabular_widths("fmlp", 43)
    ([5, 4, 3, 2, 1], [40, 36, 33, 29, 26, 22, 18, 15, 11, 8, 4, 1])
    """
    if name == "fmlp":
        steps = min(features, 12)
        widths = [math.ceil(features * (steps - i) / steps) for i in range(1, steps)]
        return list(dict.fromkeys([*widths, 1]))
    if match := re.fullmatch(r"fmlp_(same_|\d+)x(\d+)", name):
        width, depth = match.groups()
        widths = [features if width == "same_" else int(width)] * int(depth)
    elif re.fullmatch(r"fmlp(_\d+)+", name):
        widths = [int(width) for width in name.split("_")[1:]]
    else:
        widths = []
    if not widths or min(widths) < 1:
        raise ValueError(
            f"Networks for tables are fmlp, fmlp_same_x5, fmlp_128x3 or fmlp_128_64_32, with any widths. "
            f"Received: {name!r} for data of ({features},)"
        )
    return widths
