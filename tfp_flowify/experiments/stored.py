"""A flow from disk: the folder of a run, a `.keras` file or a SavedModel, all asked in the same way."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from tfp_flowify.core.seeds import numbered, stateless_seed
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.experiments.folder import RunFolder, load_flow
from tfp_flowify.model.inputs import InputCheck

split = tf.random.experimental.stateless_split


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
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(f"{path} is not a SavedModel that can be read: {reason}") from error
        missing = {"log_prob", "sample"} - set(self.module.signatures)
        if missing:
            raise ValueError(f"{path} is not an exported flow: it has no signature {', '.join(sorted(missing))}.")
        self.signatures = self.module.signatures
        self.spec = self.signatures["log_prob"].structured_input_signature[1]["x"]
        self.levels = int(self.module.levels) or None if hasattr(self.module, "levels") else None
        self._check = InputCheck(self.event_shape, self.levels)

    @property
    def event_shape(self) -> tuple:
        """Shape of one example."""
        return tuple(self.spec.shape[1:])

    def log_prob(self, x, num_draws=1, seed=0, batch_size=256):
        """As for a flow; draws beyond those of the export are weighed here."""
        self._check.array(x)
        call, total = self.signatures["log_prob"], []
        for start, batch_seed in zip(range(0, len(x), batch_size), numbered(seed, "batches"), strict=False):
            batch = tf.cast(x[start : start + batch_size], self.spec.dtype)
            draws = [call(x=batch, seed=one)["log_prob"] for one in split(batch_seed, num_draws)]
            total.append(tf.reduce_logsumexp(tf.stack(draws), axis=0) - np.log(num_draws))
        return tf.concat(total, axis=0)

    def bits_per_dim(self, x, **kwargs):
        """As for a flow."""
        return bits_per_dim(self.log_prob(x, **kwargs), self.event_shape)

    def sample(self, n, temperature=1.0, mean=False, seed=0):
        """As for a flow."""
        if mean:
            raise ValueError("A SavedModel draws all parts. For mean samples, give the run folder or the .keras file.")
        temperature = tf.constant(temperature, self.spec.dtype)
        return self.signatures["sample"](n=tf.constant(n), temperature=temperature, seed=stateless_seed(seed))["x"]


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


def shape_of(flow) -> tuple:
    """The shape of one example."""
    return flow.event_shape if isinstance(flow, SavedModelFlow) else tuple(flow.distribution.event_shape)


def levels_of(flow) -> int | None:
    """How many whole numbers its data have."""
    return flow.levels if isinstance(flow, SavedModelFlow) else flow.distribution.bijector.levels


def _config_beside(path):
    folder = RunFolder(path.parent)
    return folder.read_config() if folder.config.is_file() else {}
