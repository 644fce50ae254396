"""How much memory there is, and an error before more than that is taken."""

import contextlib
import os
from pathlib import Path

from tfp_flowify.core.checks import RefusedError

#: Taken for the memory of a machine that does not tell.
UNKNOWN = 16 * 2**30


def memory() -> int:
    """The memory of this machine in bytes, or of the container, where that has less."""
    try:
        known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf.
        known = [UNKNOWN]
    with contextlib.suppress(OSError, ValueError):  # Not Linux, or no limit: "max".
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(known)


def check_memory(what: str, needed: int, way_out: str) -> None:
    """Raises a ValueError where something would take more than half of the memory: data are copied on their way.

    Args:
      what: What it is, the subject of the error.
      needed: Its size in bytes.
      way_out: What to do instead, a sentence.
    """
    if needed > memory() // 2:
        raise RefusedError(
            f"{what} would take {in_words(needed)}, more than half of the memory here, which is {in_words(memory())}. "
            f"{way_out}"
        )


def in_words(size: int) -> str:
    """A number of bytes for people to read.

    >>> in_words(24 * 10**12), in_words(100)
    ('24.0 TB', '100 bytes')
    """
    for exponent, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if size >= 10**exponent:
            return f"{size / 10**exponent:,.1f} {unit}"
    return f"{size} bytes"
