"""One page that shows a run, with everything inside it: no other file, no network, no script."""

import base64
import html
from collections.abc import Iterable
from pathlib import Path

from tfp_flowify.experiments.durable import moved_into
from tfp_flowify.experiments.figures import carried_over, rows_of

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
.lead { font-size: 2.4rem; font-weight: 600; margin: 0.5rem 0 0; }
.muted { opacity: 0.7; margin-top: 0; }
table { border-collapse: collapse; margin: 1.5rem 0; width: 100%; }
td { border-bottom: 1px solid var(--line); padding: 0.3rem 0.8rem 0.3rem 0; font-variant-numeric: tabular-nums; }
td:first-child { opacity: 0.7; width: 16rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.5rem; }
figure { margin: 0; }
figure img { width: 100%; background: white; border-radius: 6px; }
figcaption { font-size: 0.9rem; opacity: 0.8; }
details { margin: 2rem 0; }
pre { overflow-x: auto; font-size: 0.85rem; }
"""

CAPTIONS = {
    "curves.png": "Likelihood while it trained.",
    "samples.png": "Samples: the output and what the network drops are drawn.",
    "samples_mean.png": "The same outputs, with what is dropped at its mean.",
    "reconstructions.png": "What the output alone tells of test examples.",
}


def write_page(folder: Path, report: dict, config: dict, pictures: Iterable[str]) -> None:
    """Writes `report.html` into the folder of a run."""
    rows = "".join(f"<tr><td>{_text(name)}</td><td>{_text(value)}</td></tr>" for name, value in rows_of(report))
    figures = "".join(_figure(folder / name, CAPTIONS.get(name, name)) for name in pictures)
    settings = "\n".join(f"{name}: {value}" for name, value in config.items())
    draws, weighted = report["importance_weighted"]["draws"], carried_over(report)
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(report["model"])} on {_text(report["data"])}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{_text(report["model"])} on {_text(report["data"])}</h1>
<p class="lead">{weighted["mean"]:.3f} {_text(report["unit"])}</p>
<p class="muted">{_text(report["split"])}, {draws} importance-weighted draws of the noise;
{report["single_draw"]["mean"]:.3f} with one draw</p>
<table>{rows}</table>
<div class="pictures">{figures}</div>
<details><summary>Settings of the run</summary><pre>{_text(settings)}</pre></details>
</body>
</html>
"""
    with moved_into(folder / "report.html") as new:
        new.write_text(page, encoding="utf-8")


def _figure(path, caption):
    content = base64.b64encode(path.read_bytes()).decode()
    image = f'<img src="data:image/png;base64,{content}" alt="{_text(caption)}">'
    return f"<figure>{image}<figcaption>{_text(caption)}</figcaption></figure>"


def _text(value) -> str:
    return html.escape(str(value))
