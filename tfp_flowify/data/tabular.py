"""The tabular sets of Masked Autoregressive Flow (Papamakarios et al. 2017), from files on disk, prepared as there.

Files are read as numbers; nothing in them is run. The pickle of GAS must therefore be turned into an array once, see
docs/data.md.
"""

import csv
import math
from pathlib import Path

import numpy as np

from tfp_flowify.core.checks import first_line
from tfp_flowify.core.memory import check_memory
from tfp_flowify.core.types import PathLike
from tfp_flowify.data.arrays import read_arrays

SOURCE = "https://zenodo.org/records/1161203 (data.tar.gz)"


def power(data_dir: PathLike | None) -> tuple:
    """POWER: 6 columns of the electric power of a household, 1,659,917 / 184,435 / 204,928 rows.

    Of `power/data.npy`, or `power.npz` with the shuffled splits train, val and test in whole units (W, 1/100 V, Wh, Wh,
    Wh, minutes). Noise one unit wide is added, then mean and deviation are taken out. As in the code of that paper, the
    minutes of `data.npy` get none; those of `power.npz`, which are whole, do.

    Returns:
      Arrays for training, validation and testing, float32.

    >>> train, validation, test = power("data")  # doctest: +SKIP
    """
    path, arrays = _open("power", data_dir, ["power.npz", "power/data.npy"])
    if path.suffix == ".npz":
        splits = _splits_of(path, arrays)
        if not np.issubdtype(splits[0].dtype, np.integer):
            return _as_floats(path, splits, 6)
        table, units = np.concatenate(splits).astype(np.float64), np.array([1e-3, 1e-2, 1, 1, 1, 1])
        _check_columns(path, table, 6)
        rng = np.random.RandomState(42)
        rng.shuffle(np.arange(len(table)))  # It is shuffled; this takes the generator to where the noise is drawn.
        table = (table + _power_noise(rng, len(table))) * units
        ends = np.cumsum([len(split) for split in splits])[:2]
    else:
        table = np.array(arrays, np.float64)
        _check_columns(path, table, 8)
        rng = np.random.RandomState(42)
        rng.shuffle(table)
        table = np.delete(table, [1, 3], axis=1)
        table += _power_noise(rng, len(table)) * np.array([1e-3, 1e-2, 1, 1, 1, 0])
        ends = _tenths(len(table))
    return _standardized(table, ends)


def _power_noise(rng, rows):
    voltage, active = rng.rand(rows, 1), rng.rand(rows, 1)  # In the order in which they are drawn there.
    return np.hstack([active, voltage, rng.rand(rows, 3), rng.rand(rows, 1)])


def gas(data_dir: PathLike | None) -> tuple:
    """GAS: 8 columns of chemical sensors, 852,174 / 94,685 / 105,206 rows.

    Of `gas/ethylene_CO.npy`, the table of `ethylene_CO.pickle` with 19 columns (time, two concentrations, 16 sensors),
    or `gas.npz` with prepared splits. Sensors that are almost copies of others (correlation above 0.98) are left out.

    >>> train, validation, test = gas("data")  # doctest: +SKIP
    """
    path, arrays = _open("gas", data_dir, ["gas.npz", "gas/ethylene_CO.npy"])
    if path.suffix == ".npz":
        return _as_floats(path, _splits_of(path, arrays), 8)
    table = np.asarray(arrays, np.float64)
    _check_columns(path, table, 19)
    table = table[:, 3:]
    while True:
        copies = np.flatnonzero((np.corrcoef(table.T) > 0.98).sum(axis=1) > 1)
        if not len(copies):
            break
        table = np.delete(table, copies[0], axis=1)
    table = (table - table.mean(axis=0)) / table.std(axis=0, ddof=1)
    return _cut(table, _tenths(len(table)))


def hepmass(data_dir: PathLike | None) -> tuple:
    """HEPMASS: 21 columns of particle collisions, 315,123 / 35,013 / 174,987 rows.

    Of `hepmass/1000_train.csv` and `hepmass/1000_test.csv`, or `hepmass.npz` with prepared splits. Only the signal is
    used, and columns with repeated values are left out.

    >>> train, validation, test = hepmass("data")  # doctest: +SKIP
    """
    path, arrays = _open("hepmass", data_dir, ["hepmass.npz", "hepmass/1000_train.csv"])
    if path.suffix == ".npz":
        return _as_floats(path, _splits_of(path, arrays), 21)
    train, test = (_signal(path.with_name(name)) for name in ("1000_train.csv", "1000_test.csv"))
    mean, deviation = train.mean(axis=0), train.std(axis=0, ddof=1)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    repeats = [np.sum(column == column.min()) for column in train.T]
    kept = np.array(repeats) <= 5
    train, test = train[:, kept], test[:, kept]
    held_out = int(0.1 * len(train))
    return tuple(x.astype(np.float32) for x in (train[:-held_out], train[-held_out:], test))


