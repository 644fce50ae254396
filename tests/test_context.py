"""Nothing ambient: passes do not see each other, in any order, from any thread, whatever is being trained."""

import threading

import keras
import numpy as np
import tensorflow as tf
from models import normal, small_flow

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.context import prepare


def change_weights(flow):
    for weight in flow.trainable_variables:
        weight.assign_add(0.2 * np.random.default_rng(1).normal(size=weight.shape))


def test_what_is_prepared_is_not_baked_into_compiled_functions():
    flow, x = small_flow(), normal(5, 3)
    context = flow.distribution.prepare()
    first = flow.log_prob(x, seed=1)  # Traced while something is prepared.
    change_weights(flow)
    changed = flow.log_prob(x, seed=1)
    assert np.abs(changed - first).max() > 0.01
    np.testing.assert_allclose(changed, flow.distribution.log_prob(x, seed=1), rtol=1e-5)
    old, _ = flow.distribution.bijector.forward_and_log_det([tf.constant(x), tf.zeros([5, 2])], context)
    new, _ = flow.distribution.bijector.forward_and_log_det([tf.constant(x), tf.zeros([5, 2])], fb.Context())
    assert np.abs(old[0] - new[0]).max() > 0.01  # The old one is what was prepared, and nothing else is.


def test_a_function_of_the_users_leaves_nothing_behind():
    flow, x = small_flow(), normal(5, 3)
    compiled = tf.function(lambda x: flow.log_prob(x, seed=1) + flow.distribution.log_prob(x, seed=1))
    inside = compiled(tf.constant(x))
    np.testing.assert_allclose(2 * flow.log_prob(x, seed=1), inside, rtol=1e-5)
    np.testing.assert_allclose(2 * flow.distribution.log_prob(x, seed=1), inside, rtol=1e-5)


def test_layers_prepared_in_a_context_are_those_of_that_context():
    rotation = fb.Expm(tf.Variable([0.3]))
    context = prepare([rotation])
    rotation.skew.assign([0.0])
    np.testing.assert_array_equal(rotation.matrix(), np.eye(2))
    assert np.abs(rotation.matrix(context) - np.eye(2)).max() > 0.1


def test_another_thread_sees_the_network_while_a_step_runs():
    flow, x = small_flow(), normal(64, 3)
    flow.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    expected, seen, training, done = flow(x[:4]).numpy(), [], threading.Event(), threading.Event()

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            training.set()

    def look():
        training.wait()
        while not done.is_set():
            seen.append(flow(x[:4]).numpy())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        flow.fit(x, batch_size=8, epochs=3, verbose=0, callbacks=[Watch()])
    finally:
        done.set()
        thread.join(timeout=60)
    assert seen
    for output in seen:
        np.testing.assert_allclose(output, expected, rtol=1e-6)
