"""The callbacks of a run: the learning rate, validation, the files, the line of progress, Ctrl-C."""

import math
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify.core.private import averaged
from tfp_flowify.data import Data
from tfp_flowify.experiments.clock import Clock, clock_time
from tfp_flowify.experiments.figures import likelihoods
from tfp_flowify.experiments.folder import RunFolder
from tfp_flowify.experiments.machine import peak_memory
from tfp_flowify.experiments.workers import Workers


class CosineDecay(keras.callbacks.Callback):
    """Lowers the learning rate along half a cosine, to zero when time or steps are used up; and stops there.

    Args:
      clock: Clock of the run.
      learning_rate: At the start, after a rise from zero in 100 steps, or a tenth of all if that is less.
      workers: Those that train together. Where time counts, they go by the clock of the first, else they would part.
    """

    def __init__(self, clock: Clock, learning_rate: float, workers: Workers):
        super().__init__()
        self.clock, self.learning_rate, self.workers = clock, learning_rate, workers
        self.warmup = min(100, clock.steps // 10 + 1) if clock.steps else 100

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.step = steps_of(self.model)  # Reading it each time would wait for the device.
        self.share = self._agreed_share()

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        warm = min(1.0, (self.step + 1) / self.warmup)
        self.model.optimizer.learning_rate = self.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * self.share))

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.step += 1
        if self.clock.budget is None or self.step % self.workers.agree_every == 0:
            self.share = self._agreed_share()
        if self.share >= 1 or self.step == self.clock.steps:
            self.model.stop_training = True

    def _agreed_share(self):
        share = self.clock.share(self.step)
        return share if self.clock.budget is None else self.workers.of_first(share)


class StopWithoutProgress(keras.callbacks.Callback):
    """Stops a run whose validation figure has not been better for some epochs: small data are soon known by heart.

    Args:
      patience: Number of these epochs; 0 to go on whatever comes.
      in_bits: Whether figures are in bits per dimension, where less is better.
      rows: Rows of the epochs before.
      workers: Those that train together: all stop at the same moment.
      log: Function called with each progress message.
    """

    def __init__(
        self, patience: int, in_bits: bool, rows: Sequence[dict], workers: Workers, log: Callable[[str], Any] = print
    ):
        super().__init__()
        self.patience, self.sign, self.workers, self.log = patience, 1 if in_bits else -1, workers, log
        self.figures = [self.sign * row["validation"] for row in rows]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.figures.append(self.sign * logs["validation"])
        if self.workers.any(self.is_over) and not self.model.stop_training:
            self.model.stop_training = True
            self.log(f"Validation has not been better for {self.since_best} epochs: training ends here.")

    @property
    def since_best(self) -> int:
        """The number of epochs since the best one."""
        return len(self.figures) - 1 - int(np.argmin(self.figures)) if self.figures else 0

    @property
    def is_over(self) -> bool:
        return 0 < self.patience <= self.since_best


class Validation(keras.callbacks.Callback):
    """Adds `validation` to the logs of an epoch: bits per dimension, or nats, of held-out examples.

    The noise is the same each time, so that epochs differ by what was learned alone. Where weights are averaged, it is
    the figure of the averages.

    Args:
      data: The data of the run.
      most: Number of validation examples that are used, at most.
    """

    def __init__(self, data: Data, most: int):
        super().__init__()
        self.x, self.given, self.in_bits = data.validation[:most], data.given("validation", slice(most)), data.is_image

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["train"] = logs["bits_per_dim"] if self.in_bits else -logs["nll"]
        with averaged(self.model):
            logs["validation"] = float(np.mean(likelihoods(self.model, self.x, self.in_bits, seed=0, **self.given)))


def steps_of(flow: keras.Model) -> int:
    """The number of steps that the optimizer of a flow has taken."""
    return int(_read(flow.optimizer.iterations))


def _read(variable):
    """The value of a variable; one that is mirrored on several devices has no other way to its number."""
    return keras.ops.convert_to_numpy(tf.convert_to_tensor(variable.value))