def _signal(path):
    """Features 1 ... 27 of the rows with label 1."""
    if not path.is_file():
        raise FileNotFoundError(_missing("hepmass", path.parent, [path.name]))
    try:
        table = np.loadtxt(path, delimiter=",", skiprows=1, usecols=range(28))
    except ValueError as error:
        raise ValueError(f"{path} is not a table of 28 columns of numbers: {error}") from error
    return table[table[:, 0] == 1, 1:]


def miniboone(data_dir: PathLike | None) -> tuple:
    """MINIBOONE: 43 columns of neutrino events, 29,556 / 3,284 / 3,648 rows.

    Of `miniboone/data.npy`, or `miniboone.npz` with prepared splits.

    >>> train, validation, test = miniboone("data")  # doctest: +SKIP
    """
    path, arrays = _open("miniboone", data_dir, ["miniboone.npz", "miniboone/data.npy"])
    if path.suffix == ".npz":
        return _as_floats(path, _splits_of(path, arrays), 43)
    table = np.asarray(arrays, np.float64)
    _check_columns(path, table, 43)
    return _standardized(table, _tenths(len(table)))


def bsds300(data_dir: PathLike | None) -> tuple:
    """BSDS300: 63 columns, patches of natural images, 1,000,000 / 50,000 / 250,000 rows.

    Of `BSDS300/BSDS300.hdf5`, or `bsds300.npz` with prepared splits.

    >>> train, validation, test = bsds300("data")  # doctest: +SKIP
    """
    path, arrays = _open("bsds300", data_dir, ["bsds300.npz", "BSDS300/BSDS300.hdf5"])
    return _as_floats(path, _splits_of(path, arrays), 63)


def _open(name, data_dir, names):
    """The first file that is there, and its content: an array, or arrays by name."""
    if data_dir is None:
        raise FileNotFoundError(_missing(name, "a folder given by data_dir=DIR", names))
    path = next((Path(data_dir).expanduser() / n for n in names if (Path(data_dir).expanduser() / n).is_file()), None)
    if path is None:
        raise FileNotFoundError(_missing(name, data_dir, names))
    if path.suffix == ".csv":
        return path, None
    return path, read_arrays(path)


def _missing(name, folder, names):
    return f"{name} needs a file in {folder}: looked for {' and '.join(map(str, names))}. It is at {SOURCE}."


def read_csv(path: PathLike) -> tuple:
    """The numbers of a table (rows, columns), and the names of its columns, or None where its first row has numbers.

    Values are separated by commas, semicolons or tabs.
    """
    path = Path(path)
    lines = [line for line in _text(path).splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} is empty.")
    delimiter = max(",;\t", key=lines[0].count)
    try:
        first, *rows = csv.reader(lines, delimiter=delimiter)
    except csv.Error as error:
        raise ValueError(f"{path} is not a table with values between {delimiter!r}: {first_line(error)}.") from error
    names = None if all(_is_number(value) for value in first) else tuple(value.strip() for value in first)
    rows = rows if names else [first, *rows]
    for number, row in enumerate(rows, start=1 + (names is not None)):
        bad = next((value for value in row if not _is_number(value)), None)
        if bad is not None or len(row) != len(first):
            wrong = f"{bad!r} is not a number" if bad is not None else f"it has {len(row)} values, not {len(first)}"
            raise ValueError(f"Row {number} of {path} is not a row of a table of numbers: {wrong}.")
    if not rows:
        raise ValueError(f"{path} has no rows but the names of its columns.")
    return np.array(rows, np.float64), names


def _text(path) -> str:
    # Each number is a string of Python before it is a number, of about fifty bytes.
    check_memory(f"The text of {path}", 10 * path.stat().st_size, "Store its numbers with numpy.save.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}. Save it as CSV in UTF-8.") from error
    if "\0" in text:
        raise ValueError(f"{path} is not a text file: byte {text.index(chr(0)):,} is NUL. Save it as CSV in UTF-8.")
    return text


def _is_number(value) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _splits_of(path, arrays):
    names = ("train", "validation" if "validation" in arrays else "val", "test")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(f"{path} lacks the arrays {', '.join(missing)}. It has: {', '.join(arrays) or 'none'}.")
    return [arrays[name] for name in names]


def _as_floats(path, splits, columns):
    for split in splits:
        _check_columns(path, split, columns)
    return tuple(split.astype(np.float32) for split in splits)


def _check_columns(path, table, columns):
    if table.ndim != 2 or table.shape[1] != columns or table.dtype.kind not in "fiub":
        raise ValueError(f"{path} should have {columns} columns of numbers. Received: {table.dtype} of {table.shape}")


def _tenths(rows):
    """The rows at which validation and test begin: a tenth for testing, a tenth of the rest for validation."""
    test = rows - int(0.1 * rows)
    return [test - int(0.1 * test), test]


def _standardized(table, ends):
    seen = table[: ends[1]]
    return _cut((table - seen.mean(axis=0)) / seen.std(axis=0), ends)


def _cut(table, ends):
    return tuple(part.astype(np.float32) for part in np.split(table, ends))
