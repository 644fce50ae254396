"""The commands beside training: testing, drawing, results; and what they say where something is wrong."""

import json
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from matplotlib.image import imread
from models import SMALL_RUN

from tfp_flowify.data import Data
from tfp_flowify.experiments import RunFolder
from tfp_flowify.experiments.figures import evaluate
from tfp_flowify.experiments.paper import EXPERIMENTS
from tfp_flowify.experiments.results_page import write_results
from tfp_flowify_cli import main


@pytest.mark.parametrize("which", ["", "best.keras", "saved_model"])
def test_evaluate(run, tmp_path, capsys, which):
    arguments = ["--draws", "10", "--weighted-examples", "100", "--json", str(tmp_path / "f.json")]
    arguments += ["--data", "digits", "--per-example", str(tmp_path / "scores.npz")]
    assert main(["evaluate", str(run.path / which), *arguments]) == 0
    assert "test, 10 draws" in capsys.readouterr().out
    figures, report = json.loads((tmp_path / "f.json").read_text()), json.loads(run.report.read_text())
    for name in ("single_draw", "importance_weighted"):
        error = report[name]["standard_error"] if which == "saved_model" else 1e-5  # It draws other noise.
        assert abs(figures[name]["mean"] - report[name]["mean"]) < error
    assert np.load(tmp_path / "scores.npz")["log_prob"].shape == (360,)


def test_a_score_for_each_row_of_a_file(table_run, tmp_path, capsys):
    rows = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    np.savetxt(tmp_path / "new.csv", rows, delimiter=",", header="a,b,c", comments="")
    arguments = ["evaluate", str(table_run.path), "--data", str(tmp_path / "new.csv"), "--split", "all", "--draws", "2"]
    assert main([*arguments, "--per-example", str(tmp_path / "scores.csv")]) == 0
    assert "all, one draw" in capsys.readouterr().out
    scores = np.loadtxt(tmp_path / "scores.csv", skiprows=1)
    np.testing.assert_allclose(scores, table_run.load().log_prob(rows, seed=0), rtol=1e-4, atol=1e-4)
    assert main(["evaluate", str(table_run.path), "--data", "power", "--split", "all"]) == 2
    assert "power has splits of its own" in capsys.readouterr().err


def test_what_cannot_be_scored_is_told(table_run, tmp_path, capsys):
    shutil.copytree(table_run.path, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    run.write_config({**run.read_config(), "columns": ["a", "b", "c"]})
    np.savetxt(tmp_path / "new.csv", np.eye(3), delimiter=",", header="c,a,b", comments="")
    arguments = ["evaluate", str(run.path), "--data", str(tmp_path / "new.csv"), "--split", "all"]
    assert main(arguments) == 2
    assert "columns a, b, c, in this order. Received:" in capsys.readouterr().err
    assert main([*arguments, "--per-example", str(tmp_path / "scores.tsv")]) == 2
    assert "--per-example is a file .csv or .npz" in capsys.readouterr().err


def test_scores_are_kept_where_they_have_no_mean():
    class Flow:
        def log_prob(self, x, **_):
            return np.where(x[:, 0] > 1, -np.inf, 0.0)

    x, kept = np.array([[0.0], [2.0], [1.0]], np.float32), []
    with pytest.raises(FloatingPointError, match=r"1 of 3 examples are not finite.*first is example 1"):
        evaluate(Flow(), Data("rows", x[:0], x[:0], x), log=str, keep=kept.extend)
    assert kept == [0.0, -np.inf, 0.0]


@pytest.mark.parametrize("which", ["", "last.keras", "saved_model"])
def test_sample(run, tmp_path, which):
    assert main(["sample", str(run.path / which), "--count", "9", "--out", str(tmp_path / "s.png")]) == 0
    assert imread(tmp_path / "s.png")[..., 0].std() > 0.1
    assert main(["sample", str(run.path / which), "--count", "9", "--out", str(tmp_path / "s.npz")]) == 0
    x = np.load(tmp_path / "s.npz")["samples"]
    assert x.shape == (9, 8, 8, 1) and set(np.unique(x)) <= set(range(17))


@pytest.mark.slow
def test_samples_as_numbers(run, table_run, tmp_path):
    for suffix in ("csv", "npy", "npz"):
        assert main(["sample", str(table_run.path), "--count", "5", "--out", str(tmp_path / f"s.{suffix}")]) == 0
    rows = np.load(tmp_path / "s.npz")["samples"]
    assert rows.shape == (5, 3)
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), rows)
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines[0] == "column_0,column_1,column_2"
    np.testing.assert_allclose(np.loadtxt(lines[1:], delimiter=","), rows, rtol=1e-6)
    assert main(["sample", str(run.path), "--count", "2", "--out", str(tmp_path / "digits.csv")]) == 0
    pixels = np.loadtxt(tmp_path / "digits.csv", delimiter=",", skiprows=1)
    assert pixels.shape == (2, 64) and set(np.unique(pixels)) <= set(range(17))


