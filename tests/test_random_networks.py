"""What must hold for every network, on random ones: it is a flow in all respects, or refused with a clear error.

A network is built, adapted to a few examples, and moved a little from where it starts. Then the way forward and back
leads to the data, likelihoods and all gradients are finite, and what was saved or exported gives the same likelihoods.
Most networks run without compilation, which costs more than all else; one of ten is saved and loaded, and one of ten
exported, which compiles the same functions. Which ones, hypothesis draws with the network.
"""

import contextlib
import gc
import re
import tempfile
import traceback
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from coordinates import coordinates, flat, from_coordinates
from drawn_networks import keras_networks, networks
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st
from models import jitter
from network_descriptions import KerasNetwork, Network, full_precision

import tfp_flowify
from tfp_flowify.augmentation import Code, draw
from tfp_flowify.bijectors import Context
from tfp_flowify.core.checks import as_list


def on(count, **kwargs):
    """So many networks, however long they take."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        **kwargs,
    )


pytestmark = [
    # Keras draws seeds of its own for layers that are made only to tell a shape.
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
    # Such a flow warns when it is made, which `built` sees, and again when it is loaded.
    pytest.mark.filterwarnings("ignore:Nothing in .* depends on the condition"),
]

#: Functions with flat ends, where different numbers have the same value in a floating type.
FLAT = re.compile(r"\b(tanh|sigmoid|softsign|softplus|s?elu|exponential|softmax)\b", re.IGNORECASE)

#: What is done with a network beside the rest.
STORED = st.sampled_from([*[None] * 8, "saved", "exported"])


@pytest.fixture(autouse=True, scope="module")
def little_garbage():
    """What `forget` has set aside comes back to the collector."""
    forget()
    yield
    gc.unfreeze()


def forget():
    """Frees a network, and sets aside all that is left, so that the collector need not look through it each time."""
    keras.backend.clear_session()  # It collects garbage.
    gc.freeze()


@contextlib.contextmanager
def without_compilation():
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def check(network, stored) -> bool:
    """The property; whether the network was built, and not refused."""
    flow = built(network)
    assert flow is not None or isinstance(network, Network), "all networks of Keras become flows"
    if flow is not None:
        x, condition = network.data()
        if isinstance(network, KerasNetwork):
            assert_same_network(flow, network, x)
        with without_compilation():
            flow.adapt(x, seed=0, condition=condition)
            assert all(np.isfinite(weight).all() for weight in flow.get_weights())
            jitter(flow if isinstance(network, Network) else flow.densities)
            assert_round_trip(flow, x, condition, network)
            log_prob = assert_finite_gradients(flow, x, condition)
            assert log_prob.dtype == full_precision(network.policy)
        with tempfile.TemporaryDirectory() as folder:
            if stored == "saved":
                assert_saved(flow, x, condition, log_prob, Path(folder))
            if stored == "exported":
                assert_exported(flow, x, condition, log_prob, Path(folder))
    was_built = flow is not None
    del flow
    forget()
    return was_built


def built(network):
    """The flow; None where there is none, and the error says why."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            flow = network.build()
        flow.reads_condition = not any("depends on the condition" in str(each.message) for each in caught)
        return flow
    except (ValueError, TypeError, NotImplementedError) as error:
        assert_clear(error)


def assert_clear(error):
    """Raised by this package, not from deep inside another, with the names of what does not fit."""
    frames = [frame for each in (error, error.__cause__, error.__context__) if each for frame in last_frames(each)]
    assert any(frame.startswith(str(Path(tfp_flowify.__file__).parent)) for frame in frames), error
    assert len(str(error)) > 20 and any(c in str(error) for c in ".:"), error


def last_frames(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)[-1:]]


def assert_same_network(flow, network, x):
    """The network of the flow is the model, but for what the flow says that it changed."""
    if network.policy == "mixed_bfloat16" or any("taken off" in note or "lifted" in note for note in flow.notes):
        return
    expected = network.model()(x).numpy()
    # Keras' layer normalization works in float32, whatever its policy.
    atol = {"float64": 1e-5, "float32": 1e-4}[network.policy] * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(flow.network(x), expected, rtol=0, atol=atol)


