"""TensorFlow's own checkpoints hold all weights of a flow."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_cases import CASES
from models import normal, small_flow
from test_layers import flow_of


def moved(flow):
    """The flow with all trained weights changed."""
    generator = np.random.default_rng(3)
    for weight in flow.trainable_variables:
        weight.assign_add(0.3 * generator.normal(size=weight.shape))
    return flow


def test_a_checkpoint_restores_densities_and_base(tmp_path):
    x = normal(6, 3)
    flow = moved(small_flow())
    flow.compile("adam", run_eagerly=True)
    flow.fit(x, verbose=0)
    path = tf.train.Checkpoint(flow).save(tmp_path / "flow")
    other = small_flow()
    tf.train.Checkpoint(other).restore(path).expect_partial()
    for before, after in zip(flow.weights, other.weights, strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(other.log_prob(x, seed=1), flow.log_prob(x, seed=1))


@pytest.mark.parametrize("name", list(CASES))
def test_every_weight_is_in_a_checkpoint(name, tmp_path):
    keras.utils.set_random_seed(0)
    flow = moved(flow_of(name))
    path = tf.train.Checkpoint(flow).save(tmp_path / "flow")
    saved = sum(np.prod(shape) for key, shape in tf.train.list_variables(path) if "save_counter" not in key)
    assert saved >= sum(np.prod(weight.shape) for weight in flow.weights)
    other = flow_of(name)
    tf.train.Checkpoint(other).restore(path).expect_partial()
    for before, after in zip(flow.weights, other.weights, strict=True):
        np.testing.assert_array_equal(before, after)
