"""Networks that exist become flows: which models are taken, what is said about them, and what is refused."""

import keras
import numpy as np
import pytest
from models import normal

from tfp_flowify import flowify, register_layer
from tfp_flowify import layers as fl

kl = keras.layers


def blocks(flow):
    return [layer.name for layer in flow.network.layers if isinstance(layer, fl.Stochastic)]


def narrowing():
    """A network that adds no noise."""
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input([12]), kl.Dense(6), kl.LeakyReLU(), kl.Dense(2)])


# The model itself.


def my_loss(y, z):
    return keras.ops.mean((y - z) ** 2)


def with_own_loss():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([6]), kl.Dense(9, "relu"), kl.Dense(3, "softmax")])
    model.compile("sgd", my_loss)
    return model


def with_lambda():
    keras.utils.set_random_seed(0)
    x = keras.Input([6])
    return keras.Model(x, kl.Dense(3, "softmax")(kl.Lambda(lambda x: 2 * x)(x)))


@pytest.mark.parametrize("make", [with_own_loss, with_lambda])
def test_the_softmax_of_the_model_itself_stays(make):
    model, x = make(), normal(4, 6)
    before = np.asarray(model(x))
    flow = flowify(model, verbose=False)
    assert any("softmax at the end" in note for note in flow.notes)
    np.testing.assert_array_equal(model(x), before)
    np.testing.assert_allclose(keras.ops.softmax(flow(x)), before, atol=1e-5)


def leaky_relu(x):
    """Not Keras' function of that name. (A file knows its name only, so that Keras loads the other: see the docs.)"""
    return keras.ops.where(x > 0, x, 0.01 * x)


@pytest.mark.parametrize("by", ["layer", "model"])
def test_a_function_of_the_users_is_not_taken_for_that_of_keras(by):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([6]), kl.Dense(3, activation=leaky_relu)])
    flow = flowify(model, by, verbose=False)
    np.testing.assert_allclose(flow(normal(4, 6)), model(normal(4, 6)), atol=1e-6)
    np.testing.assert_allclose(flow.decode(flow.encode(normal(4, 6), seed=0)), normal(4, 6), atol=1e-4)


def test_a_layer_that_cannot_be_copied_is_named():
    notes = flowify(with_lambda(), by="model", verbose=False).notes
    assert any("lambda" in note and "cannot be copied" in note for note in notes), notes


def test_layers_that_are_frozen_stay_so():
    model = narrowing()
    model.layers[0].trainable = False
    flowify(model, verbose=False)
    assert [layer.trainable for layer in model.layers] == [False, True, True]


def test_what_was_called_for_training_is_taken_at_inference_and_that_is_said():
    keras.utils.set_random_seed(0)
    x = keras.Input([6])
    model = keras.Model(x, kl.Dense(2)(kl.Dropout(0.5, name="always")(x, training=True)))
    for by in ("layer", "model"):
        flow = flowify(model, by, verbose=False)
        assert any("always: called with training=True" in note for note in flow.notes)
        np.testing.assert_array_equal(flow(normal(4, 6)), flow(normal(4, 6)))


def test_a_block_is_at_inference_in_training_too():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([6]), kl.Dense(20, "relu"), kl.Dropout(0.9), kl.Dense(2)])
    flow, x = flowify(model, by="model", verbose=False), normal(5, 6)
    np.testing.assert_array_equal(flow.network(x, training=True), flow.network(x))


@pytest.mark.parametrize("last", [kl.LSTM(3, activation="sigmoid"), kl.Dense(3, "tanh")], ids=["lstm", "tanh"])
def test_what_is_no_probability_at_the_end_stays(last):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4, 2]), last])
    flow, x = flowify(model, by="model", verbose=False), normal(3, 4, 2)
    np.testing.assert_allclose(flow(x), model(x), atol=1e-6)
    assert not any("taken off" in note for note in flow.notes)


def test_a_softmax_that_is_used_inside_too_stays():
    keras.utils.set_random_seed(0)
    dense, x = kl.Dense(4, "softmax"), keras.Input([4])
    model = keras.Model(x, dense(dense(x)))
    flow = flowify(model, by="model", verbose=False)
    np.testing.assert_allclose(flow(normal(3, 4)), model(normal(3, 4)), atol=1e-6)


def test_tokens_of_a_float_input_are_whole_for_the_embedding():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([5]), kl.Embedding(7, 3), kl.GlobalAveragePooling1D(), kl.Dense(2)])
    x = np.random.default_rng(0).integers(0, 7, size=(50, 5)).astype("float32")
    flow = flowify(model, levels=7, verbose=False)
    np.testing.assert_allclose(flow(x), model(x), atol=1e-5)
    noisy = flow.encode(x, seed=0)  # With the noise of dequantization.
    np.testing.assert_array_equal(flow.decode(noisy), x)


def test_preprocessing_may_be_a_function():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4, 4, 3)), kl.Flatten(), kl.Dense(2)])
    x = np.random.default_rng(0).integers(0, 256, size=(5, 4, 4, 3)).astype("float32")
    preprocess = keras.applications.resnet50.preprocess_input
    for by in ("layer", "auto"):
        flow = flowify(model, by, levels=256, preprocessing=preprocess, verbose=False)
        np.testing.assert_allclose(flow(x), model(preprocess(x.copy())), rtol=1e-4, atol=1e-3)
    with pytest.raises(TypeError, match="takes and gives one Keras tensor"):
        flowify(model, preprocessing=lambda x: [x, x], verbose=False)


