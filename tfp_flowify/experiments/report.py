"""What a run came to: figures, pictures, a SavedModel and one page with all of it."""

from tfp_flowify.experiments.figures import evaluate, table
from tfp_flowify.experiments.page import write_page
from tfp_flowify.experiments.pictures import draw_all


def write_report(folder, flow, data, speed: dict | None = None, say=print) -> dict:
    """Figures, pictures, SavedModel and page of a run, from its best flow. Prints the table."""
    config, history = folder.read_config(), folder.read_history()
    figures = evaluate(flow, data, config["draws"], config["weighted_examples"], say=say)
    best = (min if data.is_image else max)(history, key=lambda row: row["validation"])
    report = {
        "data": config["data"],
        "model": config["model"],
        "minutes": config["minutes"],
        **figures,
        "validation": best["validation"],
        "best_epoch": int(best["epoch"]),
        "epochs": int(history[-1]["epoch"]),
        "steps": int(history[-1]["steps"]),
        "training_seconds": history[-1]["seconds"],
        "parameters": flow.count_params(),
        **(speed or {}),
        "machine": config["machine"],
    }
    folder.write_json(folder.report, report)
    say("Drawing, exporting ...")
    names = draw_all(folder.path, flow, data, history, config["temperature"])
    flow.export(folder.saved_model)
    write_page(folder.path, report, config, names)
    say("\n" + table(report) + "\n")
    say(f"Pictures in {folder.path}: {', '.join(names)}")
    say(f"One page with all of it: {folder.path / 'report.html'}")
    say(f"The flow: {folder.best.name} for Keras, {folder.saved_model.name} for TensorFlow alone.")
    return report
