"""Trains a flow and writes all that belongs to the run into a folder.

Examples:
  tfp-flowify train                                              two minutes on digits that ship with the package
  tfp-flowify train --data mnist --data-dir DIR --model fconv1 --minutes 10 --out runs/mnist
  tfp-flowify train --data table.csv --model fmlp_64_32_16 --epochs 20 --out runs/table
  tfp-flowify train --condition labels --out runs/classes        digits given their class: a picture with a row for each
  tfp-flowify train --data table.csv --condition age,weight --out runs/given
  tfp-flowify train --data mnist --data-dir DIR --model classifier.keras --out runs/flowified      a network that exists
  tfp-flowify train --resume --out runs/mnist                    goes on after a kill, a crash or Ctrl-C

In the folder: config.json (the arguments), history.csv (a row for each epoch), best.keras and last.keras (the flow,
with its optimizer), saved_model (for TensorFlow alone), curves.png, samples.png and samples_mean.png (the same outputs
with what the network drops drawn, and at its mean), reconstructions.png, report.json, and report.html, which shows it
all. checksums.json and hidden spares let a run outlive damaged files. A run whose loss is not finite leaves
before_failure.keras, the flow before that step.
"""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to train")
    what.add_argument(
        "--data",
        help="digits, mnist, fashion_mnist, cifar10, power, gas, hepmass, miniboone, bsds300, a .csv, .npy or .npz "
        "file, or a folder of images (default: digits)",
    )
    what.add_argument(
        "--model",
        help="best, best_small or best_large; the paper's, for images fmlp, fconv1, fconv2, fconv1_nsf, fconv2_nsf, "
        "for tables fmlp, fmlp_same_x5, fmlp_128x3, fmlp_128_64_32 with any numbers; or a .keras file, a network of "
        "the raw data to be flowified (default: best, best_small for small images or few of them, fmlp for tables)",
    )
    what.add_argument(
        "--by", choices=["auto", "layer", "block", "model"], help="how a .keras file is flowified (default: auto)"
    )
    what.add_argument(
        "--data-dir", metavar="DIR", help="where named data are: a folder of TensorFlow Datasets, or of tables"
    )
    what.add_argument(
        "--download", action="store_true", default=None, help="let TensorFlow Datasets fetch what is not there"
    )
    what.add_argument(
        "--condition",
        metavar="WHAT",
        help="what the density is given: labels, of the image sets with names; or columns of a table, by name or "
        "number, with commas between (default: nothing)",
    )
    what.add_argument("--image-size", type=int, nargs=2, metavar=("H", "W"), help="resize the images of a folder")
    long = parser.add_argument_group("how long")
    long.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="of training, with compiling and validating (default: 2, without --epochs)",
    )
    long.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="passes over the data; of small data, several together, so that an epoch has 100 steps",
    )
    long.add_argument("--resume", action="store_true", help="go on with the run in --out, with its own arguments")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--batch-size", type=int, metavar="N", help="(default: 64 for best, 128 for the paper's, 512 for tables)"
    )
    how.add_argument(
        "--learning-rate",
        type=float,
        metavar="N",
        help="of Adam at the start; after a rise in 100 steps it falls to zero along a cosine (default: 0.002)",
    )
    how.add_argument(
        "--clip-norm", type=float, metavar="N", help="cut gradients to this norm; 0 for never (default: 0)"
    )
    how.add_argument(
        "--weight-decay", type=float, metavar="N", help="of the kernels of networks, at each step (default: 0)"
    )
    how.add_argument(
        "--average",
        type=float,
        metavar="N",
        help="test and export moving averages of the weights, of this momentum, say 0.999 (default: 0, none)",
    )
    how.add_argument(
        "--dropout",
        type=float,
        metavar="N",
        help="in the networks of best (default: 0.3 for fewer than 10,000 examples, else 0)",
    )
    how.add_argument(
        "--shift", type=int, metavar="N", help="move images by up to N pixels at random, in training (default: 0)"
    )
    how.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help="stop after N epochs without a better validation figure; 0 for never (default: 20 for fewer than 10,000 "
        "examples, else 0)",
    )
    how.add_argument("--seed", type=int, metavar="N", help="of weights, order and noise (default: 0)")
    how.add_argument(
        "--noise",
        choices=["normal", "uniform", "shaped"],
        help="where layers add dimensions; shaped: normal, and follows the data, in fconv1 (default: normal)",
    )
    how.add_argument(
        "--density",
        choices=["funnel", "multiscale"],
        help="of what is dropped: by a network, or none (default: funnel)",
    )
    how.add_argument(
        "--transform",
        choices=["affine", "spline", "affine+spline", "affine+mixture"],
        help="of that density (default: affine+mixture, for tables affine+spline; affine is the paper's)",
    )
    how.add_argument(
        "--stages",
        type=int,
        metavar="N",
        help="in which a layer drops its dimensions, each given those before (default: 1)",
    )
    how.add_argument(
        "--set",
        dest="arguments",
        nargs="+",
        metavar="NAME=VALUE",
        help="other arguments of the layers of a named network, such as width=96 depth=2 front=variational",
    )
    how.add_argument(
        "--precision",
        choices=["float32", "float64", "mixed_bfloat16"],
        help="mixed: bfloat16 in the networks that give densities (default: float32)",
    )
    how.add_argument(
        "--strategy",
        choices=["none", "mirrored", "multiworker"],
        help="mirrored: on all devices of this machine; multiworker: on those that TF_CONFIG names; both without XLA, "
        "with --batch-size for all together (default: none)",
    )
    how.add_argument(
        "--xla",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="compile the step with XLA, which takes its time (default: where there is a GPU)",
    )
    test = parser.add_argument_group("testing and pictures")
    test.add_argument(
        "--draws", type=int, metavar="N", help="of the noise for the importance-weighted figure (default: 100)"
    )
    test.add_argument(
        "--weighted-examples", type=int, metavar="N", help="test examples for that figure (default: 1000)"
    )
    test.add_argument("--validation-examples", type=int, metavar="N", help="used after each epoch (default: 5000)")
    test.add_argument("--temperature", type=float, metavar="N", help="of the samples in the pictures (default: 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the run (default: runs/DATA)")


def run(arguments: argparse.Namespace) -> int:
    from tfp_flowify.experiments import Options, resume, train

    given = {name: value for name, value in vars(arguments).items() if value is not None}
    del given["run"], given["resume"]
    if "arguments" in given:
        given["arguments"] = dict(map(_named_value, given["arguments"]))
    out = given.pop("out", None) or Path("runs") / Path(given.get("data", Options.data)).stem
    if not arguments.resume and not {"minutes", "epochs"} & given.keys():
        given["minutes"] = 2.0
    report = resume(out, given) if arguments.resume else train(Options(**given), out)
    if report is None:
        print(f"To go on: tfp-flowify train --resume --out {out}")
        return 130
    return 0


def _named_value(text: str) -> tuple:
    """The name and the value in NAME=VALUE; what is no number, true, false or null is text.

    >>> _named_value("width=96"), _named_value("front=variational")
    (('width', 96), ('front', 'variational'))
    """
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise ValueError(f"--set takes NAME=VALUE. Received: {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