class StopWhereNotFinite(keras.callbacks.Callback):
    """Stops a run whose loss is not finite, and names the layer in which that began.

    A step with gradients that are not finite is not taken, and its loss is NaN. So the flow is still as it was before;
    the first worker keeps it.

    Args:
      folder: Folder of the run.
      batch_of: Function that gives the batch of a step, by the number of steps before it.
      workers: Those that train together.
    """

    def __init__(self, folder: RunFolder, batch_of: Callable[[int], Any], workers: Workers):
        super().__init__()
        self.folder, self.batch_of, self.workers = folder, batch_of, workers

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.step = steps_of(self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not math.isfinite(logs["loss"]):
            self._stop(self.step)
        self.step += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not math.isfinite(logs["validation"]):
            raise FloatingPointError(
                f"The likelihood of the validation examples is {logs['validation']} behind step {self.step:,}, though "
                f"that of the training examples is finite. {self._way_out()}"
            )

    def _stop(self, step):
        kept = f" The flow as it was before is in {self.folder.before_failure}."
        try:
            if self.workers.is_first:
                self.folder.save_before_failure(self.model)
        except OSError as error:
            kept = f" The flow as it was before could not be kept: {error}."
        raise FloatingPointError(
            f"The loss of step {step + 1:,}, or one of its gradients, is not finite. That began in "
            f"{self._where(step)}.{kept} {self._way_out()}"
        )

    def _where(self, step) -> str:
        batch = self.batch_of(step)
        x, given = (batch["x"], {"condition": batch["condition"]}) if isinstance(batch, dict) else (batch, {})
        try:
            where = self.model.where_not_finite(x, step, **given)
        except tf.errors.ResourceExhaustedError:
            return "a layer that cannot be told: to look for it takes more memory than there is"
        return where or "a layer that cannot be told: it did not come again, with the noise of one device"

    def _way_out(self):
        way = "resume=True and a smaller learning_rate=N, or with clip_norm=N"
        if self.folder.files.exists(self.folder.last):
            return f"The flow of the last epoch is in {self.folder.last.name}: go on from there with {way}."
        return f"No epoch was finished: start again with {way}."


class Recorder(keras.callbacks.Callback):
    """Writes the row of an epoch and the flow to the folder of the run.

    A row is written before its flow. A kill in between leaves a row too many, which `resume` leaves out.

    Args:
      folder, clock: Folder and clock of the run.
      in_bits: Whether figures are in bits per dimension, where less is better.
      rows: Rows of the epochs before.
    """

    def __init__(self, folder: RunFolder, clock: Clock, in_bits: bool, rows: Sequence[dict]):
        super().__init__()
        self.folder, self.clock, self.rows = folder, clock, list(rows)
        self.loss = (lambda row: row["validation"]) if in_bits else (lambda row: -row["validation"])
        self.first_step: float | None = None
        self.step_seconds: list[float] = []

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.begun = time.perf_counter()

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self.step_begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        now = time.perf_counter()
        if self.first_step is None:
            self.first_step = now - self.begun
        else:
            self.step_seconds.append(now - self.step_begun)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        row = {
            "epoch": epoch + 1,
            "steps": steps_of(self.model),
            "seconds": round(self.clock.seconds, 3),
            "train": logs["train"],
            "validation": logs["validation"],
            "learning_rate": float(_read(self.model.optimizer.learning_rate)),
            "seconds_to_first_step": self.first_step,
            "seconds_per_step": statistics.median(self.step_seconds or [self.first_step or 0.0]),
            "peak_memory_bytes": peak_memory(),
        }
        is_best = all(self.loss(row) <= self.loss(before) for before in self.rows)
        self.rows.append(row)
        self.folder.write_history(self.rows)
        self.folder.save(self.model, is_best)


class Progress(keras.callbacks.Callback):
    """One line: how far, the likelihoods, the time that is left. On a terminal it is renewed, else one for each epoch.

    Args:
      clock: Clock of the run.
      unit: Unit of the likelihoods.
      stream: Where the line is written; standard output if left out.
    """

    def __init__(self, clock: Clock, unit: str, stream: TextIO | None = None):
        super().__init__()
        self.clock, self.unit, self.stream = clock, unit, stream or sys.stdout
        self.on_terminal, self.shown, self.validation = self.stream.isatty(), 0.0, None

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.step = steps_of(self.model)
        self._write("compiling the training step ...", end="\n" if not self.on_terminal else "")

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.epoch = epoch + 1

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.step += 1
        if self.on_terminal and time.perf_counter() - self.shown > 0.25:
            self.shown = time.perf_counter()
            self._show(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.validation = logs["validation"]
        if not self.on_terminal:
            self._show(logs, end="\n")

    def on_train_end(self, logs: dict | None = None) -> None:
        if self.on_terminal:
            self._write("", end="\n")

    def _show(self, logs, end=""):
        share = self.clock.share(self.step)
        left = self.clock.seconds * (1 / share - 1) if share > 0 else math.inf
        if self.clock.budget:
            left = min(left, max(0.0, self.clock.budget - self.clock.seconds))
        bar = ("=" * round(20 * share)).ljust(20, ".")
        in_bits = self.unit.startswith("bits")
        train = logs["bits_per_dim"] if in_bits else -logs["nll"]
        validation = "" if self.validation is None else f", validation {self.validation:.3f}"
        line = f"[{bar}] {share:4.0%}  epoch {self.epoch}  {train:.3f}{validation} {self.unit}  {clock_time(left)} left"
        self._write(line, end)

    def _write(self, line, end=""):
        width = shutil.get_terminal_size().columns - 1
        self.stream.write(f"\r{line[:width]:<{width}}" if self.on_terminal else line)
        self.stream.write(end)
        self.stream.flush()


class StopOnInterrupt(keras.callbacks.Callback):
    """Ctrl-C ends training behind the current step, with all that follows an epoch; a second one ends at once.

    So does the signal by which machines that are shared end a job. A context around `fit`, and a callback of it. Behind
    it, the signals do what they did before.

    Args:
      workers: Those that train together: where one is interrupted, all stop.
    """

    interrupted = False

    def __init__(self, workers: Workers):
        super().__init__()
        self.workers, self.signalled = workers, False

    def __enter__(self):
        try:
            self.before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # Not in the main thread, where signals do not arrive.
            self.before = {}
        return self

    def __exit__(self, kind, error, trace):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.step = 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.step += 1
        if self.step % self.workers.agree_every == 0 and self.workers.any(self.signalled):
            self.interrupted = self.model.stop_training = True

    def _stop(self, number, frame):
        if self.signalled:
            raise KeyboardInterrupt
        self.signalled = True
