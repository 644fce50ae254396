"""The commands, as people type them: training runs and their folders, testing, drawing, and what goes wrong."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from matplotlib.image import imread

from tfp_flowify.commands import main
from tfp_flowify.experiments import RunFolder, resume
from tfp_flowify.experiments.clock import Clock
from tfp_flowify.experiments.paper import EXPERIMENTS, write_results

SMALL = ["--model", "fmlp", "--transform", "affine", "--no-xla", "--draws", "10", "--weighted-examples", "100"]
PICTURES = ("curves.png", "samples.png", "samples_mean.png", "reconstructions.png")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on digits, and what was printed."""
    folder = tmp_path_factory.mktemp("run") / "digits"
    assert main(["train", *SMALL, "--epochs", "2", "--out", str(folder)]) == 0
    return RunFolder(folder)


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    """A finished run on a table."""
    folder = tmp_path_factory.mktemp("table")
    x = np.random.default_rng(0).normal(size=[600, 3]) @ np.array([[1, 1, 0], [0, 1, 0], [0, 0, 3.0]])
    np.savez(folder / "mine.npz", x=x)
    arguments = ["train", "--data", str(folder / "mine.npz"), "--epochs", "2", "--out", str(folder / "run"), *SMALL]
    assert main([*arguments, "--model", "fmlp_6_3"]) == 0
    return RunFolder(folder / "run")


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
    assert report["gain"]["mean"] > 0 and np.isclose(report["gain"]["mean"], single["mean"] - weighted["mean"])
    assert report["parameters"] == sum(np.prod(weight.shape) for weight in run.load().trainable_variables)
    assert report["seconds_to_first_step"] > report["seconds_per_step"] > 0
    assert report["peak_memory_bytes"] > 1e8


def test_the_report_is_of_the_best_flow_on_test_data(run):
    from tfp_flowify.data import digits

    bits = np.mean(run.load(run.best).bits_per_dim(digits()[1][0], seed=0))
    assert np.isclose(json.loads(run.report.read_text())["single_draw"]["mean"], bits, rtol=1e-5)


def test_the_page_holds_everything(run):
    page = (run.path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(PICTURES)
    assert "http" not in page and "<script" not in page and "fmlp on digits" in page


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MEASURE = """<script>
const images = [...document.images];
const wide = document.documentElement.scrollWidth > window.innerWidth;
document.title = `${images.filter(i => i.naturalWidth > 100).length} pictures, ${wide ? "too wide" : "fits"}`;
</script></body>"""


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
    assert main(["train", *SMALL, "--epochs", "1", "--out", str(run.path)]) == 2
    assert "holds a run already. Go on with it (--resume)" in capsys.readouterr().err


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
    copy.history_file.unlink()
    capsys.readouterr()
    assert main(["train", "--resume", "--epochs", "4", "--out", str(tmp_path / "copy")]) == 2
    assert "history.csv has no row of it" in capsys.readouterr().err


def test_resuming_with_other_arguments_is_refused(run, capsys):
    assert main(["train", "--resume", "--model", "fconv2", "--out", str(run.path)]) == 2
    assert "was started with model='fmlp', so it cannot go on with 'fconv2'" in capsys.readouterr().err


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
            main(["train", *SMALL, "--epochs", "2", "--out", str(tmp_path / "run")])
    report = resume(tmp_path / "run")
    whole = json.loads(run.report.read_text())
    assert report["steps"] == whole["steps"]
    for name in ("single_draw", "importance_weighted"):
        assert np.isclose(report[name]["mean"], whole[name]["mean"], rtol=1e-4)
    assert report["best_epoch"] == whole["best_epoch"] == 2
    assert [row["epoch"] for row in RunFolder(tmp_path / "run").read_history()] == [1, 2]


@pytest.mark.slow
def test_sigkill_and_resume(tmp_path):
    command = [sys.executable, "-m", "tfp_flowify", "train", *SMALL, "--epochs", "4", "--out"]
    assert subprocess.run([*command, tmp_path / "whole"], check=False).returncode == 0
    process = subprocess.Popen([*command, tmp_path / "killed"])
    history = tmp_path / "killed/history.csv"
    while process.poll() is None and not (history.is_file() and len(history.read_text().splitlines()) >= 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert subprocess.run([*command, tmp_path / "killed", "--resume"], check=False).returncode == 0
    whole, killed = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "killed"))
    assert np.isclose(whole["single_draw"]["mean"], killed["single_draw"]["mean"], rtol=1e-3)
    with open(history) as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3", "4"]


