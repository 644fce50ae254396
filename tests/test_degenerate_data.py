"""Data that have no density, since they lie on less than the whole space: a warning, and training that stays finite."""

import warnings

import keras
import numpy as np
import pytest
from models import normal
from nets import some

from tfp_flowify import FlowModel, zoo
from tfp_flowify import layers as fl
from tfp_flowify.model.inputs import InputCheck
from tfp_flowify_cli import main


def constant_column():
    x = normal(1000, 4)
    x[:, 2] = 3.0
    return x


def copied_column():
    x = normal(1000, 4)
    x[:, 3] = -2 * x[:, 1] + 1
    return x


def whole_numbers():
    return np.round(3 * normal(1000, 4))


WARNINGS = {
    "constant": (constant_column, r"1 of 4 entries are constant, \(2,\)"),
    "copied": (copied_column, r"1 of 4 columns are copies of others, \(3,\) of \(1,\)"),
    "whole": (whole_numbers, r"all numbers are whole.*Dequantize"),
}


@pytest.mark.parametrize("name", list(WARNINGS))
def test_a_warning_names_the_columns(name):
    make, message = WARNINGS[name]
    flow, x = FlowModel([keras.Input([4]), fl.Dense(4)]), make()
    flow.compile("adam", run_eagerly=True)
    for action in (flow.adapt, flow.fit):
        with pytest.warns(UserWarning, match=message):
            action(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow.adapt(normal(100, 4))
        flow.log_prob(x)


def test_columns_of_tables_have_names():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: names of columns are not tried")
    table = pandas.DataFrame(copied_column(), columns=["size", "mass", "age", "weight"])
    flow = FlowModel([keras.Input([4]), fl.Dense(4)])
    flow.compile("adam", run_eagerly=True)
    for action in (flow.adapt, flow.fit):
        with pytest.warns(UserWarning, match="weight of mass"):
            action(table)


@pytest.mark.parametrize("rows", [1000, 200_000])
def test_copies_are_found_in_tables_of_any_length(rows):
    x = np.random.default_rng(0).normal(size=[rows, 5]).astype("float32")
    x[:, 4] = 0.3 - 7 * x[:, 0]
    check = InputCheck([5])
    with pytest.warns(UserWarning, match=r"1 of 5 columns are copies of others, \(4,\) of \(0,\)"):
        check.warn_of_no_density(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check.warn_of_no_density(x[:, [0, 1, 2, 3, 1]] + 1e-2 * x[:, [1, 2, 3, 0, 0]])
        check.warn_of_no_density(x[:2])  # Too few to tell.


def test_data_in_small_units_are_named():
    """Scales have a floor, which is absolute: a density of what is dropped could not follow."""
    x = 1e-5 * normal(500, 3)
    with pytest.warns(UserWarning, match=r"deviate by 1e-05.*Put Normalization\(\) in front"):
        FlowModel([keras.Input([3]), fl.Dense(1)]).adapt(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        flow = FlowModel([keras.Input([3]), fl.Normalization(), fl.Dense(1)])
        flow.adapt(x)
    exact = -1.5 * np.log(2 * np.pi * np.e) - 3 * np.log(1e-5)
    assert abs(np.mean(flow.log_prob(x)) - exact) < 0.1


@pytest.mark.parametrize("name", some(WARNINGS))
@pytest.mark.filterwarnings("ignore:These data have no density")
def test_training_stays_finite(name):
    """Likelihoods have no bound here, but for the floor of the scales: they rise, and do not explode."""
    keras.utils.set_random_seed(0)
    x = WARNINGS[name][0]()
    flow = zoo.build("fmlp", (4,), seed=0)
    flow.adapt(x, seed=0)
    flow.compile(keras.optimizers.Adam(5e-3))
    losses = np.array(flow.fit(x, batch_size=250, epochs=60, verbose=0).history["loss"])
    assert np.isfinite(losses).all()
    assert losses.max() < 100
    assert losses[-10:].mean() < losses[0]
    assert np.isfinite(flow.log_prob(x)).all()
    assert np.isfinite(flow.sample(100, seed=1)).all()


@pytest.mark.filterwarnings("ignore:These data have no density")
def test_raw_digits_through_any_function_stay_finite(images):
    """Pixels that are not dequantised have a density without bound: their scales fell until all was NaN."""
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)])
    flow, x = FlowModel([keras.Input((8, 8, 1)), fl.Stochastic(network)]), images[0].astype("float32")
    flow.adapt(x[:500])
    flow.compile(keras.optimizers.Adam(1e-2))
    losses = flow.fit(x, batch_size=100, epochs=30, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_the_command_warns_and_ends_with_figures_that_make_sense(tmp_path, capsys):
    np.save(tmp_path / "copies.npy", copied_column())
    arguments = ["--epochs", "3", "--draws", "2", "--weighted-examples", "20", "--out", str(tmp_path / "run")]
    assert main(["train", "--data", str(tmp_path / "copies.npy"), *arguments]) == 0
    seen = capsys.readouterr()
    assert "tfp-flowify: warning: These data have no density" in seen.err
    figure = float(next(line for line in seen.out.splitlines() if line.startswith("test, one draw")).split()[3])
    assert -100 < figure < 100
