"""The sizes of images as their headers tell them, before anything is decoded."""

import struct

import tensorflow as tf

from tfp_flowify.core.types import PathLike

#: No image may have more pixels: more than cameras give, and few enough to be decoded (four bytes each).
MOST_PIXELS = 10**8


def check_pixels(name: PathLike, content: bytes) -> None:
    """Raises a ValueError where an image has more than `MOST_PIXELS`, or does not tell."""
    frames = frame_sizes(content)
    if not frames:
        raise ValueError(f"{name} is not an image that can be read: it is no PNG, JPEG, GIF or BMP, or is cut short.")
    if sum(height * width for height, width in frames) > MOST_PIXELS:
        height, width = max(frames, key=lambda frame: frame[0] * frame[1])
        count = "" if len(frames) == 1 else f" in {len(frames)} frames"
        raise ValueError(
            f"{name} says that it has {height:,} x {width:,} pixels{count}. An image may have {MOST_PIXELS:,}. Scale "
            "it down with another program, or leave it out."
        )


def frame_sizes(content: bytes) -> list:
    """(height, width) of each frame of an image; [] where it is of no known kind, or its header is cut short.

    >>> frame_sizes(tf.io.encode_png(tf.zeros([3, 5, 1], tf.uint8)).numpy())
    [(3, 5)]
    """
    try:
        if content.startswith(b"\x89PNG"):
            return [_turned(*struct.unpack_from(">II", content, 16))]
        if content.startswith(b"BM"):
            return [_turned(*map(abs, struct.unpack_from("<ii", content, 18)))]
        if content.startswith(b"GIF8"):
            return [_turned(*struct.unpack_from("<HH", content, 6)), *_gif_frames(content)]
        if content.startswith(b"\xff\xd8"):
            return [tuple(tf.image.extract_jpeg_shape(content).numpy()[:2].tolist())]
    except (struct.error, IndexError, tf.errors.InvalidArgumentError):
        pass
    return []


def _turned(width, height):
    return height, width


def _gif_frames(content) -> list:
    """All frames of a GIF, which are decoded at once, each with a size of its own."""
    place, frames = 13 + _table(content[10]), []
    try:
        while content[place] != 0x3B:  # The end.
            if content[place] == 0x2C:
                frames.append(_turned(*struct.unpack_from("<HH", content, place + 5)))
                place += 11 + _table(content[place + 9])
            else:
                place += 2
            while content[place]:  # Blocks of bytes, each behind its length.
                place += 1 + content[place]
            place += 1
    except (IndexError, struct.error):
        pass  # Cut short, which the decoder says; what it decodes before that is known.
    return frames


def _table(flags) -> int:
    """The bytes of a table of colours."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0