def test_ctrl_c_keeps_what_was_learned(tmp_path, capsys, monkeypatch):
    steps = []

    def interrupt(self, batch, logs=None):
        steps.append(batch)
        if len(steps) == 30:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("tfp_flowify.experiments.callbacks.StopOnInterrupt.on_train_batch_end", interrupt)
    arguments = [*SMALL, "--epochs", "2", "--out", str(tmp_path / "run")]
    assert main(["train", *arguments]) == 130
    assert "To go on: --resume" in capsys.readouterr().out
    run = RunFolder(tmp_path / "run")
    assert run.read_history()[0]["steps"] in (30, 31) and run.last.is_file()
    monkeypatch.undo()
    assert main(["train", *arguments, "--resume"]) == 0
    history = run.read_history()
    assert [row["epoch"] for row in history] == [1, 2, 3] and history[-1]["steps"] == 200


@pytest.mark.slow
def test_minutes_of_a_run(tmp_path):
    assert main(["train", *SMALL, "--minutes", "0.2", "--out", str(tmp_path / "run")]) == 0
    assert 12 <= RunFolder(tmp_path / "run").read_history()[-1]["seconds"] < 30


def test_the_clock():
    begun = time.perf_counter()
    clock = Clock(minutes=0.001)
    while clock.share(0) < 1:
        pass
    assert 0.05 < time.perf_counter() - begun < 0.5
    assert Clock(steps=10).share(5) == 0.5
    assert Clock(minutes=1, steps=10, seconds_before=45).share(5) >= 0.75


@pytest.mark.slow
def test_images_of_any_number_of_channels_and_of_mixed_sizes(tmp_path):
    x = np.random.default_rng(0).integers(0, 9, [200, 4, 4, 2])
    np.savez(tmp_path / "two.npz", x=x)
    arguments = [*SMALL, "--epochs", "1", "--batch-size", "16"]
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


DEVICES = """
import sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tfp_flowify.commands import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "float64"])
def test_precisions_and_several_devices(tmp_path, precision):
    arguments = [*SMALL, "--precision", precision, "--out", str(tmp_path / "run")]
    arguments += ["--strategy", "mirrored"] if precision == "float32" else []
    for more in (["--epochs", "1"], ["--epochs", "2", "--resume"]):
        command = [sys.executable, "-c", DEVICES, "train", *arguments, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
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


@pytest.mark.parametrize("which", ["", "last.keras", "saved_model"])
def test_sample(run, tmp_path, which):
    assert main(["sample", str(run.path / which), "--count", "9", "--out", str(tmp_path / "s.png")]) == 0
    assert imread(tmp_path / "s.png")[..., 0].std() > 0.1
    assert main(["sample", str(run.path / which), "--count", "9", "--out", str(tmp_path / "s.npz")]) == 0
    x = np.load(tmp_path / "s.npz")["samples"]
    assert x.shape == (9, 8, 8, 1) and set(np.unique(x)) <= set(range(17))


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
    "minutes": (lambda t: ["train", "--minutes", "-1", "--out", f"{t}/r"], "--minutes is a positive number"),
    "no permission": (no_permission, r"cannot be written to \(Not a directory\).*--out"),
    "nothing to resume": (lambda t: ["train", "--resume", "--out", str(t)], "There is no run in"),
    "damaged checkpoint": (damaged, "last.keras is damaged"),
    "damaged config": (damaged_config, "config.json is damaged"),
    "validation": (lambda t: ["train", "--validation-examples", "0", "--out", f"{t}/r"], "--validation-examples is a"),
    "draws": (lambda t: ["train", "--draws", "-1", "--out", f"{t}/r"], "--draws is a positive number"),
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
    assert "no picture. Write numbers: --out samples.npz" in capsys.readouterr().err
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
    for name, figure in (("mnist_fconv2", 1.234), ("power_fmlp", 0.5678)):
        folder = RunFolder(tmp_path / "runs" / name)
        folder.make()
        figures = {"mean": figure, "standard_error": 0.001, "examples": 10}
        folder.write_json(folder.report, {**report, "single_draw": figures, "minutes": 10.0})
    page = write_results(tmp_path / "runs", tmp_path / "out").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| fConv2 | 1.41"))
    assert "6.05 after 12 min" in row and "1.234 +- 0.001" in row
    assert "| POWER | -0.50 | 0.568 +- 0.001 |" in page and "| GAS | 5.35 | not run |" in page
    assert "tfp-flowify train --data mnist --model fconv2 --minutes 10 --data-dir DIR" in page
    shutil.rmtree(tmp_path / "runs")
    assert write_results(tmp_path / "runs", tmp_path / "out").read_text() == page  # The page needs the runs no more.


def test_experiments_have_names_of_their_own():
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS) == 17
