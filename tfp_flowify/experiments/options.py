"""The options of a run, and what they are where they are left out."""

import dataclasses
import math
from pathlib import Path

import tensorflow as tf

from tfp_flowify import zoo
from tfp_flowify.data import NAMES, Data
from tfp_flowify.experiments.folder import RunFolder

#: Options that may be zero; all other numbers are positive.
MAY_BE_ZERO = ("seed", "clip_norm", "weight_decay", "average", "dropout", "shift", "patience")

#: How long to train.
BUDGETS = ("minutes", "epochs")

#: Options that may be others when a run is resumed.
FREE = (*BUDGETS, "data_dir", "download", "strategy", "learning_rate", "clip_norm", "patience")

#: With fewer training examples, networks are small and have dropout.
FEW_FOR_NETWORKS = 10_000

#: Images of no more numbers are learned by small networks.
SMALL_IMAGE = 256

#: Networks for densities of convolutions: slower than the small ones that `zoo.build` takes, and worth it.
RESIDUAL = {"depth": 1, "width": 64}


@dataclasses.dataclass
class Options:
    """The options of a run: its data, its network, how it is trained. They are kept in `config.json`.

    Left out, the model is `best_small` for small images or few of them, else `best`, with batches of 64; for tables
    `fmlp`, with batches of 512. The paper's networks have mixtures for densities, given by residual networks where they
    are convolutional; for tables splines. With few examples `best` has dropout, and training stops after 20 epochs
    without progress. XLA is used where there is a GPU. `arguments` go to `zoo.build`.
    """

    data: str = "digits"
    model: str | None = None
    minutes: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = 2e-3
    clip_norm: float = 0.0
    weight_decay: float = 0.0
    average: float = 0.0
    dropout: float | None = None
    shift: int = 0
    patience: int | None = None
    seed: int = 0
    noise: str = "normal"
    transform: str | None = None
    stages: int | None = None
    density: str | None = None
    arguments: dict = dataclasses.field(default_factory=dict)
    by: str = "auto"
    precision: str = "float32"
    strategy: str = "none"
    xla: bool | None = None
    data_dir: str | None = None
    download: bool = False
    image_size: list | None = None
    condition: str | None = None
    validation_examples: int = 5000
    draws: int = 100
    weighted_examples: int = 1000
    temperature: float = 1.0

    def __post_init__(self):
        for name, value in vars(self).items():
            if not all(_is_allowed(name, number) for number in (value if isinstance(value, list) else [value])):
                least = "zero or more" if name in MAY_BE_ZERO else "a positive number"
                raise ValueError(f"{name} must be {least}. Received: {name}={value}")
        if self.minutes is None and self.epochs is None:
            raise ValueError("Say how long to train: minutes=N, epochs=N or both.")
        own = self.arguments.keys() & {field.name for field in dataclasses.fields(self)}
        if own:
            raise ValueError(f"{', '.join(sorted(own))} are options of their own. Received: arguments={self.arguments}")
        for name in ("average", "dropout"):
            if (getattr(self, name) or 0) >= 1:
                raise ValueError(f"{name} must be less than one. Received: {name}={getattr(self, name)}")

    def completed(self, data: Data) -> "Options":
        """With what depends on the data."""
        model = _absolute(self.model) if is_file(self.model) else self.model or _model_for(data)
        is_best, few = model in zoo.BEST_MODELS, len(data.train) < FEW_FOR_NETWORKS
        batch_size = (64 if is_best else 128) if data.is_image else 512
        transform = None if is_best else "affine+mixture" if data.is_image else "affine+spline"
        return dataclasses.replace(
            self,
            model=model,
            batch_size=self.batch_size or min(batch_size, len(data.train)),
            transform=self.transform or transform,
            arguments={**(RESIDUAL if str(model).startswith("fconv") else {}), **self.arguments},
            dropout=(0.3 if is_best and few else None) if self.dropout is None else self.dropout,
            patience=(20 if few else 0) if self.patience is None else self.patience,
            xla=bool(tf.config.list_physical_devices("GPU")) if self.xla is None else self.xla,
            data=_absolute(self.data) if Path(self.data).exists() and self.data not in NAMES else self.data,
            data_dir=self.data_dir and _absolute(self.data_dir),
        )


def _model_for(data: Data) -> str:
    """The network that data are learned by where none is asked for."""
    if not data.is_image:
        return "fmlp"
    is_small = math.prod(data.shape) <= SMALL_IMAGE or len(data.train) < FEW_FOR_NETWORKS
    return "best_small" if is_small else "best"


def is_file(model: str | None) -> bool:
    """Whether a model is not a name of the zoo but a file of Keras: a network to be flowified."""
    return model is not None and model.endswith(".keras")


def _is_allowed(name, number) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return True
    return number > 0 or (number == 0 and name in MAY_BE_ZERO)


def _absolute(path) -> str:
    """So that the run can be found again from another folder."""
    return str(Path(path).expanduser().absolute())


def options_of(folder: RunFolder, given: dict) -> Options:
    """The options that a run was started with; some may be given anew."""
    config = folder.read_config()
    kept = {field.name: config[field.name] for field in dataclasses.fields(Options) if field.name in config}
    free = {name: value for name, value in given.items() if name in FREE}
    for name, value in given.items():
        if name not in free and kept.get(name) not in (value, _absolute(str(value))):
            raise ValueError(
                f"The run in {folder.path} was started with {name}={kept.get(name)!r}, so it cannot go on with "
                f"{value!r}. Leave it out, or start another run (out=DIR)."
            )
    if "data_dir" in free:
        free["data_dir"] = _absolute(free["data_dir"])
    if any(name in free for name in BUDGETS):
        kept.update(dict.fromkeys(BUDGETS))
    return Options(**{**kept, **free})
