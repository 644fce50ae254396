"""Flowifies networks that nobody here wrote, as a whole and layer by layer, and writes a table of how that went.

Examples:
  python scripts/flowify_networks.py                            all of them, into results/flowified
  python scripts/flowify_networks.py --networks ResNet50 --by model --out /tmp/networks

Weights are random and images are small. Each network has a process of its own, so that its memory can be told; figures
are written as they come, and what is there already is not done again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

APPLICATIONS = (
    *("VGG16", "ResNet50", "ResNet50V2", "MobileNet", "MobileNetV2", "DenseNet121"),
    *("EfficientNetB0", "EfficientNetV2B0"),
)
NETWORKS = (*APPLICATIONS, "transformer", "unet", "lstm")

#: Examples for round trip and likelihood.
BATCH = 4

HEAD = f"""# Networks that exist, flowified

Random weights, {BATCH} examples, two cores, by `python scripts/flowify_networks.py`. Forward: the largest difference of
the flow's network from the model, relative to the largest output. Round trip: the largest error of
`decode(encode(x))`, and in brackets the share of numbers that are off by more than 0.001; in single and in double
precision. Noise and dropped numbers are those of the flow, whose data are the input; a bound is loose where there is
many times more noise than data. Seconds, in single precision: to flowify, to the first `log_prob`, for another.

