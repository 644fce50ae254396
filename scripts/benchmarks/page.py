"""The figures as JSON, as a page and as a picture."""

import json
from pathlib import Path

from matplotlib.figure import Figure


def write(out: Path, figures: dict):
    """Writes benchmark.json, benchmark.md and benchmark.png."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "benchmark.json").write_text(json.dumps(figures, indent=1) + "\n")
    (out / "benchmark.md").write_text(page(figures))
    draw(out / "benchmark.png", figures)


def page(figures: dict) -> str:
    sections = [
        "# Speed and memory",
        f"Measured by `{figures['command']}` on {figures['machine']}, TensorFlow {figures['versions']['tensorflow']}, "
        f"Keras {figures['versions']['keras']}. Times are medians of warm calls, flow and twin in turns, the best of "
        f"{figures['rounds']} round(s); batches of 128. The twin is the plain Keras network of the same layer sizes "
        "with the same conditioner networks, trained on a mean-square loss with the same optimizer; that of as many "
        "numbers has layers that give what they take, where those of the flow drop some of it. Memory is that "
        f"of a process that trains and does nothing else, of which {figures['imports_gb']:.2f} GB are imports.",
    ]
    if networks := figures.get("networks"):
        for xla in (False, True):
            rows = [row for row in networks if row["xla"] is xla]
            if rows:
                sections += [f"## Training, {'with' if xla else 'without'} XLA", _table(TRAINING, rows)]
        sections += ["## Density and samples, without XLA", _table(USE, [row for row in networks if not row["xla"]])]
    if conditions := figures.get("conditions"):
        sections += [
            "## A condition of ten numbers",
            "The same network with and without it, in turns: all densities of what is dropped, couplings and the base "
            "depend on it. Batches of 128 images or 512 rows.",
            _table(CONDITIONS, conditions),
        ]
    if rotations := figures.get("rotations"):
        columns = {name.replace("_", " "): (name, ".2f") for name in rotations[0]}
        columns["size"] = ("size", "d")
        sections += [
            "## Orthogonal matrices",
            "Milliseconds of value and gradient for 128 vectors. `dense` is a plain matrix; `householder 32` has 32 "
            "reflections, the others as many parameters as the group has dimensions. Empty: not tried, as a smaller "
            "size took long already.",
            _table(columns, rotations),
        ]
    if scaling := figures.get("scaling"):
        rows = [{"of": name, **series} for name, series in scaling.items()]
        for row in rows:
            row["steps"] = ", ".join(f"{s}: {ms:.1f}" for s, ms in zip(row["sizes"], row["ms"], strict=True))
        sections += [
            "## Growth",
            _table({"against": ("of", ""), "ms": ("steps", ""), "power": ("exponent", ".2f")}, rows),
        ]
    if costs := figures.get("costs"):
        columns = {"network": ("network", ""), "image side": ("side", "d"), "batch": ("batch", "d")}
        columns |= {"weights": ("weights", ",d"), "GFLOP": ("gflop", ".1f"), "GB written": ("gigabytes", ".2f")}
        columns |= {"operations": ("operations", ",d")}
        sections += [
            "## Costs of a training step on any machine",
            "Counted in the graph of the step: floating-point operations of products and convolutions and of what "
            "TensorFlow counts beside them, and the sizes of all tensors that operations write, without fusion.",
            _table(columns, costs),
        ]
    if draws := figures.get("draws"):
        columns = {"draws": ("draws", "d"), "peak GB": ("memory_gb", ".2f")}
        sections += [
            "`log_prob(x, num_draws=...)` of 16 images, mnist_fconv1, in a process of its own:",
            _table(columns, draws),
        ]
    if others := figures.get("others"):
        sections += ["## Other libraries", _table(OTHERS, others)]
    return "\n\n".join([*sections, "![Time of a training step; growth](benchmark.png)", ""])


TRAINING = {
    "network": ("network", ""),
    "step, ms": ("step_ms", ".0f"),
    "twin, ms": ("twin_step_ms", ".0f"),
    "ratio": ("ratio", ".2f"),
    "twin of as many numbers, ms": ("floor_step_ms", ".0f"),
    "ratio to it": ("floor_ratio", ".2f"),
    "paper's code, ms": ("paper_step_ms", ",.0f"),
    "first step, s": ("first_step_s", ".1f"),
    "twin, s": ("twin_first_step_s", ".1f"),
    "operations": ("graph", ",d"),
    "of the twin": ("twin_graph", ",d"),
    "peak GB": ("memory_gb", ".2f"),
    "paper's code, GB": ("paper_memory_gb", ".2f"),
    "weights": ("weights", ",d"),
}

USE = {
    "network": ("network", ""),
    "log_prob, ms": ("log_prob_ms", ".0f"),
    "twin forward, ms": ("twin_forward_ms", ".0f"),
    "ratio": ("log_prob_ratio", ".2f"),
    "128 samples, ms": ("sample_ms", ".0f"),
}

CONDITIONS = {
    "network": ("network", ""),
    "step, ms": ("plain_ms", ".1f"),
    "with a condition, ms": ("given_ms", ".1f"),
    "ratio": ("ratio", ".2f"),
    "log_prob, ms": ("plain_log_prob_ms", ".1f"),
    "with it, ms": ("given_log_prob_ms", ".1f"),
    "ratio of log_prob": ("log_prob_ratio", ".2f"),
}

OTHERS = {
    "what": ("what", ""),
    "ours, ms": ("ours", ".1f"),
    "theirs, ms": ("theirs", ".1f"),
    "library": ("library", ""),
    "theirs / ours": ("ratio", ".1f"),
}


def _table(columns: dict, rows: list) -> str:
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    for row in rows:
        cells = ["" if row.get(key) is None else format(row[key], spec) for key, spec in columns.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(path, figures):
    figure = Figure(figsize=(12, 5), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = [row for row in figures.get("networks", []) if not row["xla"]]
    if rows:
        places = range(len(rows))
        for shift, (key, label) in enumerate(
            [("paper_step_ms", "paper's code"), ("step_ms", "flow"), ("twin_step_ms", "plain twin")]
        ):
            values = [row[key] or float("nan") for row in rows]
            left.barh([i + 0.27 * (shift - 1) for i in places], values, height=0.25, label=label)
        left.set(xscale="log", xlabel="milliseconds of a training step", yticks=list(places))
        left.set_yticklabels([row["network"] for row in rows])
        left.invert_yaxis()
        left.legend()
    for name, series in figures.get("scaling", {}).items():
        label = f"{name}, power {series['exponent']:.2f}"
        right.plot([s / series["sizes"][0] for s in series["sizes"]], series["ms"], marker="o", label=label)
    if figures.get("scaling"):
        right.set(xscale="log", yscale="log", xlabel="size, relative to the smallest", ylabel="milliseconds")
        right.legend()
        right.grid(alpha=0.3)
    figure.savefig(path)
