"""Trains and asks a flow for a long time, and its SavedModel from many threads: does memory grow, do answers change?

Examples:
  python scripts/soak.py                                             25 minutes, into results/soak
  python scripts/soak.py --minutes 1 --serving-minutes 0.5 --out /tmp/soak

Writes soak.json, soak.png and README.md, renewed as it goes. Nothing else should run meanwhile. It ends with code 1 and
says why where memory grows, a function is traced late, an answer differs or a thread fails.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

#: Sizes of batches that are asked for, drawn anew each time.
LARGEST_BATCH = 1500

#: Seconds between two looks at the memory.
LOOK_EVERY = 2.0

#: The first part of each soak, in which programs are compiled and pools fill up, is not counted.
WARM_UP = 0.2

#: Memory may grow by so much in a minute: it goes up and down by more than that.
MOST_GROWTH_MB = 2.0


class Memory:
    """Looks at the memory of this process from time to time, in a thread of its own."""

    def __init__(self):
        self.seconds, self.megabytes, self._done = [], [], threading.Event()
        self._begun = time.perf_counter()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._done.set()
        self._thread.join()

    def _look(self):
        while not self._done.wait(LOOK_EVERY):
            self.seconds.append(time.perf_counter() - self._begun)
            self.megabytes.append(resident_megabytes())

    def figures(self) -> dict:
        """Memory behind the warm-up and at the end, and how fast it grew in between, by a straight line."""
        import numpy as np

        first = int(len(self.seconds) * WARM_UP)
        seconds, megabytes = self.seconds[first:], self.megabytes[first:]
        slope = float(np.polyfit(seconds, megabytes, 1)[0]) * 60 if len(seconds) > 2 else 0.0
        tenth = max(1, len(megabytes) // 10)
        start, end = float(np.median(megabytes[:tenth])), float(np.median(megabytes[-tenth:]))
        return {"start_mb": start, "end_mb": end, "largest_mb": max(megabytes), "growth_mb_per_minute": slope}


def resident_megabytes() -> float:
    """The memory that this process holds now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def soak(minutes: float, log) -> tuple:
    """Trains a flow and asks it, in turns, with batches of changing size; figures and the course of memory."""
    import keras
    import numpy as np

    from tfp_flowify import zoo
    from tfp_flowify.data import batches, load

    data, generator = load("digits"), random.Random(0)
    keras.utils.set_random_seed(0)
    flow = zoo.build("fconv2", data.shape, data.levels, seed=0)
    flow.adapt(data.train[:500], seed=0)
    traces = count_traces(flow)
    flow.compile("adam", jit_compile=False)
    stream, asked, steps, seen = iter(batches(data.train, 128)), 0, 0, []
    x = np.concatenate([data.train] * 2)

    def ask():
        n = generator.randint(1, LARGEST_BATCH)
        what = generator.choice(["log_prob", "weighted", "sample", "encode", "predict"])
        if what == "sample":
            return flow.sample(n, seed=n)
        if what == "predict":
            return flow.predict_on_batch(x[:n])
        if what == "encode":
            return flow.decode(flow.encode(x[:n], seed=n))
        return flow.log_prob(x[: n // 10 + 1] if what == "weighted" else x[:n], 10 if what == "weighted" else 1, seed=n)

    begun = shown = time.perf_counter()
    with Memory() as memory:
        while time.perf_counter() - begun < 60 * minutes:
            for _ in range(20):
                loss = flow.train_on_batch(next(stream))[0]
            steps += 20
            for _ in range(10):
                answer = ask()
                asked += 1
            seen.append((time.perf_counter() - begun, len(traces)))
            if time.perf_counter() - shown > 30:
                shown = time.perf_counter()
                log(f"  {(shown - begun) / 60:.1f} min, {resident_megabytes():.0f} MB, {len(traces)} traces")
    assert np.isfinite(loss) and answer is not None
    late = sum(1 for _, count in seen if count < len(traces))
    figures = {"minutes": minutes, "steps": steps, "questions": asked, **memory.figures()}
    figures["traces"] = len(traces)
    figures["minutes_to_last_trace"] = (seen[late][0] if seen else 0.0) / 60
    return figures, memory, flow


def count_traces(flow) -> list:
    """A list that grows each time that a function over the flow is traced: its layers then run in Python."""
    traces, bijector = [], flow.distribution.bijector

    def counted(run):
        return lambda *args: traces.append(1) or run(*args)

    bijector.forward_and_log_det = counted(bijector.forward_and_log_det)
    bijector.inverse_and_log_det = counted(bijector.inverse_and_log_det)
    return traces


def serve(flow, minutes: float, threads: int, log) -> tuple:
    """Asks an exported flow from many threads at once; figures and the course of memory."""
    import numpy as np
    import tensorflow as tf

    from tfp_flowify.data import load

    x = np.concatenate([load("digits").train] * 2).astype("float32")
    with tempfile.TemporaryDirectory() as folder:
        flow.export(folder)
        signatures = tf.saved_model.load(folder).signatures

    def request(number):
        """One of 64 requests: the same number asks the same."""
        n, kind, seed = 1 + (number * 37) % 256, number % 3, tf.constant([0, number])
        if kind == 0:
            return signatures["log_prob"](x=tf.constant(x[:n]), seed=seed)["log_prob"], n
        if kind == 1:
            return signatures["sample"](n=tf.constant(n), temperature=tf.constant(1.0), seed=seed)["x"], n
        return signatures["encode"](x=tf.constant(x[:n]), seed=seed)["z"], n

    wanted = [request(number)[0].numpy() for number in range(64)]
    begun = time.perf_counter()
    for number in range(64):
        request(number)
    alone = 64 / (time.perf_counter() - begun)
    end, results = time.perf_counter() + 60 * minutes, []

    def work(first):
        generator = random.Random(first)
        count, examples, different, waits = 0, 0, 0, []
        while time.perf_counter() < end:
            number, asked = generator.randrange(64), time.perf_counter()
            answer, n = request(number)
            answer = answer.numpy()
            waits.append(time.perf_counter() - asked)
            different += not np.array_equal(answer, wanted[number])  # Also where it is NaN.
            count, examples = count + 1, examples + n
        results.append((count, examples, different, waits))

    with Memory() as memory:
        workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    log(f"  {len(results)} of {threads} threads are done")
    if not results:
        raise RuntimeError("All threads failed; what they said is above.")
    requests, waits = sum(r[0] for r in results), np.concatenate([r[3] for r in results])
    figures = {"minutes": minutes, "threads": threads, "threads_done": len(results), "requests": requests}
    figures |= {"requests_per_second": requests / (60 * minutes), "alone_per_second": alone}
    figures |= {"examples_per_second": sum(r[1] for r in results) / (60 * minutes)}
    figures |= {"different_answers": sum(r[2] for r in results)}
    figures |= {"median_ms": float(np.median(waits)) * 1e3, "p99_ms": float(np.quantile(waits, 0.99)) * 1e3}
    return {**figures, **memory.figures()}, memory


def draw(path, courses: dict):
    """The memory over time, one panel for each soak."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), dpi=120, layout="constrained")
    for axis, (title, memory) in zip(figure.subplots(1, len(courses), squeeze=False)[0], courses.items(), strict=True):
        axis.plot([second / 60 for second in memory.seconds], memory.megabytes, linewidth=1)
        axis.set(
            title=title, xlabel="minutes", ylabel="memory of the process, MB", ylim=(0, 1.1 * max(memory.megabytes))
        )
        axis.grid(alpha=0.3)
    figure.savefig(path)


def page(figures: dict) -> str:
    training, serving = figures["training"], figures.get("serving")
    lines = [
        f"# A long run\n\n`{figures['command']}`, {figures['machine']}.\n\n![Memory over time](soak.png)\n",
        f"**Training and questions in turns**, {training['minutes']:g} minutes: {training['steps']:,} steps, "
        f"{training['questions']:,} questions (`log_prob`, `sample`, `encode`, `decode`, `predict`) with 1 to "
        f"{LARGEST_BATCH} examples. Memory {training['start_mb']:.0f} MB behind the first fifth, "
        f"{training['end_mb']:.0f} MB at the end, {training['growth_mb_per_minute']:+.2f} MB a minute. The flow was "
        f"traced {training['traces']} times, the last time after {training['minutes_to_last_trace']:.1f} minutes.\n",
    ]
    if serving:
        lines.append(
            f"**The SavedModel, {serving['threads']} threads of one process**, {serving['minutes']:g} minutes: "
            f"{serving['requests']:,} requests of 1 to 256 examples, {serving['requests_per_second']:.0f} a second "
            f"({serving['alone_per_second']:.0f} from one thread), {serving['examples_per_second']:,.0f} examples a "
            f"second; a request takes {serving['median_ms']:.0f} ms, one in a hundred more than "
            f"{serving['p99_ms']:.0f} ms. {serving['different_answers']} answers differ from those of one thread by a "
            f"bit or more. Memory {serving['start_mb']:.0f} -> {serving['end_mb']:.0f} MB, "
            f"{serving['growth_mb_per_minute']:+.2f} MB a minute, of which the list of times that is kept here takes "
            f"{32e-6 * serving['requests'] / serving['minutes']:.2f}.\n"
        )
    return "\n".join(lines)


def complaints(figures: dict) -> list:
    """What should not be."""
    training, serving = figures["training"], figures["serving"]
    found = [
        f"{name}: memory grows by {part['growth_mb_per_minute']:.1f} MB a minute"
        for name, part in (("training", training), ("serving", serving))
        if part["growth_mb_per_minute"] > MOST_GROWTH_MB
    ]
    if training["minutes_to_last_trace"] > WARM_UP * training["minutes"]:
        found.append(f"training: still traced after {training['minutes_to_last_trace']:.1f} minutes")
    if serving["different_answers"]:
        found.append(f"serving: {serving['different_answers']} answers differ from those of one thread")
    if serving["threads_done"] < serving["threads"]:
        found.append(f"serving: {serving['threads'] - serving['threads_done']} threads failed")
    return found


def main(arguments) -> int:
    from tfp_flowify.experiments.machine import machine, versions

    def log(message):
        print(message, flush=True)

    arguments.out.mkdir(parents=True, exist_ok=True)
    command = f"python scripts/soak.py --minutes {arguments.minutes:g} --serving-minutes {arguments.serving_minutes:g}"
    figures = {"command": command, "machine": machine(), "versions": versions()}
    log(f"Training and asking for {arguments.minutes:g} minutes ...")
    figures["training"], memory, flow = soak(arguments.minutes, log)
    courses = {"training and questions": memory}
    _write(arguments.out, figures, courses)
    log(f"Serving to {arguments.threads} threads for {arguments.serving_minutes:g} minutes ...")
    figures["serving"], courses["SavedModel, many threads"] = serve(
        flow, arguments.serving_minutes, arguments.threads, log
    )
    _write(arguments.out, figures, courses)
    log(page(figures))
    found = complaints(figures)
    for complaint in found:
        log(f"NOT AS IT SHOULD BE: {complaint}")
    return 1 if found else 0


def _write(out, figures, courses):
    (out / "soak.json").write_text(json.dumps(figures, indent=2) + "\n")
    (out / "README.md").write_text(page(figures))
    draw(out / "soak.png", courses)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="of training and questions (default: %(default)s)")
    parser.add_argument("--serving-minutes", type=float, default=5.0, help="of the SavedModel (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=16, help="that ask it (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/soak"), help="folder (default: %(default)s)")
    sys.exit(main(parser.parse_args()))
