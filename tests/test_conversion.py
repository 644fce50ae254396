"""What holds for every Keras layer that `flowify` converts: the same forward pass, and a flow."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from conversion_cases import CASES, data_of, model_of
from nets import some

from tfp_flowify import flowify
from tfp_flowify import layers as fl
from tfp_flowify.augmentation import Code
from tfp_flowify.conversion.graph import stretches_of
from tfp_flowify.conversion.plan import noise_of_stretch
from tfp_flowify.conversion.prepare import prepared


def flow_of(name, **kwargs):
    return flowify(model_of(name), by="layer", base="normal", verbose=False, **kwargs)


@pytest.mark.parametrize("name", some(CASES, every=4))
def test_a_layer_is_a_flow_with_the_same_forward_pass(name):
    model, x = model_of(name), data_of(name)
    expected = model(x, training=False)
    flow = flow_of(name, trainable="all")
    np.testing.assert_allclose(flow.network(x), expected, rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(flow.distribution.without_noise(x), expected, rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(flow.decode(flow.encode(x, seed=1)), x, atol=1e-3)
    with tf.GradientTape() as tape:
        log_prob = flow.distribution.log_prob(x, seed=1)
        loss = tf.reduce_mean(log_prob)
    assert np.isfinite(log_prob).all()
    gradients = tape.gradient(loss, [v.value for v in flow.trainable_variables])
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients if g is not None)
    assert sum(g is not None for g in gradients) > 0


@pytest.mark.parametrize("name", CASES)
def test_noise_is_what_the_registry_says(name):
    network, _ = prepared(model_of(name))
    told = sum(map(noise_of_stretch, stretches_of(network)))
    flow = flow_of(name)
    if math.isinf(told):  # Some calls must be taken together.
        assert any(isinstance(layer, fl.Stochastic) for layer in flow.network.layers)
    else:
        assert told == sum(d.dimension for d in flow.distribution.bijector.noise if not isinstance(d, Code))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_flowified_layer_is_saved_and_exported(name, tmp_path):
    flow, x = flow_of(name), data_of(name)
    before = flow.log_prob(x, seed=1)
    flow.save(tmp_path / "flow.keras")
    loaded = keras.models.load_model(tmp_path / "flow.keras")
    np.testing.assert_allclose(loaded.log_prob(x, seed=1), before, rtol=1e-5)
    assert [w.trainable for w in loaded.weights] == [w.trainable for w in flow.weights]
    assert len(loaded.trainable_variables) == len(flow.trainable_variables)
    flow.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served"))
    found = served.signatures["log_prob"](x=tf.constant(x), seed=tf.constant([0, 1]))["log_prob"]
    np.testing.assert_allclose(found, before, rtol=1e-5)
