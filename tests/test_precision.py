"""Single precision against double, and half precision in the conditioners: likelihoods of a trained flow agree."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from shared import needs, shared_data

from tfp_flowify import zoo
from tfp_flowify.augmentation import draw
from tfp_flowify.conversion.prepare import default_policy
from tfp_flowify.core.seeds import stateless_seed
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.data import batches, load


def built(data, policy, weights=None):
    """An fConv2 of a precision, with the weights of another."""
    with default_policy(policy):
        flow = zoo.build("fconv2", data.shape, data.levels, seed=0)
    if weights is not None:
        flow.set_weights(weights)
    return flow


def bits(flow, x, noise):
    """Bits of each example with the same noise for all flows: types of other width draw other numbers."""
    distribution = flow.distribution
    noise = [tf.cast(part, distribution.dtype) for part in noise]
    drawn = sum(d.log_prob(part) for d, part in zip(distribution.bijector.noise, noise, strict=True))
    log_prob = distribution.joint.log_prob([tf.cast(x, distribution.dtype), *noise]) - drawn
    return np.asarray(bits_per_dim(log_prob, flow.event_shape), np.float64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, steps", [("digits", 300), pytest.param("mnist", 600, marks=[needs("tfds/mnist"), pytest.mark.long])]
)
def test_precisions_agree(name, steps):
    data = load(name, shared_data("tfds"))
    keras.utils.set_random_seed(0)
    flow = built(data, "float32")
    flow.adapt(data.train[:500], seed=0)
    flow.compile("adam", jit_compile=False)
    flow.fit(batches(data.train, 128), steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0)
    x = data.test[:500]
    noise = draw(flow.distribution.bijector.noise, [len(x)], stateless_seed(0))
    single = bits(flow, x, noise)
    double = bits(built(data, "float64", flow.get_weights()), x, noise)
    half = bits(built(data, "mixed_bfloat16", flow.get_weights()), x, noise)
    assert abs(np.mean(single - double)) < 0.01
    assert abs(np.mean(half - double)) < 0.05
    assert np.any(half != single)  # It did compute in another precision.
