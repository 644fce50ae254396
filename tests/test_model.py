"""FlowModel as a Keras model: built from lists and graphs, asked for likelihoods, samples and parts."""

import keras
import numpy as np
import tensorflow as tf
from models import digits_flow, normal

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.data import digits


def test_builds_by_hand_and_saves(tmp_path):
    flow = FlowModel([fl.Dense(5), fl.LeakyReLU(), fl.Dense(2)])
    flow.build((None, 3))
    flow.save(tmp_path / "flow.keras")
    loaded, x = keras.models.load_model(tmp_path / "flow.keras"), normal(4, 3)
    np.testing.assert_array_equal(loaded.log_prob(x, seed=1), flow.log_prob(x, seed=1))


def test_functional_graph_with_fan_out_and_several_outputs():
    x = keras.Input([4])
    h = fl.Dense(6)(x)
    a, b = fl.LeakyReLU()(h), fl.Dense(6)(h)
    total = fl.Add()([a, b, h])
    inner = keras.Sequential([keras.Input([6]), fl.Dense(3), fl.Spline()])
    network = keras.Model(x, [inner(total), fl.Concatenate()([fl.Dense(1)(a), fl.Split(1)(total)])])
    flow, data = FlowModel(network), normal(5, 4)
    for ours, plain in zip(flow.distribution.without_noise(data), network(data), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-5)
    parts = flow.encode(data, seed=1)
    assert [tuple(part.shape) for part in parts[:2]] == [(5, 3), (5, 2)]
    np.testing.assert_allclose(flow.decode(parts), data, atol=1e-5)
    assert np.isfinite(flow.log_prob(data)).all()


def test_a_layer_may_be_used_twice():
    shared = fl.Dense(4)
    flow = FlowModel([keras.Input([4]), shared, fl.LeakyReLU(), shared])
    assert len(flow.network.trainable_variables) == 4
    x = normal(5, 4)
    np.testing.assert_allclose(flow.decode(flow.encode(x)), x, atol=1e-5)


def test_samples_and_scores_before_any_fit(flow):
    x = flow.sample(700, seed=1, batch_size=256)
    assert x.shape == [700, 3]
    np.testing.assert_array_equal(flow.sample(700, seed=1, batch_size=256), x)
    assert not np.array_equal(flow.sample(5), flow.sample(5))
    np.testing.assert_allclose(flow.log_prob(x[:9], seed=2), flow.distribution.log_prob(x[:9], seed=2), rtol=1e-5)
    assert flow.log_prob(x, batch_size=200).shape == [700]
    bits = flow.bits_per_dim(x, num_draws=3, seed=4)
    np.testing.assert_allclose(bits, -flow.log_prob(x, 3, seed=4) / (3 * np.log(2)), rtol=1e-5)
    one, many = (float(np.mean(flow.log_prob(x, num_draws=k, seed=1))) for k in (1, 100))
    assert many > one
    compiled = tf.function(lambda x: flow.log_prob(x, seed=2))
    np.testing.assert_allclose(compiled(x[:9]), flow.log_prob(x[:9], seed=2), rtol=1e-5)


def test_numbers_of_draws_share_functions(flow):
    x, functions = normal(9, 3), FlowModel([keras.Input([3]), fl.Dense(5), fl.Dense(2)])._functions
    assert functions.log_prob(17).func is functions.log_prob(100).func is not functions.log_prob(10).func
    for num_draws in (2, 16, 17, 40, 100):
        plain = flow.distribution.log_prob(x, num_draws=num_draws, seed=1, chunk_size=16)
        np.testing.assert_allclose(flow.log_prob(x, num_draws, seed=1), plain, rtol=1e-5)
    exact = FlowModel([keras.Input([4]), fl.Dense(4), fl.Dense(2)])._functions
    assert exact.log_prob(1).func is exact.log_prob(10).func is exact.log_prob(100).func


