"""Networks that exist become flows: what is chosen, what is kept, and what they say about data."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import normal

from tfp_flowify import FlowModel, flowify
from tfp_flowify import layers as fl
from tfp_flowify.data import digits

kl = keras.layers


def classifier(shape=(8, 8, 1), classes=10):
    """A network that widens: convolution, pooling, dense."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            *[keras.Input(shape), kl.Rescaling(1 / 16), kl.Conv2D(8, 3, padding="same", activation="relu")],
            *[kl.MaxPooling2D(), kl.Dropout(0.3), kl.Flatten(), kl.Dense(classes, activation="softmax", name="last")],
        ]
    )


def narrowing():
    """A network that adds no noise."""
    keras.utils.set_random_seed(0)
    stack = [keras.Input([12]), kl.Dense(6), kl.LeakyReLU(), kl.Dense(3, "leaky_relu"), kl.Dense(2)]
    return keras.Sequential(stack)


def blocks(flow):
    return [layer.name for layer in flow.network.layers if isinstance(layer, fl.Stochastic)]


# What is chosen.


def test_a_network_that_narrows_is_taken_layer_by_layer():
    flow = flowify(narrowing(), verbose=False)
    assert blocks(flow) == [] and flow.is_exact and not flow.noise_shapes
    np.testing.assert_allclose(flow(normal(5, 12)), narrowing()(normal(5, 12)), atol=1e-5)


def test_a_network_that_widens_is_one_block():
    model, x = classifier(), digits()[1][0][:5].astype("float32")
    flow = flowify(model, levels=17, verbose=False)
    assert len(blocks(flow)) == 1 and flow.noise_shapes[1] == (10,)
    np.testing.assert_allclose(tf.nn.softmax(flow(x)), model(x), atol=1e-5)


def test_parts_of_a_network_are_taken_each_in_its_own_way():
    keras.utils.set_random_seed(0)
    stack = [kl.Dense(5), kl.LeakyReLU(), kl.Dense(50, "relu"), kl.Dense(50, "relu"), kl.Dense(3)]
    flow = flowify(keras.Sequential([keras.Input([9]), *stack]), verbose=False)
    assert len(blocks(flow)) == 1
    kinds = [type(layer).__name__ for layer in flow.network.layers]
    assert kinds == ["InputLayer", "Dense", "Stochastic"]
    assert flow.noise_shapes == [(3,)]


def test_the_summary_says_what_was_chosen_and_why(capsys):
    flow = flowify(classifier(), levels=17, verbose=False)
    flow.summary()
    text = capsys.readouterr().out
    assert "a block adds 10 dimensions of noise, layer by layer they would add" in text
    assert "The softmax at the end (last) is taken off" in text


def test_verbose_prints_it(capsys):
    flowify(narrowing())
    assert "layer by layer, which adds 0 dimensions of noise" in capsys.readouterr().out


@pytest.mark.parametrize(
    "by, expected",
    [("model", 1), ("layer", 0), ("block", 2), (["narrow"], 2), (["narrow", "wide_again"], 3)],
)
def test_granularity_can_be_chosen(by, expected):
    def small(shape, given):
        return FlowModel([keras.Input(shape), fl.ConditionalAffine(), fl.Dense(2)], condition=given)

    keras.utils.set_random_seed(0)
    stack = [kl.Dense(20, "relu"), kl.Dense(5, name="narrow"), kl.Dense(9, "relu", name="wide_again"), kl.Dense(2)]
    model = keras.Sequential([keras.Input([8]), *stack])
    flow = flowify(model, by=by, density=small, verbose=False)
    assert len(blocks(flow)) == expected
    x = normal(4, 8)
    np.testing.assert_allclose(flow(x), model(x), atol=1e-4)
    np.testing.assert_allclose(flow.decode(flow.encode(x, seed=1)), x, atol=1e-3)
    assert np.isfinite(flow.log_prob(x)).all()


