"""Several devices and several processes that train one flow: they take the steps of one, and stop together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import SMALL_RUN, normal

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.commands import main
from tfp_flowify.data import batches
from tfp_flowify.experiments import RunFolder
from tfp_flowify.experiments.workers import Workers, make_strategy

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
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    tasks = [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}} for i in range(count)]
    return [{**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": json.dumps(task)} for task in tasks]


def started(commands, environments) -> list:
    return [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        for command, env in zip(commands, environments, strict=True)
    ]


def results(strategy: str, devices: int = 1, workers: int = 1) -> list:
    """What each process printed."""
    command = [sys.executable, "-c", TRAIN, strategy, str(devices)]
    outputs = [p.communicate(timeout=300)[0] for p in started([command] * workers, environments(workers))]
    found = [[line[7:] for line in output.splitlines() if line.startswith("RESULT ")] for output in outputs]
    assert all(found), outputs
    return [json.loads(lines[0]) for lines in found]


@pytest.fixture(scope="module")
def alone():
    """One process with one device."""
    return results("none")[0]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
def test_several_devices_take_the_steps_of_one(alone, devices):
    (mirrored,) = results("mirrored", devices)
    np.testing.assert_allclose(mirrored["losses"], alone["losses"], rtol=1e-5)
    np.testing.assert_allclose(mirrored["test"], alone["test"], rtol=1e-5)
    assert len({tuple(seed) for seed in mirrored["seeds"]}) == devices
    assert mirrored == results("mirrored", devices)[0]


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(alone):
    first, second = results("multiworker", workers=2)
    assert first["losses"] == second["losses"] and first["test"] == second["test"]
    np.testing.assert_allclose(first["losses"], alone["losses"], rtol=1e-5)
    np.testing.assert_allclose(first["test"], alone["test"], rtol=1e-5)
    assert first["seeds"] != second["seeds"]
    assert first["agreed"] == second["agreed"] == [0.25, True]


def test_two_devices_of_one_process(two_devices):
    """The same in this process, quickly."""

    def losses(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            flow = FlowModel([keras.Input([3]), fl.Dense(3), fl.LeakyReLU(), fl.Dense(3)])
            flow.compile("adam", jit_compile=False)
        data = batches(normal(64, 3), 32)
        return flow.fit(data, steps_per_epoch=4, epochs=2, verbose=0).history["nll"]

    np.testing.assert_allclose(losses(two_devices), losses(tf.distribute.get_strategy()), rtol=1e-5)


def train_command(out, *arguments) -> list:
    command = [sys.executable, "-m", "tfp_flowify", "train", *SMALL_RUN, "--strategy", "multiworker"]
    return [*command, "--out", str(out), *arguments]


def wait_for(path, process):
    while not path.is_file() and process.poll() is None:
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_is_killed(tmp_path, victim):
    """The other says so and ends; both go on later, and end where a run that was not killed ends."""
    out = tmp_path / "run"
    workers = started([train_command(out, "--epochs", "4")] * 2, environments(2))
    wait_for(RunFolder(out).last, workers[0])
    workers[victim].send_signal(signal.SIGKILL)
    output = workers[1 - victim].communicate(timeout=120)[0]
    workers[victim].communicate()
    assert workers[1 - victim].returncode == 2, output
    assert f"Worker {1 - victim} lost the others" in output and "start all workers again with --resume" in output
    resumed = started([train_command(out, "--resume")] * 2, environments(2))
    outputs = [p.communicate(timeout=300)[0] for p in resumed]
    assert [p.returncode for p in resumed] == [0, 0], outputs
    assert "Going on after step" in outputs[0]
    whole = started([train_command(tmp_path / "whole", "--epochs", "4")] * 2, environments(2))
    assert all(p.communicate(timeout=300) and p.returncode == 0 for p in whole)
    figures = [RunFolder(path).read_report()["single_draw"]["mean"] for path in (out, tmp_path / "whole")]
    assert figures[0] == figures[1]


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_all(tmp_path):
    """Machines that are shared send SIGTERM; the budget is time, by the clock of the first."""
    out = tmp_path / "run"
    workers = started([train_command(out, "--minutes", "5")] * 2, environments(2))
    wait_for(RunFolder(out).last, workers[0])
    workers[1].send_signal(signal.SIGTERM)
    outputs = [p.communicate(timeout=120)[0] for p in workers]
    assert [p.returncode for p in workers] == [130, 130], outputs
    assert "To go on: tfp-flowify train --resume" in outputs[0]
    rows = RunFolder(out).read_history()
    assert len(rows) >= 2 and rows[-1]["steps"] % 10 == 0


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
