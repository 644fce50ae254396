"""Data by name, or from one's own files, in one form."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfp_flowify.core.checks import largest_number
from tfp_flowify.core.moments import LEAST
from tfp_flowify.core.types import PathLike
from tfp_flowify.data import images, tabular
from tfp_flowify.data.arrays import read_arrays
from tfp_flowify.data.dataset import SPLITS, Data, random_split

IMAGES = {"mnist": images.mnist, "fashion_mnist": images.fashion_mnist, "cifar10": images.cifar10}
TABULAR = {name: getattr(tabular, name) for name in ("power", "gas", "hepmass", "miniboone", "bsds300")}

#: The names that `load` knows.
NAMES = ("digits", *IMAGES, *TABULAR)


def load(
    name: str,
    data_dir: PathLike | None = None,
    download: bool = False,
    image_size: Sequence[int] | None = None,
    condition: str | None = None,
    whole: bool = False,
) -> Data:
    """Data by name, or a file or folder of one's own.

    Image sets have no validation split: a tenth of their training images is taken for it, at most 5000.

    Args:
      name: One of `NAMES`; or the path of a `.csv`, `.npy` or `.npz` file, or of a folder of images. A `.csv` file is a
        table, a `.npy` file an array (n, ...); both are split at random. A `.npz` file has arrays train, test and, if
        wanted, validation (or val), with or without x_ in front; or one array, which is split at random. In arrays,
        bytes have 256 levels, other whole numbers as many as there are up to the largest; a table has real numbers.
      data_dir: Where named sets are; `digits` needs none.
      download: Whether TensorFlow Datasets may fetch what is not there.
      image_size: (height, width) to which images of a folder are resized.
      condition: What the examples are to be conditioned on: "labels", for the image sets with names; or columns of a
        table, by their names or their numbers from 0, with commas between. They then are no longer part of the data.
      whole: Whether to give all examples of a file or folder as `test`, in their order there, and none to train on: to
        score the rows of a file. In a file with splits, those to train on come first, then validation, then test.

    >>> load("digits").describe()
    'digits: 1,294 / 143 / 360 examples to train, validate and test, shape (8, 8, 1), whole numbers 0 ... 16'
    """
    if whole and name in NAMES:
        raise ValueError(
            f"{name} has splits of its own: take test, validation or train. All examples in their order are for files "
            "of your own."
        )
    if name == "digits" or name in IMAGES:
        (train, labels), (test, test_labels) = images.digits() if name == "digits" else IMAGES[name](data_dir, download)
        levels = 17 if name == "digits" else 256
        given = Data("labels", *_hold_out(labels), test=test_labels, levels=int(labels.max()) + 1)
        if condition not in (None, "labels"):
            raise ValueError(f"{name} can be conditioned on its labels. Received: condition={condition!r}")
        return Data(name, *_hold_out(train), test=test, levels=levels, condition=given if condition else None)
    data = _load_others(name, data_dir, image_size, whole)
    return data if condition is None else _given_columns(data, condition)


def _load_others(name, data_dir, image_size, whole):
    """Tables by name, and files of one's own."""
    if name in TABULAR:
        return Data(name, *TABULAR[name](data_dir))
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_splits(path.name, images.image_folder(path, image_size), whole=whole)
    if path.suffix in READERS and path.is_file():
        splits, columns = READERS[path.suffix](path)
        return _from_splits(path.stem, splits, columns, whole)
    if path.is_file():
        raise ValueError(
            f"{path} is no {', '.join(READERS)} file. Store arrays with numpy.savez, or images in a folder."
        )
    if path.suffix in READERS or len(path.parts) > 1:
        raise FileNotFoundError(f"There is no file or folder {path}.")
    files = ", ".join(READERS)
    raise ValueError(f"Data are one of {', '.join(NAMES)}, a file {files} or a folder of images. Received: {name!r}")


def _given_columns(data, names):
    """A table, some columns of which are a condition for the others."""
    if len(data.shape) != 1 or names == "labels":
        raise ValueError(
            f"{data.name} has no labels that are known here; tables can be conditioned on columns. Received: data of "
            f"{data.shape}, condition={names!r}"
        )
    numbers = tuple(map(str, range(data.shape[0])))
    known = data.columns or numbers
    wanted = [name.strip() for name in names.split(",")]
    wanted = [known[numbers.index(n)] if n in numbers and n not in known else n for n in wanted]
    missing = [name for name in wanted if name not in known]
    if missing or len(set(wanted)) < len(wanted) or len(wanted) >= len(known):
        raise ValueError(
            f"A condition takes some of the columns of {data.name} and leaves some. They are {', '.join(known[:20])}"
            f"{' ...' if len(known) > 20 else ''}. Received: condition={names!r}, not there: {missing}"
        )
    given = [known.index(name) for name in wanted]
    rest = [i for i in range(len(known)) if i not in given]
    conditions, others = ([getattr(data, split)[:, columns] for split in SPLITS] for columns in (given, rest))
    condition = Data(f"columns {', '.join(wanted)}", *conditions, columns=tuple(wanted))
    levels = data.levels and _levels(data.name, dict(zip(SPLITS, others, strict=True)))
    return Data(data.name, *others, levels, tuple(known[i] for i in rest), condition)


