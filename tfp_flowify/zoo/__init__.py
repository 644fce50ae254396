"""Networks by name, as flows: those of the paper, and `best`, which has better densities."""

import math
from collections.abc import Sequence
from typing import Any

import keras

from tfp_flowify import layers
from tfp_flowify.model import FlowModel
from tfp_flowify.zoo.best import BEST_MODELS, best_images, best_levels, best_table
from tfp_flowify.zoo.paper import IMAGE_MODELS, TABULAR_MODELS, fmlp_units, image_network, tabular_network

__all__ = ["BEST_MODELS", "IMAGE_MODELS", "TABULAR_MODELS", "build", "labels", "name_for"]


def build(
    name: str,
    shape: Sequence[int],
    levels: int | None = None,
    noise: str = "normal",
    seed: int | None = None,
    condition: keras.Model | Sequence[int] | dict[str, Sequence[int]] | None = None,
    box: Sequence | None = None,
    front: str = "spread",
    **density: Any,
) -> FlowModel:
    """A flow by the name of its network.

    Whole numbers are dequantized and spread over the line, real numbers standardized; call `adapt` with some examples
    before training.

    Args:
      name: `best`, `best_small` or `best_large`, for the best densities; or a network of the paper: for images one of
        `IMAGE_MODELS`; for tables one of `TABULAR_MODELS`, or any other of their kind:
        `fmlp_64_32_16` has layers of these widths, `fmlp_64x3` three of 64, `fmlp_same_x5` five that keep the width;
        or `fmlp`, which narrows to one in at most twelve steps, so that it needs no noise.
      shape: Shape of one example: (height, width, channels) or (features,). A sequence (length, channels) is an image
        of width one; with more axes it is made a vector.
      levels: How many whole numbers the data have; None for real numbers.
      noise: "normal" or "uniform", for the dimensions that layers add; "shaped" in convolutional networks for images:
        normal noise whose mean and deviation follow the data, see `layers.ShapedNoise`.
      seed: Seed for the noise in training.
      condition: What the density is given, see `FlowModel`; `labels(10)` for one of ten classes.
      box: The sides (low, high) that real numbers lie between; None for any.
      front: How whole numbers come to the line in networks other than `best`: "spread" by noise of a trained shape,
        "variational" by noise that depends on the image, see `layers.Spread`; "uniform" by uniform noise, a logit and
        a spline, as `Dequantize` does.
      **density: How what is dropped is modelled, `density`, `transform`, `stages`, `width`: see `layers.Linear`; for
        images of whole numbers by `best`: the arguments of `layers.Subsample`.

    >>> flow = build("fconv2", (8, 8, 1), levels=17)
    >>> flow.network.output_shape
    (None, 8)
    """
    given, shape = tuple(shape), _plain(shape)
    density = {argument: value for argument, value in density.items() if value is not None}
    body = (_image_layers if len(shape) == 3 else _table_layers)(name, shape, levels, noise, density)
    first = _front(levels, box, front, bins=256 if name in BEST_MODELS and len(shape) == 1 else 32)
    if any(isinstance(layer, layers.Subsample) for layer in body):
        first = []  # It takes whole numbers.
    reshape = [] if given == shape else [layers.Reshape(shape)]
    # Levels are those of a channel, wherever it is; real numbers are standardized place by place.
    network = [*first, *reshape, *body] if levels is not None else [*reshape, *first, *body]
    base = "spline" if condition is not None and len(shape) == 1 else "normal"
    return FlowModel([keras.Input(given), *network], base, seed, condition, name=name)


def _image_layers(name, shape, levels, noise, density):
    if name not in BEST_MODELS:
        return image_network(name, shape, {"noise": noise, **density})
    return best_images(name, shape, density) if levels is None else best_levels(name, shape, levels, density)


def _table_layers(name, shape, levels, noise, density):
    if name in BEST_MODELS:
        return best_table(name, shape[0], density)
    sizes = {"noise": noise, "transform": "affine+spline", "width": 128, **density}
    return tabular_network(name, shape[0], sizes)


def name_for(shape: Sequence[int]) -> str:
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


def _front(levels, box, kind, bins):
    """From data to numbers of the whole line, and of unit scale where they have none by nature."""
    if kind not in ("spread", "variational", "uniform"):
        raise ValueError(f'front is "spread", "variational" or "uniform". Received: front={kind!r}')
    if box is not None:
        return [layers.Logit(*box), layers.Spline(bins=bins, bound=10.0)]
    if levels is None:
        return [layers.Normalization(), layers.Spline(bins=bins, bound=5.0, per_channel=True)]
    if kind == "uniform":
        return [layers.Dequantize(levels), layers.Logit(), layers.Spline(bins=bins, bound=10.0)]
    return [layers.Spread(levels, variational=kind == "variational")]
