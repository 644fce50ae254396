"""Several devices and several processes that train one flow: they take the steps of one, and stop together."""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from models import SMALL_RUN

from tfp_flowify.experiments import RunFolder
from tfp_flowify.experiments.workers import Workers, make_strategy
from tfp_flowify_cli import main

#: Trains a flow without noise, whose losses then are those of one process; prints them and two seeds as JSON.
TRAIN = """
import json, sys
import tensorflow as tf
devices = int(sys.argv[2])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
from tfp_flowify.experiments.workers import Workers, make_strategy
strategy = make_strategy(sys.argv[1], log=lambda message: None)
import keras
import numpy as np
from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.data import batches
keras.utils.set_random_seed(0)
with strategy.scope():
    flow = FlowModel([keras.Input([4]), fl.Dense(4), fl.LeakyReLU(), fl.SplineCoupling(2), fl.Dense(4)], base="normal")
    flow.compile("adam", jit_compile=False)
x = np.random.default_rng(0).normal(size=[256, 4]).astype("float32") @ np.random.default_rng(1).normal(size=[4, 4])
x = x.astype("float32")
history = flow.fit(batches(x, 64), steps_per_epoch=20, epochs=3, verbose=0).history
test = flow.evaluate(tf.data.Dataset.from_tensor_slices(x[:128]).batch(32), verbose=0, return_dict=True)
seeds = strategy.run(tf.function(lambda: flow._next_seed(True)))
seeds = [seed.numpy().tolist() for seed in strategy.experimental_local_results(seeds)]
workers = Workers(strategy)
agreed = [workers.of_first(0.25 + workers.number), workers.any(workers.number == 1)]
print("RESULT", json.dumps({"losses": history["nll"], "test": test["nll"], "seeds": seeds, "agreed": agreed}))
workers.wait_for_all()
"""