Whether an entry behind a ReLU was positive or is noise is told by a uniform number and a threshold. Layer by layer
there are millions of them, and in single precision rounding moves about one in a million over its threshold on the way
back, which changes all that is in front of it. So some examples are off; in double precision none was.
"""

COLUMNS = {
    "network": lambda r: r["network"],
    "input": lambda r: " x ".join(map(str, r["input"])),
    "by": lambda r: r["by"],
    "blocks": lambda r: r["blocks"],
    "forward": lambda r: f"{r['forward']:.0e}",
    "round trip": lambda r: _round_trip(r["round_trip"], r["share_off"]),
    "in double precision": lambda r: _round_trip(r["round_trip_float64"], r["share_off_float64"]),
    "log-likelihood": lambda r: f"{r['log_prob']:,.0f}",
    "noise": lambda r: f"{r['noise']:,}",
    "dropped": lambda r: f"{r['dropped']:,}",
    "seconds": lambda r: f"{r['flowify_seconds']:.0f}, {r['first_seconds']:.0f}, {r['seconds']:.2f}",
    "peak GB": lambda r: f"{r['peak_gb']:.1f}",
}


def _round_trip(error, share) -> str:
    return f"{error:.0e}" + (f" ({share:.1%})" if share else "")


def build(name):
    """A Keras model by name."""
    import keras

    kl = keras.layers
    if name in APPLICATIONS:
        arguments = {"include_preprocessing": True} if name == "EfficientNetV2B0" else {}
        return getattr(keras.applications, name)(weights=None, input_shape=(32, 32, 3), classes=10, **arguments)
    if name == "transformer":
        x = inputs = keras.Input((16, 32))
        for _ in range(2):
            attended = kl.LayerNormalization()(x)
            x = kl.Add()([x, kl.MultiHeadAttention(4, 8)(attended, attended)])
            hidden = kl.Dense(64, activation="gelu")(kl.LayerNormalization()(x))
            x = kl.Add()([x, kl.Dense(32)(hidden)])
        return keras.Model(inputs, kl.Dense(10)(kl.GlobalAveragePooling1D()(x)), name=name)
    if name == "unet":
        x = inputs = keras.Input((16, 16, 3))
        first = kl.Conv2D(8, 3, padding="same", activation="relu")(x)
        second = kl.Conv2D(16, 3, padding="same", activation="relu")(kl.MaxPooling2D()(first))
        third = kl.Conv2D(32, 3, padding="same", activation="relu")(kl.MaxPooling2D()(second))
        x = kl.Concatenate()([second, kl.Conv2DTranspose(16, 2, 2)(third)])
        x = kl.Conv2D(16, 3, padding="same", activation="relu")(x)
        x = kl.Concatenate()([first, kl.Conv2DTranspose(8, 3, 2, padding="same")(x)])
        return keras.Model(inputs, kl.Conv2D(2, 1)(x), name=name)
    stack = [keras.Input((12, 4)), kl.LSTM(16, return_sequences=True), kl.LSTM(16), kl.Dense(3)]
    return keras.Sequential(stack, name=name)


def measure(name, by) -> dict:
    """Flowifies one network in single precision and tells how that went; its round trip in double precision too."""
    import keras
    import numpy as np

    from tfp_flowify import layers as fl

    flow, model, figures = _measured(name, by, "float32")
    bijector = flow.distribution.bijector
    figures |= {
        "network": name,
        "input": list(model.input_shape[1:]),
        "by": by,
        "blocks": sum(isinstance(layer, fl.Stochastic) for layer in flow.network.layers),
        "noise": sum(d.dimension for d in bijector.noise),
        "dropped": sum(d.dimension for d in bijector.residuals),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    del flow, model, bijector
    keras.backend.clear_session()
    _, _, twice = _measured(name, by, "float64")
    assert np.isclose(twice["forward"], 0, atol=1e-6)
    return figures | {f"{key}_float64": twice[key] for key in ("round_trip", "share_off")}


def _measured(name, by, dtype):
    import keras
    import numpy as np

    from tfp_flowify import flowify

    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    keras.utils.set_random_seed(0)
    model = build(name)
    x, typical = (
        np.random.default_rng(seed).normal(size=(count, *model.input_shape[1:])).astype(dtype)
        for seed, count in ((0, BATCH), (1, 64))
    )
    begun = time.perf_counter()
    flow = flowify(model, by, verbose=False)
    flowified = time.perf_counter()
    flow.adapt(typical)
    if getattr(model.layers[-1], "activation", None) is keras.activations.softmax:
        model.layers[-1].activation = keras.activations.linear  # The flow has its output in front of that.
    expected = np.asarray(model(x, training=False))
    started = time.perf_counter()
    log_prob = np.asarray(flow.log_prob(x, seed=0))
    first = time.perf_counter()
    flow.log_prob(x, seed=0).numpy()
    second = time.perf_counter()
    errors = np.abs(np.asarray(flow.decode(flow.encode(x, seed=0))) - x)
    return (
        flow,
        model,
        {
            "forward": float(np.abs(np.asarray(flow(x)) - expected).max() / np.abs(expected).max()),
            "round_trip": float(errors.max()),
            "share_off": float(np.mean(errors > 1e-3)),
            "log_prob": float(log_prob.mean()),
            "flowify_seconds": flowified - begun,
            "first_seconds": first - started,
            "seconds": second - first,
        },
    )


def main(arguments):
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "networks.json"
    rows = json.loads(path.read_text()) if path.is_file() else []
    for name in arguments.networks:
        for by in arguments.by:
            if any((row["network"], row["by"]) == (name, by) for row in rows):
                continue
            print(f"{name}, by {by} ...", flush=True)
            command = [sys.executable, __file__, "--measure", name, by]
            done = subprocess.run(command, capture_output=True, text=True)
            last = (done.stdout.strip().splitlines() or [""])[-1]
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:300]
                print(f"    failed: {reason}", flush=True)
                rows.append({"network": name, "by": by, "failed": reason})
            else:
                rows.append(json.loads(last))
            path.write_text(json.dumps(rows, indent=1) + "\n")
            (arguments.out / "README.md").write_text(page(rows))
            print(f"    {last}", flush=True)


def page(rows) -> str:
    """A page with a table of all networks, in their order."""
    rows = sorted(rows, key=lambda row: (NETWORKS.index(row["network"]), row["by"] != "model"))
    done = [row for row in rows if "failed" not in row]
    failed = [f"{row['network']} by {row['by']} failed: {row['failed']}" for row in rows if "failed" in row]
    cells = [list(COLUMNS), ["---"] * len(COLUMNS), *([str(show(row)) for show in COLUMNS.values()] for row in done)]
    return "\n".join([HEAD, *(f"| {' | '.join(row)} |" for row in cells), *failed, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS, metavar="NAME")
    parser.add_argument("--by", nargs="+", default=["model", "layer"], help="(default: model layer)")
    parser.add_argument("--out", type=Path, default=Path("results/flowified"), help="folder (default: %(default)s)")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(*given.measure)))
    else:
        main(given)