@pytest.mark.slow
def test_the_density_of_a_block_can_be_given():
    def own(shape, given):
        return FlowModel([keras.Input(shape), fl.ConditionalAffine(), fl.Dense(3)], condition=given, name="own")

    flow = flowify(classifier_of_vectors(), by="model", density=own, verbose=False)
    assert flow.densities.parts[0].flow.name == "own"
    other = flowify(classifier_of_vectors(), by="model", density="fmlp_4_2", verbose=False)
    assert np.isfinite(other.log_prob(normal(3, 6))).all()
    with pytest.raises(TypeError, match="function that makes a FlowModel"):
        flowify(classifier_of_vectors(), by="model", density=lambda shape, given: 3, verbose=False)


def classifier_of_vectors():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input([6]), kl.Dense(30, "gelu"), kl.Dense(2, "softmax")])


# What is kept.


def test_the_model_stays_as_it_is():
    model, x = classifier(), normal(4, 8, 8, 1)
    before, weights = model(x), model.get_weights()
    flow = flowify(model, verbose=False)
    assert model.trainable and all(layer.trainable for layer in model.layers)
    flow.adapt(x)
    flow.compile("adam")
    flow.fit(x, epochs=1, verbose=0)
    np.testing.assert_array_equal(model(x), before)
    assert all(np.array_equal(a, b) for a, b in zip(weights, model.get_weights(), strict=True))


@pytest.mark.parametrize(
    "make, by", [(narrowing, "layer"), pytest.param(classifier_of_vectors, "model", marks=pytest.mark.slow)]
)
def test_training_leaves_the_network_as_it_is(make, by):
    model = make()
    x = normal(200, model.input_shape[1])
    flow = flowify(model, by=by, verbose=False)
    before = flow(x)
    flow.adapt(x)
    np.testing.assert_array_equal(flow(x), before)
    assert not flow.network.trainable_variables
    flow.compile(keras.optimizers.Adam(1e-2))
    history = flow.fit(x, epochs=6, verbose=0).history["nll"]
    assert history[-1] < history[0]
    np.testing.assert_array_equal(flow(x), before)


@pytest.mark.slow
def test_all_can_be_trained_and_adapt_keeps_the_weights():
    x = normal(100, 12)
    flow = flowify(narrowing(), trainable="all", verbose=False)
    before = flow(x)
    flow.adapt(x)
    np.testing.assert_array_equal(flow(x), before)
    flow.compile("adam")
    flow.fit(x, verbose=0)
    assert np.abs(flow(x) - before).max() > 0


@pytest.mark.slow
def test_dropout_and_batch_statistics_play_no_part():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([6]), kl.Dense(30), kl.BatchNormalization(), kl.Dropout(0.9), kl.Dense(2)])
    flow, x = flowify(model, by="model", trainable="all", verbose=False), normal(32, 6)
    scores = [flow.distribution.score(tf.constant(x), 1, tf.constant([0, 1]), training=t) for t in (False, True)]
    np.testing.assert_allclose(*scores, rtol=1e-5)
    before = flow.network.layers[-1].function.layers[2].moving_mean.numpy()
    flow.compile("adam")
    flow.fit(x, verbose=0)
    np.testing.assert_array_equal(flow.network.layers[-1].function.layers[2].moving_mean.numpy(), before)


def test_whole_numbers_reach_the_model_as_it_knows_them():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4]), kl.Dense(8, "relu"), kl.Dense(2)])
    x = np.random.default_rng(0).integers(0, 256, size=(5, 4)).astype("float32")
    scale = kl.Rescaling(1 / 255)
    flow = flowify(model, levels=256, preprocessing=scale, verbose=False)
    np.testing.assert_allclose(flow(x), model(x / 255), atol=1e-4)
    assert flow.levels == 256
    np.testing.assert_allclose(flow.decode(flow.encode(x, seed=0)), x)
    assert set(np.unique(flow.sample(20, seed=0))) <= set(range(256))
    by_layer = flowify(model, by="layer", levels=256, preprocessing=keras.Sequential([keras.Input([4]), scale]))
    np.testing.assert_allclose(by_layer(x), model(x / 255), atol=1e-4)


