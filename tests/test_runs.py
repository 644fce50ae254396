"""Training runs as people start them: what is in their folders, and how they are killed, interrupted and resumed."""

import json
import os
import random
import shutil
import signal
import subprocess
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from matplotlib.image import imread
from models import PICTURES, SMALL_RUN

from tfp_flowify.experiments import Options, RunFolder, resume, train
from tfp_flowify.experiments.clock import Clock
from tfp_flowify_cli import main


def test_a_run_leaves_all_its_files(run):
    assert run.read_config()["model"] == "fmlp" and run.read_config()["versions"]["keras"] == keras.__version__
    history = run.read_history()
    assert [row["epoch"] for row in history] == [1, 2]
    assert history[1]["validation"] < history[0]["validation"] < 4.09  # A uniform density has log2(17) = 4.09 bits.
    assert history[1]["learning_rate"] < 0.1 * history[0]["learning_rate"]
    for name in PICTURES:
        picture = imread(run.path / name)
        assert picture[..., :3].std() > 0.05, name
    assert (run.saved_model / "saved_model.pb").is_file()
    assert not list(run.path.glob(".new_*"))


def test_the_report_has_the_figures(run):
    report = json.loads(run.report.read_text())
    single, weighted = report["single_draw_same_examples"], report["importance_weighted"]
    assert report["unit"] == "bits/dim" and weighted["draws"] == 10 and weighted["examples"] == 100
    assert report["single_draw"]["examples"] == 360 and 0 < report["single_draw"]["standard_error"] < 0.1
    whole, single_error = report["importance_weighted_all"], report["single_draw"]["standard_error"]
    assert np.isclose(whole["mean"], report["single_draw"]["mean"] - report["gain"]["mean"])
    assert single_error < whole["standard_error"] < 2 * single_error
    assert report["gain"]["mean"] > 0 and np.isclose(report["gain"]["mean"], single["mean"] - weighted["mean"])
    assert report["parameters"] == sum(np.prod(weight.shape) for weight in run.load().trainable_variables)
    assert report["seconds_to_first_step"] > report["seconds_per_step"] > 0
    assert report["peak_memory_bytes"] > 1e8


def test_the_report_is_of_the_best_flow_on_test_data(run):
    from tfp_flowify.data import digits

    bits = np.mean(run.load(run.best).bits_per_dim(digits()[1][0], seed=0))
    assert np.isclose(json.loads(run.report.read_text())["single_draw"]["mean"], bits, rtol=1e-5)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

MEASURE = """<script>
const images = [...document.images];
const wide = document.documentElement.scrollWidth > window.innerWidth;
document.title = `${images.filter(i => i.naturalWidth > 100).length} pictures, ${wide ? "too wide" : "fits"}`;
</script></body>"""


