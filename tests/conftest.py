import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import pytest
import tensorflow as tf

# Two devices of the one processor, for the tests of tf.distribute.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture(scope="session")
def images():
    """Digits, for training and for testing."""
    from tfp_flowify.data import digits

    (x_train, _), (x_test, _) = digits()
    return x_train, x_test


@pytest.fixture(scope="module")
def flow():
    """A small flow that no test changes."""
    import keras
    from models import small_flow

    keras.utils.set_random_seed(0)
    return small_flow()
