"""A flow from disk: the folder of a run, a `.keras` file or a SavedModel, all asked in the same way."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import first_line, whole_number
from tfp_flowify.core.seeds import numbered, stateless_seed
from tfp_flowify.core.types import PathLike, Seed, TensorLike
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.experiments.folder import RunFolder, load_flow
from tfp_flowify.model.condition import CONDITION
from tfp_flowify.model.entries import checked_temperature
from tfp_flowify.model.inputs import InputCheck

#: The files of a SavedModel.
FILES = ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001")

#: The signatures that are used here, with inputs of theirs.
SIGNATURES = {
    "log_prob": {"x", "seed"},
    "sample": {"n", "temperature", "seed"},
    "encode": {"x", "seed"},
    "decode": set(),
}


class SavedModelFlow:
    """A SavedModel with the methods of a flow that the commands use.

    A SavedModel is a program: TensorFlow runs what is in it, which can read and write files. Open only those that you
    trust.

    Args:
      path: Path of the folder.
    """

    def __init__(self, path: PathLike):
        missing = [name for name in FILES if not (Path(path) / name).is_file()]
        if missing:
            raise FileNotFoundError(
                f"{path} is not a whole SavedModel: it has no {' and no '.join(missing)}. Copy it, or export it, anew."
            )
        try:
            self.module = tf.saved_model.load(str(path))
        except Exception as error:
            raise ValueError(
                f"{path} is not a SavedModel that can be read: {first_line(error).rstrip('.')}. Export it anew."
            ) from error
        for name, inputs in SIGNATURES.items():
            found = self.module.signatures.get(name)
            if found is None or not inputs <= set(found.structured_input_signature[1]):
                raise ValueError(
                    f"{path} is not an exported flow: it has no signature {name}({', '.join(sorted(inputs))})."
                )
        self.signatures = self.module.signatures
        self.spec = self.signatures["log_prob"].structured_input_signature[1]["x"]
        self.levels = int(self.module.levels) or None if hasattr(self.module, "levels") else None
        self.num_draws = int(self.module.num_draws) if hasattr(self.module, "num_draws") else 1
        self._check = InputCheck(self.event_shape, self.levels, self.spec.dtype)
        inputs = self.signatures["log_prob"].structured_input_signature[1]
        self._given = {name: spec for name, spec in inputs.items() if name.startswith(CONDITION)}

    @property
    def event_shape(self) -> tuple:
        """Shape of one example."""
        return tuple(self.spec.shape[1:])

    @property
    def takes_condition(self) -> bool:
        """Whether it is a conditional flow."""
        return bool(self._given)

    def log_prob(
        self,
        x: TensorLike,
        num_draws: int = 1,
        seed: Seed = 0,
        batch_size: int = 1024,
        condition: TensorLike | None = None,
    ) -> tf.Tensor:
        """As for a flow. Draws beyond those of the export are weighed here; fewer than those there cannot be had."""
        x = self._check.array(x)
        num_draws, batch_size = whole_number("num_draws", num_draws), whole_number("batch_size", batch_size)
        given = self._leaves(condition, len(x))
        call, total, calls = self.signatures["log_prob"], [], -(-num_draws // self.num_draws)
        for start, batch_seed in zip(range(0, len(x), batch_size), numbered(seed, "batches"), strict=False):
            batch = tf.cast(x[start : start + batch_size], self.spec.dtype)
            rows = {name: value[start : start + batch_size] for name, value in given.items()}
            seeds = itertools.islice(numbered(batch_seed, "calls"), calls)
            draws = [call(x=batch, seed=one, **rows)["log_prob"] for one in seeds]
            total.append(tf.reduce_logsumexp(tf.stack(draws), axis=0) - np.log(calls))
        return tf.concat(total, axis=0)

    def bits_per_dim(self, x: TensorLike, **kwargs: Any) -> tf.Tensor:
        """As for a flow."""
        return bits_per_dim(self.log_prob(x, **kwargs), self.event_shape)

    def sample(
        self,
        n: int,
        temperature: float = 1.0,
        mean: bool = False,
        seed: Seed = 0,
        batch_size: int = 1024,
        condition: TensorLike | None = None,
    ) -> tf.Tensor:
        """As for a flow."""
        if mean:
            raise ValueError("A SavedModel draws all parts. For mean samples, give the run folder or the .keras file.")
        n, batch_size = whole_number("n", n), whole_number("batch_size", batch_size)
        call, temperature = self.signatures["sample"], checked_temperature(temperature, self.spec.dtype)
        given, drawn = self._leaves(condition, n), []
        for start, s in zip(range(0, n, batch_size), numbered(seed, "batches"), strict=False):
            rows = {name: value[start : start + batch_size] for name, value in given.items()}
            size = tf.constant(min(batch_size, n - start))
            drawn.append(call(n=size, temperature=temperature, seed=s, **rows)["x"])
        return tf.concat(drawn, axis=0)

    def encode(self, x: TensorLike, seed: Seed = 0, condition: TensorLike | None = None) -> dict:
        """As for a flow; the parts are a dict. Nothing is cut into batches."""
        x = self._check.array(x)
        call, given = self.signatures["encode"], self._leaves(condition, len(x))
        return call(x=tf.cast(x, self.spec.dtype), seed=stateless_seed(seed), **given)

    def decode(self, parts: dict, condition: TensorLike | None = None) -> tf.Tensor:
        """As for a flow, from what `encode` gave."""
        count = len(next(iter(parts.values())))
        return self.signatures["decode"](**parts, **self._leaves(condition, count))["x"]

    def _leaves(self, condition, count) -> dict:
        """The condition as the signatures take it, one that is a lone tensor, with a row for each example."""
        if not self._given and condition is None:
            return {}
        if list(self._given) != [CONDITION] or condition is None:
            wanted = ", ".join(f"{name} {tuple(spec.shape)}" for name, spec in self._given.items()) or "no condition"
            raise ValueError(f"This SavedModel takes {wanted}. Received: condition={type(condition).__name__}")
        spec = self._given[CONDITION]
        value = np.asarray(condition)
        value = value[None] if value.ndim == spec.shape.rank - 1 else value
        if not spec.shape.is_compatible_with(value.shape) or len(value) not in (1, count):
            raise ValueError(
                f"This SavedModel takes a condition {tuple(spec.shape)}, for each of {count} examples or one for all. "
                f"Received: shape={value.shape}"
            )
        return {CONDITION: tf.cast(value if len(value) == count else np.repeat(value, count, axis=0), spec.dtype)}


def open_flow(path: PathLike) -> tuple:
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
    if not folder.holds_run:
        raise FileNotFoundError(
            f"{path} is neither the folder of a run (it has no config.json) nor a SavedModel (no saved_model.pb)."
        )
    return folder.load(), folder.read_config()


def _config_beside(path):
    folder = RunFolder(path.parent)
    return folder.read_config() if folder.holds_run else {}
