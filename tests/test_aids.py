"""What helps training: averages of weights, decay, shifted images, dropout, and an end without progress."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import SMALL_RUN

from tfp_flowify.data import batches, load
from tfp_flowify.data.dataset import shifted
from tfp_flowify.experiments import Options, RunFolder
from tfp_flowify.experiments.callbacks import Recorder, StopWithoutProgress
from tfp_flowify.experiments.workers import Workers
from tfp_flowify.layers.networks import Dropout
from tfp_flowify_cli import main


def test_averages_are_what_is_tested_and_kept_as_the_best(tmp_path):
    out = tmp_path / "run"
    arguments = [*SMALL_RUN, "--epochs", "1", "--average", "0.9", "--weight-decay", "0.1"]
    assert main(["train", *arguments, "--out", str(out)]) == 0
    run = RunFolder(out)
    last, best = run.load(run.last), run.load(run.best)
    assert last.optimizer.use_ema and last.optimizer.ema_momentum == 0.9
    assert any(not np.allclose(a, b) for a, b in zip(last.trainable_weights, best.trainable_weights, strict=True))
    row = run.read_history()[-1]
    bits = np.mean(best.bits_per_dim(load("digits").validation, seed=0))
    assert np.isclose(row["validation"], bits, rtol=1e-5)


def test_only_kernels_of_networks_decay(tmp_path):
    out = tmp_path / "run"
    arguments = [*SMALL_RUN, "--learning-rate", "1e-12", "--weight-decay", "1e9", "--epochs", "1"]
    assert main(["train", *arguments, "--out", str(out)]) == 0
    flow = RunFolder(out).load()
    kernels = [w for w in flow.trainable_weights if w.name == "kernel"]
    others = [w for w in flow.trainable_weights if w.name in ("log_singular", "loc")]
    assert kernels and max(np.abs(w).max() for w in kernels) < 0.3
    assert others and max(np.abs(w).max() for w in others) > 0.5


def test_shifted_images_are_crops_of_mirrored_ones():
    images = np.random.default_rng(0).integers(0, 256, size=(50, 5, 4, 2), dtype=np.uint8)
    moved = shifted(tf.constant(images), 2, seed=[3, 1]).numpy()
    assert moved.dtype == np.uint8
    wide = np.pad(images, [(0, 0), (2, 2), (2, 2), (0, 0)], mode="symmetric")
    crops = [[wide[:, i : i + 5, j : j + 4] for j in range(5)] for i in range(5)]
    found = {
        next((i, j) for i in range(5) for j in range(5) if np.array_equal(crops[i][j][k], moved[k])) for k in range(50)
    }
    assert len(found) > 15
    np.testing.assert_array_equal(moved, shifted(tf.constant(images), 2, seed=[3, 1]))
    with pytest.raises(ValueError, match=r"shift=1 for examples of shape \(3,\)"):
        shifted(tf.zeros([5, 3]), 1, seed=[0, 0])
    with pytest.raises(ValueError, match=r"shift=5 for examples of shape \(5, 4, 2\)"):
        shifted(tf.constant(images), 5, seed=[0, 0])


def test_shifts_go_on_where_they_were():
    """As the order of the data, they depend on the seed and the number of the step alone."""
    x = np.random.default_rng(0).integers(0, 256, size=(10, 4, 4, 1), dtype=np.uint8)
    whole = list(batches(x, 3, seed=1, shift=1).take(7).as_numpy_iterator())
    later = list(batches(x, 3, seed=1, first_epoch=1, shift=1).skip(1).take(3).as_numpy_iterator())
    np.testing.assert_array_equal(whole[4:], later)
    assert not np.array_equal(whole[0], next(batches(x, 3, seed=1).as_numpy_iterator()))


def stops_after(figures, patience, in_bits=True, rows=()):
    """Behind which figure training stops, or None."""
    rows, workers = [{"validation": row} for row in rows], Workers(tf.distribute.get_strategy())
    callback = StopWithoutProgress(patience, in_bits, rows, workers, log=lambda _: None)
    callback.set_model(keras.Sequential([keras.Input([1]), keras.layers.Dense(1)]))
    callback.model.stop_training = False
    for i, figure in enumerate(figures):
        callback.on_epoch_end(i, {"validation": figure})
        if callback.model.stop_training:
            return i
    return None


@pytest.mark.slow
def test_dropout_and_averages_go_on_where_they_were(tmp_path):
    """A run that was stopped behind its first epoch ends as one that was not, to the last digit."""
    arguments = ["--model", "best_small", "--dropout", "0.4", "--average", "0.9", "--weight-decay", "0.01"]
    arguments += ["--set", "width=8", "--no-xla", "--draws", "2", "--weighted-examples", "5", "--epochs", "2"]
    whole, parts = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")
    assert main(["train", *arguments, "--out", str(whole.path)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "on_epoch_end", stopping(Recorder.on_epoch_end))
        main(["train", *arguments, "--out", str(parts.path)])
    assert len(parts.read_history()) == 1
    assert main(["train", "--resume", "--out", str(parts.path)]) == 0
    for a, b in zip(*(run.load(run.last).get_weights() for run in (whole, parts)), strict=True):
        np.testing.assert_array_equal(a, b)


def stopping(on_epoch_end):
    """Ends training behind an epoch, as Ctrl-C does."""

    def stop(callback, epoch, logs=None):
        on_epoch_end(callback, epoch, logs)
        callback.model.stop_training = True

    return stop


def test_a_saved_dropout_goes_on_with_its_masks(tmp_path):
    model = keras.Sequential([keras.Input([50]), Dropout(0.5, seed=3)])
    x = np.ones([2, 50], np.float32)
    model(x, training=True)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(x, training=True), again(x, training=True))


@pytest.mark.slow
def test_a_run_that_ended_without_progress_is_done(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", *SMALL_RUN, "--epochs", "9", "--learning-rate", "1e-12", "--patience", "1"]
    assert main([*arguments, "--out", str(out)]) == 0
    rows = RunFolder(out).read_history()
    assert len(rows) < 9
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert "All of its training is done already" in capsys.readouterr().out
    assert RunFolder(out).read_history() == rows


def test_training_ends_without_progress():
    figures = [3.0, 2.0, 2.5, 2.1, 1.9, 2.0, 2.0, 2.0]
    assert stops_after(figures, 3) == 7
    assert stops_after(figures, 2) == 3
    assert stops_after(figures, 0) is None
    assert stops_after([-f for f in figures], 3, in_bits=False) == 7
    assert stops_after([2.5, 2.1], 2, rows=[3.0, 2.0]) == 1  # Epochs before a run was resumed count.


@pytest.mark.slow
def test_arguments_of_layers_are_set(tmp_path):
    out = tmp_path / "run"
    given = ["--set", "front=variational", "width=8", "--stages", "2"]
    assert main(["train", *SMALL_RUN, *given, "--model", "fconv2", "--epochs", "1", "--out", str(out)]) == 0
    run = RunFolder(out)
    assert run.read_config()["arguments"] == {"front": "variational", "width": 8, "depth": 1}
    spread, conv = run.load().network.layers[:2]
    assert spread.variational and conv.width == 8 and conv.stages == 2


@pytest.mark.parametrize(
    "given, message",
    [
        (["width"], "NAME=VALUE. Received: 'width'"),
        (["wide=3"], "wide"),
        (["front=logit"], "front is .* Received: front='logit'"),
    ],
)
def test_arguments_that_are_none_are_named(tmp_path, capsys, given, message):
    arguments = ["--model", "fconv2", "--epochs", "1", "--set", *given, "--out", str(tmp_path / "run")]
    assert main(["train", *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_defaults_depend_on_the_data():
    digits = Options(minutes=1).completed(load("digits"))
    assert (digits.model, digits.dropout, digits.batch_size, digits.transform) == ("best_small", 0.3, 64, None)
    paper = Options(minutes=1, model="fconv2").completed(load("digits"))
    assert (paper.dropout, paper.batch_size, paper.transform) == (None, 128, "affine+mixture")
    assert paper.arguments == {"depth": 1, "width": 64}
    assert Options(minutes=1, model="fconv2", arguments={"width": 8}).completed(load("digits")).arguments["width"] == 8
    assert Options(minutes=1, model="fmlp").completed(load("digits")).arguments == {}
    for name in ("average", "dropout"):
        with pytest.raises(ValueError, match=f"{name} must be less than one"):
            Options(minutes=1, **{name: 1.0})
