"""Small flows for the tests of the distribution."""

import tensorflow as tf
import tensorflow_probability as tfp
from cases import Net, funnel, linear

from tfp_flowify import FlowDistribution
from tfp_flowify import bijectors as fb


def noisy_flow(dtype=tf.float32):
    return FlowDistribution(fb.Sequential([linear(3, 5, dtype), fb.LeakyReLU(0.3), funnel(5, 2, dtype)]))


def exact_flow(dtype=tf.float32):
    return FlowDistribution(fb.Sequential([linear(3, 3, dtype), fb.LeakyReLU(0.3), funnel(3, 2, dtype)]))


def mild_flow(dtype=tf.float64):
    """Its noise given x is not far from the noise that is drawn, so importance weights have no heavy tail."""
    layers = [
        fb.Linear.create(3, 5, seed=1, dtype=dtype),
        fb.LeakyReLU(0.7),
        fb.Linear.create(5, 2, seed=2, dtype=dtype),
    ]
    return FlowDistribution(fb.Sequential(layers))


def tfp_flow(dtype=tf.float32):
    return FlowDistribution(fb.Sequential([tfp.bijectors.Scale(tf.Variable(2.0, dtype=dtype))], event_shape=(3,)))


def conditioners(flow):
    return [module for module in flow.bijector.submodules if isinstance(module, Net)]
