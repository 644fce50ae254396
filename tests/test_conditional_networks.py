"""Where a condition goes inside a flow: networks, bases, every layer, precision, devices, and what is served."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conditions import RNG, C, X, adapted_flow, coupled, label_network, plain
from layer_cases import CASES, draw_input, in_flow
from models import jitter

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.distributions import ConditionalNormal, FlowDistribution


@pytest.fixture(scope="module")
def flow():
    return adapted_flow()


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


#: Layers of one kind each; the others behind the slow marker.
ONE_OF_EACH = ("dense_fewer", "dense_stages", "conv2d_same", "conv2d_gaps", "conv1d", "relu", "spline_coupling")
ONE_OF_EACH += ("max_pooling_same", "average_pooling", "stochastic_layer", "residual", "shaped_noise", "logit_box")
SINGLE = [name for name in CASES if not isinstance(CASES[name][1], list)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in ONE_OF_EACH)) for name in SINGLE]
)
def test_every_layer_stands_in_a_conditional_flow(name, tmp_path):
    keras.utils.set_random_seed(1)
    make, shape, _ = CASES[name]
    x = draw_input(name, shape)
    flow = FlowModel([keras.Input(shape), *in_flow(make())], condition=(3,))
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


@pytest.mark.slow
def test_shaped_noise_is_the_layer_without_noise_and_is_learned():
    keras.utils.set_random_seed(0)
    x = (np.random.default_rng(0).normal(size=(2000, 2)) * [1.0, 0.3]).astype("float32")
    flow = FlowModel([keras.Input([2]), fl.ShapedNoise(fl.Dense(4)), fl.LeakyReLU(0.3), fl.Dense(2)])
    flow.adapt(x)
    np.testing.assert_allclose(flow(x), flow.distribution.without_noise(x), atol=1e-5)
    before = float(np.mean(flow.log_prob(x, seed=1)))
    flow.compile(keras.optimizers.Adam(5e-3))
    flow.fit(x, epochs=15, batch_size=100, verbose=0)
    np.testing.assert_allclose(flow(x), flow.distribution.without_noise(x), atol=1e-5)
    entropy = 1 + np.log(2 * np.pi) + np.log(0.3)
    assert before + 0.1 < float(np.mean(flow.log_prob(x, seed=1))) < -entropy + 0.05


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


@pytest.mark.slow
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
    with pytest.raises(tf.errors.InvalidArgumentError, match="A condition has finite numbers"):
        served["log_prob"](x=X, condition=np.full_like(C, np.nan), seed=seed)