def test_the_page_holds_everything(run):
    page = (run.path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(PICTURES)
    assert "http" not in page and "<script" not in page and "fmlp on digits" in page


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_in_a_browser(run, tmp_path, width):
    (tmp_path / "page.html").write_text((run.path / "report.html").read_text().replace("</body>", MEASURE))
    browser = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    browser += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    command = [*browser, f"--window-size={width},2000", "--dump-dom", f"file://{tmp_path / 'page.html'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert f"<title>{len(PICTURES)} pictures, fits</title>" in done.stdout


def test_a_run_is_not_written_over(run, capsys):
    assert main(["train", *SMALL_RUN, "--epochs", "1", "--out", str(run.path)]) == 2
    assert "holds a run already. Resume it, or give another folder (--out DIR)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_finished_run_can_go_on(run, tmp_path, capsys):
    shutil.copytree(run.path, tmp_path / "copy")
    assert main(["train", "--resume", "--out", str(tmp_path / "copy")]) == 0
    assert "All of its training is done" in capsys.readouterr().out
    assert main(["train", "--resume", "--epochs", "3", "--out", str(tmp_path / "copy")]) == 0
    assert "Going on after step 200 in epoch 2" in capsys.readouterr().out
    copy = RunFolder(tmp_path / "copy")
    history = copy.read_history()
    assert [row["epoch"] for row in history] == [1, 2, 3] and history[2]["seconds"] > history[1]["seconds"]
    assert copy.read_config()["epochs"] == 3  # Else a kill and another --resume would take the old budget.
    assert "seconds_per_step" in json.loads(copy.report.read_text())
    copy.files.remove(copy.history_file)
    capsys.readouterr()
    assert main(["train", "--resume", "--epochs", "4", "--out", str(tmp_path / "copy")]) == 2
    assert "history.csv has no row of it" in capsys.readouterr().err


def test_resuming_with_other_arguments_is_refused(run, capsys):
    assert main(["train", "--resume", "--model", "fconv2", "--out", str(run.path)]) == 2
    assert "was started with --model 'fmlp', so it cannot go on with 'fconv2'" in capsys.readouterr().err


class Killed(BaseException):
    """Ends a run as a kill would: nothing behind it runs."""


@pytest.mark.parametrize(
    "file, times",
    [
        ("last.keras", 1),
        pytest.param("history.csv", 2, marks=pytest.mark.slow),
        pytest.param("best.keras", 2, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_ends_as_one_that_was_not(run, tmp_path, monkeypatch, file, times):
    """Killed right behind the first epoch's flow; between the row and the flow of the second; between its two files."""
    replace, seen = os.replace, []

    def kill(source, target):
        replace(source, target)
        seen.append(target.name)
        if seen.count(file) == times:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", kill)
        with pytest.raises(Killed):
            main(["train", *SMALL_RUN, "--epochs", "2", "--out", str(tmp_path / "run")])
    report = resume(tmp_path / "run")
    whole = json.loads(run.report.read_text())
    assert report["steps"] == whole["steps"]
    for name in ("single_draw", "importance_weighted"):
        assert np.isclose(report[name]["mean"], whole[name]["mean"], rtol=1e-4)
    assert report["best_epoch"] == whole["best_epoch"] == 2
    assert [row["epoch"] for row in RunFolder(tmp_path / "run").read_history()] == [1, 2]


def test_a_run_that_is_extended_and_killed_is_not_done(run, tmp_path, monkeypatch):
    shutil.copytree(run.path, tmp_path / "copy")
    copy = RunFolder(tmp_path / "copy")
    assert copy.report.is_file() and copy.page.is_file()

    def kill(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", kill)
        with pytest.raises(Killed):
            resume(copy.path, {"epochs": 4})
    assert not copy.report.is_file() and not copy.page.is_file()


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_run_leaves_the_process_as_it_was(tmp_path, monkeypatch, fails):
    """The dtype policy, the precision of products, seeds, and what Ctrl-C does."""

    def state():
        tensor_float = tf.config.experimental.tensor_float_32_execution_enabled()
        return keras.config.dtype_policy().name, tensor_float, random.getstate(), signal.getsignal(signal.SIGINT)

    tf.config.experimental.enable_tensor_float_32_execution(True)
    before, numbers = state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    options = Options(model="fmlp", epochs=1, precision="float64", draws=2, weighted_examples=10, transform="affine")
    if fails:
        monkeypatch.setattr("tfp_flowify.experiments.callbacks.Recorder.on_epoch_end", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(options, tmp_path / "run", log=lambda _: None)
    else:
        assert train(options, tmp_path / "run", log=lambda _: None)["steps"] == 100
    assert state() == before
    assert np.random.get_state()[1].tolist() == numbers  # noqa: NPY002


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_learned(tmp_path, capsys, monkeypatch):
    steps = []

    def interrupt(self, batch, logs=None):
        steps.append(batch)
        if len(steps) == 30:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("tfp_flowify.experiments.callbacks.StopOnInterrupt.on_train_batch_begin", interrupt)
    arguments = [*SMALL_RUN, "--epochs", "2", "--out", str(tmp_path / "run")]
    assert main(["train", *arguments]) == 130
    assert "To go on: tfp-flowify train --resume" in capsys.readouterr().out
    run = RunFolder(tmp_path / "run")
    assert run.read_history()[0]["steps"] in (30, 31) and run.last.is_file()
    monkeypatch.undo()
    assert main(["train", *arguments, "--resume"]) == 0
    history = run.read_history()
    assert [row["epoch"] for row in history] == [1, 2, 3] and history[-1]["steps"] == 200


@pytest.mark.slow
def test_minutes_of_a_run(tmp_path):
    minutes = ["--minutes", "0.2", "--patience", "0"]
    assert main(["train", *SMALL_RUN, *minutes, "--out", str(tmp_path / "run")]) == 0
    late = [row["seconds"] >= 12 for row in RunFolder(tmp_path / "run").read_history()]
    assert late[-1] and sum(late) <= 2  # Validation may cross the line; one step follows.


def test_the_clock(monkeypatch):
    now = [5.0]
    monkeypatch.setattr("tfp_flowify.experiments.clock.time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    clock = Clock(minutes=0.001)
    now[0] += 0.03
    assert 0.49 < clock.share(0) < 0.51
    now[0] += 0.04
    assert clock.share(0) == 1
    assert Clock(steps=10).share(5) == 0.5
    assert Clock(minutes=1, steps=10, seconds_before=45).share(5) >= 0.75


@pytest.mark.slow
def test_images_of_any_number_of_channels_and_of_mixed_sizes(tmp_path):
    x = np.random.default_rng(0).integers(0, 9, [200, 4, 4, 2])
    np.savez(tmp_path / "two.npz", x=x)
    arguments = [*SMALL_RUN, "--epochs", "1", "--batch-size", "16"]
    assert main(["train", *arguments, "--data", str(tmp_path / "two.npz"), "--out", str(tmp_path / "two")]) == 0
    report = json.loads((tmp_path / "two/report.json").read_text())
    assert report["unit"] == "bits/dim" and report["single_draw"]["mean"] > np.log2(9) - 0.2  # Nothing to learn.
    for i in range(40):
        side = 4 + i % 3
        image = np.random.default_rng(i).integers(0, 256, [side, side, 1], np.uint8)
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / f"images/{i}.png").write_bytes(tf.io.encode_png(image).numpy())
    arguments += ["--data", str(tmp_path / "images"), "--image-size", "3", "3", "--out", str(tmp_path / "mixed")]
    assert main(["train", *arguments]) == 0
    assert main(["evaluate", str(tmp_path / "mixed"), "--draws", "2"]) == 0  # It knows the size.


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "float64"])
def test_precisions_and_several_devices(tmp_path, precision, two_devices, monkeypatch):
    monkeypatch.setattr("tfp_flowify.experiments.training.make_strategy", lambda name, log: strategies[name])
    strategies = {"none": tf.distribute.get_strategy(), "mirrored": two_devices}
    arguments = [*SMALL_RUN, "--precision", precision, "--out", str(tmp_path / "run")]
    arguments += ["--strategy", "mirrored"] if precision == "float32" else []
    for more in (["--epochs", "1"], ["--epochs", "2", "--resume"]):
        assert main(["train", *arguments, *more]) == 0
    history = RunFolder(tmp_path / "run").read_history()
    assert [row["steps"] for row in history] == [100, 200] and history[1]["validation"] < history[0]["validation"] < 4


def test_tables(table_run):
    report = json.loads(table_run.report.read_text())
    assert report["unit"] == "nats"
    history = table_run.read_history()
    assert max(row["validation"] for row in history) == report["validation"]
    exact = -0.5 * 3 * np.log(2 * np.pi * np.e) - np.log(3)  # Minus the entropy of the Gaussian that the data are from.
    assert exact - 1.5 < report["single_draw"]["mean"] < exact + 3 * report["single_draw"]["standard_error"]
    assert all((table_run.path / name).is_file() for name in PICTURES)
