"""A flow from disk: the folder of a run, a `.keras` file or a SavedModel, all asked in the same way."""

import itertools
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import first_line
from tfp_flowify.core.seeds import numbered
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.experiments.folder import RunFolder, load_flow
from tfp_flowify.model.inputs import InputCheck


class SavedModelFlow:
    """A SavedModel with the methods of a flow that the commands use.

    A SavedModel is a program: TensorFlow runs what is in it, which can read and write files. Open only those that you
    trust.

    Args:
      path: Path of the folder.
    """

    def __init__(self, path):
        try:
            self.module = tf.saved_model.load(str(path))
        except Exception as error:
            raise ValueError(f"{path} is not a SavedModel that can be read: {first_line(error)}") from error
        missing = {"log_prob", "sample"} - set(self.module.signatures)
        if missing:
            raise ValueError(f"{path} is not an exported flow: it has no signature {', '.join(sorted(missing))}.")
        self.signatures = self.module.signatures
        self.spec = self.signatures["log_prob"].structured_input_signature[1]["x"]
        self.levels = int(self.module.levels) or None if hasattr(self.module, "levels") else None
        self.num_draws = int(self.module.num_draws) if hasattr(self.module, "num_draws") else 1
        self._check = InputCheck(self.event_shape, self.levels)

    @property
    def event_shape(self) -> tuple:
        """Shape of one example."""
        return tuple(self.spec.shape[1:])

    def log_prob(self, x, num_draws=1, seed=0, batch_size=1024):
        """As for a flow. Draws beyond those of the export are weighed here; fewer than those there cannot be had."""
        self._check.array(x)
        call, total, calls = self.signatures["log_prob"], [], -(-num_draws // self.num_draws)
        for start, batch_seed in zip(range(0, len(x), batch_size), numbered(seed, "batches"), strict=False):
            batch = tf.cast(x[start : start + batch_size], self.spec.dtype)
            seeds = itertools.islice(numbered(batch_seed, "calls"), calls)
            draws = [call(x=batch, seed=one)["log_prob"] for one in seeds]
            total.append(tf.reduce_logsumexp(tf.stack(draws), axis=0) - np.log(calls))
        return tf.concat(total, axis=0)

    def bits_per_dim(self, x, **kwargs):
        """As for a flow."""
        return bits_per_dim(self.log_prob(x, **kwargs), self.event_shape)

    def sample(self, n, temperature=1.0, mean=False, seed=0, batch_size=1024):
        """As for a flow."""
        if mean:
            raise ValueError("A SavedModel draws all parts. For mean samples, give the run folder or the .keras file.")
        call, temperature = self.signatures["sample"], tf.constant(temperature, self.spec.dtype)
        sizes = [min(batch_size, n - start) for start in range(0, n, batch_size)]
        drawn = zip(sizes, numbered(seed, "batches"), strict=False)
        return tf.concat([call(n=tf.constant(size), temperature=temperature, seed=s)["x"] for size, s in drawn], axis=0)


def open_flow(path):
    """A flow with `log_prob`, `bits_per_dim` and `sample`, and the config of its run, or {}.

    Args:
      path: The folder of a run (its best flow), a `.keras` file or a SavedModel.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}. Give the folder of a run, a .keras file or a SavedModel.")
    if path.is_file():
        return load_flow(path), _config_beside(path)
    if (path / "saved_model.pb").is_file():
        return SavedModelFlow(path), _config_beside(path)
    folder = RunFolder(path)
    if not folder.config.is_file():
        raise FileNotFoundError(
            f"{path} is neither the folder of a run (it has no config.json) nor a SavedModel (no saved_model.pb)."
        )
    return folder.load(), folder.read_config()


def _config_beside(path):
    folder = RunFolder(path.parent)
    return folder.read_config() if folder.config.is_file() else {}
