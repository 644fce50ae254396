"""A classifier that becomes a flow, by the command and on digits: what it learns, what it finds odd."""

import json

import keras
import numpy as np
import pytest

from tfp_flowify.data import digits
from tfp_flowify.diagnostics import auroc, corruptions
from tfp_flowify.experiments.clock import Clock
from tfp_flowify_cli import main


def test_auroc_is_a_share_of_pairs():
    generator = np.random.default_rng(0)
    typical, others = generator.normal(1, 1, 300).round(1), generator.normal(0, 1, 200).round(1)
    pairs = (typical[:, None] > others) + 0.5 * (typical[:, None] == others)
    assert auroc(typical, others) == pytest.approx(pairs.mean())
    assert auroc([1.0], [1.0]) == 0.5
    with pytest.raises(ValueError, match="none of them NaN"):
        auroc([1.0, np.nan], [0.0])


def test_corruptions_keep_levels_and_are_no_longer_the_images():
    x = digits()[1][0][:50]
    found = corruptions(x, 17)
    for images in found.values():
        assert images.shape == x.shape and images.min() >= 0 and images.max() <= 16
        assert np.mean(images != x) > 0.2
    assert np.array_equal(np.sort(found["shuffled"].reshape(50, -1)), np.sort(x.reshape(50, -1)))
    assert np.array_equal(found["inverted"] + x, np.full(x.shape, 16))


@pytest.mark.slow
def test_the_command_on_digits(tmp_path, capsys, monkeypatch):
    """Below 3.0 bits, and anomalies of four kinds told apart, by a frozen classifier that stays what it is."""
    # By steps, so that what is learned does not depend on how busy the machine is.
    monkeypatch.setattr(Clock, "share", lambda clock, step: min(1.0, step / 1200))
    np.savez(tmp_path / "others.npz", images=np.roll(digits()[1][0], 4, axis=2))
    command = ["classifier", "--epochs", "30", "--minutes", "1", "--out", str(tmp_path / "run")]
    assert main([*command, "--anomalies", str(tmp_path / "others.npz")]) == 0
    figures = json.loads((tmp_path / "run/figures.json").read_text())
    assert figures["flow"]["single_draw"]["mean"] < 3.0
    assert figures["classifier"]["accuracy"] == figures["classifier"]["accuracy_of_the_flow"] > 0.95
    assert figures["classifier"]["largest_difference_of_probabilities"] < 1e-4
    for name in ("noise", "inverted", "shuffled", "rotated"):
        assert figures["auroc"][name]["log_prob"] > 0.98
    assert "others" in figures["auroc"]
    for picture in ("forgotten.png", "scores.png", "flow/samples.png"):
        assert (tmp_path / "run" / picture).stat().st_size > 5000
    capsys.readouterr()
    assert main(command) == 0  # All is there already.
    assert "Epoch" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_file_of_keras_is_flowified_by_train(tmp_path, capsys):
    stack = [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)]
    keras.Sequential(stack).save(tmp_path / "network.keras")
    out = tmp_path / "run"
    command = ["train", "--model", str(tmp_path / "network.keras"), "--by", "layer", "--epochs", "1", "--draws", "2"]
    assert main([*command, "--weighted-examples", "5", "--out", str(out)]) == 0
    assert "layer by layer, which adds 0 dimensions of noise" in capsys.readouterr().out
    flow = keras.models.load_model(out / "best.keras")
    assert flow.pretrained and not flow.network.trainable_variables
    assert main(["train", "--model", str(tmp_path / "network.keras"), "--condition", "labels", "--epochs", "1"]) == 2
    assert "without a condition" in capsys.readouterr().err
