"""The layers of the paper's networks: for its images, for images of any size, and for tables."""

import itertools
import math
import re
from collections.abc import Sequence

from tfp_flowify import layers

#: Networks for images.
IMAGE_MODELS = ("fmlp", "fconv1", "fconv2", "fconv1_nsf", "fconv2_nsf")

#: Networks for tables that the paper tried: layers that keep the width; of one width; of widths designed by hand.
TABULAR_MODELS = (
    *(f"fmlp_same_x{depth}" for depth in (3, 5, 7, 9, 21)),
    *(f"fmlp_{width}x{depth}" for width in (256, 128, 64, 32, 16) for depth in (3, 5, 7)),
    *("fmlp_128_128_128_64_32", "fmlp_128_64_32_16_8", "fmlp_8_16_32_64_128", "fmlp_32_64_128_128_128"),
)


def image_network(name: str, shape: tuple, kwargs: dict) -> list:
    """The layers of a network for images, behind the front.

    Args:
      name: One of `IMAGE_MODELS`.
      shape: (height, width, channels).
      kwargs: Arguments of the layers. With `noise="shaped"` that of convolutions follows the data.
    """
    kind, _, couplings = name.partition("_")
    if name not in IMAGE_MODELS:
        raise ValueError(f"Networks for images are {', '.join(IMAGE_MODELS)}. Received: {name!r} for data of {shape}")
    if kind == "fmlp" and kwargs.get("noise") == "shaped":
        raise ValueError('noise="shaped" is for convolutions: the dense layers of fmlp add no noise to images.')
    if kind == "fmlp":
        return [layers.Flatten(), *_dense(fmlp_units(shape), kwargs)[:-1]]  # No activation behind the last.
    convolutions, units = (fconv1_sizes if kind == "fconv1" else fconv2_sizes)(shape)
    is_shaped, network = kwargs.get("noise") == "shaped", []
    kwargs = {**kwargs, "noise": "normal"} if is_shaped else kwargs
    for i, (filters, kernel_size, strides, padding) in enumerate(convolutions):
        conv = layers.Conv2D(filters, kernel_size, strides, padding, **kwargs)
        _, *places, _ = conv.compute_output_shape((None, *shape))
        patch = math.prod(conv.kernel_size) * shape[-1]
        adds_noise = filters > patch or math.prod(places) * patch > math.prod(shape)
        network += [layers.ShapedNoise(conv) if is_shaped and adds_noise else conv, layers.Spline()]
        if couplings and 1 < filters <= patch:  # Where nothing but data goes in.
            network.append(layers.SplineCoupling(swap=bool(i % 2), bins=4, width=32))
        shape = (*places, filters)
    return [*network, layers.Flatten(), *_dense(units, kwargs)]


def _dense(units, kwargs):
    return [layer for size in units for layer in (layers.Dense(size, **kwargs), layers.Spline())]


def fmlp_units(shape: Sequence[int]) -> list:
    """Units of the dense layers: the appendix's for its images, else halved from half the dimensions down to 8.

    >>> fmlp_units((28, 28, 1)), fmlp_units((8, 8, 1))
    ([512, 256, 128, 64, 32, 8], [32, 16, 8])
    """
    known: dict[tuple[int, ...], list[int]] = {
        (28, 28, 1): [512, 256, 128, 64, 32, 8],
        (32, 32, 3): [1024, 512, 512, 256, 128],
    }
    if tuple(shape) in known:
        return known[tuple(shape)]
    size = math.prod(shape)
    if size > 4096:
        raise ValueError(
            f"fmlp rotates all numbers of an image at once, which is for 4096 of them at most. Received: {shape}, "
            f"{size} numbers. Use fconv1 or fconv2, or smaller images (image_size=(height, width))."
        )
    halves = [min(1024, size >> i) for i in itertools.takewhile(lambda i: size >> i >= 8, itertools.count(1))]
    return list(dict.fromkeys(halves)) or [size]


def fconv1_sizes(shape: Sequence[int]) -> tuple:
    """Filters, kernel size, strides and padding of overlapping convolutions down to one pixel; units of dense layers.

    >>> fconv1_sizes((8, 8, 1))
    ([(16, 3, 2, 'same'), (24, 3, 2, 'same'), (32, (2, 2), 1, 'valid')], [32, 32, 16, 16, 8])
    """
    if tuple(shape) == (28, 28, 1):
        return [
            *[(16, 3, 2, "same"), (24, 2, 2, "valid"), (32, 3, 2, "valid"), (48, 2, 1, "valid"), (64, 2, 1, "valid")]
        ], [64] * 6 + [32] * 7 + [8]
    if tuple(shape) == (32, 32, 3):
        filters = [27, 64, 100, 112]
        return [*((count, 3, 2, "same") for count in filters), (128, 2, 2, "valid")], [128] * 10
    *sides, channels = shape
    first = [16, 24, 32, 48, 64] if channels == 1 else [27, 64, 100, 112, 128]
    counts, convolutions = itertools.chain(first, itertools.repeat(first[-1])), []
    while max(sides) > 2:
        convolutions.append((next(counts), 3, 2, "same"))
        sides = [-(-side // 2) for side in sides]
    last = next(counts)
    return [*convolutions, (last, tuple(sides), 1, "valid")], _tail(last)


def fconv2_sizes(shape: Sequence[int]) -> tuple:
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


def tabular_network(name: str, features: int, kwargs: dict) -> list:
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
