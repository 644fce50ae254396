"""Trains a Keras classifier the ordinary way, flowifies it, and shows what it knows and what it forgets.

Examples:
  tfp-flowify classifier                                          digits that ship with the package
  tfp-flowify classifier --data mnist --data-dir DIR --minutes 6 --out runs/mnist_classifier
  tfp-flowify classifier --data mnist --data-dir DIR --anomalies other_images.npz --out runs/mnist_classifier

In the folder: classifier.keras, flow (the folder of the run that fits the densities), forgotten.png (images that the
network takes for the same), scores.png (histograms of scores of anomaly), figures.json, and README.md, which shows it
all. What is there already is not done again, so that a run that was ended goes on where it was.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="digits, mnist, fashion_mnist or cifar10 (default: digits)")
    parser.add_argument("--data-dir", metavar="DIR", help="where named data are: a folder of TensorFlow Datasets")
    parser.add_argument("--download", action="store_true", default=None, help="let them be fetched")
    parser.add_argument("--epochs", type=int, metavar="N", help="of the classifier (default: 4, for few images 40)")
    parser.add_argument("--minutes", type=float, metavar="N", help="for the densities of the flow (default: 2)")
    parser.add_argument("--by", choices=["auto", "layer", "block", "model"], help="how it is flowified (default: auto)")
    parser.add_argument(
        "--anomalies", metavar="FILE", help="an .npz file of other images of the same shape, to be told apart"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of weights, order and draws (default: 0)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("runs/classifier"), help="(default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from tfp_flowify.experiments.classifier import ClassifierOptions
    from tfp_flowify.experiments.classifier import run as run_classifier

    given = {name: value for name, value in vars(arguments).items() if value is not None}
    out = given.pop("out")
    del given["run"]
    if run_classifier(ClassifierOptions(**given), out) is None:
        print(f"To go on, give the same command again. The folder is {out}.")
        return 130
    return 0
