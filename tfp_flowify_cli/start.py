"""The start of TensorFlow, without its messages on the screen."""

import contextlib
import os
import sys
import tempfile


def import_quietly() -> None:
    """Imports the library; what TensorFlow's C++ writes meanwhile is shown only where that fails.

    It finds its devices then too, since a missing GPU is a page of errors. With a TF_CPP_MIN_LOG_LEVEL
    of less than 3 all is shown.
    """
    if "tfp_flowify" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    shown = os.environ["TF_CPP_MIN_LOG_LEVEL"] != "3" or sys.stderr is None
    with contextlib.nullcontext() if shown else _kept_from_the_screen():
        import tensorflow as tf

        from tfp_flowify import data  # noqa: F401

        tf.config.list_physical_devices()


@contextlib.contextmanager
def _kept_from_the_screen():
    """Sends the file descriptor of standard error to a file, and the file to the screen where something fails."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        screen = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(screen, kept.read())
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)
