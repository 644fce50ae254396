"""What happens while a flow trains in a run: the learning rate, validation, the files, the line of progress."""

import math
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np

from tfp_flowify.experiments.figures import likelihoods


class Clock:
    """How far a run is, in time and in steps, counted from its first start.

    Args:
      minutes: its budget, or None.
      steps: all its steps, or None.
      seconds_before: spent before it was resumed.
    """

    def __init__(self, minutes=None, steps=None, seconds_before=0.0):
        self.budget = None if minutes is None else 60 * minutes
        self.steps, self.begun = steps, time.perf_counter() - seconds_before

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun

    def share(self, step: int) -> float:
        """0 at the start, 1 at the end."""
        shares = [step / self.steps] if self.steps else []
        return min(1.0, max([*shares, self.seconds / self.budget] if self.budget else shares))


class CosineDecay(keras.callbacks.Callback):
    """Lowers the learning rate along half a cosine, to zero when time or steps are used up; and stops there.

    Args:
      clock: of the run.
      learning_rate: at the start, after `warmup` steps.
    """

    def __init__(self, clock, learning_rate, warmup=100):
        super().__init__()
        self.clock, self.learning_rate, self.warmup = clock, learning_rate, warmup

    def on_train_begin(self, logs=None):
        self.step = int(self.model.optimizer.iterations)  # Reading it each time would wait for the device.

    def on_train_batch_begin(self, batch, logs=None):
        share = self.clock.share(self.step)
        warm = min(1.0, (self.step + 1) / self.warmup)
        self.model.optimizer.learning_rate = self.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * share))

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        if self.clock.share(self.step) >= 1:
            self.model.stop_training = True


class Validation(keras.callbacks.Callback):
    """Adds `validation` to the logs of an epoch: bits per dimension, or nats, of held-out examples.

    The noise is the same each time, so that epochs differ by what was learned alone.
    """

    def __init__(self, x, in_bits: bool):
        super().__init__()
        self.x, self.in_bits = x, in_bits

    def on_epoch_end(self, epoch, logs=None):
        logs["train"] = logs["bits_per_dim"] if self.in_bits else -logs["nll"]
        logs["validation"] = float(np.mean(likelihoods(self.model, self.x, self.in_bits, seed=0)))


class Recorder(keras.callbacks.Callback):
    """Writes the row of an epoch and the flow to the folder of the run; remembers how long steps took.

    A row is written before its flow. A kill in between leaves a row too many, which `--resume` leaves out.
    """

    def __init__(self, folder, clock, in_bits, rows):
        super().__init__()
        self.folder, self.clock, self.in_bits, self.rows = folder, clock, in_bits, list(rows)
        self.first_step, self.step_seconds = None, []

    def on_train_begin(self, logs=None):
        self.begun = time.perf_counter()

    def on_train_batch_begin(self, batch, logs=None):
        self.step_begun = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        if self.first_step is None:
            self.first_step = now - self.begun
        else:
            self.step_seconds.append(now - self.step_begun)

    def on_epoch_end(self, epoch, logs=None):
        if not math.isfinite(logs["train"]):
            raise FloatingPointError(
                f"Training diverged: the likelihood is {logs['train']} in epoch {epoch + 1}. The flow of the epoch "
                f"before is in {self.folder.last if self.rows else 'no file yet'}. A smaller --learning-rate may help."
            )
        row = {
            "epoch": epoch + 1,
            "steps": int(self.model.optimizer.iterations),
            "seconds": round(self.clock.seconds, 3),
            "train": logs["train"],
            "validation": logs["validation"],
            "learning_rate": float(self.model.optimizer.learning_rate),
        }
        figures = [r["validation"] * (1 if self.in_bits else -1) for r in [*self.rows, row]]
        self.rows.append(row)
        self.folder.write_history(self.rows)
        self.folder.save(self.model, is_best=figures[-1] <= min(figures))


class Progress(keras.callbacks.Callback):
    """One line: how far, the likelihoods, the time that is left. On a terminal it is renewed, else one for each epoch.

    Args:
      clock: of the run.
      unit: of the likelihoods.
    """

    def __init__(self, clock, unit, stream=None):
        super().__init__()
        self.clock, self.unit, self.stream = clock, unit, stream or sys.stdout
        self.on_terminal, self.shown, self.validation = self.stream.isatty(), 0.0, None

    def on_train_begin(self, logs=None):
        self.step = int(self.model.optimizer.iterations)
        self._write("compiling the training step ...", end="\n" if not self.on_terminal else "")

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch + 1

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        if self.on_terminal and time.perf_counter() - self.shown > 0.25:
            self.shown = time.perf_counter()
            self._show(logs)

    def on_epoch_end(self, epoch, logs=None):
        self.validation = logs["validation"]
        if not self.on_terminal:
            self._show(logs, end="\n")

    def on_train_end(self, logs=None):
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
        self.stream.write(f"\r{line:<100}" if self.on_terminal else line)
        self.stream.write(end)
        self.stream.flush()


class StopOnInterrupt(keras.callbacks.Callback):
    """Ctrl-C ends training behind the current step, with all that follows an epoch; a second one ends at once."""

    interrupted = False

    def on_train_begin(self, logs=None):
        try:
            self.before = signal.signal(signal.SIGINT, self._stop)
        except ValueError:  # Not in the main thread, where Ctrl-C does not arrive.
            self.before = None

    def on_train_end(self, logs=None):
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)

    def _stop(self, number, frame):
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = self.model.stop_training = True


def clock_time(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock_time(61.2), clock_time(3700)
    ('1:01', '1:01:40')
    """
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def peak_memory() -> int:
    """The most memory that this process has held, in bytes.

    On Linux from its status: there, getrusage also counts what its parent held when it was started.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    import resource  # Not on Windows.

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
