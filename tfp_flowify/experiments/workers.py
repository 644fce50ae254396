"""The processes that train one flow together: one alone, or the workers that `TF_CONFIG` names."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfp_flowify.core.checks import first_line
from tfp_flowify.core.private import is_multi_worker

#: Workers agree on their common clock after each so many steps.
AGREE_EVERY = 10

#: What TensorFlow raises where another worker is gone.
LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)

#: What it raises there too, and also where a device of this machine fails: what it says tells them apart.
MAYBE_LOST = (tf.errors.InternalError, tf.errors.FailedPreconditionError)


class Workers:
    """All processes of a run. The first of them writes its folder; a lone one is the first.

    Args:
      strategy: How the flow is spread over devices and machines.

    >>> workers = Workers(tf.distribute.get_strategy())
    >>> workers.is_first, workers.of_first(0.5), workers.any(False)
    (True, 0.5, False)
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.strategy, self.addresses, self.number = strategy, [], 0
        if is_multi_worker(strategy):
            self.addresses, self.number = _cluster()

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes the folder of the run."""
        return self.number == 0

    @property
    def agree_every(self) -> int:
        """After how many steps workers ask each other: each time, where there is only one."""
        return AGREE_EVERY if len(self.addresses) > 1 else 1

    def of_first(self, value: float) -> float:
        """The value that the first worker has. All of them must ask at the same moment."""
        return self._sum(lambda replica: value if replica == 0 else 0.0, value)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any worker. All of them must ask at the same moment."""
        return self._sum(lambda replica: float(flag), float(flag)) > 0

    def wait_for_all(self) -> None:
        """Waits until all workers are here: a process that ends would take the others with it."""
        self.any(False)

    def _sum(self, of_replica, alone):
        if len(self.addresses) < 2:
            return alone
        values = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(of_replica(context.replica_id_in_sync_group), tf.float64)
        )
        return float(self.strategy.reduce("SUM", values, axis=None))

    @contextlib.contextmanager
    def failures_told(self) -> Iterator[None]:
        """Says what to do where the other workers are gone."""
        try:
            yield
        except (*LOST, *MAYBE_LOST) as error:
            if len(self.addresses) < 2 or (isinstance(error, MAYBE_LOST) and _told(error) is None):
                raise
            raise ConnectionError(
                f"Worker {self.number} lost the others ({_cause(error)}). One of {', '.join(self.addresses)} has "
                "ended or cannot be reached; its own output says why. What was learned up to the last epoch is in the "
                "folder of the run: start all workers again with resume=True."
            ) from error


def make_strategy(name: str, log: Callable[[str], Any] = print) -> tf.distribute.Strategy:
    """The strategy of this name: "none", "mirrored" for all devices of this machine, "multiworker" for many machines.

    Args:
      name: Name of the strategy.
      log: Function called with a message where workers wait for each other.
    """
    if name == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    if name == "none":
        return tf.distribute.get_strategy()
    if name != "multiworker":
        raise ValueError(f"Strategies are none, mirrored and multiworker. Received: strategy={name!r}")
    addresses, number = _cluster()
    log(f"Worker {number} of {len(addresses)}, at {addresses[number]}; waiting for the others ...")
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, *LOST, *MAYBE_LOST) as error:
        raise RuntimeError(
            f"The workers {', '.join(addresses)} did not come together: {_cause(error)}. Each must be able to reach "
            "all others, and strategy='multiworker' must be the first thing that a process asks of TensorFlow."
        ) from error


def _cluster() -> tuple:
    """The addresses of all workers, and the number of this one among them."""
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise ValueError(
            "strategy='multiworker' needs the environment variable TF_CONFIG, which names all workers and says which "
            'one this is: {"cluster": {"worker": ["host0:9000", "host1:9000"]}, "task": {"type": "worker", "index": 0}}'
        )
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], int(task["index"])
        chiefs, workers = list(cluster.get("chief", [])), list(cluster.get("worker", []))
        number = index if kind == "chief" else index + len(chiefs)
        if kind not in ("chief", "worker") or index < 0 or not cluster[kind][index]:
            raise ValueError(f"task {task} is no worker of the cluster")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"TF_CONFIG does not say which worker this is ({type(error).__name__}: {error}). Received: {text[:300]}"
        ) from error
    return [*chiefs, *workers], number


def _cause(error) -> str:
    return _told(error) or first_line(error)


def _told(error) -> str | None:
    """What happened to the connection, out of an error of many lines; None where it does not say."""
    told = re.search(r"aborted by: (.*)|.*(?:unhealthy|barrier|[Cc]onnection|[Cc]ollective).*", str(error))
    return (told[1] or told[0]).strip()[:200] if told else None
