"""`.keras` files, looked at before Keras opens them: nothing in them is run."""

import json
import zipfile

import keras
import tensorflow as tf

from tfp_flowify.core.archives import check_contents, members
from tfp_flowify.core.checks import RefusedError, first_line
from tfp_flowify.core.memory import check_memory, in_words
from tfp_flowify.core.types import PathLike

#: What Keras writes into an archive.
MEMBERS = ("config.json", "metadata.json", "model.weights.h5", "model.weights.npz")

#: Keras stores members as they are. One that is so many times larger than what is stored, and so large, is a bomb.
MOST_EXPANSION, SMALL = 100, 2**20

#: Classes that run code from the file, or a program beside it.
PROGRAMS = ("Lambda", "__lambda__", "TFSMLayer")


def load_keras_file(path: PathLike, compile: bool = True) -> keras.Model:
    """The model of a `.keras` file, in Keras' safe mode; an error that says what is wrong with the file.

    A file says how large its layers are, and Keras makes them before it reads their weights: one that lies about that
    can take as much memory as there is.

    Args:
      path: Path of the file.
      compile: Whether it is compiled as it was.
    """
    check_keras_file(path, compile)
    try:
        return keras.models.load_model(path, compile=compile, safe_mode=True)
    except (tf.errors.OpError, MemoryError):  # A worker that is lost, or no memory: not a fault of the file.
        raise
    except Exception as error:
        reason = first_line(error).rstrip(".")
        raise RefusedError(
            f"{path} is damaged, of another version, or needs code that is not in it: {reason}."
        ) from error


def check_keras_file(path: PathLike, compile: bool = True) -> None:
    """Raises a ValueError where a file is not as Keras writes it, is too large when unpacked, or holds programs."""
    found = members(path)
    for member in found:
        if member.filename not in MEMBERS and not member.filename.startswith("assets/"):
            raise RefusedError(f"{path} is not a .keras file: Keras does not write a member {member.filename!r}.")
        if member.file_size > max(SMALL, MOST_EXPANSION * member.compress_size):
            raise RefusedError(
                f"{path} is not to be trusted: its member {member.filename!r} unpacks from "
                f"{in_words(member.compress_size)} to {in_words(member.file_size)}."
            )
    check_memory(f"What {path} unpacks to", sum(member.file_size for member in found), "Use a machine with more.")
    names = {member.filename for member in found}
    missing = {"config.json", "metadata.json", "model.weights.h5"} - names
    if missing - {"model.weights.h5"} or (missing and "model.weights.npz" not in names):
        raise RefusedError(f"{path} is not a whole .keras file: it has no {' and no '.join(sorted(missing))}.")
    check_contents(path)
    with zipfile.ZipFile(path) as archive:
        content = archive.read("config.json")
    try:
        config = dict(json.loads(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise RefusedError(f"{path} is damaged: its config.json cannot be read: {first_line(error)}.") from error
    _check_classes(path, config if compile else {**config, "compile_config": None})


def _check_classes(path, config):
    """Raises an error where a config names what is a program, or of a module that is neither ours nor Keras'."""
    waiting = [config]
    while waiting:
        part = waiting.pop()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
        if not isinstance(part, dict) or "config" not in part or not isinstance(part.get("class_name"), str):
            continue
        name, module = part["class_name"], part.get("module")
        if name in PROGRAMS:
            raise RefusedError(
                f"{path} holds a {name.strip('_')}, which is a program: it is not run. Use a layer of Keras or a "
                "registered class of yours instead, and save the model again."
            )
        if not _is_known(module, part):
            raise RefusedError(
                f"{path} needs {module}.{name if name != 'function' else part['config']}, which is not known here. "
                "Import the module that registers it (keras.saving.register_keras_serializable) first."
            )


def _is_known(module, part) -> bool:
    ours = module is None or str(module).split(".")[0] in ("builtins", "keras", "keras_hub", "tfp_flowify")
    names = [part["class_name"], part["config"], part.get("registered_name")]
    known = (keras.saving.get_registered_object(name) for name in names if isinstance(name, str))
    return ours or any(found is not None for found in known)
