"""Numbers that run away: limits, steps that are not taken, the layer where it began, the way forward and back."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import SMALL_RUN, digits_flow, normal

from tfp_flowify import FlowModel
from tfp_flowify import bijectors as fb
from tfp_flowify import layers as fl
from tfp_flowify.experiments import RunFolder
from tfp_flowify.experiments.figures import round_trips
from tfp_flowify.experiments.folder import load_flow
from tfp_flowify.math.limits import LARGEST_LOG_SINGULAR, bounded
from tfp_flowify_cli import main


def test_singular_values_have_limits_that_training_can_leave():
    start = tf.Variable([-30.0, -30.0, 0.0, 30.0, 30.0])
    with tf.GradientTape() as tape:
        value = bounded(start)
        loss = tf.reduce_sum(value * [1.0, -1.0, 1.0, 1.0, -1.0])
    np.testing.assert_allclose(value, [-20, -20, 0, 20, 20])
    np.testing.assert_allclose(tape.gradient(loss, start), [0, -1, 1, 1, 0])


def test_a_linear_layer_beyond_its_limits_is_still_a_bijection():
    linear = fb.Linear.create(3, 3, seed=0)
    linear.log_singular.assign([1e6, -1e6, 1.0])
    _, log_det = linear.forward_and_log_det([tf.ones([1, 3])], fb.Context())
    np.testing.assert_allclose(log_det, 1.0, rtol=1e-5)
    assert float(tf.reduce_max(tf.abs(linear.kernel))) <= np.exp(LARGEST_LOG_SINGULAR) * 1.01


def test_the_layer_where_it_began_is_named(images):
    flow = digits_flow()
    flow.adapt(images[0][:64])
    assert flow.where_not_finite(images[0][:64]) is None
    conv = [layer for layer in flow.network.layers if isinstance(layer, fl.Conv2D)][1]
    conv.bias.assign(np.full(conv.bias.shape, np.nan))
    assert f"layer {conv.name} (Conv; 64 of 64 examples; inputs up to" in flow.where_not_finite(images[0][:64])


def test_layers_of_models_inside_are_named():
    inner = keras.Sequential([keras.Input([3]), fl.LeakyReLU(), fl.Dense(3, name="culprit")])
    flow = FlowModel([keras.Input([3]), fl.Dense(3), inner])
    inner.layers[-1].bias.assign([0.0, np.inf, 0.0])
    assert "layer culprit (Linear; 8 of 8 examples" in flow.where_not_finite(normal(8, 3))


def magnifying_flow():
    """A flow that takes data out of the range in which they came through the door."""
    return FlowModel([keras.Input([3]), fl.Rescaling(1e15), fl.Dense(5), fl.LeakyReLU(), fl.Dense(2)])


@tf.custom_gradient
def without_gradient(x):
    return tf.identity(x), lambda upstream: upstream * np.nan


def flow_without_gradients():
    """Its values are finite, and the gradient of its first weight is not."""
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(1), keras.layers.Lambda(without_gradient)])
    return FlowModel([keras.Input([3]), fl.Stochastic(network)]), network.layers[0].kernel


def test_densities_and_gradients_are_named():
    assert "the density of the output" in magnifying_flow().where_not_finite(1e15 * normal(8, 3))
    flow, kernel = flow_without_gradients()
    assert f"the gradient of the weight {kernel.path}" == flow.where_not_finite(normal(8, 3))


def test_steps_that_are_not_taken_can_be_seen():
    """The likelihood is finite, but nothing is learned: Keras' callbacks stop on a loss that is NaN."""
    flow, _ = flow_without_gradients()
    flow.compile("adam")
    before = [np.array(weight) for weight in flow.trainable_weights]
    stop = keras.callbacks.TerminateOnNaN()
    history = flow.fit(normal(32, 3), batch_size=8, epochs=3, verbose=0, callbacks=[stop]).history
    assert np.isnan(history["loss"]).all() and len(history["loss"]) == 1 and np.isfinite(history["nll"]).all()
    for weight, now in zip(before, flow.trainable_weights, strict=True):
        np.testing.assert_array_equal(now, weight)


