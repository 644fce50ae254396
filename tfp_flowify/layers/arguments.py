"""Arguments of layers, checked where they are given."""

from collections.abc import Sequence
from typing import Any

import keras

from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.types import Shape

#: Arguments of Keras layers that can have one value here: the values that are accepted, and why there is no other.
CHANNELS_LAST: dict[str, tuple] = {
    "data_format": (
        (None, "channels_last"),
        "channels are the last axis; put Permute((2, 3, 1)) in front of images with channels first",
    )
}


def positive(name: str, value: float) -> float:
    """A positive number, or an error that names it."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} is a positive number. Received: {name}={value}")
    return float(value)


def block_sizes(depth: int | None, dropout: float) -> tuple:
    """Depth and dropout of networks of residual blocks, checked."""
    depth, dropout = depth if depth is None else whole_number("depth", depth), share("dropout", dropout)
    if dropout and depth is None:
        raise ValueError(f"dropout is for networks of residual blocks. Received: dropout={dropout}, depth=None")
    return depth, dropout


def share(name: str, value: float) -> float:
    """A share of something, less than all of it, or an error that names it."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is a share: zero or more, and less than one. Received: {name}={value}")
    return float(value)


def sizes(name: str, value: int | Sequence[int], ndims: int) -> tuple:
    """A number for all axes, or one for each."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,) * ndims
    if len(values) != ndims:
        raise ValueError(f"{name} is a number or {ndims} of them. Received: {name}={value}")
    return tuple(whole_number(name, size) for size in values)


def one_of(name: str, value: Any, choices: Sequence) -> Any:
    """One of some names, or an error that lists them."""
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}. Received: {name}={value!r}")
    return value


def drop_fixed(owner: str, fixed: dict, given: dict) -> dict:
    """The given arguments without those of Keras that can have one value here; an error where they have another.

    Args:
      owner: Name of the layer, for the error.
      fixed: For each name, the values that are accepted, and a reason.
      given: Arguments of a layer.
    """
    for name in fixed.keys() & given.keys():
        accepted, reason = fixed[name]
        if given[name] not in accepted:
            raise ValueError(f"{owner} takes {name}={accepted[-1]!r} only: {reason}. Received: {name}={given[name]!r}")
    return {name: value for name, value in given.items() if name not in fixed}


def check_full_precision(layer: keras.layers.Layer) -> None:
    """Raises an error where the weights of a Keras layer would be in half precision."""
    if layer.variable_dtype not in ("float32", "float64"):
        raise ValueError(
            f"{type(layer).__name__} keeps its weights in float32 or float64, since a flow must be undone exactly. "
            f"Received: dtype={layer.dtype_policy.name!r}. With 'mixed_bfloat16' networks compute in bfloat16."
        )


def window_counts(
    sides: Sequence[int | None],
    kernel_size: Sequence[int],
    strides: Sequence[int],
    padding: str,
    dilation: Sequence[int] | None = None,
) -> tuple:
    """The number of windows that fit along each side; None where the side is not known."""
    dilation = dilation or [1] * len(kernel_size)
    reach = [(kernel - 1) * apart for kernel, apart in zip(kernel_size, dilation, strict=True)]
    lost = [less if padding == "valid" else 0 for less in reach]
    counts = [
        None if side is None else -(-(side - less) // stride)
        for side, less, stride in zip(sides, lost, strides, strict=True)
    ]
    if any(count is not None and count < 1 for count in counts):
        raise ValueError(f"Windows of {tuple(kernel_size)} do not fit into {tuple(sides)}. Use padding='same'.")
    return tuple(counts)


def check_image(name: str, shape: Shape, ndims: int = 2) -> None:
    """Raises an error where a tensor is no batch of images, or of sequences for ndims 1."""
    if len(shape) != ndims + 2:
        expected = ("batch", *["side"] * ndims, "channels")
        raise ValueError(f"{name} takes ({', '.join(expected)}). Received: shape={tuple(shape)}")