def test_names_of_the_model_do_not_meet_those_of_helpers():
    keras.utils.set_random_seed(0)
    names = ["reshape", "permute", "rescaling", "concatenate", "reshape_1"]
    stack = [keras.Input([6]), *(kl.Dense(6, name=name) for name in names), kl.Reshape((2, 3)), kl.UpSampling1D(2)]
    keras.backend.clear_session()  # Names of helpers start anew, as in a fresh process.
    model = keras.Sequential(stack)
    flow = flowify(model, by="layer", verbose=False)
    np.testing.assert_allclose(flow(normal(3, 6)), model(normal(3, 6)), atol=1e-4)


# Weights that map something to zero.


def with_dead_filters():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([6]), kl.Dense(4, name="dead"), kl.BatchNormalization(), kl.Dense(2)])
    kernel, bias = model.layers[0].get_weights()
    kernel[:, 1:3] = 0
    model.layers[0].set_weights([kernel, bias])
    return model


def test_dead_filters_are_lifted_and_that_is_reported():
    model, x = with_dead_filters(), normal(5, 6)
    flow = flowify(model, by="layer", verbose=False)
    assert any("dead: 2 singular value(s) were lifted" in note for note in flow.notes), flow.notes
    np.testing.assert_allclose(flow(x), model(x), atol=1e-3)
    np.testing.assert_allclose(flow.decode(flow.encode(x, seed=1)), x, atol=5e-3)


def test_channels_that_batch_normalization_switches_off_are_lifted():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4]), kl.BatchNormalization(name="norm")])
    model.layers[0].set_weights(np.array([[1.0, 0.0, -2.0, 3.0], [0.5] * 4, [100.0] * 4, [4.0] * 4]))
    flow, x = flowify(model, by="layer", verbose=False), 100 + normal(5, 4)
    assert any("norm: 1 singular value(s) were lifted" in note for note in flow.notes), flow.notes
    np.testing.assert_allclose(flow(x), model(x), atol=1e-3)


def test_dead_filters_can_be_refused():
    with pytest.raises(ValueError, match=r"dead .* 2 of its singular values .*deficient=\"lift\""):
        flowify(with_dead_filters(), by="layer", deficient="error", verbose=False)


# What is refused, and how to go on.


class Squares(kl.Layer):
    def call(self, x):
        return x**2


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = kl.Dense(2)

    def call(self, x):
        return self.dense(x) ** 2


def with_squares():
    x = keras.Input([5])
    return keras.Model(x, kl.Dense(2)(Squares(name="squares")(kl.Dense(4, name="front")(x))))


def test_a_layer_that_is_not_known_is_named_with_its_place_and_the_way_out():
    with pytest.raises(TypeError, match=r"squares \(Squares\), .*Conv2D.*register_layer\(Squares\).*by=\"auto\""):
        flowify(with_squares(), by="layer", verbose=False)
    assert len(blocks(flowify(with_squares(), verbose=False))) == 1


class Twice(kl.Dense):
    def call(self, x):
        return 2 * super().call(x)


def test_a_subclass_with_methods_of_its_own_is_another_layer():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([5]), Twice(4), kl.Dense(2)])
    with pytest.raises(TypeError, match=r"no flow layer for twice \(Twice\)"):
        flowify(model, by="layer", verbose=False)
    flow = flowify(model, verbose=False)
    np.testing.assert_allclose(flow(normal(3, 5)), model(normal(3, 5)), atol=1e-5)


def test_a_layer_can_be_registered():
    class Doubled(kl.Layer):
        def call(self, x):
            return 2 * x

    @register_layer(Doubled)
    def convert(layer, x):
        return fl.Rescaling(2.0)(x)

    x = keras.Input([5])
    model = keras.Model(x, kl.Dense(2)(Doubled()(x)))
    flow = flowify(model, by="layer", verbose=False)
    np.testing.assert_allclose(flow(normal(3, 5)), model(normal(3, 5)), atol=1e-5)


def test_a_model_without_a_graph_is_one_block():
    model = Subclassed()
    with pytest.raises(ValueError, match=r"keras.Input\(shape\)"):
        flowify(model, verbose=False)
    x = normal(4, 3)
    model(x)
    flow = flowify(model, verbose=False)
    np.testing.assert_allclose(flow(x), model(x), atol=1e-6)
    assert np.isfinite(flow.log_prob(x)).all()
    with pytest.raises(TypeError, match=r"There is no flow layer for .*Subclassed"):
        flowify(model, by="layer", verbose=False)


def two_inputs():
    a, b = keras.Input([2]), keras.Input([2])
    return keras.Model([a, b], kl.Dense(2)(kl.Add()([a, b])))


def two_outputs():
    a = keras.Input([2])
    return keras.Model(a, [kl.Dense(2)(a), kl.Dense(3)(a)])


def any_size():
    return keras.Sequential([keras.Input((None, None, 3)), kl.Conv2D(2, 3), kl.GlobalAveragePooling2D()])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: flowify("model"), "flowify takes a Keras model. Received: 'model'"),
        (lambda: flowify(two_inputs()), "density of one tensor.*takes 2"),
        (lambda: flowify(two_outputs()), r"has 2 outputs. Choose one: .*model.outputs\[0\]"),
        (lambda: flowify(any_size()), "must know all sizes"),
        (lambda: flowify(narrowing(), by="stage"), "by is one of 'auto', 'layer'.*'stage'"),
        (lambda: flowify(narrowing(), by=["nothing"]), "cut behind layers that everything passes.*nothing"),
        (lambda: flowify(narrowing(), trainable="none"), "trainable is one of"),
        (lambda: flowify(narrowing(), deficient="no"), "deficient is one of"),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