def environments(count: int) -> list:
    """The environment of each worker, with addresses that are free."""
    addresses = [f"127.0.0.1:{port}" for port in itertools.islice(free_ports(), count)]
    tasks = [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}} for i in range(count)]
    return [{**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": json.dumps(task)} for task in tasks]


def free_ports():
    """Ports below those that the system gives away by itself: no other process takes one meanwhile."""
    start = 20_000 + 97 * (os.getpid() % 100)
    for port in itertools.count(start + next(PORTS)):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            yield port


#: Each cluster of this process has ports of its own.
PORTS = itertools.count(step=4)


class Processes:
    """Processes that run beside each other, and end with this context."""

    def __init__(self, commands, environments, folder):
        self.outputs = [folder / f"output_{os.urandom(4).hex()}.txt" for _ in commands]
        self.all = []
        for command, environment, path in zip(commands, environments, self.outputs, strict=True):
            with open(path, "w") as output:
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
            self.all.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.all:
            process.kill()
            process.wait()

    def wait_for(self, path, seconds=300):
        """Until a file is there, and all are alive."""
        end = time.monotonic() + seconds
        while not path.is_file():
            assert time.monotonic() < end and all(p.poll() is None for p in self.all), self.told()
            time.sleep(0.05)

    def ended(self, seconds=300) -> list:
        """Return codes, when all have ended."""
        end = time.monotonic() + seconds
        return [process.wait(max(0.0, end - time.monotonic())) for process in self.all]

    def told(self) -> list:
        """What each has printed."""
        return [path.read_text() for path in self.outputs]


def results(folder, strategy: str, devices: int = 1, workers: int = 1) -> list:
    """What each process printed."""
    command = [sys.executable, "-c", TRAIN, strategy, str(devices)]
    with Processes([command] * workers, environments(workers), folder) as processes:
        processes.ended()
    found = [[line[7:] for line in output.splitlines() if line.startswith("RESULT ")] for output in processes.told()]
    assert all(found), processes.told()
    return [json.loads(lines[0]) for lines in found]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """One process with one device."""
    return results(tmp_path_factory.mktemp("alone"), "none")[0]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
def test_several_devices_take_the_steps_of_one(alone, devices, tmp_path):
    (mirrored,) = results(tmp_path, "mirrored", devices)
    np.testing.assert_allclose(mirrored["losses"], alone["losses"], rtol=1e-5)
    np.testing.assert_allclose(mirrored["test"], alone["test"], rtol=1e-5)
    assert len({tuple(seed) for seed in mirrored["seeds"]}) == devices
    if devices == 2:
        assert mirrored == results(tmp_path, "mirrored", devices)[0]


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(alone, tmp_path):
    first, second = results(tmp_path, "multiworker", workers=2)
    assert first["losses"] == second["losses"] and first["test"] == second["test"]
    np.testing.assert_allclose(first["losses"], alone["losses"], rtol=1e-5)
    np.testing.assert_allclose(first["test"], alone["test"], rtol=1e-5)
    assert first["seeds"] != second["seeds"]
    assert first["agreed"] == second["agreed"] == [0.25, True]


def train_command(out, *arguments, strategy="multiworker") -> list:
    command = [sys.executable, "-m", "tfp_flowify_cli", "train", *SMALL_RUN, "--strategy", strategy]
    return [*command, "--out", str(out), *arguments]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The figure of two workers that nobody killed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with Processes([train_command(out, "--epochs", "4")] * 2, environments(2), out.parent) as workers:
        assert workers.ended() == [0, 0], workers.told()
    return RunFolder(out).read_report()["single_draw"]["mean"]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_is_killed(tmp_path, victim, whole):
    """The other says so and ends; both go on later, and end where a run that was not killed ends."""
    out = tmp_path / "run"
    with Processes([train_command(out, "--epochs", "4")] * 2, environments(2), tmp_path) as workers:
        workers.wait_for(RunFolder(out).last)
        workers.all[victim].kill()
        assert workers.ended(180)[1 - victim] == 2, workers.told()
    told = workers.told()[1 - victim]
    assert f"Worker {1 - victim} lost the others" in told and "start all workers again with --resume" in told
    with Processes([train_command(out, "--resume")] * 2, environments(2), tmp_path) as resumed:
        assert resumed.ended() == [0, 0], resumed.told()
    assert "Going on after step" in resumed.told()[0]
    assert RunFolder(out).read_report()["single_draw"]["mean"] == whole


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_all(tmp_path):
    """Machines that are shared send SIGTERM; the budget is time, by the clock of the first."""
    out = tmp_path / "run"
    with Processes([train_command(out, "--minutes", "5")] * 2, environments(2), tmp_path) as workers:
        workers.wait_for(RunFolder(out).last)
        workers.all[1].send_signal(signal.SIGTERM)
        assert workers.ended() == [130, 130], workers.told()
    assert "To go on: tfp-flowify train --resume" in workers.told()[0]
    rows = RunFolder(out).read_history()
    assert len(rows) >= 2 and rows[-1]["steps"] % 10 == 0


@pytest.mark.slow
def test_a_cluster_of_one_worker(tmp_path):
    """As a script for many machines makes it where there is one; the run then goes on without a strategy."""
    out = tmp_path / "run"
    with Processes([train_command(out, "--epochs", "1")], environments(1), tmp_path) as worker:
        assert worker.ended() == [0], worker.told()
    assert main(["train", "--resume", "--epochs", "2", "--strategy", "none", "--out", str(out)]) == 0
    assert [row["steps"] for row in RunFolder(out).read_history()] == [100, 200]


@pytest.mark.slow
def test_two_workers_with_noise_learn_as_much_as_one_process(tmp_path):
    """Other noise, the same batches: digits, fconv2, the likelihood of the validation examples."""
    options = ["--model", "fconv2", "--epochs", "2"]
    with Processes([train_command(tmp_path / "one", *options, strategy="none")], [None], tmp_path) as alone:
        assert alone.ended() == [0], alone.told()
    with Processes([train_command(tmp_path / "two", *options)] * 2, environments(2), tmp_path) as workers:
        assert workers.ended() == [0, 0], workers.told()
    one, two = (RunFolder(tmp_path / name).read_history() for name in ("one", "two"))
    assert [row["steps"] for row in one] == [row["steps"] for row in two] == [100, 200]
    np.testing.assert_allclose(two[-1]["validation"], one[-1]["validation"], atol=0.03)


@pytest.mark.parametrize(
    "config, message",
    [
        (None, "needs the environment variable TF_CONFIG"),
        ("{", "TF_CONFIG does not say which worker this is"),
        ('{"cluster": {"worker": ["a:1"]}}', "KeyError: 'task'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}', "IndexError"),
        ('{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}', "is no worker"),
    ],
)
def test_a_cluster_that_is_none(monkeypatch, tmp_path, capsys, config, message):
    if config is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", config)
    assert main(["train", "--strategy", "multiworker", "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_unknown_strategies_are_refused():
    with pytest.raises(ValueError, match=r"none, mirrored and multiworker. Received: strategy='multi-worker'"):
        make_strategy("multi-worker")


def test_workers_come_first(monkeypatch):
    """In this process TensorFlow has run already, so that it cannot become a worker."""
    tf.zeros([1])
    config = '{"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 0}}'
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(RuntimeError, match="must be the first thing that a process asks of TensorFlow"):
        make_strategy("multiworker", log=lambda message: None)


def test_a_batch_is_shared_in_equal_parts(two_devices, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tfp_flowify.experiments.training.make_strategy", lambda name, log: two_devices)
    arguments = [*SMALL_RUN, "--strategy", "mirrored", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(["train", *arguments, "--batch-size", "33"]) == 2
    assert "--batch-size 33 is no multiple of 2. Take --batch-size 34" in capsys.readouterr().err


def test_a_lone_process_is_the_first():
    workers = Workers(tf.distribute.get_strategy())
    assert workers.is_first and workers.agree_every == 1 and workers.any(True)