def _read_npz(path):
    return _known_names(path, read_arrays(path)), None


def _read_npy(path):
    return _known_names(path, {"array": read_arrays(path)}), None


def _read_csv(path):
    table, columns = tabular.read_csv(path)
    return {"all": table}, columns


#: Reads arrays by split, and names of columns or None, from a file with this ending.
READERS = {".csv": _read_csv, ".npy": _read_npy, ".npz": _read_npz}


def _hold_out(train):
    count = min(5000, len(train) // 10) or 1
    return train[:-count], train[-count:]


def _known_names(path, arrays):
    """Arrays by split, whatever they are called."""
    short = {name.removeprefix("x_").removeprefix("X_"): array for name, array in arrays.items()}
    short = {"validation" if name in ("val", "valid") else name: array for name, array in short.items()}
    splits = {name: short[name] for name in ("train", "validation", "test") if name in short}
    if "train" in splits and "test" in splits:
        return splits
    largest = max(arrays, key=lambda name: arrays[name].size, default=None)
    if largest is None or arrays[largest].ndim < 2:
        raise ValueError(
            f"{path} has no examples: it needs arrays train and test, or one array (n, ...). "
            f"Received: {', '.join(f'{name} {array.shape}' for name, array in arrays.items()) or 'no arrays'}"
        )
    return {"all": arrays[largest]}


def _from_splits(name, splits, columns=None, whole=False):
    """Data of one's own: split where they are not, or all of them as each split."""
    for split, x in splits.items():
        if x.dtype.kind not in "fiub" or x.ndim < 2 or not x.size:
            raise ValueError(
                f"{name} needs examples (n, ...) of numbers, one or more. Received: {split}, {x.dtype} of {x.shape}"
            )
    splits = {split: _with_channels(x) for split, x in splits.items()}
    levels = _levels(name, splits)
    if levels is None:
        for split, x in splits.items():
            _check_range(name if split == "all" else f"the {split} split of {name}", x)
        splits = {split: x.astype(np.float32) for split, x in splits.items()}
    splits = {"test": _as_one(name, splits)} if whole else _in_three(splits)
    if levels is None and not whole:
        _check_variation(name, splits["train"], columns)
    none = splits["test"][:0]
    return Data(name, *(splits.get(split, none) for split in SPLITS), levels, columns)


def _as_one(name, splits):
    """All examples, in the order of the file."""
    parts = [splits[split] for split in ("all", *SPLITS) if split in splits]
    if len({x.shape[1:] for x in parts}) > 1:
        raise ValueError(f"{name} needs examples of one shape. Received: {', '.join(str(x.shape) for x in parts)}")
    return np.concatenate(parts)


def _in_three(splits):
    """Three splits; the one for training in a random order, since files are often sorted."""
    if "all" in splits:
        splits = dict(zip(SPLITS, random_split(splits["all"]), strict=True))
    order = np.random.default_rng(0).permutation(len(splits["train"]))
    splits = {**splits, "train": splits["train"][order]}
    if "validation" not in splits:
        splits["train"], splits["validation"] = _hold_out(splits["train"])
    return splits


def _levels(name, splits):
    """The number of levels of whole numbers; None for real numbers."""
    parts = [x for x in splits.values() if len(x)]
    if not {x.dtype.kind for x in parts} <= set("uib"):
        return None
    if all(x.dtype == np.uint8 for x in parts):
        return 256
    low, high = min(int(x.min()) for x in parts), max(int(x.max()) for x in parts)
    if low < 0 or high >= 2**16:
        raise ValueError(
            f"Whole numbers are taken for levels 0 ... 65535 at most. {name} has {low} ... {high}. Shift them, or "
            "store them as floats with uniform noise one unit wide added."
        )
    return max(high + 1, 2)


def _check_range(name, x):
    largest = largest_number("float32")
    if float(x.min()) >= -largest and float(x.max()) <= largest:  # NaN is neither.
        return
    bad = np.flatnonzero(~(np.abs(x.reshape(len(x), -1)) <= largest).all(axis=1))
    raise ValueError(
        f"{len(bad):,} of the {len(x):,} examples in {name} have NaN or infinite numbers, or some beyond {largest:g}, "
        f"the squares of which are infinite; the first is example {bad[0]}, counted from 0. Leave those examples out, "
        "or divide the column by a number."
    )


def _check_variation(name, train, columns):
    constant = np.argwhere(train.max(axis=0) - train.min(axis=0) < LEAST)
    if len(constant):
        raise ValueError(
            f"{name} has {len(constant)} of {math.prod(train.shape[1:])} entries that are the same in all training "
            f"examples, or differ by less than {LEAST:.0e}, the first at "
            f"{columns[constant[0][0]] if columns else tuple(map(int, constant[0]))}: they have no density. Leave them "
            "out; of images, store bytes (uint8), which are dequantized."
        )


def _with_channels(x):
    """Grey images may come without a channel axis."""
    return x[..., None] if x.ndim == 3 else x
