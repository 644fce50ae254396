"""The networks with the best densities that are known here, in three sizes."""

from tfp_flowify import layers
from tfp_flowify.zoo.paper import image_network, tabular_widths

#: Channels and residual blocks of the networks inside, by name: small ones train fast, large ones get further.
BEST_MODELS = {"best_small": (32, 1), "best": (64, 1), "best_large": (96, 2)}


def best_levels(name: str, shape: tuple, levels: int, kwargs: dict) -> list:
    """Layers for images of whole numbers, from their pixels on.

    Every second pixel is kept, again and again until one is left. What is dropped is chosen among the levels, given all
    that is known.

    Args:
      name: One of `BEST_MODELS`.
      shape: (height, width, channels).
      levels: Number of levels.
      kwargs: Arguments of `layers.Subsample`.
    """
    if unknown := kwargs.keys() - {"mixtures", "width", "depth", "dropout"}:
        raise ValueError(
            f"{name} for whole numbers chooses among levels, so it takes no {', '.join(sorted(unknown))}. Leave it "
            "out, or take another network."
        )
    (width, depth), network, side = BEST_MODELS[name], [], max(shape[:-1])
    while side > 1:
        side = (side + 1) // 2
        deeper = max(2, depth) if side <= 4 else depth  # It costs little there.
        network.append(layers.Subsample(levels, **{"width": width, "depth": deeper, **kwargs}))
    return [*network, layers.Spread(levels), layers.Flatten()]


def best_images(name: str, shape: tuple, kwargs: dict) -> list:
    """Layers for images of real numbers, behind the front: `fconv2` with deeper networks and mixtures for densities."""
    width, depth = BEST_MODELS[name]
    sizes = {"stages": 2, "transform": "affine+mixture", "width": width, "depth": depth, **kwargs}
    return image_network("fconv2", shape, sizes)


def best_table(name: str, features: int, kwargs: dict) -> list:
    """Layers for tables, behind the front: columns leave a few at a time, each given those that stay."""
    width, depth = BEST_MODELS[name]
    sizes = {"transform": "affine+spline", "pieces": 32, "width": 4 * width, "depth": depth, **kwargs}
    return [layers.Split(count, **sizes) for count in tabular_widths("fmlp", features) if count < features]
