"""A Keras classifier that becomes a flow: what it knows about its data, what it forgets, and what it finds odd."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from matplotlib.figure import Figure

from tfp_flowify.core.seeds import seeded
from tfp_flowify.core.types import PathLike, Shape
from tfp_flowify.data import Data, load
from tfp_flowify.diagnostics import auroc, corruptions
from tfp_flowify.experiments.folder import RunFolder
from tfp_flowify.experiments.keras_file import load_keras_file
from tfp_flowify.experiments.options import Options
from tfp_flowify.experiments.training import resume, train
from tfp_flowify.plots import save_panels

kl = keras.layers

#: Draws of the noise for scores, and how many examples of each kind are scored.
DRAWS, SCORED = 10, 1000

#: Examples in the picture of what is forgotten, and draws for each.
SHOWN, ALIKE = 10, 9

#: Examples whose draws are given to the network again, to see whether it takes them for the same.
COUNTED = 500


@dataclasses.dataclass
class ClassifierOptions:
    """What is trained, and for how long.

    Args:
      data: Images with labels: "digits", "mnist", "fashion_mnist" or "cifar10".
      data_dir, download: See `data.load`.
      epochs: Of the classifier.
      minutes: Time for the densities of the flow.
      by: See `flowify`.
      anomalies: An `.npz` file with other images of the same shape, to be told apart from the test images.
      seed: Seed for weights, order and draws.
    """

    data: str = "digits"
    data_dir: str | None = None
    download: bool = False
    epochs: int | None = None
    minutes: float = 2.0
    by: str = "auto"
    anomalies: str | None = None
    seed: int = 0


def build_classifier(shape: Shape, classes: int, levels: int) -> keras.Model:
    """An ordinary network: convolutions, ReLU, max pooling, dense layers, softmax.

    >>> build_classifier((8, 8, 1), 10, 17).output_shape
    (None, 10)
    """
    stack = [keras.Input(shape), kl.Rescaling(1 / (levels - 1))]
    for filters in (16, 32) if min(shape[:2]) < 16 else (32, 64):
        stack += [kl.Conv2D(filters, 3, padding="same", activation="relu"), kl.MaxPooling2D()]
    stack += [kl.Flatten(), kl.Dropout(0.3), kl.Dense(64, activation="relu"), kl.Dense(classes, activation="softmax")]
    return keras.Sequential(stack, name="classifier")


def run(options: ClassifierOptions, out: PathLike, log: Callable[[str], Any] = print) -> dict | None:
    """Trains a classifier the ordinary way, flowifies it, fits its densities, and writes what was found to a folder.

    What is there already is not done again, so that a run that was ended goes on where it was.

    Args:
      options: What is trained.
      out: The folder.
      log: Function called with each progress message.

    Returns:
      The figures; None where it was interrupted by Ctrl-C.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    data = load(options.data, options.data_dir, options.download, condition="labels")
    images = dataclasses.replace(data, condition=None)
    classifier = _classifier(options, data, out / "classifier.keras", log)
    flow_options = Options(
        data=options.data,
        model=str(out / "classifier.keras"),
        by=options.by,
        minutes=options.minutes,
        seed=options.seed,
        data_dir=options.data_dir,
        download=options.download,
    )
    report = _flow_report(flow_options, RunFolder(out / "flow"), log)
    if report is None:
        return None
    flow = RunFolder(out / "flow").load()
    figures = {"classifier": _accuracies(classifier, flow, data), "flow": report}
    figures["auroc"] = _anomalies(flow, images, options, out, log)
    figures["alike"] = _alike(flow, images.test[:COUNTED], options.seed)
    _draw_alike(out / "forgotten.png", flow, images, options.seed)
    (out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    (out / "README.md").write_text(page(figures))
    log(page(figures))
    return figures


def _flow_report(options, folder, log):
    """The report of the run that trains the flow: of one that is complete, resumed or new."""
    report = folder.read_report()
    if report is not None:
        return report
    return resume(folder.path, log=log) if folder.holds_run else train(options, folder.path, log)


def _classifier(options, data: Data, path, log):
    """The classifier in a file, trained where there is none yet."""
    if path.is_file():
        return load_keras_file(path)
    epochs = options.epochs or (40 if len(data.train) < 10_000 else 4)
    log(f"An ordinary classifier of {data.name}, {epochs} epochs:")
    with seeded(options.seed):
        classifier = build_classifier(data.shape, data.classes, data.levels)  # type: ignore[arg-type]  # Both are known.
        steps = epochs * math.ceil(len(data.train) / 128)
        rate = keras.optimizers.schedules.CosineDecay(2e-3, steps)
        classifier.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
        held_out = (data.validation, data.condition.validation)
        classifier.fit(
            data.train, data.condition.train, batch_size=128, epochs=epochs, validation_data=held_out, verbose=2
        )
    classifier.save(path)
    return classifier


def _accuracies(classifier, flow, data) -> dict:
    """Accuracies on the test images, of the classifier and of the network of the flow; and how far they are apart."""
    labels, x = data.condition.test, data.test.astype(np.float32)
    before = np.asarray(classifier.predict(x, batch_size=1000, verbose=0))
    after = np.asarray(flow.predict(x, batch_size=1000, verbose=0))
    probabilities = np.asarray(keras.ops.softmax(after))
    return {
        "accuracy": float(np.mean(before.argmax(axis=1) == labels)),
        "accuracy_of_the_flow": float(np.mean(after.argmax(axis=1) == labels)),
        "largest_difference_of_probabilities": float(np.abs(before - probabilities).max()),
    }


def _anomalies(flow, data, options, out, log) -> dict:
    """Areas under ROC curves, by kind of anomaly and score; and histograms of the scores."""
    x = data.test[:SCORED]
    others = corruptions(x, data.levels, options.seed)
    if options.anomalies:
        found = load(options.anomalies)
        others[Path(options.anomalies).stem] = np.concatenate([found.test, found.train])[:SCORED]
    log(f"Scores of {len(x)} test images and of {', '.join(others)} ...")
    typical = float(np.mean(flow.log_prob(data.train[:SCORED], num_draws=DRAWS, seed=0)))
    scores = {name: _scores(flow, images, typical) for name, images in {"test": x, **others}.items()}
    _draw_histograms(out / "scores.png", scores)
    return {
        name: {score: auroc(scores["test"][score], values) for score, values in kinds.items()}
        for name, kinds in scores.items()
        if name != "test"
    }


def _scores(flow, x, typical) -> dict:
    """All scores of images, so that higher is more typical."""
    scores = {name: np.asarray(v) for name, v in flow.score(x, DRAWS, seed=0, typical=typical).items()}
    return {**scores, "distance": -scores["distance"]}


def _draw_histograms(path, scores):
    kinds = list(scores["test"])
    figure = Figure(figsize=(3.4 * len(kinds), 3.2), dpi=120, layout="constrained")
    for panel, kind in zip(figure.subplots(1, len(kinds)), kinds, strict=True):
        values = {name: found[kind] for name, found in scores.items()}
        low, high = np.quantile(np.concatenate(list(values.values())), [0.01, 0.999])
        bins = np.linspace(low, high, 60)
        for name, each in values.items():
            panel.hist(np.clip(each, low, high), bins, histtype="step", label=name, density=True)
        panel.set_title(kind, fontsize=9)
        panel.set(yticks=[])
    panel.legend(fontsize=7)
    figure.savefig(path)


def _alike(flow, x, seed) -> float:
    """How often the network gives an image the same class that was drawn for the output of another.

    Where the density of the images given the output were exact and the block had no noise, that would be always.
    """
    drawn = np.asarray(flow.sample_alike(x, seed=seed)[0])
    classes = [flow.predict(images.astype(np.float32), verbose=0).argmax(axis=1) for images in (x, drawn)]
    return float(np.mean(classes[0] == classes[1]))


def _draw_alike(path, flow, data, seed):
    """Test images, each with others that the network takes for the same."""
    x = data.test[:SHOWN]
    alike = np.asarray(flow.sample_alike(x, ALIKE, seed=seed))
    rows = np.concatenate([x[None].astype(np.float32), alike]).swapaxes(0, 1)
    title = "left a test image; behind it others,\ndrawn for the output that the network gives it"
    save_panels(path, {title: rows.reshape(-1, *data.shape)}, (0, data.levels - 1), ALIKE + 1)


def page(figures: dict) -> str:
    """A page with all figures."""
    known, report, areas = figures["classifier"], figures["flow"], figures["auroc"]
    kinds = list(next(iter(areas.values())))
    rows = [f"| {name} | {' | '.join(f'{found[kind]:.4f}' for kind in kinds)} |" for name, found in areas.items()]
    return "\n".join(
        [
            "# A classifier as a flow",
            "",
            f"Accuracy on test images: {known['accuracy']:.4f} before, {known['accuracy_of_the_flow']:.4f} as a flow; "
            f"its probabilities differ by {known['largest_difference_of_probabilities']:.1g} at most.",
            f"Bits per dimension of test images: {report['single_draw']['mean']:.3f} with one draw, "
            f"{report['importance_weighted_all']['mean']:.3f} with {report['importance_weighted']['draws']}; after "
            f"{report['training_seconds'] / 60:.1f} minutes, {report['steps']:,} steps.",
            f"Of images that are drawn for the output of a test image, the network gives {figures['alike']:.1%} "
            "the class of that image.",
            "",
            "How often a test image scores higher than another (area under the ROC curve), by each score: the",
            "log-likelihood, its part of the network's output, the rest, and the distance from what is typical.",
            "Likelihoods alone are known to mislead on some kinds of images.",
            "",
            f"| other images | {' | '.join(kinds)} |",
            f"| --- | {' | '.join('---' for _ in kinds)} |",
            *rows,
            "",
            "![What the network forgets](forgotten.png)",
            "![Histograms of scores](scores.png)",
            "![Samples](flow/samples.png)",
            "",
        ]
    )
