"""Files that outlive a kill, a full disk and their own damage: each has a checksum and a spare."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

from tfp_flowify.core.types import PathLike

#: Checksums that are kept for each file: of the newest, of its spare, of one that is being written.
KEPT = 3


class DurableFiles:
    """The files of a folder that must not be lost.

    A file is written beside its place, forced to the disk and then moved there, so that a kill leaves the old one or
    the new one. Its checksum is noted before it is moved; beside it there is a spare, a copy or the file before. A file
    that is not as it was written is not read: its spare is, with a warning.

    Args:
      path: Path of the folder.
    """

    def __init__(self, path: PathLike):
        self.checksums_file = Path(path) / "checksums.json"

    @contextlib.contextmanager
    def replaced(self, path: PathLike, spare_is_copy: bool = True) -> Iterator[Path]:
        """Gives a path to write to, whose file then takes the place of another.

        Args:
          path: Path of the file.
          spare_is_copy: Whether its spare is a copy of it; else it is the file before.
        """
        path, new, spare = Path(path), _beside(path, "new"), _beside(path, "spare")
        try:
            yield new
            _to_disk(new)
            second = _beside(spare, "new")
            if spare_is_copy:
                shutil.copyfile(new, second)
                _to_disk(second)
            # Behind all that a full disk may refuse: checksums of files that never came would drive out good ones.
            self._note(path.name, _checksum(new))
            if spare_is_copy:
                os.replace(second, spare)
            elif path.exists():
                os.replace(path, spare)
            os.replace(new, path)
            _to_disk(path.parent)
        except OSError as error:
            raise _told(error, path) from error
        finally:
            new.unlink(missing_ok=True)
            _beside(spare, "new").unlink(missing_ok=True)

    def exists(self, path: PathLike) -> bool:
        """Whether there is such a file, or its spare."""
        return Path(path).is_file() or _beside(path, "spare").is_file()

    def remove(self, path: PathLike) -> None:
        """Removes a file and its spare."""
        _beside(path, "spare").unlink(missing_ok=True)
        Path(path).unlink(missing_ok=True)

    def whole(self, path: PathLike) -> Path | None:
        """The file, where it is as it was written; else its spare, with a warning; None where both are damaged."""
        path, spare = Path(path), _beside(path, "spare")
        if self._is_whole(path, path.name):
            return path
        what = "is damaged: its checksum is not that of the file that was written" if path.is_file() else "is missing"
        if self._is_whole(spare, path.name):
            warnings.warn(f"{path} {what}. Its spare {spare.name} is used.", stacklevel=2)
            return spare
        warnings.warn(f"{path} {what}, and so is its spare.", stacklevel=2)
        return None

    def restore(self, path: PathLike) -> None:
        """Makes a damaged or missing file anew from its spare, or the spare from the file."""
        whole = self.whole(path) if self.exists(path) else None
        for other in (Path(path), _beside(path, "spare")):
            if whole is not None and not self._is_whole(other, Path(path).name):
                with moved_into(other) as new:
                    shutil.copyfile(whole, new)
                    _to_disk(new)

    def remove_leftovers(self) -> None:
        """Removes what a killed process was writing."""
        for path in self.checksums_file.parent.glob(".new_*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _is_whole(self, path, name):
        known = self._checksums().get(name)
        return path.is_file() and (known is None or _checksum(path) in known)

    def _checksums(self) -> dict:
        """The checksums by name; {} in folders of older versions, or where they are damaged: files then pass."""
        if not self.checksums_file.is_file():
            return {}
        try:
            known = json.loads(self.checksums_file.read_text())
            return {name: list(values) for name, values in known.items()}
        except (ValueError, AttributeError, TypeError):
            warnings.warn(f"{self.checksums_file} is damaged: files are taken as they are.", stacklevel=2)
            return {}

    def _note(self, name, checksum):
        known = self._checksums()
        known[name] = [checksum, *(other for other in known.get(name, []) if other != checksum)][:KEPT]
        with moved_into(self.checksums_file) as new:
            new.write_text(json.dumps(known, indent=2) + "\n")
            _to_disk(new)


@contextlib.contextmanager
def moved_into(path: PathLike) -> Iterator[Path]:
    """Gives a path beside another one, whose file takes its place when all has gone well: no spare, no checksum."""
    new = _beside(path, "new")
    try:
        yield new
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _beside(path, kind) -> Path:
    path = Path(path)
    return path.with_name(f".{kind}_{path.name}")


def _checksum(path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _to_disk(path):
    """Waits until a file or the entries of a folder are on the disk."""
    is_folder = Path(path).is_dir()
    # Windows opens no folders, and some network file systems do not sync them.
    with contextlib.suppress(OSError) if is_folder else contextlib.nullcontext():
        descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _told(error, path):
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) and "No space left" not in str(error):
        return error
    return OSError(
        f"The disk is full: {path.name} could not be written to {path.parent}. What was there before still is. Make "
        "room, and go on with resume=True."
    )
