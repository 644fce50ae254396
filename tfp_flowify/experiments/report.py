"""The results of a run: figures, pictures, a SavedModel and one page with all of it."""

from collections.abc import Callable
from typing import Any

from tfp_flowify.data import Data
from tfp_flowify.experiments.figures import evaluate, table, trained_numbers
from tfp_flowify.experiments.folder import RunFolder
from tfp_flowify.experiments.page import write_page
from tfp_flowify.experiments.pictures import draw_all
from tfp_flowify.model import FlowModel


def write_report(folder: RunFolder, flow: FlowModel, data: Data, log: Callable[[str], Any] = print) -> dict:
    """Writes figures, pictures, SavedModel and page of a run, from its best flow.

    Args:
      folder: Folder of the run.
      flow: The best flow.
      data: The data of the run.
      log: Function called with each progress message, and with the table of figures.
    """
    folder.remove_report()  # A kill from here on leaves a run that is not complete.
    config, history = folder.read_config(), folder.read_history()
    last, best = history[-1], (min if data.is_image else max)(history, key=lambda row: row["validation"])
    report = {
        "data": config["data"],
        "model": config["model"],
        "minutes": config["minutes"],
        **({"condition": config["condition"]} if config.get("condition") else {}),
        **evaluate(flow, data, config["draws"], config["weighted_examples"], log=log),
        "validation": best["validation"],
        "best_epoch": best["epoch"],
        "epochs": last["epoch"],
        "steps": last["steps"],
        "training_seconds": last["seconds"],
        "training_examples": len(data.train),
        "parameters": trained_numbers(flow),
        **{name: last[name] for name in ("seconds_to_first_step", "seconds_per_step", "peak_memory_bytes")},
        "machine": config["machine"],
    }
    log("Drawing, exporting ...")
    names = draw_all(folder.path, flow, data, history, config["temperature"])
    with folder.replaced_export() as new:
        flow.export(new)
    write_page(folder.path, report, config, names)
    folder.write_report(report)
    log("\n" + table(report) + "\n")
    log(f"Pictures in {folder.path}: {', '.join(names)}")
    log(f"One page with all of it: {folder.page}")
    log(f"The flow: {folder.best.name} for Keras, {folder.saved_model.name} for TensorFlow alone.")
    return report
