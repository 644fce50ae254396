"""What a Keras user writes works as in Keras, or says why not and what to use."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_cases import conv, dense
from models import normal, small_flow

from tfp_flowify import FlowModel, FusedAdam
from tfp_flowify import layers as fl

ACTIVATIONS = ("relu", "leaky_relu", "elu", "selu", "tanh", "sigmoid", "softplus", "linear", None)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_those_of_keras(activation):
    function = keras.activations.get(activation)
    layer, x = fl.Dense(4, activation), normal(6, 3)
    flow = FlowModel([keras.Input([3]), layer])
    np.testing.assert_allclose(layer(x), function(dense(layer)(x)), atol=1e-5)
    np.testing.assert_allclose(flow.distribution.without_noise(x), layer(x), atol=1e-5)
    np.testing.assert_allclose(flow.decode(flow.encode(x, seed=1)), x, atol=1e-3)
    image = fl.Conv2D(2, 2, 2, activation=activation)
    pictures = normal(6, 4, 4, 1)
    np.testing.assert_allclose(image(pictures), function(conv(image)(pictures)), atol=1e-5)


def test_activations_with_weights_are_built_and_saved(tmp_path):
    flow, x = FlowModel([fl.Dense(5, activation=fl.Spline()), fl.Dense(2, "relu")]), normal(8, 3)
    flow.compile("adam", run_eagerly=True)
    flow.fit(x, verbose=0)
    flow.save(tmp_path / "flow.keras")
    again = keras.models.load_model(tmp_path / "flow.keras")
    np.testing.assert_array_equal(again.log_prob(x, seed=1), flow.log_prob(x, seed=1))
    assert type(again.network.layers[0].activation) is fl.Spline
    assert type(fl.Dense(2, keras.activations.relu).activation) is fl.ReLU


@pytest.mark.parametrize("orthogonal", ["auto", "expm", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_initializers_of_kernels_are_decomposed(shape, orthogonal):
    features, units = shape
    start = np.random.default_rng(0).normal(size=shape)
    layer = fl.Dense(units, kernel_initializer=keras.initializers.Constant(start), orthogonal=orthogonal)
    layer.build((None, features))
    np.testing.assert_allclose(layer.kernel, start, atol=1e-5)


def test_initializers_of_wide_kernels_and_of_convolutions():
    layer = fl.Dense(150, kernel_initializer="glorot_uniform")
    layer.build((None, 140))
    assert np.abs(layer.kernel).max() <= np.sqrt(6 / 290) + 1e-4
    assert np.std(layer.kernel) > 0.5 * np.sqrt(2 / 290)
    start = np.random.default_rng(0).normal(size=(2, 2, 3, 4))
    image = fl.Conv2D(4, 2, kernel_initializer=keras.initializers.Constant(start))
    image.build((None, 4, 4, 3))
    np.testing.assert_allclose(image.kernel, start, atol=1e-5)


def test_biases_have_initializers_regularizers_and_constraints():
    layer = fl.Dense(3, bias_initializer="ones", bias_regularizer="l2", bias_constraint="non_neg")
    layer.build((None, 3))
    np.testing.assert_array_equal(layer.bias, np.ones(3))
    assert float(layer.losses[0]) > 0
    flow, x = FlowModel([keras.Input([3]), layer]), normal(8, 3)
    flow.compile("adam", run_eagerly=True)
    logs = flow.evaluate(x, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["loss"], logs["nll"] + 0.03, rtol=1e-4)
    assert type(fl.Dense.from_config(layer.get_config()).bias_constraint) is keras.constraints.NonNeg


DEFAULTS = {
    "conv": lambda: fl.Conv2D(2, 2, data_format="channels_last", dilation_rate=(1, 1), groups=1, activation=None),
    "conv1d": lambda: fl.Conv1D(2, 2, data_format=None, dilation_rate=1, groups=1),
    "dense": lambda: fl.Dense(3, kernel_regularizer=None, kernel_constraint=None, activity_regularizer="l2"),
    "concatenate": lambda: fl.Concatenate(axis=-1),
    "flatten": lambda: fl.Flatten(data_format=None),
    "pool": lambda: fl.MaxPooling2D(data_format="channels_last"),
    "global": lambda: fl.GlobalAveragePooling2D(data_format=None, keepdims=False),
    "relu": lambda: fl.ReLU(max_value=None, negative_slope=0.0, threshold=0.0),
    "normalization": lambda: fl.Normalization(axis=-1, mean=None, variance=None),
    "padding": lambda: fl.ZeroPadding2D(1, data_format=None),
    "cropping": lambda: fl.Cropping2D(1, data_format=None),
}


@pytest.mark.parametrize("name", list(DEFAULTS))
def test_defaults_of_keras_are_accepted(name):
    layer = DEFAULTS[name]()
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


POSITIONS = {
    "normalization": lambda: fl.Normalization(-1),
    "concatenate": lambda: fl.Concatenate(-1),
    "flatten": lambda: fl.Flatten(None),
    "relu": lambda: fl.ReLU(None, 0.0),
    "pool": lambda: fl.AveragePooling2D(2, None, "valid", "channels_last"),
    "global": lambda: fl.GlobalAveragePooling2D("channels_last", False),
    "padding": lambda: fl.ZeroPadding2D(1, None),
    "cropping": lambda: fl.Cropping2D(1, None),
}


@pytest.mark.parametrize("name", list(POSITIONS))
def test_positions_are_those_of_keras(name):
    assert POSITIONS[name]().get_config()


REFUSED = {
    "data format": (lambda: fl.Conv2D(2, 2, data_format="channels_first"), "channels are the last axis.*Permute"),
    "groups": (lambda: fl.Conv2D(3, 2, groups=2).build((None, 4, 4, 2)), "2 groups of channels.*2 channels, filters=3"),
    "regularizer": (lambda: fl.Dense(3, kernel_regularizer="l2"), "not a weight; use weight decay.*AdamW"),
    "constraint": (lambda: fl.Dense(3, kernel_constraint="non_neg"), "not a weight"),
    "axis": (lambda: fl.Concatenate(axis=1), "last axis.*Permute.*axis=1"),
    "max value": (lambda: fl.ReLU(max_value=6), "no density.*max_value=6"),
    "six": (lambda: fl.ReLU(6.0), "no density.*max_value=6"),
    "layer behind": (lambda: fl.Dense(3, fl.Dense(2)), "an activation of tfp_flowify.layers"),
    "activation": (lambda: fl.Dense(3, "gelu"), "Stochastic.*looser"),
    "gain": (lambda: fl.Dense(3, kernel_initializer="glorot_uniform", gain=2.0), "kernel_initializer or a gain"),
    "singular": (lambda: fl.Dense(3, kernel_initializer="zeros").build((None, 3)), "must have rank 3"),
    "half": (lambda: FlowModel([keras.Input([3]), fl.Dense(2, dtype="bfloat16")]), "float32 or float64.*mixed_"),
    "float16": (lambda: FlowModel([keras.Input([3]), fl.Dense(2, dtype="float16")]), "dtype='float16'"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_be_had_says_why_and_what_to_use(name):
    action, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        action()


def test_unknown_arguments_are_errors(flow, tmp_path):
    with pytest.raises(ValueError, match="Unrecognized keyword"):
        fl.Dense(3, colour="red")
    for action in (flow.summary, flow.compile):
        with pytest.raises(TypeError, match="colour"):
            action(colour="red")
    with pytest.raises(TypeError, match="colour"):
        flow.export(tmp_path / "saved", colour="red")


@pytest.mark.parametrize("layer", [keras.layers.BatchNormalization, keras.layers.Dropout, keras.layers.Dense])
def test_the_way_out_names_layers_that_there_are(layer):
    layer = layer(3) if layer is keras.layers.Dense else layer(0.5)
    with pytest.raises(TypeError) as error:
        FlowModel([keras.Input([3]), layer])
    named = "tfp_flowify.layers.Dense" in str(error.value)
    assert named == isinstance(layer, keras.layers.Dense)
    assert "Stochastic(layer), which takes any layer" in str(error.value)


def test_compile_is_that_of_keras():
    flow = small_flow()
    flow.compile("adam", "mse", [0.5], ["mae"], run_eagerly=True)  # Keras' order: loss_weights, metrics.
    x, y = normal(8, 3), np.ones([8, 2], "float32")
    logs = flow.evaluate(x, y, verbose=0, return_dict=True)
    expected = 0.5 * np.mean((flow.network(x) - y) ** 2) + logs["nll"]
    np.testing.assert_allclose(logs["loss"], expected, rtol=1e-5)
    assert logs["mae"] > 0
    assert type(flow.optimizer) is FusedAdam
    config = flow.optimizer.get_config()
    assert config == {**keras.optimizers.Adam().get_config(), "name": config["name"]}
    assert keras.optimizers.Adam.from_config(config).get_config() == config


@pytest.mark.parametrize("monitor", ["val_nll", "val_bits_per_dim", "nll"])
def test_callbacks_know_which_way_is_better(monitor):
    flow, x = small_flow(), normal(64, 3)
    flow.compile("adam", run_eagerly=True)
    stop = keras.callbacks.EarlyStopping(monitor, patience=1, min_delta=1e6)
    history = flow.fit(x, epochs=5, validation_data=(x,), callbacks=[stop], verbose=0).history
    assert stop.monitor_op is keras.ops.less and len(history["loss"]) == 2


def test_summary_takes_what_that_of_keras_takes():
    lines = []
    small_flow().summary(
        line_length=90, print_fn=lines.append, expand_nested=True, show_trainable=True, layer_range=["dense", "dense"]
    )
    text = "\n".join(map(str, lines))
    assert "Trainable" in text and "adds noise" in text


def test_summary_warns_of_much_noise():
    lines = []
    stack = [fl.Dequantize(17), fl.Rescaling(4.0), fl.Conv2D(64, 3, padding="same"), fl.Flatten(), fl.Dense(10)]
    FlowModel([keras.Input((8, 8, 1)), *stack]).summary(print_fn=lines.append)
    assert "63 dimensions of noise for each of the data" in "\n".join(map(str, lines))
    lines.clear()
    small_flow().summary(print_fn=lines.append)
    assert "Warning" not in "\n".join(map(str, lines))


def test_float64_blocks_of_activations():
    stack = [fl.Residual([fl.LeakyReLU(dtype="float64")], dtype="float64")]
    flow = FlowModel([keras.Input([3], dtype="float64"), *stack])
    x = normal(5, 3).astype("float64")
    np.testing.assert_allclose(flow.decode(flow.encode(x, seed=1)), x, atol=1e-10)


def test_is_exact_is_there():
    assert FlowModel([keras.Input([3]), fl.Dense(2)]).is_exact
    assert not small_flow().is_exact


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    flow, x = small_flow(), normal(32, 3)
    flow.compile("adam")
    board = keras.callbacks.TensorBoard(tmp_path, histogram_freq=1, write_graph=True)
    flow.fit(x, epochs=2, validation_data=(x,), callbacks=[board], verbose=0)
    assert list(tmp_path.rglob("events.out.tfevents*"))


def test_pictures_of_networks():
    """What `keras.utils.plot_model` draws; drawing itself is Graphviz', which pip cannot install."""
    pytest.importorskip("pydot", reason="pydot is not installed")
    dot = keras.utils.model_to_dot(small_flow().network, show_shapes=True, expand_nested=True).to_string()
    assert dot.count("Dense") >= 2 and "LeakyReLU" in dot


def test_several_steps_in_one_execution():
    def losses(steps):
        keras.utils.set_random_seed(0)
        flow = small_flow()
        flow.compile("adam", steps_per_execution=steps)
        data = tf.data.Dataset.from_tensor_slices(normal(64, 3)).batch(16)
        return flow.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]

    np.testing.assert_allclose(losses(2), losses(1), rtol=1e-5)


def test_nothing_to_train_is_a_warning():
    flow, x = FlowModel([keras.Input([3]), fl.LeakyReLU()], base="standard"), normal(8, 3)
    flow.compile("adam", run_eagerly=True)
    with pytest.warns(UserWarning, match="no trainable weights"):
        flow.fit(x, verbose=0)
