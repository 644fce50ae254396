"""A flow from a path: the folder of a run, a `.keras` file or a SavedModel, all asked in the same way."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from tfp_flowify.distributions.augmentation import stateless_seed
from tfp_flowify.experiments.folder import RunFolder, load_flow
from tfp_flowify.inputs import InputCheck

fold_in, split = tf.random.experimental.stateless_fold_in, tf.random.experimental.stateless_split


class Served:
    """A SavedModel with the methods of a flow that the commands use.

    Args:
      path: of the folder.
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
        return tuple(self.spec.shape[1:])

    def log_prob(self, x, num_draws=1, seed=0, batch_size=256):
        """As for a flow; draws beyond those of the export are weighed here."""
        self._check.array(x)
        call, total = self.signatures["log_prob"], []
        for start in range(0, len(x), batch_size):
            batch = tf.cast(x[start : start + batch_size], self.spec.dtype)
            seeds = split(fold_in(stateless_seed(seed), start), num_draws)
            draws = [call(x=batch, seed=one)["log_prob"] for one in seeds]
            total.append(tf.reduce_logsumexp(tf.stack(draws), axis=0) - np.log(num_draws))
        return tf.concat(total, axis=0)

    def bits_per_dim(self, x, **kwargs):
        return -self.log_prob(x, **kwargs) / (np.prod(self.event_shape) * np.log(2))

    def sample(self, n, temperature=1.0, mean=False, seed=0):
        if mean:
            raise ValueError("A SavedModel draws all parts. For mean samples, give the run folder or the .keras file.")
        temperature = tf.constant(temperature, self.spec.dtype)
        return self.signatures["sample"](n=tf.constant(n), temperature=temperature, seed=stateless_seed(seed))["x"]


def open_flow(path):
    """A flow with `log_prob`, `bits_per_dim` and `sample`, and the config of its run, or {}.

    Args:
      path: the folder of a run (its best flow), a `.keras` file or a SavedModel.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}. Give the folder of a run, a .keras file or a SavedModel.")
    if path.is_file():
        return load_flow(path), _config_beside(path)
    if (path / "saved_model.pb").is_file():
        return Served(path), _config_beside(path)
    folder = RunFolder(path)
    if not folder.config.is_file():
        raise FileNotFoundError(
            f"{path} is neither the folder of a run (it has no config.json) nor a SavedModel (no saved_model.pb)."
        )
    return folder.load(), folder.read_config()


def shape_of(flow) -> tuple:
    """Of one example."""
    return flow.event_shape if isinstance(flow, Served) else tuple(flow.distribution.event_shape)


def levels_of(flow) -> int | None:
    """How many whole numbers its data have."""
    return flow.levels if isinstance(flow, Served) else flow.distribution.bijector.levels


def _config_beside(path):
    folder = RunFolder(path.parent)
    return folder.read_config() if folder.config.is_file() else {}
