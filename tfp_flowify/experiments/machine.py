"""The machine of a run: versions, processors, memory."""

import os
import platform
from pathlib import Path

import keras
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify.version import __version__


def versions() -> dict:
    """The versions of all that the figures of a run may depend on."""
    return {
        "tfp_flowify": __version__,
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "tensorflow_probability": tfp.__version__,
        "keras": keras.__version__,
    }


def machine() -> str:
    """Processors and GPUs, in a few words."""
    gpus = tf.config.list_physical_devices("GPU")
    return f"{platform.machine()}, {os.cpu_count()} cores, {f'{len(gpus)} GPU' if gpus else 'no GPU'}"


def peak_memory() -> int:
    """The most memory that this process has held, on the host and on its GPUs together, in bytes; 0 if not known.

    On Linux from its status: there, getrusage also counts what its parent held when it was started.
    """
    return _host_memory() + sum(
        tf.config.experimental.get_memory_info(f"GPU:{i}")["peak"]
        for i in range(len(tf.config.list_logical_devices("GPU")))
    )


def _host_memory():
    status = Path("/proc/self/status")
    if status.is_file():
        lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return 1024 * int(lines[0].split()[1]) if lines else 0
    try:
        import resource
    except ImportError:  # On Windows.
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
