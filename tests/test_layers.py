"""What holds for every Keras layer: it is the ordinary layer, and a flow layer over the same weights."""

import json
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_cases import CASES, draw_input, in_flow
from models import jitter
from nets import some

from tfp_flowify import FlowModel
from tfp_flowify import bijectors as fb
from tfp_flowify import layers as fl

NAMES = list(CASES)


def make(name, dtype=None):
    keras.utils.set_random_seed(1)
    if dtype is None:
        return CASES[name][0]()
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        return CASES[name][0]()
    finally:
        keras.config.set_dtype_policy(before)


def inputs_of(name):
    shape = CASES[name][1]
    return [keras.Input(s) for s in shape] if isinstance(shape, list) else keras.Input(shape)


def flow_of(name, dtype=None):
    """The layer alone, and what must stand behind it; behind copies of the data where it takes several inputs."""
    layer, shape = make(name, dtype), CASES[name][1]
    if not isinstance(shape, list):
        return FlowModel([keras.Input(shape), *in_flow(layer, dtype)], dtype=dtype)
    x = keras.Input(shape[0])
    branches = [fl.Split(s[-1], dtype=dtype)(x) if s[-1] < shape[0][-1] else x for s in shape]
    return FlowModel(keras.Model(x, layer(branches)), dtype=dtype)


def data_of(name, dtype="float32"):
    x = draw_input(name, CASES[name][1], dtype=dtype)
    return x[0] if isinstance(x, list) else x


@pytest.mark.parametrize("name", NAMES)
def test_is_an_ordinary_layer(name):
    layer, x = make(name), draw_input(name, CASES[name][1])
    symbolic = layer(inputs_of(name))
    jitter(layer)
    twin = CASES[name][2](layer)
    eager = layer(x)
    for spec, value in zip(keras.tree.flatten(symbolic), keras.tree.flatten(eager), strict=True):
        assert tuple(spec.shape[1:]) == tuple(value.shape[1:])
    shape = [(6, *s) for s in CASES[name][1]] if isinstance(x, list) else x.shape
    expected = layer.compute_output_shape(shape)
    expected = expected if name == "duplicate" else [expected]
    assert [tuple(value.shape) for value in keras.tree.flatten(eager)] == [tuple(s) for s in expected]
    for value, other in zip(keras.tree.flatten(eager), keras.tree.flatten(twin(x)), strict=True):
        np.testing.assert_allclose(value, other, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_config_comes_back(name):
    layer = make(name)
    config = layer.get_config()
    again = type(layer).from_config(json.loads(json.dumps(config)))
    assert json.dumps(again.get_config()) == json.dumps(config)
    layer(inputs_of(name))
    again(inputs_of(name))
    assert [w.shape for w in again.weights] == [w.shape for w in layer.weights]


@pytest.mark.parametrize("name", some(NAMES, every=2))
def test_is_a_flow_layer_over_the_same_weights(name, tmp_path):
    flow, x = flow_of(name), data_of(name)
    jitter(flow)
    np.testing.assert_allclose(
        keras.ops.concatenate(
            [tf.reshape(z, [6, -1]) for z in keras.tree.flatten(flow.distribution.without_noise(x))], 1
        ),
        keras.ops.concatenate([tf.reshape(z, [6, -1]) for z in keras.tree.flatten(flow(x))], 1),
        atol=2e-5,
    )
    np.testing.assert_allclose(flow.decode(flow.encode(x, seed=1)), x, atol=1e-4)
    before = flow.distribution.log_prob(x, seed=1)
    assert np.isfinite(before).all()
    flow.save(tmp_path / "flow.keras")
    loaded = keras.models.load_model(tmp_path / "flow.keras")
    np.testing.assert_allclose(loaded.distribution.log_prob(x, seed=1), before, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_trains_as_a_flow_and_as_a_layer(name):
    flow, x = flow_of(name), data_of(name)
    flow.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    before = [np.array(w) for w in flow.trainable_variables]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Keras warns of weights without a gradient.
        for _ in range(2):  # The last layer of a conditioner is zero at the start, and hides those in front of it.
            logs = flow.train_on_batch(x, return_dict=True)
        assert np.isfinite(logs["nll"])
        moved = [not np.array_equal(a, b) for a, b in zip(before, flow.trainable_variables, strict=True)]
        assert all(moved)
        if not flow.network.trainable_variables:
            return
        flow.network.compile("sgd", "mse", run_eagerly=True)
        target = keras.tree.map_structure(np.zeros_like, flow.network(x))
        assert np.isfinite(flow.network.train_on_batch(x, target))


@pytest.mark.parametrize("name", some(NAMES))
def test_policies(name):
    x = data_of(name)
    flows = {policy: flow_of(name, policy) for policy in ("float32", "float64", "mixed_bfloat16")}
    weights = flows["float32"].get_weights()
    results = {}
    for policy, flow in flows.items():
        flow.set_weights(weights)
        full = "float64" if policy == "float64" else "float32"
        assert all(w.dtype == full for w in flow.trainable_variables)
        outputs = keras.tree.flatten(flow.network(x))
        half = policy == "mixed_bfloat16" and not name.startswith(("dequantize", "subsample"))
        assert all(z.dtype == ("bfloat16" if half else full) for z in outputs)
        layer = flow.network.layers[-1]
        assert type(layer).from_config(layer.get_config()).dtype_policy.name == policy
        assert FlowModel.from_config(flow.get_config()).dtype_policy.name == policy
        results[policy] = flow.distribution.log_prob(x.astype(full), seed=1)
        assert results[policy].dtype == full
        assert np.isfinite(results[policy]).all()
    if flows["float32"].distribution.is_exact and not flows["float32"].noise_shapes:
        np.testing.assert_allclose(results["float64"], results["float32"], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(results["mixed_bfloat16"], results["float32"], rtol=0.02, atol=0.1)


def test_rotations_of_wide_layers_are_reflections_by_default():
    keras.utils.set_random_seed(0)
    layer = fl.Dense(129)
    flow, x = FlowModel([keras.Input([128]), layer]), np.random.default_rng(0).normal(size=(5, 128)).astype("float32")
    assert type(layer.right) is fb.Expm and type(layer.left) is fb.Householder
    assert layer.left.vectors.shape == (64, 129) and layer.left.start is not None
    for rotation in (layer.left, layer.right):
        matrix = rotation.matrix().numpy()
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(rotation.size), atol=1e-5)
    np.testing.assert_allclose(flow.decode(flow.encode(x, seed=1)), x, atol=1e-4)
    np.testing.assert_allclose(flow(x), layer(x), atol=1e-5)
    assert {weight.name for weight in layer.trainable_weights} >= {"left_vectors", "right_skew"}
