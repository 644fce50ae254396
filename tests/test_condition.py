"""Flows given a condition, in Keras: all forms of data, of conditions, and of questions."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conditions import RNG, C, X, adapted_flow, coupled, forms, label_network, plain
from models import jitter

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl


@pytest.fixture(scope="module")
def flow():
    return adapted_flow()


# Forms of data.


@pytest.mark.parametrize(
    "form",
    [pytest.param(f, marks=[pytest.mark.slow] * (f in ("tuple", "tensors", "dataset with labels"))) for f in forms()],
)
def test_fit_takes_every_form(form, nll_of_pairs):
    np.testing.assert_allclose(nll_after_an_epoch(forms()[form]), nll_of_pairs, rtol=1e-5)


def nll_after_an_epoch(data):
    keras.utils.set_random_seed(0)
    flow = plain(condition=(3,), seed=1)
    flow.compile(keras.optimizers.SGD(1e-3))
    return flow.fit(data, batch_size=20, shuffle=False, epochs=1, verbose=0).history["nll"]


@pytest.fixture(scope="module")
def nll_of_pairs():
    return nll_after_an_epoch([X, C])


def test_weights_and_validation_data_in_their_usual_places():
    keras.utils.set_random_seed(0)
    flow = plain(condition=(3,))
    flow.compile(keras.optimizers.SGD(0.0))
    weights = np.r_[np.ones(20), np.zeros(20)].astype("float32")
    weighted = flow.evaluate([X, C], sample_weight=weights, batch_size=40, return_dict=True, verbose=0)
    first = flow.evaluate([X[:20], C[:20]], batch_size=20, return_dict=True, verbose=0)
    assert abs(weighted["nll"] - first["nll"]) < 1.0 and weighted["nll"] != flow.evaluate([X, C], verbose=0)[0]
    for validation in (([X, C],), {"x": X, "condition": C}, ((X, C), None), forms()["dataset of dicts"]):
        logs = flow.fit([X, C], epochs=1, verbose=0, validation_data=validation).history
        assert np.isfinite(logs["val_nll"]).all()
    assert "val_nll" in flow.fit([X, C], epochs=1, verbose=0, validation_split=0.25).history
    assert np.isfinite(flow.train_on_batch([X, C])).all() and np.isfinite(flow.test_on_batch([X, C])).all()


def test_predict_and_call_are_the_network_given_the_condition(flow):
    z = flow([X, C])
    assert z.shape == (40, 1)
    np.testing.assert_allclose(flow.predict([X, C], verbose=0), z, atol=1e-5)
    np.testing.assert_allclose(flow.predict({"x": X, "condition": C}, verbose=0), z, atol=1e-5)
    np.testing.assert_allclose(flow.predict_on_batch([X, C]), z, atol=1e-5)
    vectors = flow.condition_network(C)
    np.testing.assert_allclose(flow.network([tf.constant(X), vectors]), z, atol=1e-5)
    np.testing.assert_allclose(flow.distribution.without_noise(X, vectors), z, atol=1e-5)
    assert np.abs(flow([X, C[::-1]]) - z).max() > 0.01
    assert flow.compute_output_shape([(None, 2), (None, 3)]) == (None, 1)


@pytest.mark.slow
def test_supervised_and_conditional_at_once():
    flow = coupled(condition=(3,))
    flow.compile("adam", loss="mse", metrics=["mae"], likelihood_weight=0.1)
    logs = flow.fit([X, C], X[:, :1], epochs=2, verbose=0, validation_data=([X, C], X[:, :1])).history
    assert {"nll", "mean_absolute_error", "val_nll"} <= set(logs) or {"nll", "mae", "val_nll"} <= set(logs)


# Densities, samples, and the way to the parts and back.


def test_one_condition_for_each_or_one_for_all(flow):
    each = flow.log_prob(X, condition=np.repeat(C[:1], 40, 0), seed=1)
    for one in (C[0], C[:1], tf.constant(C[0]), C[0].tolist()):
        np.testing.assert_allclose(flow.log_prob(X, condition=one, seed=1), each, rtol=1e-5)
    drawn = flow.sample(40, condition=np.repeat(C[:1], 40, 0), seed=1)
    for one in (C[0], C[:1], tf.constant(C[0])):
        np.testing.assert_allclose(flow.sample(40, condition=one, seed=1), drawn, atol=1e-5)
    np.testing.assert_allclose(flow.sample(40, condition=C, seed=1)[0], drawn[0], atol=1e-5)
    assert flow.sample(0, condition=C[0]).shape == (0, 2)


def test_batches_keep_their_conditions(flow):
    whole = flow.encode(X, condition=C, seed=1)
    np.testing.assert_allclose(flow.decode(whole, condition=C, batch_size=7), X, atol=1e-4)
    assert np.abs(flow.decode(whole, condition=C[::-1]) - X).max() > 0.01
    exact = FlowModel([keras.Input([2]), fl.SplineCoupling(width=8), fl.Dense(1)], condition=(3,))
    jitter(exact)
    np.testing.assert_allclose(
        exact.log_prob(X, condition=C, batch_size=7), exact.log_prob(X, condition=C), rtol=1e-4, atol=1e-5
    )
    data = forms()["dataset of pairs"]
    np.testing.assert_allclose(exact.log_prob(data), exact.log_prob(X, condition=C), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(exact.reconstruct(data), exact.reconstruct(X, condition=C, batch_size=9), atol=1e-5)
    assert flow.bits_per_dim(X, condition=C, num_draws=20, seed=1).shape == (40,)
    drawn = flow.sample(40, condition=C, seed=1, batch_size=7)
    np.testing.assert_allclose(drawn[:7], flow.sample(7, condition=C[:7], seed=1), atol=1e-5)


def test_given_is_a_distribution_of_tfp(flow):
    at = flow.given(C[:5])
    assert at.batch_shape == [5] and at.sample(1000, seed=1).shape == (1000, 5, 2)
    assert at.log_prob(X[:5]).shape == (5,) and at.log_prob(X[:4, None]).shape == (4, 5)
    np.testing.assert_allclose(
        at.log_prob(X[:5], seed=1), flow.log_prob(X[:5], condition=C[:5], seed=1), rtol=1e-4, atol=1e-5
    )
    assert flow.given(C[0]).batch_shape == [] and flow.given(C.reshape(8, 5, 3)).batch_shape == [8, 5]
    c = tf.constant(C[:5])
    with tf.GradientTape() as tape:
        tape.watch(c)
        value = tf.reduce_sum(flow.given(c).log_prob(X[:5], seed=1))
    assert np.any(tape.gradient(value, c))
    inside = tf.function(lambda c: flow.given(c).log_prob(X[:5], seed=1))(c)
    np.testing.assert_allclose(inside, at.log_prob(X[:5], seed=1), rtol=1e-4, atol=1e-5)


def test_methods_inside_a_function_of_ones_own(flow):
    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None, 3])])
    def both(x, c):
        parts = flow.encode(x, condition=c, seed=1)
        drawn = flow.sample(tf.shape(x)[0], condition=c, seed=1)
        return flow.log_prob(x, condition=c, seed=1), drawn, flow.decode(parts, condition=c)

    log_prob, drawn, back = both(X, C)
    np.testing.assert_allclose(log_prob, flow.log_prob(X, condition=C, seed=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(drawn, flow.sample(40, condition=C, seed=1), atol=1e-5)
    np.testing.assert_allclose(back, X, atol=1e-4)


def test_flows_that_are_not_built_yet():
    flow = FlowModel([fl.Dense(3), fl.Dense(1)], condition=(3,))
    assert flow([tf.constant(X), tf.constant(C)]).shape == (40, 1)
    flow = FlowModel([fl.Dense(3), fl.Dense(1)], condition=(3,))
    flow.compile("adam")
    assert np.isfinite(flow.fit({"x": X, "condition": C}, verbose=0).history["nll"]).all()
    flow = FlowModel([fl.Dense(3), fl.Dense(1)], condition=(3,))
    flow.adapt(forms()["dataset of pairs"])
    assert flow.log_prob(X, condition=C).shape == (40,)


@pytest.mark.slow
def test_gradients_for_the_condition_pass_through_the_methods_too(flow):
    c = tf.constant(C)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        log_prob, drawn = flow.log_prob(X, condition=c, seed=1), flow.sample(40, condition=c, seed=1)
    for target in (log_prob, drawn):
        assert np.isfinite(tape.gradient(target, c)).all() and np.any(tape.gradient(target, c))


# Kinds of conditions.


def summary_network():
    """A set of any number of points, each embedded and then averaged."""
    points = keras.Input((None, 2))
    each = keras.layers.Dense(8, "gelu")(points)
    return keras.Model(points, keras.layers.Dense(4)(keras.layers.GlobalAveragePooling1D()(each)))


def named_network():
    a, b = keras.Input((2,), name="a"), keras.Input((4, 4, 1), name="b")
    seen = keras.layers.Flatten()(keras.layers.Conv2D(2, 3, 2)(b))
    return keras.Model({"a": a, "b": b}, keras.layers.Concatenate()([a, seen]))


def listed_network():
    a, b = keras.Input((2,)), keras.Input((1,))
    return keras.Model([a, b], keras.layers.Dense(3)(keras.layers.Concatenate()([a, b])))


KINDS = {
    "shape": ((3,), lambda n: C[:n]),
    "number": ((), lambda n: C[:n, 0]),
    "image": ((2, 3, 1), lambda n: RNG.normal(size=(n, 2, 3, 1)).astype("float32")),
    "dict": ({"b": (2,), "a": ()}, lambda n: {"a": C[:n, 2], "b": C[:n, :2]}),
    "whole numbers for real ones": ((1,), lambda n: np.arange(n)[:, None]),
    "set": (summary_network, lambda n: RNG.normal(size=(n, 6, 2)).astype("float32")),
    "labels": (label_network, lambda n: np.arange(n) % 5),
    "named": (named_network, lambda n: {"a": C[:n, :2], "b": RNG.normal(size=(n, 4, 4, 1)).astype("float32")}),
    "listed": (listed_network, lambda n: [C[:n, :2], C[:n, 2:]]),
    "grid": (lambda: keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 2, 2)]),
             lambda n: RNG.normal(size=(n, 4, 4, 1)).astype("float32")),
}  # fmt: skip


def one_of(condition, i):
    return keras.tree.map_structure(lambda value: value[i], condition)


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k != "dict")) for k in KINDS])
def test_kinds_of_conditions(kind, tmp_path):
    keras.utils.set_random_seed(0)
    condition, draw = KINDS[kind]
    stack = [keras.Input([2]), fl.Dense(3), fl.SplineCoupling(width=8, bins=4), fl.Dense(1)]
    flow, c = FlowModel(stack, condition=condition() if callable(condition) else condition), draw(40)
    flow.adapt(X, condition=c)
    flow.compile(keras.optimizers.Adam(1e-2))
    before = [np.array(w) for w in flow.trainable_variables]
    assert np.isfinite(flow.fit([X, c], epochs=3, verbose=0).history["nll"]).all()
    moved = [not np.array_equal(a, b) for a, b in zip(before, flow.trainable_variables, strict=True)]
    assert all(moved), [w.path for w, m in zip(flow.trainable_variables, moved, strict=True) if not m]
    log_prob = flow.log_prob(X, condition=c, seed=1)
    assert flow.sample(4, condition=one_of(c, 0), seed=1).shape == (4, 2)
    assert flow.given(c).batch_shape == [40] and flow.given(one_of(c, 0)).batch_shape == []
    np.testing.assert_allclose(flow.decode(flow.encode(X, condition=c, seed=1), condition=c), X, atol=1e-4)
    flow.save(tmp_path / "flow.keras")
    again = keras.models.load_model(tmp_path / "flow.keras")
    np.testing.assert_allclose(again.log_prob(X, condition=c, seed=1), log_prob, rtol=1e-6)
    if kind not in ("dict", "labels", "set"):
        return
    assert np.isfinite(again.fit([X, c], epochs=1, verbose=0).history["nll"]).all()
    flow.export(tmp_path / "served")
    score = tf.saved_model.load(tmp_path / "served").signatures["log_prob"]
    leaves = {n: tf.cast(v, flow._condition.specs[n].dtype) for n, v in flow._condition.leaves(c).items()}
    served = score(x=tf.constant(X), seed=tf.constant([0, 1]), **leaves)["log_prob"]
    np.testing.assert_allclose(served, log_prob, rtol=1e-5, atol=1e-5)


def test_adapt_standardizes_conditions():
    flow, c = plain(condition={"b": (), "a": ()}), {"a": 100 * C[:, 1] + 1000, "b": 1e-3 * C[:, 2]}
    flow.adapt(X, condition=c)
    vectors = flow.condition_network(c)
    np.testing.assert_allclose(np.mean(vectors, 0), 0, atol=1e-3)
    np.testing.assert_allclose(np.std(vectors, 0), 1, atol=1e-3)


def test_adapt_sets_scales_of_conditional_densities():
    keras.utils.set_random_seed(0)
    flow = FlowModel([keras.Input([2]), fl.ConditionalAffine(), fl.Dense(1)], condition=(3,))
    before = float(np.mean(flow.log_prob(50 * X + 7, condition=C)))
    flow.adapt(50 * X + 7, condition=C)
    after = float(np.mean(flow.log_prob(50 * X + 7, condition=C)))
    normal = -np.sum(np.log(50 * X.std(0)) + 0.5 * np.log(2 * np.pi) + 0.5)
    assert before < -100 and after > normal - 0.5
    data = tf.data.Dataset.from_tensor_slices(((50 * X + 7, C),)).batch(10)
    again = FlowModel([keras.Input([2]), fl.ConditionalAffine(), fl.Dense(1)], condition=(3,))
    again.adapt(data)
    assert float(np.mean(again.log_prob(50 * X + 7, condition=C))) > normal - 0.5
