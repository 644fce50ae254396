"""Draws from a flow: a picture, and if wanted the numbers.

Examples:
  tfp-flowify sample runs/digits                             samples.png in this folder
  tfp-flowify sample runs/digits --count 100 --temperature 0.8 --mean --out mean.png
  tfp-flowify sample runs/power/saved_model --count 10000 --out rows.npz
"""

from pathlib import Path


def add_arguments(parser):
    parser.add_argument("flow", type=Path, metavar="FLOW", help="the folder of a run, a .keras file or a SavedModel")
    parser.add_argument("--count", type=int, default=64, help="how many (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, help="less than one for typical ones (default: 1)")
    parser.add_argument("--mean", action="store_true", help="draw the output alone; what is dropped is at its mean")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same samples (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("samples.png"), help=".png, or .npz for numbers (default: %(default)s)"
    )


def run(arguments):
    import numpy as np

    from tfp_flowify.experiments.opened import levels_of, open_flow, shape_of
    from tfp_flowify.plots import save_panels

    if arguments.count < 1 or not arguments.temperature > 0:
        raise ValueError(
            f"--count and --temperature are positive. Received: {arguments.count} and {arguments.temperature}"
        )
    if arguments.out.suffix not in (".png", ".npz"):
        raise ValueError(f"--out is a .png or a .npz file. Received: {arguments.out}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    flow, _ = open_flow(arguments.flow)
    is_picture, shape = arguments.out.suffix == ".png", shape_of(flow)
    if is_picture and (len(shape) != 3 or shape[-1] not in (1, 3)):
        raise ValueError(f"This flow draws {shape}, which is no picture. Write numbers: --out samples.npz")
    print(f"Drawing {arguments.count} samples of shape {shape} ...")
    x = np.asarray(flow.sample(arguments.count, arguments.temperature, mean=arguments.mean, seed=arguments.seed))
    if is_picture:
        levels = levels_of(flow)
        limits = (0, levels - 1) if levels else (float(x.min()), float(x.max()) + 1e-9)
        save_panels(arguments.out, {f"{arguments.count} samples": x}, limits)
    else:
        np.savez(arguments.out, samples=x)
    print(f"Wrote {arguments.out}.")
