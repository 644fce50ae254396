"""A training run, from data to a folder with a trained flow and a report; it can be killed and resumed."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfp_flowify.core.seeds import seeded
from tfp_flowify.core.types import PathLike
from tfp_flowify.data import batches, load
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
from tfp_flowify.experiments.fresh_flow import fresh_flow, uses_xla
from tfp_flowify.experiments.machine import machine, versions
from tfp_flowify.experiments.options import Options, options_of
from tfp_flowify.experiments.report import write_report
from tfp_flowify.experiments.workers import Workers, make_strategy

#: An epoch has at least so many steps: small data are gone through several times in one.
LEAST_STEPS = 100

#: With fewer training examples there is a warning.
FEW_EXAMPLES = 100


def train(options: Options, out: PathLike, log: Callable[[str], Any] = print) -> dict | None:
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
            flow = fresh_flow(options, data)
        if workers.is_first:
            about = {"columns": data.columns, "classes": data.classes, "versions": versions(), "machine": machine()}
            folder.start({**dataclasses.asdict(options), **about})
        return _run(flow, data, options, folder, workers, log)


def resume(out: PathLike, given: dict | None = None, log: Callable[[str], Any] = print) -> dict | None:
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
            flow = folder.load_last() or fresh_flow(options, data)
        flow.optimizer.global_clipnorm, flow.jit_compile = options.clip_norm or None, uses_xla(options)
        return _run(flow, data, options, folder, workers, log)


def _load(options, log):
    data = load(options.data, options.data_dir, options.download, options.image_size, options.condition)
    log(data.describe())
    if len(data.train) < FEW_EXAMPLES:
        log(f"Warning: {len(data.train)} examples to train on are few. What is learned will hardly hold for others.")
    return data


def _run(flow, data, options, folder, workers, log):
    sizes = f"{trained_numbers(flow):,} weights, {len(flow.network.layers)} layers"
    log(f"{options.model}: {sizes}; on {machine()}; run folder {folder.path}")
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
        folder.remove_report()  # It is of the training so far, and so is what was found of truth.
        folder.truth.unlink(missing_ok=True)
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
