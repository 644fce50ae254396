"""A training run, from data to a folder with a trained flow and a report; it can be killed and resumed."""

import contextlib
import dataclasses
import math
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import zoo
from tfp_flowify.conversion import flowify
from tfp_flowify.core.seeds import seeded
from tfp_flowify.data import NAMES, Data, batches, load
from tfp_flowify.experiments.callbacks import (
    CosineDecay,
    Progress,
    Recorder,
    StopOnInterrupt,
    StopWhereNotFinite,
    StopWithoutProgress,
    Validation,
    steps_of,
)
from tfp_flowify.experiments.clock import Clock, clock_time
from tfp_flowify.experiments.figures import trained_numbers, unit_of
from tfp_flowify.experiments.folder import RunFolder
from tfp_flowify.experiments.keras_file import load_keras_file
from tfp_flowify.experiments.machine import machine, versions
from tfp_flowify.experiments.report import write_report
from tfp_flowify.experiments.workers import Workers, make_strategy
from tfp_flowify.optimizer import FusedAdam

#: An epoch has at least so many steps: small data are gone through several times in one.
LEAST_STEPS = 100

#: Options that may be zero; all other numbers are positive.
MAY_BE_ZERO = ("seed", "clip_norm", "weight_decay", "average", "dropout", "shift", "patience")

#: How long to train.
BUDGETS = ("minutes", "epochs")

#: Options that may be others when a run is resumed.
FREE = (*BUDGETS, "data_dir", "download", "strategy", "learning_rate", "clip_norm", "patience")

#: With fewer training examples there is a warning.
FEW_EXAMPLES = 100

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
    return bool(model) and model.endswith(".keras")


def _is_allowed(name, number) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return True
    return number > 0 or (number == 0 and name in MAY_BE_ZERO)


def _absolute(path) -> str:
    """So that the run can be found again from another folder."""
    return str(Path(path).expanduser().absolute())


def train(options: Options, out, log=print) -> dict | None:
    """Trains a flow and writes all that belongs to the run into a folder.

    Args:
      options: What to train, and how.
      out: Path of the folder.
      log: Function called with each progress message.

    Returns:
      The report, or None when it was interrupted by Ctrl-C; {} on workers other than the first, which writes it.
    """
    folder = RunFolder(out)
    with _configured(options, log) as workers:
        if workers.is_first:
            folder.make_new()
        data = _load(options, log)
        options = options.completed(data)
        _check_batches(data, options, workers)
        with workers.strategy.scope():
            flow = _fresh_flow(options, data)
        if workers.is_first:
            about = {"columns": data.columns, "classes": data.classes, "versions": versions(), "machine": machine()}
            folder.start({**dataclasses.asdict(options), **about})
        return _run(flow, data, options, folder, workers, log)


def resume(out, given: dict | None = None, log=print) -> dict | None:
    """Goes on with the run in a folder, from its last epoch, as if it had never stopped.

    Args:
      out: Path of the folder.
      given: Options; those in `FREE` may differ from those that the run was started with.
      log: Function called with each progress message.
    """
    folder = RunFolder(out)
    options = options_of(folder, given or {})
    with _configured(options, log) as workers:
        if workers.is_first:
            folder.make()
            folder.restore()
        data = _load(options, log)
        _check_batches(data, options, workers, "strategy='none', or as many devices as before")
        if workers.is_first:
            folder.write_config({**folder.read_config(), **dataclasses.asdict(options)})
        with workers.strategy.scope():
            flow = folder.load_last() or _fresh_flow(options, data)
        flow.optimizer.global_clipnorm, flow.jit_compile = options.clip_norm or None, _uses_xla(options)
        return _run(flow, data, options, folder, workers, log)


def _load(options, log):
    data = load(options.data, options.data_dir, options.download, options.image_size, options.condition)
    log(data.describe())
    if len(data.train) < FEW_EXAMPLES:
        log(f"Warning: {len(data.train)} examples to train on are few. What is learned will hardly hold for others.")
    return data


def _run(flow, data, options, folder, workers, log):
    sizes = f"{trained_numbers(flow):,} weights, {len(flow.network.layers)} layers"
    log(f"{options.model}: {sizes}; run folder {folder.path}")
    report = {}
    if _fit(flow, data, options, folder, workers, log):
        log(f"Stopped; what was learned is in {folder.last}.")
        report = None
    elif workers.is_first:
        report = write_report(folder, folder.load(), data, log)
    workers.wait_for_all()
    return report


@contextlib.contextmanager
def _configured(options: Options, log):
    """Precision and seed of a run; afterwards they are what they were before. Gives the workers that train together."""
    policy, tensor_float = keras.config.dtype_policy(), tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)  # Else GPUs round inside products of matrices.
    keras.config.set_dtype_policy(options.precision)
    try:
        workers = Workers(make_strategy(options.strategy, log))
        with seeded(options.seed), workers.failures_told():
            yield workers
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(tensor_float)
        keras.config.set_dtype_policy(policy)


def options_of(folder, given: dict) -> Options:
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


