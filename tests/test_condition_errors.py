"""Conditions that are missing, too many or misshapen: errors that name them; and boxes that are never left."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conditions import C, X, adapted_flow, forms, label_network, plain

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl


@pytest.fixture(scope="module")
def flow():
    return adapted_flow()


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
    "batches of a generator": (lambda f: f.fit(((X, C[:, :2]),) for _ in range(1)), r"condition of shape \(40, 2\)"),
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
