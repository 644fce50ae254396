"""Arguments of layers, checked where they are given."""


def positive(name: str, value) -> float:
    """A positive number, or an error that names it."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} is a positive number. Received: {name}={value}")
    return float(value)


def whole(name: str, value) -> int:
    """A whole number of one or more, or an error that names it."""
    if int(value) != value or value < 1:
        raise ValueError(f"{name} is a whole number of one or more. Received: {name}={value}")
    return int(value)


def sizes(name: str, value, ndims: int) -> tuple:
    """A number for all axes, or one for each."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,) * ndims
    if len(values) != ndims:
        raise ValueError(f"{name} is a number or {ndims} of them. Received: {name}={value}")
    return tuple(whole(name, size) for size in values)


def one_of(name: str, value, choices):
    """One of some names, or an error that lists them."""
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}. Received: {name}={value!r}")
    return value


def window_counts(sides, kernel_size, strides, padding) -> tuple:
    """How many windows fit along each side; None where the side is not known."""
    lost = [0 if padding == "same" else kernel - 1 for kernel in kernel_size]
    counts = [
        None if side is None else -(-(side - less) // stride)
        for side, less, stride in zip(sides, lost, strides, strict=True)
    ]
    if any(count is not None and count < 1 for count in counts):
        raise ValueError(f"Windows of {tuple(kernel_size)} do not fit into {tuple(sides)}. Use padding='same'.")
    return tuple(counts)


def check_image(name: str, shape, ndims: int = 2):
    """An error where a tensor is no batch of images, or of sequences for ndims 1."""
    if len(shape) != ndims + 2:
        expected = ("batch", *["side"] * ndims, "channels")
        raise ValueError(f"{name} takes ({', '.join(expected)}). Received: shape={tuple(shape)}")