def build_flow(options, data: Data):
    """The flow that options name, for data of this shape, with the weights that it starts from by itself."""
    named = {name: getattr(options, name) for name in ("transform", "stages", "density", "dropout")}
    density = {**named, **options.arguments}
    condition = None
    if data.condition is not None:
        condition = zoo.labels(data.classes) if data.classes else data.condition.shape
    if is_file(options.model):
        return _flowified(options, data)
    return zoo.build(options.model, data.shape, data.levels, options.noise, options.seed, condition, **density)


def _fresh_flow(options, data: Data):
    flow = build_flow(options, data)
    spread = np.linspace(0, len(data.train) - 1, min(500, len(data.train))).astype(int)
    flow.adapt(data.train[spread], seed=options.seed, **data.given("train", spread))
    flow.compile(_optimizer(options), jit_compile=_uses_xla(options))
    return flow


def _optimizer(options):
    # Only kernels of networks decay: scales and rotations are not large or small, but right or wrong.
    return FusedAdam(
        options.learning_rate,
        global_clipnorm=options.clip_norm or None,
        weight_decay=options.weight_decay or None,
        use_ema=options.average > 0,
        ema_momentum=options.average or 0.99,
        decayed=["kernel"],
    )


def _uses_xla(options) -> bool:
    """Whether the training step is compiled by XLA, which does not go with several devices."""
    return bool(options.xla) and options.strategy == "none"


def _flowified(options, data: Data):
    """The network in a file as a flow of the data."""
    if data.condition is not None:
        raise ValueError("A network from a file is flowified without a condition. Leave out condition=...")
    if options.arguments:
        raise ValueError(
            f"arguments are for networks by name, and {options.model} is a file. Received: {options.arguments}"
        )
    model = load_keras_file(options.model, compile=False)
    if tuple(model.input_shape[1:]) != tuple(data.shape):
        raise ValueError(f"{options.model} takes {model.input_shape[1:]}, and the data are {data.shape}.")
    return flowify(model, options.by, levels=data.levels, seed=options.seed)


def _check_batches(data, options, workers, way_out=None):
    """Raises an error where there is no batch for each replica, before any work is done."""
    if len(data.train) < options.batch_size:
        raise ValueError(
            f"{options.data} has {len(data.train)} training examples, fewer than batch_size={options.batch_size}."
        )
    replicas = workers.strategy.num_replicas_in_sync
    if options.batch_size % replicas:
        raise ValueError(
            f"{replicas} devices share a batch in equal parts, and batch_size={options.batch_size} is no multiple of "
            f"{replicas}. Take {way_out or f'batch_size={replicas * -(-options.batch_size // replicas)}'}."
        )


def _steps_per_epoch(data, options):
    """Steps of whole passes over the data."""
    one_pass = len(data.train) // options.batch_size
    return one_pass * -(-LEAST_STEPS // one_pass)


def _fit(flow, data, options, folder, workers, log) -> bool:
    """Trains until time or epochs are used up; whether it was interrupted."""
    done, steps_per_epoch = steps_of(flow), _steps_per_epoch(data, options)
    rows = folder.read_history(done)
    if done and not rows:
        raise ValueError(f"{folder.last} is after step {done}, but {folder.history_file} has no row of it. Start anew.")
    first_done = workers.of_first(done)
    if first_done != done:
        raise ValueError(
            f"Worker {workers.number} would go on after step {done}, the first one after step {first_done:.0f}: all "
            f"need the same folder. Received: out={folder.path}"
        )
    clock = Clock(
        options.minutes, options.epochs and options.epochs * steps_per_epoch, rows[-1]["seconds"] if rows else 0.0
    )
    without_progress = StopWithoutProgress(options.patience, data.is_image, rows, workers, log)
    if workers.of_first(clock.share(done)) >= 1 or workers.any(without_progress.is_over):
        log("All of its training is done already.")
        return False
    if done:
        log(f"Going on after step {done:,} in epoch {rows[-1]['epoch']}, {clock_time(clock.seconds)} into the run.")
    if workers.is_first:
        folder.remove_report()  # It is of the training so far.
        records = [Progress(clock, unit_of(data)), Recorder(folder, clock, data.is_image, rows)]
    with StopOnInterrupt(workers) as interrupt:
        flow.fit(
            _batches_after(done, data, options),
            epochs=10**9,
            initial_epoch=rows[-1]["epoch"] if rows else 0,
            steps_per_epoch=steps_per_epoch,
            shuffle=False,  # The batches are.
            verbose=0,
            callbacks=[
                interrupt,
                CosineDecay(clock, options.learning_rate, workers),
                Validation(data, options.validation_examples),
                without_progress,
                StopWhereNotFinite(folder, lambda step: next(iter(_batches_after(step, data, options))), workers),
                *(records if workers.is_first else []),
            ],
        )
    return interrupt.interrupted


def _batches_after(steps, data, options):
    """The batches that follow a number of steps; they depend on nothing else but the seed."""
    one_pass = len(data.train) // options.batch_size
    first_epochs = batches(
        data.train, options.batch_size, options.seed, steps // one_pass, shift=options.shift, **data.given("train")
    )
    return first_epochs.skip(steps % one_pass)