def assert_round_trip(flow, x, condition, network):
    """Forward and back leads to the data, as far as rounding lets it.

    How far is measured: parts that differ by a few units in the last place lead back to data that differ by as much as
    may be lost. Where such parts have no preimage, behind the flat ends of a tanh, nothing can be told.
    """
    parts = flow.encode(x, seed=1, condition=condition)
    assert all(np.isfinite(part).all() for part in parts)
    back = flow.decode(parts, condition=condition).numpy()
    lost = np.max([error(flow.decode(near, condition=condition), back) for near in neighbours(flow, parts)], axis=0)
    known, scale, precise = np.isfinite(lost), max(1.0, np.abs(x).max()), network.policy == "float64"
    in_levels = isinstance(network, KerasNetwork) and network.levels is not None  # Conditioners then see 0 ... 255.
    if not in_levels and not FLAT.search(str(network.layers)):
        assert known.all(), lost
        assert not precise or (lost < 1e-3 * scale).all(), lost
    allowed = (1e-6 if precise else 1e-3) * scale + 10 * lost
    found = error(back, x)
    assert (found[known] <= allowed[known]).all(), (found, allowed)


def error(a, b):
    """The largest difference in each example; infinite where there is no preimage."""
    difference = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).reshape(len(a), -1).max(axis=1)
    return np.where(np.isfinite(difference), difference, np.inf)


def neighbours(flow, parts):
    """Parts that differ from given ones by rounding, twice; codes, where a step leads to another choice, stay."""
    outputs = len(parts) - len(flow.residual_shapes)
    moves = [True] * outputs + [not isinstance(d, Code) for d in flow.distribution.bijector.residuals]
    rng = np.random.default_rng(0)
    for _ in range(2):
        yield [
            part + 32 * np.finfo(part.dtype.as_numpy_dtype).eps * rng.choice([-1, 1], part.shape) * (1 + np.abs(part))
            if moved
            else part
            for part, moved in zip(parts, moves, strict=True)
        ]


def assert_finite_gradients(flow, x, condition):
    with tf.GradientTape() as tape:
        log_prob = flow.log_prob(x, seed=1, condition=condition)
        loss = -tf.reduce_mean(log_prob)
    assert np.isfinite(log_prob).all(), log_prob
    variables = [v for v in flow.trainable_variables if 0 not in tuple(v.shape)]
    ignored = [] if flow.reads_condition else flow.condition_network.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, [v.value for v in variables]), strict=True):
        if gradient is None:
            assert any(variable is each for each in ignored), variable.path
            continue
        assert np.isfinite(tf.convert_to_tensor(gradient)).all(), variable.path
    return log_prob


def assert_saved(flow, x, condition, log_prob, folder):
    flow.save(folder / "flow.keras")
    loaded = keras.models.load_model(folder / "flow.keras")
    with without_compilation():
        np.testing.assert_allclose(loaded.log_prob(x, seed=1, condition=condition), log_prob, rtol=1e-6)
    assert [w.trainable for w in loaded.weights] == [w.trainable for w in flow.weights]


def assert_exported(flow, x, condition, log_prob, folder):
    flow.export(folder / "served")
    served = tf.saved_model.load(str(folder / "served"))
    given = condition if isinstance(condition, dict) else {} if condition is None else {None: condition}
    given = {"condition" if key is None else f"condition_{key}": value for key, value in given.items()}
    signature = served.signatures["log_prob"]
    dtypes = {spec.name: spec.dtype for spec in signature.structured_input_signature[1].values()}
    given = {name: tf.cast(value, dtypes[name]) for name, value in given.items()}
    found = signature(x=tf.constant(x), seed=tf.constant([0, 1]), **given)["log_prob"]
    rtol = {"float64": 1e-6, "float32": 1e-3, "mixed_bfloat16": 0.02}[flow.dtype_policy.name]
    np.testing.assert_allclose(found, log_prob, rtol=rtol, atol=rtol)  # Compiled, sums are in another order.


