"""Arrays from files of NumPy and HDF5: their headers are read first, and no code from a file is run."""

import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from tfp_flowify.core.archives import members
from tfp_flowify.core.checks import RefusedError, first_line
from tfp_flowify.core.memory import check_memory, in_words
from tfp_flowify.core.types import PathLike

#: Readers of the headers of .npy files by their version. Version 3 is for names of fields, which data here have not.
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

WAY_OUT = "Store fewer examples, or smaller ones."


def read_arrays(path: PathLike) -> np.ndarray | dict[str, np.ndarray]:
    """The array of a .npy file, or the arrays of a .npz or .hdf5 file by name; sizes are checked before they are read.

    >>> read_arrays("none.npy")
    Traceback (most recent call last):
    ValueError: none.npy is damaged, or not a file of plain arrays: [Errno 2] No such file or directory: 'none.npy'
    """
    path = Path(path)
    read = {".npy": _read_npy, ".npz": _read_npz, ".hdf5": _read_hdf5}[path.suffix]
    try:
        return read(path)
    except RefusedError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is damaged, or not a file of plain arrays: {first_line(error)}") from error


def _read_npy(path):
    with open(path, "rb") as file:
        needed = _claimed(path, file)
        check_memory(f"The array of {path}", needed, WAY_OUT)
        _check_length(path, needed, path.stat().st_size - file.tell())
    return np.load(path, allow_pickle=False)


def _read_npz(path):
    with open(path, "rb") as file:
        _refuse_pickle(path, file.read(1))
    found = [member for member in members(path) if member.filename.endswith(".npy")]
    total = 0
    with zipfile.ZipFile(path) as archive:
        for member in found:
            name = f"{member.filename} in {path}"
            with archive.open(member) as file:  # Only its first bytes are unpacked.
                needed = _claimed(name, file)
                total += needed
                check_memory(f"What {path} unpacks to", total, WAY_OUT)
                _check_length(name, needed, member.file_size - file.tell())
    with np.load(path, allow_pickle=False) as arrays:
        names = (member.filename.removesuffix(".npy") for member in found)
        return {name: arrays[name] for name in names}


def _read_hdf5(path):
    import h5py

    with h5py.File(path, "r") as file:
        arrays = {name: _dataset(path, file, name, h5py) for name in file}
        needed = sum(array.size * array.dtype.itemsize for array in arrays.values())
        check_memory(f"What {path} unpacks to", needed, WAY_OUT)
        return {name: array[()] for name, array in arrays.items()}


def _dataset(path, file, name, h5py):
    """An array in the file itself: links and virtual arrays would read other files."""
    array = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(array, h5py.Dataset) or array.is_virtual or array.external:
        raise RefusedError(f"{name} in {path} is not an array of the file itself. Copy the numbers into one file.")
    return array


def _claimed(name, file) -> int:
    """The bytes that the header of an array says it has; the file is then at its first."""
    start = file.read(len(npy.MAGIC_PREFIX))
    _refuse_pickle(name, start[:1])
    if start != npy.MAGIC_PREFIX:
        raise RefusedError(f"{name} is not an array of NumPy: it begins with {start!r}. Write it with numpy.save.")
    version = tuple(file.read(2))
    if version not in HEADERS:
        raise RefusedError(f"{name} has a header of version {version}; plain arrays have 1.0 or 2.0.")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise RefusedError(
            f"{name} is not a file of plain arrays: it holds objects of Python, a pickle, which can run code. Store "
            "numbers: array.astype(float)."
        )
    if any(size < 0 for size in shape):
        raise RefusedError(f"{name} is damaged: its header says that its shape is {shape}.")
    return math.prod(shape) * dtype.itemsize


def _check_length(name, needed, held):
    if needed > held:
        raise RefusedError(
            f"{name} is cut short: its header says {in_words(needed)}, it holds {in_words(held)}. Copy it anew."
        )


def _refuse_pickle(name, first):
    if first == b"\x80":
        raise RefusedError(
            f"{name} is a pickle, which can run code, not a file of plain arrays. Write one with numpy.savez."
        )
