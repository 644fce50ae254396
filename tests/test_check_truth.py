"""The check of trained flows: it agrees with what is right, and sees what is wrong."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfp_flowify import FlowModel
from tfp_flowify import bijectors as fb
from tfp_flowify import layers as fl
from tfp_flowify.conversion.prepare import default_policy
from tfp_flowify.data import load
from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.experiments import Options, RunFolder, train
from tfp_flowify.experiments.truth import in_double_precision, log_dets


def test_log_dets_of_real_numbers_are_those_of_the_jacobian():
    with default_policy("float64"):
        flow = FlowModel([keras.Input([3]), fl.Dense(5), fl.LeakyReLU(), fl.Dense(2)])
    pairs = log_dets(flow.distribution, np.random.default_rng(0).normal(size=(3, 3)))
    np.testing.assert_allclose(pairs[:, 0], pairs[:, 1], rtol=1e-12)


def test_a_wrong_log_det_is_seen():
    class Wrong(fb.Diagonal):
        def _log_slope(self):
            return super()._log_slope() * 1.001

        def _scale(self, x, power):
            return x * tf.exp(power * tf.convert_to_tensor(self.log_scale))

    ((own, jacobian),) = log_dets(FlowDistribution(Wrong(tf.constant([0.5, 1.0], tf.float64))), np.ones((1, 2)))
    assert own == pytest.approx(1.5015) and jacobian == pytest.approx(1.5)


def test_noise_of_overlapping_patches_is_refused():
    with default_policy("float64"):
        flow = FlowModel([keras.Input((4, 4, 1)), fl.Conv2D(3, 3), fl.Flatten()])
    with pytest.raises(ValueError, match="patches do not overlap"):
        log_dets(flow.distribution, np.ones((1, 4, 4, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["best_small", "fconv2"])
def test_trained_flows_hold(tmp_path, model):
    options = Options(model=model, epochs=1, draws=2, weighted_examples=10, arguments={"width": 8})
    train(options, tmp_path / "run")
    data = load("digits")
    double = in_double_precision(RunFolder(tmp_path / "run").load(), options.completed(data), data)
    pairs = log_dets(double.distribution, data.test[:2])
    np.testing.assert_allclose(pairs[:, 0], pairs[:, 1], rtol=1e-6)
