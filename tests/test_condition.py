"""Flows given a condition, in Keras: all forms of data, shapes of conditions, saving, serving, and every layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_cases import CASES, draw_input
from test_layers import jitter

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.distributions import ConditionalNormal, FlowDistribution

RNG = np.random.default_rng(0)
C = RNG.normal(size=(40, 3)).astype("float32")
X = (C[:, :2] + 0.3 * RNG.normal(size=(40, 2))).astype("float32")


def coupled(**kwargs):
    """Layers that read the condition, layers that drop and layers that add."""
    stack = [fl.Normalization(), fl.ConditionalAffine(), fl.SplineCoupling(width=8), fl.Dense(3), fl.LeakyReLU()]
    return FlowModel([keras.Input([2]), *stack, fl.ConditionalSpline(4, width=8), fl.Dense(1)], **kwargs)


def plain(**kwargs):
    """No layer reads the condition; the densities do."""
    return FlowModel([keras.Input([2]), fl.Dense(3), fl.LeakyReLU(), fl.Dense(1)], **kwargs)


@pytest.fixture(scope="module")
def flow():
    keras.utils.set_random_seed(0)
    flow = coupled(condition=(3,))
    flow.adapt(X, condition=C, seed=1)
    jitter(flow)
    return flow


# Forms of data.


def forms():
    """The same data in all forms that `fit` takes."""
    both = {"x": X, "condition": C}
    slices = tf.data.Dataset.from_tensor_slices
    return {
        "list": [X, C],
        "tuple": (X, C),
        "dict": both,
        "tensors": [tf.constant(X), tf.constant(C)],
        "dataset of dicts": slices(both).batch(20),
        "dataset of pairs": slices(((X, C),)).batch(20),
        "dataset with labels": slices(((X, C), np.zeros(40))).batch(20),
        "dataset of dicts with weights": slices((both, np.zeros(40), np.ones(40))).batch(20),
        "generator": (((X[i : i + 20], C[i : i + 20]),) for i in (0, 20)),
    }


@pytest.mark.parametrize("form", forms())
def test_fit_takes_every_form(form):
    keras.utils.set_random_seed(0)
    flow, data = plain(condition=(3,), seed=1), forms()[form]
    flow.compile(keras.optimizers.SGD(1e-3))
    logs = flow.fit(data, batch_size=20, shuffle=False, epochs=1, verbose=0).history
    keras.utils.set_random_seed(0)
    expected = plain(condition=(3,), seed=1)
    expected.compile(keras.optimizers.SGD(1e-3))
    np.testing.assert_allclose(
        logs["nll"], expected.fit([X, C], batch_size=20, shuffle=False, epochs=1, verbose=0).history["nll"], rtol=1e-5
    )


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


def label_network():
    return keras.Sequential([keras.Input((), dtype="int32"), keras.layers.Embedding(5, 3)])


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


@pytest.mark.parametrize("kind", KINDS)
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


# Networks.


@pytest.mark.parametrize("layer", [fl.ConditionalAffine, fl.ConditionalSpline])
def test_conditional_maps_of_images(layer):
    flow = FlowModel([keras.Input([4, 4, 3]), layer(width=8), fl.Flatten(), fl.Dense(5)], condition=(3,))
    jitter(flow)
    x = RNG.normal(size=(6, 4, 4, 3)).astype("float32")
    z = flow([x, C[:6]])
    np.testing.assert_allclose(flow.distribution.without_noise(x, flow.condition_network(C[:6])), z, atol=1e-5)
    np.testing.assert_allclose(flow.decode(flow.encode(x, condition=C[:6]), condition=C[:6]), x, atol=1e-4)
    assert np.abs(flow([x, C[6:12]]) - z).max() > 1e-3
    alone = layer(width=8)
    assert alone((tf.constant(x), tf.constant(C[:6]))).shape == x.shape


def test_functional_networks_read_the_condition_where_they_say():
    x, c = keras.Input([2]), keras.Input([3])
    h = fl.Dense(4)(x)
    h = fl.Add()([h, fl.SplineCoupling(width=8)([h, c])])
    flow = FlowModel(keras.Model([x, c], fl.Dense(2)(fl.ConditionalAffine()([h, c]))), condition=(3,))
    jitter(flow)
    np.testing.assert_allclose(flow.decode(flow.encode(X, condition=C, seed=1), condition=C), X, atol=1e-4)
    assert np.abs(flow([X, C]) - flow([X, C[::-1]])).max() > 1e-3


def test_models_inside_models_read_the_condition():
    h, c = keras.Input([2]), keras.Input([3])
    inner = keras.Model([h, c], fl.SplineCoupling(width=8)([fl.Dense(2)(h), c]))
    flow = FlowModel([keras.Input([2]), fl.Dense(2), inner, fl.Dense(1)], condition=(3,))
    jitter(flow)
    assert np.abs(flow([X, C]) - flow([X, C[::-1]])).max() > 1e-3
    np.testing.assert_allclose(flow.decode(flow.encode(X, condition=C), condition=C), X, atol=1e-4)
    block = fl.Residual([fl.Dense(3), fl.SplineCoupling(width=8), fl.Dense(2)])
    flow = FlowModel([keras.Input([2]), block, fl.Dense(1)], condition=(3,))
    jitter(flow)
    assert np.abs(flow([X, C]) - flow([X, C[::-1]])).max() > 1e-4
    np.testing.assert_allclose(flow.decode(flow.encode(X, condition=C, seed=1), condition=C), X, atol=1e-4)


def test_bases():
    flow = plain(condition=(3,))
    assert isinstance(flow._bases[0], ConditionalNormal)
    standard = plain(condition=(3,), base="standard")
    jitter(standard)
    assert standard.log_prob(X, condition=C).shape == (40,)
    inner = FlowModel([keras.Input([2]), fl.SplineCoupling(width=8), fl.Dense(1)], condition=(3,))
    outer = FlowModel([keras.Input([2]), fl.Dense(2)], base=inner, condition=(3,))
    outer.adapt(X, condition=C)
    jitter(outer)
    z = outer([X, C])
    log_det = outer.distribution.bijector.forward_log_det_jacobian(X, condition=outer.condition_network(C))
    expected = inner.distribution.log_prob(z, condition=outer.condition_network(C)) + log_det
    np.testing.assert_allclose(outer.log_prob(X, condition=C), expected, rtol=1e-4, atol=1e-5)
    assert outer.is_exact and isinstance(outer.distribution, FlowDistribution)
    noisy = FlowModel([keras.Input([2]), fl.Dense(2)], base=plain())
    assert not noisy.is_exact
    once, same, other = (noisy.log_prob(X, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(once, same)
    assert np.any(once != other)


def test_a_flow_as_base_is_adapted_and_may_have_codes():
    x = 50 * X + 7
    flow = FlowModel([keras.Input([2]), fl.LeakyReLU()], base=FlowModel([keras.Input([2]), fl.SplineCoupling()]))
    before = float(np.mean(flow.log_prob(x)))
    flow.adapt(x)
    assert before < -100 and float(np.mean(flow.log_prob(x))) > -12
    coded = FlowModel([keras.Input([2]), fl.Dense(2)], base=FlowModel([keras.Input([2]), fl.Abs()]))
    assert coded.is_exact and np.isfinite(coded.log_prob(X, seed=1)).all()
    noisy = FlowModel([keras.Input([2]), fl.Dense(2)], base=plain(condition=(3,)), condition=(3,))
    at = noisy.distribution.at(noisy.condition_network(C[:1])[0])
    assert not at.is_exact and at.sample(3, seed=1, temperature=0.5).shape == (3, 2)
    np.testing.assert_array_equal(at.log_prob(X, seed=1), at.log_prob(X, seed=1))


def test_noise_that_is_shaped_is_adapted_too():
    flow = FlowModel([keras.Input([2]), fl.ShapedNoise(fl.Dense(4)), fl.Dense(2)])
    flow.adapt(50 * X)
    assert np.std(flow(50 * X)) < 5


def test_variables_of_the_distribution_at_a_condition():
    flow = coupled(condition=(3,))
    of_flow = {id(v) for v in flow.distribution.trainable_variables}
    assert of_flow == {id(v) for v in flow.given(C).trainable_variables} and len(of_flow) > 10


def test_a_flow_as_base_is_saved_with_it(tmp_path):
    inner = FlowModel([keras.Input([2]), fl.SplineCoupling(width=8), fl.Dense(1)], condition=(3,))
    outer = FlowModel([keras.Input([2]), fl.Dense(2)], base=inner, condition=label_network())
    jitter(outer)
    labels = np.arange(40) % 5
    outer.compile("adam")
    outer.fit([X, labels], epochs=1, verbose=0)
    outer.save(tmp_path / "flow.keras")
    again = keras.models.load_model(tmp_path / "flow.keras")
    np.testing.assert_allclose(again.log_prob(X, condition=labels), outer.log_prob(X, condition=labels), rtol=1e-6)
    assert again.sample(3, condition=labels[:3], seed=1).shape == (3, 2)


def test_own_conditioners_may_see_the_condition():
    given, c = keras.Input([1]), keras.Input([3])
    own = keras.Model([given, c], keras.layers.Dense(2)(keras.layers.Concatenate()([given, c])))
    flow = FlowModel([keras.Input([2]), fl.Dense(1, density=own)], condition=(3,))
    assert np.ptp(flow.log_prob(X[:1], condition=C[:1]) - flow.log_prob(X[:1], condition=C[1:2])) == 0
    assert np.any(flow.log_prob(X, condition=C) != flow.log_prob(X, condition=C[::-1]))
    kept, c = keras.Input([1]), keras.Input([3])
    own = keras.Model([kept, c], keras.layers.Dense(23)(keras.layers.Concatenate()([kept, c])))
    flow = FlowModel([keras.Input([2]), fl.SplineCoupling(conditioner=own)], condition=(3,))
    assert np.abs(flow([X, C]) - flow([X, C[::-1]])).max() > 1e-3


def test_without_a_condition_nothing_reads_one():
    flow = plain()
    assert flow.condition_network is None and len(flow.network.inputs) == 1
    assert all(len(model.inputs) == 1 for part in flow.densities.parts for model in part.conditioners)
    assert flow.densities.condition is None


# Every layer.


@pytest.mark.parametrize("name", [name for name in CASES if not isinstance(CASES[name][1], list)])
def test_every_layer_stands_in_a_conditional_flow(name, tmp_path):
    keras.utils.set_random_seed(1)
    make, shape, _ = CASES[name]
    x = draw_input(name, shape)
    flow = FlowModel([keras.Input(shape), make()], condition=(3,))
    flow.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    before = [np.array(w) for w in flow.trainable_variables]
    for _ in range(2):
        assert np.isfinite(flow.train_on_batch([x, C[:6]])).all()
    assert all(not np.array_equal(a, b) for a, b in zip(before, flow.trainable_variables, strict=True))
    jitter(flow)
    z = [tf.reshape(part, [6, -1]) for part in keras.tree.flatten(flow([x, C[:6]]))]
    given = flow.distribution.without_noise(x, flow.condition_network(C[:6]))
    np.testing.assert_allclose(
        tf.concat([tf.reshape(part, [6, -1]) for part in keras.tree.flatten(given)], 1), tf.concat(z, 1), atol=2e-5
    )
    parts = flow.encode(x, seed=1, condition=C[:6])
    np.testing.assert_allclose(flow.decode(parts, condition=C[:6]), x, atol=1e-4)
    log_prob = flow.log_prob(x, seed=1, condition=C[:6])
    assert np.isfinite(log_prob).all()
    assert np.any(np.abs(flow.log_prob(x, seed=1, condition=C[6:12]) - log_prob) > 1e-4)
    flow.save(tmp_path / "flow.keras")
    loaded = keras.models.load_model(tmp_path / "flow.keras")
    np.testing.assert_allclose(loaded.log_prob(x, seed=1, condition=C[:6]), log_prob, rtol=1e-5, atol=1e-5)


def test_shaped_noise_is_the_layer_without_noise_and_tightens_the_bound():
    keras.utils.set_random_seed(0)
    x = RNG.normal(size=(2000, 2)).astype("float32") * [1.0, 0.3]
    bounds = {}
    for shaped in (False, True):
        keras.utils.set_random_seed(0)
        wide = fl.Dense(4)
        flow = FlowModel([keras.Input([2]), fl.ShapedNoise(wide) if shaped else wide, fl.LeakyReLU(0.3), fl.Dense(2)])
        flow.adapt(x)
        flow.compile(keras.optimizers.Adam(5e-3))
        flow.fit(x, epochs=15, batch_size=100, verbose=0)
        np.testing.assert_allclose(flow(x), flow.distribution.without_noise(tf.cast(x, tf.float32)), atol=1e-5)
        bounds[shaped] = float(np.mean(flow.log_prob(x, seed=1)))
    assert bounds[True] > bounds[False] + 0.02, bounds


# Precision, devices, compilers.


@pytest.mark.parametrize("policy", ["float64", "mixed_bfloat16"])
def test_policies(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        flow = coupled(condition=(3,))
        flow.adapt(X, condition=C)
        flow.compile("adam")
        assert np.isfinite(flow.fit([X, C], epochs=1, verbose=0).history["nll"]).all()
    finally:
        keras.config.set_dtype_policy(before)
    full = "float64" if policy == "float64" else "float32"
    assert flow.log_prob(X, condition=C).dtype == full and flow.given(C).dtype == full
    assert flow.network([tf.constant(X), flow.condition_network(C)]).dtype == (
        "bfloat16" if policy != "float64" else full
    )
    np.testing.assert_allclose(flow.decode(flow.encode(X, condition=C), condition=C), X, atol=1e-4)


def test_strategies_give_the_same_loss(two_devices):
    def losses(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            flow = FlowModel([keras.Input([2]), fl.SplineCoupling(width=8), fl.Dense(1)], condition=(3,), seed=1)
            flow.compile(keras.optimizers.SGD(1e-2))
        return flow.fit([X, C], batch_size=20, epochs=2, shuffle=False, verbose=0).history["nll"]

    np.testing.assert_allclose(losses(two_devices), losses(tf.distribute.get_strategy()), rtol=1e-5)


def test_xla():
    flow = FlowModel([keras.Input([2]), fl.SplineCoupling(width=8), fl.Dense(1)], condition=(3,))
    flow.compile("adam", jit_compile=True)
    assert np.isfinite(flow.fit([X, C], epochs=2, verbose=0).history["nll"]).all()


def test_the_summary_and_the_freezing_of_the_condition_network(capsys):
    flow = coupled(condition=label_network())
    flow.summary()
    shown = capsys.readouterr().out
    assert "Given a condition (n,)" in shown and "a vector of 3 numbers (15 weights)" in shown
    flow.condition_network.trainable = False
    flow.compile("adam")
    before = flow.condition_network.get_weights()
    flow.fit([X, np.arange(40) % 5], epochs=1, verbose=0)
    np.testing.assert_array_equal(before[0], flow.condition_network.get_weights()[0])


def test_signatures_take_one_condition_for_all(flow, tmp_path):
    flow.export(tmp_path / "served")
    served = tf.saved_model.load(tmp_path / "served").signatures
    seed = tf.constant([0, 1])
    one = served["sample"](n=tf.constant(5), temperature=tf.constant(1.0), seed=seed, condition=C[:1])["x"]
    np.testing.assert_allclose(one, flow.sample(5, condition=C[0], seed=1), atol=1e-5)
    parts = served["encode"](x=X, condition=C, seed=seed)
    np.testing.assert_allclose(served["decode"](condition=C, **parts)["x"], X, atol=1e-4)
    np.testing.assert_allclose(served["predict"](x=X, condition=C)["output"], flow([X, C]), atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="condition is not finite"):
        served["log_prob"](x=X, condition=np.full_like(C, np.nan), seed=seed)


# What does not fit.

NAN = np.where(np.arange(120).reshape(40, 3) == 7, np.nan, C)
BAD = {
    "missing": (lambda f: f.log_prob(X), r"density given a condition: give a condition \(n, 3\)"),
    "missing in sample": (lambda f: f.sample(3), "density given a condition"),
    "missing in encode": (lambda f: f.encode(X), "density given a condition"),
    "missing in decode": (lambda f: f.decode(f.encode(X, condition=C)), "density given a condition"),
    "missing in adapt": (lambda f: f.adapt(X), "density given a condition"),
    "missing in fit": (lambda f: f.fit(X), r"data and a condition \(n, 3\): \[x, condition\].*Received: ndarray"),
    "missing in evaluate": (lambda f: f.evaluate(X), "Received: ndarray"),
    "missing in predict": (lambda f: f.predict(X), "Received: ndarray"),
    "missing in call": (lambda f: f(tf.constant(X)), "data and a condition"),
    "missing in a dataset": (
        lambda f: f.fit(tf.data.Dataset.from_tensor_slices((X, C)).batch(10)), r"elements .*\(\(x, condition\),\)"
    ),
    "missing in validation": (lambda f: f.fit([X, C], validation_data=(X, C)), "Received: ndarray"),
    "nothing": (lambda f: f.fit(), "Received: nothing"),
    "key": (lambda f: f.fit({"x": X, "c": C}), r"a dict with keys \['x', 'c'\]"),
    "shape": (lambda f: f.log_prob(X, condition=C[:, :2]), r"condition \(n, 3\).*condition of shape \(40, 2\)"),
    "rank": (lambda f: f.log_prob(X, condition=C[None]), r"condition of shape \(1, 40, 3\)"),
    "length": (lambda f: f.log_prob(X, condition=C[:7]), "one for each of 40 examples or one for all.*has 7"),
    "length in sample": (lambda f: f.sample(5, condition=C[:3]), "each of 5 examples or one for all.*has 3"),
    "length in fit": (lambda f: f.fit([X, C[:7]]), "has 7"),
    "length in decode": (lambda f: f.decode(f.encode(X, condition=C), condition=C[:7]), "has 7"),
    "nan": (lambda f: f.log_prob(X, condition=NAN), r"1 of 120 entries of condition.*nan at \(2, 1\)"),
    "nan in fit": (lambda f: f.fit([X, NAN]), "1 of 120 entries of condition"),
    "nan in sample": (lambda f: f.sample(1, condition=NAN[2]), "1 of 3 entries"),
    "nan in given": (lambda f: f.given(NAN), "finite numbers"),
    "shape in given": (lambda f: f.given(C[:, :2]), r"any leading axes.*\(40, 2\)"),
    "strings": (lambda f: f.log_prob(X, condition=np.full((40, 3), "a")), "of numbers. Received: condition of type"),
    "dict for a tensor": (lambda f: f.log_prob(X, condition={"a": C}), r"a dict with keys \['a'\]"),
    "dataset shape": (
        lambda f: f.fit(tf.data.Dataset.from_tensor_slices(((X, C[:, :2]),)).batch(10)), r"condition of \(.*2\)"
    ),
    "batches of a generator": (lambda f: f.fit(((X, C[:, :2]),) for _ in range(1)), r"condition of \(.*2\)"),
    "beside a dataset": (lambda f: f.log_prob(forms()["dataset of pairs"], condition=C), "leave out condition"),
    "beside a dataset in adapt": (lambda f: f.adapt(forms()["dataset of pairs"], condition=C), "leave out condition"),
    "pair for data": (lambda f: f.log_prob([X, C]), r"given apart here: \(x, condition=condition\)"),
    "pair for adapt": (lambda f: f.adapt({"x": X, "condition": C}), "given apart here"),
    "data": (lambda f: f.fit([X[:, :1], C]), r"batches \(n, 2\).*shape=\(40, 1\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_conditions_are_named(case, flow):
    action, message = BAD[case]
    flow.compile("adam", run_eagerly=True)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        action(flow)


def test_conditions_of_several_parts_are_named():
    flow = plain(condition={"a": (2,), "b": ()})
    good = {"a": C[:, :2], "b": C[:, 2]}
    for bad, message in (
        ({"a": good["a"]}, r"\{'a': \(n, 2\), 'b': \(n,\)\}. Received: missing \['b'\]"),
        ({**good, "d": C}, r"not known \['d'\]"),
        ({**good, "b": C[:7, 2]}, "condition_a has 40, condition_b has 7"),
        ({**good, "b": np.full(40, np.nan)}, "40 of 40 entries of condition_b"),
        (C, "Received: ndarray"),
    ):
        with pytest.raises(ValueError, match=f"(?s){message}"):
            flow.log_prob(X, condition=bad)
    labelled = plain(condition=label_network())
    with pytest.raises(ValueError, match=r"whole numbers.*0\.5"):
        labelled.log_prob(X, condition=np.full(40, 0.5))
    with pytest.raises(ValueError, match="whole numbers"):
        labelled.given(3.5)
    with pytest.raises(ValueError, match="same leading axes"):
        flow.given({**good, "b": C[:7, 2]})


def test_superfluous_conditions_are_named():
    flow = plain()
    flow.compile("adam", run_eagerly=True)
    for action in (
        lambda: flow.log_prob(X, condition=C),
        lambda: flow.sample(3, condition=C[0]),
        lambda: flow.fit([X, C]),
        lambda: flow.fit({"x": X, "condition": C}),
        lambda: flow.given(C),
        lambda: flow.adapt(X, condition=C),
        lambda: flow.decode(flow.encode(X), condition=C),
    ):
        with pytest.raises(ValueError, match="takes no condition"):
            action()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: plain(condition="labels"), "a shape such as"),
        (lambda: plain(condition={}), "one number or more"),
        (lambda: plain(condition=(0,)), "one number or more"),
        (lambda: plain(condition=keras.Sequential([keras.layers.Dense(3)])), "does not tell the shape"),
        (lambda: FlowModel([keras.Input([2]), fl.ConditionalAffine()]), "depends on a condition, and is given none"),
        (lambda: FlowModel([fl.ConditionalAffine()], condition=(3,)), r"Start them with keras.Input\(shape\)"),
        (lambda: fl.ConditionalAffine()(tf.ones([5, 2])), r"Call it on \[x, condition\]"),
        (lambda: plain(base=plain()), r"a flow of \(2,\). The network has outputs \[\(1,\)\]"),
        (
            lambda: FlowModel([keras.Input([2]), fl.Dense(2)], base=plain(condition=(5,)), condition=(3,)),
            r"takes a condition of \(5,\). That of this flow is \(3,\)",
        ),
        (
            lambda: FlowModel([keras.Input([2]), fl.Dense(2)], base=plain(condition=label_network()), condition=(3,)),
            r"Make it with condition=\(3,\)",
        ),
        (
            lambda: FlowModel(
                keras.Model([x := keras.Input([2]), c := keras.Input([3])], fl.Concatenate()([x, c])), condition=(3,)
            ),
            "takes the condition for data",
        ),
        (
            lambda: FlowModel(
                keras.Model(
                    [x := keras.Input([2]), c := keras.Input([3])], fl.SplineCoupling()([x, keras.layers.Dense(3)(c)])
                ),
                condition=(3,),
            ),
            "changes the condition inside the network",
        ),
        (
            lambda: FlowModel(
                keras.Model([x := keras.Input([2]), c := keras.Input([4])], fl.SplineCoupling()([x, c])), condition=(3,)
            ),
            r"vector of the condition, \(3,\). Received: \[\(2,\), \(4,\)\]",
        ),
        (lambda: fl.ShapedNoise(keras.layers.Dense(3)), "that adds noise"),
        (lambda: FlowModel([keras.Input([2]), fl.ShapedNoise(fl.Dense(2))]), "adds no noise here"),
        (lambda: fl.Logit(1.0, 0.0), "low < high"),
        (lambda: FlowModel([keras.Input([2]), fl.Logit([0.0] * 3, 1.0)]), r"a box of \(3,\); its data are \(2,\)"),
        (
            lambda: FlowModel(keras.Sequential([keras.Input([2]), fl.SplineCoupling()]), condition=(3,)),
            "were made without it. Give the flow a list",
        ),
    ],
)  # fmt: skip
def test_what_is_no_condition_is_named(make, message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        make()


def test_a_condition_that_nothing_reads_is_told():
    with pytest.warns(UserWarning, match="Nothing in .* depends on the condition"):
        FlowModel([keras.Input([2]), fl.Dense(2)], base="standard", condition=(3,))


def test_data_keep_their_precision_under_mixed_policies():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        flow = FlowModel([keras.Input([2]), fl.Logit(-1.0, 1.0), fl.SplineCoupling()], condition=(3,))
    finally:
        keras.config.set_dtype_policy(before)
    assert np.isfinite(tf.cast(flow.predict([np.full_like(X, 0.9999), C], verbose=0), tf.float32)).all()


def test_a_box_is_never_left():
    flow = FlowModel([keras.Input([2]), fl.Logit([-1.0, 2.0], [1.0, 5.0]), fl.Dense(2)])
    x = flow.sample(5000, seed=1).numpy()
    assert (x > [-1, 2]).all() and (x < [1, 5]).all() and np.ptp(x[:, 1]) > 2.8
    axis = [np.linspace(low, high, 401)[:-1] + (high - low) / 800 for low, high in ((-1, 1), (2, 5))]
    grid = np.stack(np.meshgrid(*axis), -1).reshape(-1, 2).astype("float32")
    total = np.exp(flow.log_prob(grid, batch_size=10**6)).sum() * (2 / 400) * (3 / 400)
    assert abs(total - 1) < 0.02
    assert np.isneginf(flow.log_prob(np.float32([[0.0, 7.0], [1.0, 3.0], [-4.0, 3.0]]))).all()