def test_tokens_reach_an_embedding():
    keras.utils.set_random_seed(0)
    stack = [keras.Input([5], dtype="int32"), kl.Embedding(7, 3), kl.LSTM(4), kl.Dense(2)]
    model = keras.Sequential(stack)
    x = np.random.default_rng(0).integers(0, 7, size=(6, 5))
    flow = flowify(model, levels=7, verbose=False)
    np.testing.assert_allclose(flow(x.astype("float32")), model(x), atol=1e-5)
    assert np.isfinite(flow.log_prob(x)).all()


def test_saving_and_exporting(tmp_path):
    flow, x = flowify(classifier(), levels=17, verbose=False), digits()[1][0][:4]
    flow.adapt(digits()[0][0][:200])
    before = flow.log_prob(x, seed=1)
    flow.save(tmp_path / "flow.keras")
    loaded = keras.models.load_model(tmp_path / "flow.keras")
    np.testing.assert_allclose(loaded.log_prob(x, seed=1), before, rtol=1e-5)
    assert loaded.notes == flow.notes and loaded.pretrained
    assert not loaded.network.trainable_variables and loaded.trainable_variables
    flow.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["log_prob"]
    found = served(x=tf.constant(x, tf.float32), seed=tf.constant([0, 1]))["log_prob"]
    np.testing.assert_allclose(found, before, rtol=1e-5)


@pytest.mark.parametrize("policy", ["float64", "mixed_bfloat16"])
@pytest.mark.parametrize("by", ["layer", "model"])
def test_precision(policy, by):
    keras.utils.set_random_seed(0)
    stack = [kl.Dense(9, "relu", dtype=policy), kl.Dense(2, dtype=policy)]
    model = keras.Sequential([keras.Input([6]), *stack])
    flow, x = flowify(model, by=by, verbose=False), normal(5, 6)
    np.testing.assert_allclose(flow(x), tf.cast(model(x), "float32"), atol=0.1 if policy != "float64" else 1e-6)
    assert flow.log_prob(x).dtype == ("float64" if policy == "float64" else "float32")
    assert np.isfinite(flow.log_prob(x)).all()


# Scores.


def test_scores_are_parts_of_the_likelihood():
    flow, x = flowify(classifier_of_vectors(), verbose=False), normal(50, 6)
    flow.adapt(x)
    scores = flow.score(x, num_draws=4, seed=1)
    np.testing.assert_allclose(scores["output"] + scores["rest"], scores["log_prob"], rtol=1e-5)
    typical = flow.score(x, num_draws=4, seed=1, typical=float(np.mean(scores["log_prob"])))["distance"]
    np.testing.assert_allclose(typical, np.abs(scores["log_prob"] - np.mean(scores["log_prob"])), rtol=1e-4)
    assert (flow.score(x, seed=1, typical=x)["distance"] >= 0).numpy().all()


def test_scores_of_an_exact_flow_are_its_likelihood():
    flow, x = flowify(narrowing(), verbose=False), normal(20, 12)
    scores = flow.score(x, seed=1)
    np.testing.assert_allclose(scores["log_prob"], flow.log_prob(x), rtol=1e-5)
    z = flow(x)
    np.testing.assert_allclose(scores["output"], flow.base.log_prob(z), rtol=1e-4)


def test_examples_alike_have_the_same_output():
    flow, x = flowify(narrowing(), verbose=False), normal(7, 12)
    alike = flow.sample_alike(x, 3, seed=1)
    assert alike.shape == (3, 7, 12)
    for each in alike:
        np.testing.assert_allclose(flow(each), flow(x), atol=1e-3)
    assert np.abs(alike[0] - alike[1]).max() > 0.1
    np.testing.assert_array_equal(alike, flow.sample_alike(x, 3, seed=1))
    with pytest.raises(ValueError, match="temperature is a positive number"):
        flow.sample_alike(x, temperature=0.0)
