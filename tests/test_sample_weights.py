"""Weights of examples count, wherever Keras takes them, and whether or not there are labels."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import normal, small_flow

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl


def exact_flow():
    return FlowModel([keras.Input([2]), fl.Dense(2)], seed=0)


def half_far_away():
    """Half of the data at +50, with weight zero."""
    x = normal(400, 2)
    x[200:] += 50
    return x, np.repeat([1.0, 0.0], 200).astype("float32")


def test_data_of_weight_zero_are_not_learned():
    x, weight = half_far_away()
    flow = exact_flow()
    flow.compile(keras.optimizers.Adam(0.05))
    flow.fit(x, sample_weight=weight, batch_size=100, epochs=40, verbose=0)
    assert np.abs(np.mean(flow.sample(2000, seed=1), axis=0)).max() < 1


@pytest.mark.parametrize("run_eagerly", [True, False])
def test_every_door_takes_weights(run_eagerly):
    x, weight = half_far_away()
    flow = exact_flow()
    flow.compile("adam", run_eagerly=run_eagerly)
    near = -float(np.mean(flow.log_prob(x[:200])))
    expected = near / 2  # Keras divides a weighted loss by the number of examples.
    dataset = tf.data.Dataset.from_tensor_slices((x, np.zeros(400), weight)).batch(400)
    logs = [
        flow.evaluate(x, sample_weight=weight, batch_size=400, verbose=0, return_dict=True),
        flow.evaluate(dataset, verbose=0, return_dict=True),
        flow.test_on_batch(x, sample_weight=weight, return_dict=True),
        flow.train_on_batch(x, sample_weight=weight, return_dict=True),
    ]
    for log in logs:
        np.testing.assert_allclose([log["loss"], log["nll"]], [expected, near], rtol=1e-5)


def test_weights_of_validation_data():
    x, weight = half_far_away()
    flow = exact_flow()
    flow.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    near = -float(np.mean(flow.log_prob(x[:200])))
    for validation in ((x, None, weight), (x, np.zeros(400), weight)):
        history = flow.fit(x[:200], validation_data=validation, verbose=0).history
        np.testing.assert_allclose(history["val_nll"], near, rtol=1e-5)


def test_weights_with_labels_and_a_split():
    x, weight = half_far_away()
    flow = small_flow()
    flow.compile("adam", loss="mse", metrics=["mae"], run_eagerly=True)
    x, y = normal(400, 3), np.zeros([400, 2])
    history = flow.fit(x, y, sample_weight=weight, validation_split=0.5, verbose=0).history
    assert history["val_loss"] == [0.0]  # The second half has weight zero.
    with pytest.raises(ValueError, match="need labels"):
        flow.fit(x, sample_weight=weight)
    flow.compile("adam", metrics=["mae"], run_eagerly=True)
    with pytest.raises(ValueError, match="need labels"):
        flow.fit(x, sample_weight=weight)
    flow.compile("adam", run_eagerly=True)
    with pytest.raises(ValueError, match="class_weight is for labels"):
        flow.fit(x, class_weight={0: 1.0})