def test_given_weights_beyond_the_limits_are_refused():
    with pytest.raises(ValueError, match=r"Singular values are within 2e-09 .* 5e\+08. .*\(2, 2\).*Rescaling"):
        fb.Linear.from_weights(1e-10 * np.eye(2))
    layer = fl.Dense(2).start_at(1e-10 * np.eye(2))
    layer(normal(1, 2))
    assert layer.lifted[0] == 2


def test_adapt_stays_within_the_limits():
    flow = FlowModel([keras.Input([3]), fl.Dense(2)])
    with pytest.warns(UserWarning, match=r"deviates by .*e\+1.*Put Normalization\(\) in front"):
        flow.adapt(1e13 * normal(64, 3))
    assert np.abs(flow.network.layers[0].log_singular).max() <= LARGEST_LOG_SINGULAR
    assert np.isfinite(flow.log_prob(1e13 * normal(64, 3))).all()


def test_a_condition_that_is_not_finite_in_a_layer():
    flow = FlowModel([keras.Input([3]), fl.Dense(2)], condition=(2,))
    flow.densities.trainable_weights[0].assign(tf.fill(flow.densities.trainable_weights[0].shape, np.nan))
    assert "layer dense" in flow.where_not_finite(normal(8, 3), condition=normal(8, 2))


def test_weights_outlive_a_batch_that_overflows():
    flow = magnifying_flow()
    flow.compile("adam")
    x = np.concatenate([normal(32, 3), 1e10 * normal(32, 3)])
    history = flow.fit(x, batch_size=32, shuffle=False, verbose=0).history
    assert not np.isfinite(history["nll"][0])
    assert all(np.isfinite(weight).all() for weight in flow.get_weights())
    assert np.isfinite(flow.evaluate(normal(32, 3), verbose=0, return_dict=True)["nll"])


def test_a_run_that_diverges_says_where(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", *SMALL_RUN, "--learning-rate", "1e30", "--epochs", "1", "--out", str(out)]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "is not finite. That began in layer " in error and "before_failure.keras" in error
    assert "No epoch was finished: start again with --resume and a smaller --learning-rate N, or with --clip" in error
    flow = load_flow(RunFolder(out).before_failure)
    assert all(np.isfinite(weight).all() for weight in flow.get_weights())


@pytest.mark.slow
def test_a_run_that_diverged_goes_on_with_other_options(tmp_path, capsys):
    """From the flow of the last epoch, with a smaller learning rate and gradients that are clipped."""
    folder, train = RunFolder(tmp_path / "run"), ["train", *SMALL_RUN, "--out", str(tmp_path / "run")]
    assert main([*train, "--epochs", "1"]) == 0
    assert main([*train, "--resume", "--epochs", "3", "--learning-rate", "1e30"]) == 2
    assert "The flow of the last epoch is in last.keras: go on from there with --resume" in capsys.readouterr().err
    assert [row["epoch"] for row in folder.read_history()] == [1]
    assert main([*train, "--resume", "--epochs", "3", "--learning-rate", "1e-4", "--clip-norm", "2"]) == 0
    assert [row["epoch"] for row in folder.read_history()] == [1, 2, 3]
    assert max(row["learning_rate"] for row in folder.read_history()[1:]) <= 1e-4
    assert folder.load_last().optimizer.global_clipnorm == 2.0


def test_evaluate_tells_of_the_way_forward_and_back(run, capsys):
    trips = json.loads(run.report.read_text())["round_trips"]
    assert trips["changed"] < 1e-3 and trips["examples"] == 100
    assert main(["evaluate", str(run.path), "--draws", "2"]) == 0
    assert "forward and back" in capsys.readouterr().out
    assert main(["evaluate", str(run.saved_model), "--draws", "2"]) == 0
    assert "of entries change" in capsys.readouterr().out


def test_a_flow_that_loses_its_way_back_is_warned_of():
    flow = FlowModel([keras.Input([3]), fl.Dense(3), fl.Dense(3)])
    flow.network.layers[0].log_singular.assign([0.0, -18.0, 0.0])
    flow.network.layers[0].bias.assign([1.0, 1.0, 1.0])
    with pytest.warns(UserWarning, match="of the entries have changed"):
        trips = round_trips(flow, normal(20, 3))
    assert trips["changed"] > 0.1
