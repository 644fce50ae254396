"""Images: digits that ship with the package, sets of TensorFlow Datasets, and one's own folders."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import first_line
from tfp_flowify.core.memory import check_memory
from tfp_flowify.core.types import PathLike
from tfp_flowify.data.image_headers import MOST_PIXELS, check_pixels

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")


def digits() -> tuple:
    """1797 handwritten digits of 8 x 8 pixels with whole numbers 0 ... 16: `Dequantize(17)`.

    Returns:
      (x_train, y_train), (x_test, y_test): 1437 and 360 images (n, 8, 8, 1) and labels, as uint8.

    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998: its
    test set in a fixed random order. Licence: CC BY 4.0. See docs/data.md.

    >>> (x_train, y_train), (x_test, y_test) = digits()
    >>> x_train.shape, x_test.shape, int(x_train.max())
    ((1437, 8, 8, 1), (360, 8, 8, 1), 16)
    """
    with np.load(Path(__file__).parent / "digits.npz") as file:
        return (file["x_train"], file["y_train"]), (file["x_test"], file["y_test"])


def mnist(data_dir: PathLike | None = None, download: bool = False) -> tuple:
    """60,000 and 10,000 handwritten digits of 28 x 28 x 1 bytes, through TensorFlow Datasets.

    Args:
      data_dir: Folder of TensorFlow Datasets; its own default if left out.
      download: Whether it may be fetched from the network where the folder does not have it.

    Returns:
      (x_train, y_train), (x_test, y_test).

    >>> (x_train, _), (x_test, _) = mnist()  # doctest: +SKIP
    """
    return tfds_images("mnist", data_dir, download)


def fashion_mnist(data_dir: PathLike | None = None, download: bool = False) -> tuple:
    """60,000 and 10,000 pictures of clothes of 28 x 28 x 1 bytes. Arguments as for `mnist`.

    >>> (x_train, _), (x_test, _) = fashion_mnist()  # doctest: +SKIP
    """
    return tfds_images("fashion_mnist", data_dir, download)


def cifar10(data_dir: PathLike | None = None, download: bool = False) -> tuple:
    """50,000 and 10,000 colour pictures of 32 x 32 x 3 bytes. Arguments as for `mnist`.

    >>> (x_train, _), (x_test, _) = cifar10()  # doctest: +SKIP
    """
    return tfds_images("cifar10", data_dir, download)


def tfds_images(name: str, data_dir: PathLike | None = None, download: bool = False) -> tuple:
    """Images and labels of any set of TensorFlow Datasets with `train` and `test` splits of equal images."""
    # Takes a second, and digits and files do without it. Its front door hides why it cannot be opened.
    from tensorflow_datasets import public_api as tfds

    tfds.disable_progress_bar()  # For what takes a second.
    folder = Path(data_dir or os.environ.get("TFDS_DATA_DIR") or tfds.core.constants.DATA_DIR).expanduser()
    if not download and not list(folder.glob(f"{name}/*/dataset_info.json")):
        raise FileNotFoundError(
            f"There is no {name} of TensorFlow Datasets in {folder}: looked for {folder / name}/*/dataset_info.json. "
            "Give the folder that has it (data_dir=DIR), or let it be downloaded (download=True)."
        )
    try:
        splits = tfds.load(
            name, split=["train", "test"], data_dir=folder, download=download, batch_size=-1, as_supervised=True
        )
    except Exception as error:
        raise ValueError(
            f"{name} in {folder} could not be read; a file may be damaged or incomplete. Delete {folder / name} and "
            f"get it again (download=True). TensorFlow Datasets said: {first_line(error)}"
        ) from error
    return tuple((np.asarray(x), np.asarray(y)) for x, y in splits)


def image_folder(folder: PathLike, size: Sequence[int] | None = None) -> dict:
    """All images of a folder and those inside it, as arrays of bytes by split.

    Args:
      folder: Folder with `train`, `test` and, if wanted, `validation` inside; or with images alone, the split "all".
      size: (height, width) to which all are resized; left out, they must have one size.

    Returns:
      Arrays (n, height, width, channels) of bytes: one channel where all images are grey, else three; and one more for
      their opacity, where any pixel is not opaque.

    >>> image_folder("pictures", size=(32, 32))["train"]  # doctest: +SKIP
    """
    folder = Path(folder)
    if size is not None and not (min(size) > 0 and size[0] * size[1] <= MOST_PIXELS):
        raise ValueError(
            f"An image has a positive height and width, and {MOST_PIXELS:,} pixels at most. Received: "
            f"image_size={tuple(size)}"
        )
    splits = {name: folder / name for name in ("train", "validation", "test") if (folder / name).is_dir()}
    if "train" not in splits or "test" not in splits:
        splits = {"all": folder}
    images = {name: _read_images(path, size) for name, path in splits.items()}
    channels = [0] if all(_is_grey(x) for x in images.values()) else [0, 1, 2]
    channels += [] if all((x[..., 3] == 255).all() for x in images.values()) else [3]
    return {name: x[..., channels] for name, x in images.items()}


def _read_images(folder, size):
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise FileNotFoundError(f"There are no images in {folder}: looked for files {', '.join(SUFFIXES)}.")
    first = _read_image(paths[0], size)
    what = f"All {len(paths):,} images of {folder}, each {first.shape[0]} x {first.shape[1]},"
    check_memory(what, len(paths) * first.nbytes, "Have them resized: image_size=(height, width).")
    images = np.empty([len(paths), *first.shape], np.uint8)
    for i, path in enumerate(paths):
        image = _read_image(path, size)
        if image.shape != first.shape:
            raise ValueError(
                f"Images need one size: {paths[0]} is {first.shape[:2]}, {path} is {image.shape[:2]}. Have them "
                "resized: image_size=(height, width)."
            )
        images[i] = image
    return images


def _read_image(path, size):
    """Red, green, blue and opacity, as bytes."""
    check_memory(f"The file {path}", path.stat().st_size, "Leave it out.")
    content = path.read_bytes()
    check_pixels(path, content)
    try:
        image = tf.io.decode_image(content, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(f"{path} is not an image that can be read: {first_line(error)}") from error
    if image.shape[-1] in (1, 2):  # Grey, the second may be opacity.
        image = tf.concat([tf.repeat(image[..., :1], 3, axis=-1), image[..., 1:]], axis=-1)
    if image.shape[-1] == 3:
        image = tf.concat([image, tf.fill([*image.shape[:2], 1], tf.constant(255, tf.uint8))], axis=-1)
    if size is not None:
        image = tf.cast(tf.round(tf.image.resize(image, size, antialias=True)), tf.uint8)
    return image.numpy()


def _is_grey(images):
    return all(np.array_equal(images[..., 0], images[..., i]) for i in (1, 2))