def test_a_table_of_ones_own(tmp_path, capsys):
    """A .csv file in, with names of columns; a .csv file out, with the same names."""
    rows = np.random.default_rng(0).normal(size=[60, 2]) @ [[1.0, 0.5], [0.0, 2.0]]
    np.savetxt(tmp_path / "mine.csv", rows, delimiter=",", header="height,weight", comments="")
    arguments = [*SMALL_RUN, "--data", str(tmp_path / "mine.csv"), "--model", "fmlp_2", "--epochs", "1"]
    assert main(["train", *arguments, "--batch-size", "16", "--out", str(tmp_path / "run")]) == 0
    assert "Warning: 48 examples to train on are few" in capsys.readouterr().out
    assert main(["sample", str(tmp_path / "run"), "--count", "3", "--out", str(tmp_path / "s.csv")]) == 0
    assert (tmp_path / "s.csv").read_text().splitlines()[0] == "height,weight"
    assert main(["evaluate", str(tmp_path / "run"), "--draws", "2"]) == 0


def test_too_little_memory_is_said_in_words(tmp_path, capsys, monkeypatch):
    message = "Graph execution error:\n\nOOM when allocating tensor with shape[480000,64000] and type float on CPU"

    def fail(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr("tfp_flowify.experiments.train", fail)
    assert main(["train", "--epochs", "1", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "not enough memory (OOM when allocating tensor with shape[480000,64000]" in error
    assert "smaller --batch-size" in error


def test_mean_samples_have_the_same_outputs(run, tmp_path):
    for name, more in (("a", []), ("b", ["--mean"])):
        assert main(["sample", str(run.path), *more, "--out", str(tmp_path / f"{name}.npz")]) == 0
    a, b = (np.load(tmp_path / f"{name}.npz")["samples"].reshape(64, 64) for name in "ab")
    alike = np.corrcoef(a, b)[:64, 64:]
    assert np.diag(alike).mean() > alike.mean() + 0.2 and not np.array_equal(a, b)


def no_permission(tmp_path):
    (tmp_path / "file").write_text("")
    return ["train", "--out", str(tmp_path / "file" / "run"), "--epochs", "1"]


def damaged(tmp_path):
    config = {"epochs": 1, "data": "digits", "model": "fmlp", "batch_size": 128, "machine": "this one"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "last.keras").write_bytes(b"PK\x03\x04 broken")
    return ["train", "--resume", "--out", str(tmp_path)]


def damaged_config(tmp_path):
    (tmp_path / "config.json").write_text("[]")
    return ["train", "--resume", "--out", str(tmp_path)]


def damaged_best(tmp_path):
    (tmp_path / "best.keras").write_bytes(b"no zip")
    return ["evaluate", str(tmp_path / "best.keras"), "--data", "digits"]


def not_a_flow(tmp_path):
    keras.Sequential([keras.Input([2]), keras.layers.Dense(1)]).save(tmp_path / "plain.keras")
    return ["sample", str(tmp_path / "plain.keras")]


def too_few(tmp_path):
    np.savez(tmp_path / "few.npz", x=np.random.default_rng(0).normal(size=[20, 2]))
    return ["train", "--data", str(tmp_path / "few.npz"), "--batch-size", "128", "--out", str(tmp_path / "run")]


WRONG = {
    "data": (lambda t: ["train", "--data", "numbers", "--out", f"{t}/r"], "Data are one of digits"),
    "data folder": (
        lambda t: ["train", "--data", "mnist", "--data-dir", str(t), "--out", f"{t}/r"],
        "There is no mnist",
    ),
    "model": (lambda t: ["train", "--model", "vgg", "--out", f"{t}/r"], "Networks for images are"),
    "shape": (lambda t: ["train", "--model", "fmlp_8_4", "--out", f"{t}/r"], r"for data of \(8, 8, 1\)"),
    "minutes": (
        lambda t: ["train", "--minutes", "-1", "--out", f"{t}/r"],
        "minutes must be a positive number.*--minutes -1",
    ),
    "no permission": (no_permission, r"cannot be written to \(Not a directory\).*--out"),
    "nothing to resume": (lambda t: ["train", "--resume", "--out", str(t)], "There is no run in"),
    "damaged checkpoint": (damaged, "last.keras is damaged"),
    "damaged config": (damaged_config, "config.json is damaged"),
    "validation": (
        lambda t: ["train", "--validation-examples", "0", "--out", f"{t}/r"],
        "validation_examples must be a positive.*--validation-examples 0",
    ),
    "draws": (lambda t: ["train", "--draws", "-1", "--out", f"{t}/r"], "draws must be a positive number.*--draws -1"),
    "tables": (lambda t: ["reproduce", "--only", "gas_fmlp", "--out", f"{t}/o", "--runs", f"{t}/r"], "--table-dir DIR"),
    "no runs": (
        lambda t: ["reproduce", "--page-only", "--out", f"{t}/o", "--runs", f"{t}/r"],
        "no finished experiment",
    ),
    "damaged file": (damaged_best, "best.keras is damaged"),
    "not a flow": (not_a_flow, "holds a Sequential, not a FlowModel"),
    "too few": (too_few, "16 training examples, fewer than --batch-size 128"),
    "no flow": (lambda t: ["evaluate", f"{t}/none"], "There is no .*none"),
    "neither": (lambda t: ["sample", str(t)], "neither the folder of a run .* nor a SavedModel"),
    "experiment": (lambda t: ["reproduce", "--only", "imagenet_*"], "There is no experiment 'imagenet_"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_before_any_work(case, tmp_path, capsys):
    make, message = WRONG[case]
    arguments = make(tmp_path)
    capsys.readouterr()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("tfp-flowify: ") and "Traceback" not in error
    assert re.search(message, error), error


def test_wrong_use_of_a_run(run, table_run, tmp_path, capsys):
    assert main(["evaluate", str(table_run.path), "--data", "digits"]) == 2
    assert "takes data of (3,), digits has (8, 8, 1)" in capsys.readouterr().err
    assert main(["sample", str(table_run.path)]) == 2
    assert "no picture. Write numbers: --out samples.csv" in capsys.readouterr().err
    bright = np.full([20, 8, 8, 1], 200, np.uint8)
    np.savez(tmp_path / "bright.npz", x=bright)
    for path in (run.path, run.saved_model):
        assert main(["evaluate", str(path), "--data", str(tmp_path / "bright.npz")]) == 2
        assert "takes batches (n, 8, 8, 1) of whole numbers 0 ... 16" in capsys.readouterr().err
    assert main(["sample", str(run.saved_model), "--mean"]) == 2
    assert "draws all parts" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "evaluate", "sample", "reproduce"])
def test_help(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert "Examples:" in text and f"tfp-flowify {command}" in text


def test_results_stand_beside_the_papers(run, tmp_path):
    report = json.loads(run.report.read_text())
    for name, figure in (
        ("mnist_fconv2", 1.234),
        ("power_fmlp", 0.5678),
        ("mnist_best", 1.001),
        ("mnist_fconv1_normal", 1.5),
    ):
        folder = RunFolder(tmp_path / "runs" / name)
        folder.make()
        figures = {"mean": figure, "standard_error": 0.001, "examples": 10}
        folder.write_report({**report, "single_draw": figures, "minutes": 10.0})
    page = write_results(tmp_path / "runs", tmp_path / "out").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| fConv2 | 1.41"))
    assert "6.05 after 12 min" in row and "1.234 +- 0.001" in row
    assert "| POWER | -0.50 | 0.568 +- 0.001 |" in page and "| GAS | 5.35 | not run |" in page
    assert "| MNIST | best | 1.001 +- 0.001 |" in page and "| MNIST | normal | 3.11 | 1.500 +- 0.001 |" in page
    assert "POWER: trained on 1,294 rows, not on the 1,659,917 of the published split." in page
    assert "tfp-flowify train --data mnist --model fconv2 --minutes 10 --data-dir DIR" in page
    assert "Whether it is true" not in page
    truth = {"holds": False, "log_dets": [[1.0, 1.0]] * 5, "largest_difference": 2e-11, "weighted_examples": 100}
    truth["figures"] = {"1": 1.2, "10": 1.1, "1000": 1.0}
    RunFolder(tmp_path / "runs" / "mnist_best").truth.write_text(json.dumps(truth))
    page = write_results(tmp_path / "runs", tmp_path / "out").read_text()
    assert "| 1 draw(s) | 10 draw(s) | 1,000 draw(s) | holds |" in page
    assert "| 2.0e-11 at 5 examples | bits/dim, 100 | 1.20000 | 1.10000 | 1.00000 | **no** |" in page
    shutil.rmtree(tmp_path / "runs")
    assert write_results(tmp_path / "runs", tmp_path / "out").read_text() == page  # The page needs the runs no more.


def test_experiments_have_names_of_their_own():
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS) == 24


@pytest.fixture(scope="module")
def given_run(tmp_path_factory):
    """A finished run on digits given their class."""
    folder = tmp_path_factory.mktemp("given") / "digits"
    assert main(["train", *SMALL_RUN, "--condition", "labels", "--epochs", "2", "--out", str(folder)]) == 0
    return RunFolder(folder)


@pytest.mark.slow
def test_training_given_labels(given_run):
    report, config = json.loads(given_run.report.read_text()), given_run.read_config()
    assert report["condition"] == "labels" and config["classes"] == 10 and np.isfinite(report["single_draw"]["mean"])
    assert given_run.load().takes_condition
    picture = imread(given_run.path / "samples.png")
    assert picture.shape[0] > 300  # Ten rows.


@pytest.mark.slow
@pytest.mark.parametrize("which", ["", "best.keras", "saved_model"])
def test_evaluate_and_sample_given_labels(given_run, tmp_path, capsys, which):
    path = str(given_run.path / which)
    arguments = ["--draws", "5", "--weighted-examples", "50", "--per-example", str(tmp_path / "s.npz")]
    assert main(["evaluate", path, *arguments]) == 0
    assert np.load(tmp_path / "s.npz")["log_prob"].shape == (360,)
    assert main(["sample", path, "--condition", "3", "7", "--count", "4", "--out", str(tmp_path / "two.npy")]) == 0
    two = np.load(tmp_path / "two.npy")
    assert two.shape == (8, 8, 8, 1)
    assert main(["sample", path, "--condition", "3", "--count", "4", "--out", str(tmp_path / "one.npy")]) == 0
    if which != "saved_model":
        np.testing.assert_array_equal(np.load(tmp_path / "one.npy"), two[:4])
    assert main(["sample", path, "--out", str(tmp_path / "all.npy")]) == 0
    assert len(np.load(tmp_path / "all.npy")) == 100


@pytest.mark.slow
def test_training_and_sampling_given_columns(tmp_path):
    x = np.random.default_rng(0).normal(size=(300, 3))
    x[:, 1] += 3 * x[:, 0]
    np.savetxt(tmp_path / "t.csv", x, delimiter=",", header="a,b,c", comments="")
    arguments = [
        "--data",
        str(tmp_path / "t.csv"),
        "--model",
        "fmlp",
        "--condition",
        "a",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(["train", *SMALL_RUN, *arguments, "--epochs", "2"]) == 0
    sample = ["sample", str(tmp_path / "run"), "--count", "200", "--out", str(tmp_path / "s.csv")]
    assert main([*sample, "--condition", "2.0"]) == 0
    assert (tmp_path / "s.csv").read_text().startswith("b,c\n")
    high = np.loadtxt(tmp_path / "s.csv", delimiter=",", skiprows=1)
    assert main([*sample, "--condition", "-2.0"]) == 0
    low = np.loadtxt(tmp_path / "s.csv", delimiter=",", skiprows=1)
    assert high.shape == (200, 2) and np.median(high[:, 0]) > np.median(low[:, 0]) + 3


@pytest.mark.slow
def test_conditions_that_do_not_fit_are_named(given_run, run, tmp_path, capsys):
    for arguments, message in (
        (
            ["train", "--condition", "colour", "--epochs", "1", "--out", str(tmp_path / "a")],
            "conditioned on its labels",
        ),
        (["sample", str(given_run.path), "--condition", "11", "--out", str(tmp_path / "a.png")], "labels 0 ... 9.*11"),
        (["sample", str(run.path), "--condition", "1", "--out", str(tmp_path / "a.png")], "takes no --condition"),
        (["evaluate", str(run.path), "--condition", "labels"], "takes no condition. Leave out --condition"),
    ):
        assert main(arguments) == 2
        assert re.search(message, capsys.readouterr().err)