def test_gradients_of_many_draws_under_xla():
    """They are the slopes of what XLA computes, which draws other numbers than TensorFlow does."""
    smooth = FlowModel([keras.Input([3]), fl.Dense(4), fl.Dense(2)])
    x, direction, step = tf.constant(normal(5, 3)), tf.constant(normal(2, 5, 3)[1]), 1e-2

    @tf.function(jit_compile=True)
    def along(shift):
        with tf.GradientTape() as tape:
            tape.watch(shift)
            value = smooth.log_prob(x + shift * direction, num_draws=40, seed=1)
        return value, tape.gradient(value, shift)

    (above, _), (below, _), (_, slope) = (along(tf.constant(shift)) for shift in (step, -step, 0.0))
    np.testing.assert_allclose(slope, tf.reduce_sum(above - below) / (2 * step), rtol=1e-2, atol=1e-2)


def test_mean_samples_share_the_output_and_temperature_narrows(flow):
    exact = FlowModel([keras.Input([4]), fl.Dense(4), fl.LeakyReLU(), fl.Dense(2)])
    mean, drawn = exact.sample(50, mean=True, seed=1), exact.sample(50, seed=1)
    np.testing.assert_allclose(exact.network(mean), exact.network(drawn), atol=1e-5)
    assert not np.allclose(mean, drawn)
    assert np.std(flow.sample(500, seed=1, temperature=0.1)) < 0.2 * np.std(flow.sample(500, seed=1))


def test_reconstructions_keep_the_output():
    flow, x = FlowModel([keras.Input([4]), fl.Dense(4), fl.LeakyReLU(), fl.Dense(2)]), normal(6, 4)
    again = flow.reconstruct(x)
    np.testing.assert_allclose(flow.network(again), flow.network(x), atol=1e-5)
    assert np.abs(again - x).max() > 0.1


def test_functions_inside_functions(flow):
    x = normal(6, 3)
    parts = flow.encode(x, seed=1)
    np.testing.assert_allclose(tf.function(flow.decode)(parts), x, atol=1e-5)
    assert tf.function(lambda n: flow.sample(n, seed=tf.constant(3)))(tf.constant(4)).shape[1:] == [3]
    np.testing.assert_array_equal(flow.sample(4, seed=tf.constant(3)), flow.sample(4, seed=3))
    scores = flow.log_prob(tf.Variable(x), num_draws=40, seed=1)
    compiled = tf.function(lambda x: flow.log_prob(x, num_draws=40, seed=1))
    np.testing.assert_allclose(compiled(tf.constant(x)), scores, rtol=1e-5)
    assert flow.sample(0).shape == [0, 3]
    weights = len(flow.weights)
    flow.build((None, 3))  # Once is enough.
    assert len(flow.weights) == weights


def test_layers_of_ones_own_in_stochastic():
    class Block(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(2)])

        def call(self, x):
            return self.inner(x) ** 2

    flow, x = FlowModel([keras.Input([3]), fl.Stochastic(Block())]), normal(5, 3)
    assert len(flow.network.trainable_variables) == 4
    np.testing.assert_allclose(flow.decode(flow.encode(x)), x, atol=1e-5)


def test_sizes_may_be_unknown_in_ordinary_models():
    x = keras.Input([None, None, 3])
    h = fl.Cropping2D(((0, 1), (2, 0)))(fl.ZeroPadding2D(1)(fl.Conv2D(3, 3, padding="same")(x)))
    model = keras.Model(x, fl.Reshape((-1, 3))(fl.MaxPooling2D()(h)))
    assert model(normal(2, 6, 5, 3)).shape == [2, 6, 3]


def test_summary_shows_where_dimensions_come_and_go():
    lines = []
    digits_flow().summary(print_fn=lines.append)
    table = "\n".join(lines)
    row = next(line for line in table.splitlines() if line.startswith("dense"))
    assert "(48,)" in row  # 64 features become 16.
    assert "64 of data + 64 of noise = 10 of output + 118 dropped" in table


def test_clones_from_config():
    flow = digits_flow()
    again = FlowModel.from_config(flow.get_config())
    assert [w.shape for w in again.weights] == [w.shape for w in flow.weights]
    again.set_weights(flow.get_weights())
    x = digits()[0][0][:4]
    np.testing.assert_array_equal(again.log_prob(x, seed=1), flow.log_prob(x, seed=1))
