"""Archives in the format zip, looked at before anything is unpacked."""

import collections
import re
import stat
import zipfile
from pathlib import Path

from tfp_flowify.core.checks import RefusedError, first_line
from tfp_flowify.core.types import PathLike


def members(path: PathLike) -> list:
    """The members of an archive; an error where it is cut short, or a name leads out of the folder it is unpacked to.

    >>> members("none.zip")
    Traceback (most recent call last):
    FileNotFoundError: There is no file none.zip.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            found = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise RefusedError(f"{path} is damaged, cut short or not an archive at all: {first_line(error)}.") from error
    names = collections.Counter(member.filename for member in found)
    for member in found:
        wrong = _what_is_wrong(member) or ("is there more than once" if names[member.filename] > 1 else None)
        if wrong:
            raise RefusedError(f"{path} is not to be trusted: its member {member.orig_filename!r} {wrong}.")
    return found


def check_contents(path: PathLike) -> None:
    """Raises an error where a member is not what was written: its checksum is another. Reads all of the archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except Exception as error:  # Of zlib and others.
        raise RefusedError(f"{path} is damaged: {first_line(error)}.") from error
    if bad is not None:
        raise RefusedError(f"{path} is damaged: the checksum of its member {bad!r} is wrong.")


def _what_is_wrong(member: zipfile.ZipInfo) -> str | None:
    name = member.orig_filename  # As it is in the file: zipfile cuts names at NUL and turns separators.
    if re.match(r"/|[a-zA-Z]:", name) or "\\" in name or "\0" in name:
        return "has a name that is not a path inside the archive"
    if ".." in name.split("/"):
        return "leads out of the folder it is unpacked to"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "is a link to another file"
    return "is encrypted" if member.flag_bits & 1 else None
