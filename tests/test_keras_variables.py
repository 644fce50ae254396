"""Bijectors read weights that Keras owns: a `keras.Variable` can stand wherever a `tf.Variable` can."""

import keras
import numpy as np
import tensorflow as tf
from cases import values

from tfp_flowify import FlowDistribution
from tfp_flowify import bijectors as fb
from tfp_flowify.math import Patches


def keras_weight(*shape):
    return keras.Variable(0.3 * values(shape, tf.float32).numpy(), dtype="float32")


def test_keras_variables_are_read_and_trained():
    weights = [keras_weight(*shape) for shape in [(36,), (4,), (6,), (4,), (23,), (), (), (4,), (4,), (4, 4), (4,)]]
    skew, log_singular, small_skew, bias, spline, pad, unfold, log_slope, scale, vectors, shift = weights
    conv = [
        fb.Pad((3, 3, 1), ((1, 1), (1, 1)), pad),
        fb.Unfold(Patches((5, 5, 1), (3, 3), (2, 2)), unfold),
        fb.Linear(fb.Expm(skew), log_singular, fb.Cayley(small_skew), bias),
    ]
    layers = [*conv, fb.Spline(spline), fb.PReLU(log_slope)]
    layers += [fb.ReLU((4,), scale, shift, shift), fb.Householder(vectors), fb.Diagonal(scale, shift)]
    flow = FlowDistribution(fb.Sequential(layers))
    x = values((5, 3, 3, 1), tf.float32)

    @tf.function
    def value_and_gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(flow.log_prob(x, seed=(1, 2)))
        return loss, tape.gradient(loss, [w.value for w in weights])

    before, gradients = value_and_gradients()
    assert all(gradient is not None and np.isfinite(gradient).all() for gradient in gradients)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.assign_add(1e-3 * gradient)
    assert value_and_gradients()[0] > before
