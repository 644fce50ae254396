"""What a run came to: figures, pictures, a SavedModel and one page with all of it."""

from tfp_flowify.experiments.figures import evaluate, table, trained_numbers
from tfp_flowify.experiments.page import write_page
from tfp_flowify.experiments.pictures import draw_all


def write_report(folder, flow, data, say=print) -> dict:
    """Figures, pictures, SavedModel and page of a run, from its best flow. Prints the table."""
    config, history = folder.read_config(), folder.read_history()
    last, best = history[-1], (min if data.is_image else max)(history, key=lambda row: row["validation"])
    report = {
        "data": config["data"],
        "model": config["model"],
        "minutes": config["minutes"],
        **evaluate(flow, data, config["draws"], config["weighted_examples"], say=say),
        "validation": best["validation"],
        "best_epoch": best["epoch"],
        "epochs": last["epoch"],
        "steps": last["steps"],
        "training_seconds": last["seconds"],
        "parameters": trained_numbers(flow),
        **{name: last[name] for name in ("seconds_to_first_step", "seconds_per_step", "peak_memory_bytes")},
        "machine": config["machine"],
    }
    say("Drawing, exporting ...")
    names = draw_all(folder.path, flow, data, history, config["temperature"])
    flow.export(folder.saved_model)
    write_page(folder.path, report, config, names)
    folder.write_json(folder.report, report)
    say("\n" + table(report) + "\n")
    say(f"Pictures in {folder.path}: {', '.join(names)}")
    say(f"One page with all of it: {folder.path / 'report.html'}")
    say(f"The flow: {folder.best.name} for Keras, {folder.saved_model.name} for TensorFlow alone.")
    return report
