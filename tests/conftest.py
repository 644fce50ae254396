import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import pytest
import tensorflow as tf

# Two devices of the one processor, for the tests of tf.distribute.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Whichever process is done first takes over tests of the others: some take much longer than most."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session")
def images():
    """Digits, for training and for testing."""
    from tfp_flowify.data import digits

    (x_train, _), (x_test, _) = digits()
    return x_train, x_test


@pytest.fixture(scope="session")
def two_devices():
    """One strategy for all tests: TensorFlow remembers the shapes that devices exchanged."""
    return tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])


@pytest.fixture(scope="module")
def flow():
    """A small flow that no test changes."""
    import keras
    from models import small_flow

    keras.utils.set_random_seed(0)
    return small_flow()


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A finished training run on digits."""
    from models import SMALL_RUN

    from tfp_flowify.experiments import RunFolder
    from tfp_flowify_cli import main

    folder = tmp_path_factory.mktemp("run") / "digits"
    assert main(["train", *SMALL_RUN, "--epochs", "2", "--out", str(folder)]) == 0
    return RunFolder(folder)


@pytest.fixture(scope="session")
def table_run(tmp_path_factory):
    """A finished training run on a table."""
    import numpy as np
    from models import SMALL_RUN

    from tfp_flowify.experiments import RunFolder
    from tfp_flowify_cli import main

    folder = tmp_path_factory.mktemp("table")
    x = np.random.default_rng(0).normal(size=[600, 3]) @ np.array([[1, 1, 0], [0, 1, 0], [0, 0, 3.0]])
    np.savez(folder / "mine.npz", x=x)
    arguments = ["--data", str(folder / "mine.npz"), "--model", "fmlp_6_3", "--out", str(folder / "run")]
    assert main(["train", *SMALL_RUN, *arguments, "--epochs", "2"]) == 0
    return RunFolder(folder / "run")