def check_log_det(network) -> bool:
    """The log-det of a whole network is that of its Jacobian; whether it was built, and not refused."""
    flow = built(network)
    if flow is None:
        return False
    x, _ = network.data(count=1)
    with without_compilation():
        jitter(flow)
        bijector = flow.distribution.bijector
        parts = [tf.constant(x), *draw(bijector.noise, [1], (0, 1))]
        bases = coordinates(bijector)
        start = tf.concat([flat(p, p.shape.rank - 1) @ basis for p, basis in zip(parts, bases, strict=True)], axis=-1)
        size = start.shape[1]
        start = tf.repeat(start, size, axis=0)  # A row for each output: all derivatives in one pass.
        with tf.GradientTape() as tape:
            tape.watch(start)
            like = [tf.repeat(part, size, axis=0) for part in parts]
            inputs = as_list(from_coordinates(bijector, start, bases, like))
            z, log_det = bijector.forward_and_log_det(inputs, Context())
            z = flat(z, [part.shape.rank - 1 for part in z])
        jacobian = tape.gradient(z, start, output_gradients=tf.eye(size, z.shape[1], dtype=z.dtype)).numpy()
    if bijector.takes_integers:  # Whole numbers have no derivative: only the noise moves.
        jacobian = jacobian[: z.shape[1], jacobian.shape[1] - z.shape[1] :]
    assert z.shape[1] == jacobian.shape[1], "the augmented dimensions must agree"
    expected = np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(np.broadcast_to(log_det, [size])[0], expected, rtol=1e-6, atol=1e-6)
    del flow, bijector
    forget()
    return True


@on(10, derandomize=True)
@given(networks(), STORED)
@example(Network((4,), [("Dense", {"units": 3}), ("ReLU", {})]), "saved")
@example(Network((4,), [("Dense", {"units": 6}), ("Spline", {})], condition=(3,)), "exported")
@example(Network((2,), [("ConditionalAffine", {})], condition=(3,)), None)  # Conditions where functions run eagerly.
@example(Network((2, 4), [("Cropping1D", {"cropping": (1, 2)})]), None)  # It would leave less than nothing.
@example(Network((3, 2), [("Slice", {"slices": [(None, None, 2)] * 3})]), None)  # More axes than there are.
@example(Network((2,), [("Dense", {"units": 2, "gain": 200.0}), ("Sigmoid", {})], base="standard"), None)  # Flat ends.
@example(Network((2,), [("SELU", {})], condition="labels", base="flow"), None)  # Nothing reads the condition.
@example(Network((3, 1, 2), [("MaxPooling2D", {"padding": "same"})]), None)  # Cells that are off the image everywhere.
@example(Network((3, 1), [("LayerNormalization", {})]), None)  # Nothing would be left of vectors of one number.
def test_a_network_is_a_flow(network, stored):
    check(network, stored)


@on(6, derandomize=True)
@given(keras_networks(), STORED)
@example(KerasNetwork((6,), [("Embedding", {"input_dim": 7, "output_dim": 3})], levels=7), None)  # Tokens and noise.
@example(KerasNetwork((3,), [("LeakyReLU", {})], "float64", levels=2, by="block"), None)  # Without weights.
def test_a_network_of_keras_becomes_a_flow(network, stored):
    check(network, stored)


@on(6, derandomize=True)
@given(networks(policies=["float64"], conditions=st.none()))
def test_log_det_is_that_of_the_jacobian(network):
    check_log_det(network)


def many(property_, strategies, number, count):
    """Runs a property on so many networks, others for each number, of which most can be built.

    Ten at a time: from then on hypothesis would change those that it has, rather than draw others. The first of each
    time is the simplest one, and does not count.
    """
    built = []

    def counted(drawn):
        built.append(property_(*drawn))

    for i in range(count // 10):
        seed(1000 * number + i)(on(11, phases=[Phase.generate])(given(st.tuples(*strategies))(counted)))()
    assert len(built) >= count and np.mean(built) > 0.8, built


def first_of(count) -> list:
    """The numbers of fifties of networks, one of every five in each run of the slow tests, the others long ones."""
    return [pytest.param(number, marks=[pytest.mark.long] * (number % 5 > 0)) for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("number", first_of(15))
def test_many_networks_are_flows(number):
    many(check, [networks(), STORED], number, 50)


@pytest.mark.slow
@pytest.mark.parametrize("number", first_of(5))
def test_many_networks_of_keras_become_flows(number):
    many(check, [keras_networks(), STORED], number, 50)


@pytest.mark.slow
@pytest.mark.parametrize("number", first_of(3))
def test_log_dets_are_those_of_jacobians(number):
    many(check_log_det, [networks(policies=["float64"], conditions=st.none())], number, 50)
