"""In expectation every layer is the Keras layer with the same weights, and the paper's theorems hold."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import Net, linear, values

from tfp_flowify import bijectors as fb
from tfp_flowify.core.checks import as_list, bundle

tfb = tfp.bijectors


def kernel_and_bias(*shape):
    rng = np.random.default_rng(shape)  # The same, whatever tests ran before.
    kernel = rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))
    return kernel.astype("float32"), rng.normal(size=shape[-1:]).astype("float32")


def twin(layer, kernel, bias, x):
    layer.build(x.shape)
    layer.set_weights([kernel, bias])
    return layer(x)


def assert_same(got, expected):
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def assert_mean_is_the_network(bijector, x, draws=2000):
    """The mean over draws of the noise, within five standard errors."""
    noise = [d.sample(draws, seed=(3, i)) for i, d in enumerate(bijector.noise)]
    z = as_list(bijector.forward(bundle([tf.repeat(x[None], draws, axis=0), *noise])))[0].numpy().astype("float64")
    error = z.std(axis=0) / np.sqrt(draws) + 1e-5
    assert np.max(np.abs(z.mean(axis=0) - bijector.without_noise(x)) / error) < 5


@pytest.mark.parametrize("orthogonal", ["expm", "cayley", "householder"])
@pytest.mark.parametrize("units", [3, 6, 9])
def test_dense(units, orthogonal):
    kernel, bias = kernel_and_bias(6, units)
    layer = fb.Linear.from_weights(kernel, bias, orthogonal)
    x = values((7, 6), tf.float32)
    assert_same(layer.without_noise(x), twin(keras.layers.Dense(units), kernel, bias, x))
    assert_same(layer.kernel, kernel)
    assert_same(tf.convert_to_tensor(layer.bias), bias)
    assert_mean_is_the_network(layer, x[0])


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("side", [7, 8])
def test_conv2d(side, size, strides, padding):
    kernel, bias = kernel_and_bias(size, size, 2, 3)
    layer = fb.Conv2D.from_weights((side, side, 2), kernel, bias, strides=strides, padding=padding)
    x = values((2, side, side, 2), tf.float32)
    assert_same(layer.without_noise(x), twin(keras.layers.Conv2D(3, size, strides, padding), kernel, bias, x))
    assert_same(layer.kernel, kernel)
    if layer.noise:
        assert_mean_is_the_network(layer, x[0], draws=500)


@pytest.mark.parametrize("noise", ["normal", "uniform"])
def test_conv2d_with_rectangular_kernel_and_strides(noise):
    kernel, bias = kernel_and_bias(3, 2, 2, 5)
    layer = fb.Conv2D.from_weights((6, 9, 2), kernel, bias, noise=noise, strides=(2, 3), padding="same")
    x = values((2, 6, 9, 2), tf.float32)
    assert_same(layer.without_noise(x), twin(keras.layers.Conv2D(5, (3, 2), (2, 3), "same"), kernel, bias, x))
    assert_mean_is_the_network(layer, x[0])


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_conv1d(size, strides, padding):
    kernel, bias = kernel_and_bias(size, 2, 3)
    layer = fb.Conv1D.from_weights((8, 2), kernel, bias, strides=strides, padding=padding)
    x = values((2, 8, 2), tf.float32)
    assert_same(layer.without_noise(x), twin(keras.layers.Conv1D(3, size, strides, padding), kernel, bias, x))
    assert_same(layer.kernel, kernel)


def test_scales_of_the_noise_may_be_given_with_the_weights():
    scale = tf.Variable(-1.0)
    conv2d = fb.Conv2D.from_weights((4, 4, 1), *kernel_and_bias(3, 3, 1, 2), log_noise_scale=scale)
    conv1d = fb.Conv1D.from_weights((4, 1), *kernel_and_bias(3, 1, 2), log_noise_scale=scale)
    assert all(any(v is scale for v in conv.trainable_variables) for conv in (conv2d, conv1d))


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("size, strides", [(2, None), (3, None), (3, 2), (2, 1), (2, 3), ((1, 2), (2, 1))])
@pytest.mark.parametrize("side", [6, 7])
def test_pooling(side, size, strides, padding):
    x = values((2, side, side, 3), tf.float32)
    pool = {"pool_size": size, "strides": strides, "padding": padding}
    assert_same(fb.MaxPool2D((side, side, 3), **pool).without_noise(x), keras.layers.MaxPooling2D(**pool)(x))
    average = fb.AveragePool2D((side, side, 3), **pool)
    assert_same(average.without_noise(x), keras.layers.AveragePooling2D(**pool)(x))
    if average.noise:
        assert_mean_is_the_network(average, x[0], draws=500)


def test_global_average_pool():
    x = values((2, 5, 4, 3), tf.float32)
    assert_same(fb.GlobalAveragePool2D((5, 4, 3)).without_noise(x), keras.layers.GlobalAveragePooling2D()(x))


def test_residual_block():
    (kernel, bias), (kernel2, bias2) = kernel_and_bias(3, 3, 2, 4), kernel_and_bias(1, 1, 4, 2)
    inputs = keras.Input((5, 5, 2))
    hidden = keras.layers.LeakyReLU(0.2)(keras.layers.Conv2D(4, 3, padding="same")(inputs))
    model = keras.Model(inputs, keras.layers.Add()([inputs, keras.layers.Conv2D(2, 1)(hidden)]))
    model.set_weights([kernel, bias, kernel2, bias2])
    branch = fb.Sequential(
        [
            fb.Conv2D.from_weights((5, 5, 2), kernel, bias, padding="same"),
            fb.LeakyReLU(0.2),
            fb.Conv2D.from_weights((5, 5, 4), kernel2, bias2),
        ]
    )
    x = values((3, 5, 5, 2), tf.float32)
    assert_same(fb.Residual(branch).without_noise(x), model(x))
    linear_block = fb.Residual(fb.Conv2D.from_weights((5, 5, 2), *kernel_and_bias(3, 3, 2, 2), padding="same"))
    assert_mean_is_the_network(linear_block, x[0])


@pytest.mark.parametrize(
    "bijector, function",
    [
        (fb.LeakyReLU(0.2), keras.layers.LeakyReLU(0.2)),
        (fb.PReLU(np.log([0.1, 0.2, 0.3]).astype("float32")), lambda x: tf.where(x > 0, x, [0.1, 0.2, 0.3] * x)),
        (fb.ELU(0.7), keras.layers.ELU(0.7)),
        (fb.SELU(), keras.activations.selu),
        (tfb.Tanh(), keras.activations.tanh),
        (tfb.Sigmoid(), keras.activations.sigmoid),
        (tfb.Softplus(), keras.activations.softplus),
        (fb.ReLU(), keras.activations.relu),
        (fb.ReLU((3,), log_noise_scale=[0.1, -1.0, 0.5]), keras.activations.relu),
        (fb.Abs(), tf.abs),
        (fb.Stochastic(keras.activations.gelu, (3,), (3,)), keras.activations.gelu),
        (fb.Stochastic(keras.layers.LayerNormalization(), (3,), (3,)), keras.layers.LayerNormalization()),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_activation(bijector, function):
    x = values((7, 3), tf.float32)
    layer = bijector if bijector.name.startswith(("PReLU", "Stochastic")) else fb.Sequential([bijector], (3,))
    assert_same(layer.without_noise(x), function(x))


def test_fewer_units_have_a_right_inverse():
    layer = linear(7, 4, tf.float64)
    z, residual = values((5, 4), tf.float64), values((5, 3), tf.float64, seed=1)
    np.testing.assert_allclose(layer.without_noise(layer.inverse([z, residual])), z, atol=1e-12)
    mean = layer.inverse([z, tf.zeros_like(residual)])
    np.testing.assert_allclose(mean, (z - layer.bias) @ np.linalg.pinv(layer.kernel), atol=1e-12)


def test_more_units_have_the_pseudoinverse_as_left_inverse():
    layer = linear(4, 7, tf.float64)
    z = values((5, 7), tf.float64)
    np.testing.assert_allclose(layer.inverse(z)[0], (z - layer.bias) @ np.linalg.pinv(layer.kernel), atol=1e-12)
    x, noise = values((5, 4), tf.float64), values((5, 3), tf.float64, seed=1)
    np.testing.assert_allclose(layer.inverse(tf.identity(layer.forward([x, noise])))[0], x, atol=1e-12)


def test_fourier_convolution_is_a_circular_convolution_with_its_kernel():
    shape = (4, 5, 3)
    layer = fb.FourierConv2D(
        shape,
        values((3, 3, 3, 3), tf.float64),
        values((3, 1, 2), tf.float64, 1),
        values((1, 3, 2, 2), tf.float64, 2),
        values((2,), tf.float64, 3),
    )
    x = values((2, *shape), tf.float64, 4)
    kernel = layer.kernel.numpy()
    expected = layer.bias + sum(
        tf.roll(x, (i, j), axis=(1, 2)) @ kernel[i, j] for i in range(shape[0]) for j in range(shape[1])
    )
    np.testing.assert_allclose(layer.without_noise(x), expected, atol=1e-10)


def test_the_conditioner_is_for_the_inverse_only():
    kernel, bias = kernel_and_bias(6, 3)
    layer = fb.Funnel(fb.Linear.from_weights(kernel, bias), Net(3, 6, tf.float32))
    x = values((7, 6), tf.float32)
    assert_same(layer.without_noise(x), x @ kernel + bias)
