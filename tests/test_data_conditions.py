"""Conditions that come with data: labels, and columns of tables."""

import numpy as np
import pytest
from test_data import rows

from tfp_flowify.data import Data, batches, digits, load


def test_labels_are_a_condition():
    data = load("digits", condition="labels")
    assert data.classes == 10 and data.condition.shape == () and "given labels" in data.describe()
    plain = load("digits")
    assert plain.condition is None and plain.classes is None and plain.given("test") == {}
    np.testing.assert_array_equal(plain.train, data.train)
    (_, y_train), (_, y_test) = digits()
    np.testing.assert_array_equal(data.given("test")["condition"], y_test)
    np.testing.assert_array_equal(data.given("validation", slice(3))["condition"], y_train[-143:][:3])


def test_columns_are_a_condition(tmp_path):
    table = np.random.default_rng(0).normal(size=(50, 3))
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,c", comments="")
    data = load(str(tmp_path / "t.csv"), condition="c,a")
    assert data.shape == (1,) and data.columns == ("b",) and data.condition.columns == ("c", "a")
    together = np.concatenate([data.train, data.condition.train], axis=1)
    whole = load(str(tmp_path / "t.csv"))
    np.testing.assert_array_equal(together, whole.train[:, [1, 2, 0]])
    np.save(tmp_path / "t.npy", table)
    assert load(str(tmp_path / "t.npy"), condition="1").condition.shape == (1,)
    assert load(str(tmp_path / "t.csv"), condition="2").condition.columns == ("c",)
    np.save(tmp_path / "years.npy", np.stack([np.arange(50) % 4, np.arange(50) + 2000], axis=1))
    assert load(str(tmp_path / "years.npy"), condition="1").levels == 4


@pytest.mark.parametrize(
    "name, condition, message",
    [
        ("digits", "colour", "conditioned on its labels.*'colour'"),
        ("t.csv", "labels", "no labels that are known"),
        ("t.csv", "d", r"They are a, b, c.*not there: \['d'\]"),
        ("t.csv", "a,b,c", "leaves some"),
        ("t.csv", "a,a", "leaves some"),
    ],
)
def test_conditions_that_are_not_there_are_named(tmp_path, name, condition, message):
    np.savetxt(tmp_path / "t.csv", rows(50, 3), delimiter=",", header="a,b,c", comments="")
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load(name if name == "digits" else str(tmp_path / name), condition=condition)


def test_batches_keep_conditions_with_their_examples():
    x = np.arange(20)
    for batch in batches(x, 5, seed=1, condition=10 * x).take(4):
        np.testing.assert_array_equal(10 * batch["x"], batch["condition"])
    with pytest.raises(ValueError, match="4 examples and 5"):
        Data("a", *(np.zeros([4, 2]) for _ in range(3)), condition=Data("c", *(np.zeros([5, 1]) for _ in range(3))))
