"""The paper's two faces of a network at once: a classifier of digits, and the density of its images."""

import keras
import numpy as np
import pytest

from tfp_flowify import FlowModel, FusedAdam, zoo
from tfp_flowify import layers as fl
from tfp_flowify.data import digits


@pytest.fixture(scope="module")
def data():
    return digits()


def classifier():
    return FlowModel(
        [
            keras.Input((8, 8, 1)),
            fl.Dequantize(17),
            fl.Rescaling(4.0, -2.0),
            fl.Conv2D(8, 2, 2),
            fl.LeakyReLU(),
            fl.Conv2D(32, 2, 2),
            fl.LeakyReLU(),
            fl.Flatten(),
            fl.Dense(64),
            fl.LeakyReLU(),
            fl.Dense(10),
        ]
    )


@pytest.mark.slow
def test_a_trained_classifier_gets_a_density(data):
    (x, y), (x_test, y_test) = data
    keras.utils.set_random_seed(0)
    flow = classifier()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    flow.network.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    flow.network.fit(x, y, batch_size=64, epochs=15, verbose=0)
    accuracy = flow.network.evaluate(x_test, y_test, verbose=0, return_dict=True)["accuracy"]
    assert accuracy > 0.95
    logits = flow.network.predict(x_test, verbose=0)

    flow.network.trainable = False
    fresh = flow.bits_per_dim(x_test, seed=1)
    assert np.isfinite(fresh).all()
    flow.adapt(x[:500], densities_only=True)
    adapted = flow.bits_per_dim(x_test, seed=1)
    flow.compile(keras.optimizers.Adam(3e-3))
    flow.fit(x, batch_size=64, epochs=10, verbose=0)
    fitted = flow.bits_per_dim(x_test, seed=1)
    assert np.mean(fitted) < np.mean(adapted) - 0.3 < np.mean(fresh) - 0.6
    np.testing.assert_array_equal(flow.network.predict(x_test, verbose=0), logits)
    assert flow.network.evaluate(x_test, y_test, verbose=0, return_dict=True)["accuracy"] == accuracy
    print(f"accuracy {accuracy:.4f}, bits {np.mean(fresh):.3f} -> {np.mean(adapted):.3f} -> {np.mean(fitted):.3f}")


@pytest.mark.slow
def test_both_at_once(data):
    (x, y), (x_test, y_test) = data
    keras.utils.set_random_seed(0)
    flow = classifier()
    flow.adapt(x[:500])
    before = float(np.mean(flow.bits_per_dim(x_test, seed=1)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(3e-3, 690))
    flow.compile(optimizer, loss=loss, likelihood_weight=0.01, metrics=["accuracy"])
    flow.fit(x, y, batch_size=64, epochs=30, verbose=0)
    logs = flow.evaluate(x_test, y_test, verbose=0, return_dict=True)
    assert logs["accuracy"] > 0.95
    assert logs["bits_per_dim"] < before - 0.5


@pytest.mark.slow
def test_digits_given_their_class_are_classified_by_bayes_rule():
    """The class that makes an image most likely; and to know the class makes images more likely."""
    (x_train, y_train), (x_test, y_test) = digits()
    bits = {}
    for condition in (None, zoo.labels(10)):
        keras.utils.set_random_seed(0)
        flow = zoo.build("fconv2", (8, 8, 1), levels=17, seed=0, condition=condition)
        given = {} if condition is None else {"condition": y_train}
        flow.adapt(x_train, seed=0, **given)
        flow.compile(FusedAdam(keras.optimizers.schedules.CosineDecay(2e-3, 900)))
        flow.fit([x_train, y_train] if given else x_train, batch_size=128, epochs=75, verbose=0)
        given = {} if condition is None else {"condition": y_test}
        bits[condition is not None] = float(np.mean(flow.bits_per_dim(x_test, num_draws=10, seed=0, **given)))
    scores = np.stack([flow.log_prob(x_test, num_draws=10, seed=0, condition=c) for c in range(10)], axis=1)
    accuracy = np.mean(scores.argmax(axis=1) == y_test)
    print(f"accuracy {accuracy:.4f}; {bits[True]:.4f} bits given the class, {bits[False]:.4f} without")
    assert accuracy > 0.93 and bits[True] < bits[False]
