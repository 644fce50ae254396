"""Trains a small flowified network on a two-dimensional density, and shows what it learned.

The network is an ordinary one, dense layers with activations, that widens and narrows: 2 -> 8 -> 4 -> 2, several times.
Each widening adds noise, each narrowing drops dimensions under a density given what was kept. Writes a picture of data,
samples and density, and a SavedModel, to the folder given by --out.
"""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_flowify import FlowDistribution
from tfp_flowify import bijectors as fb

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def two_moons(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    angle, lower = rng.uniform(0, np.pi, count), rng.integers(0, 2, count)
    moon = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = np.where(lower[:, None], [1.0, 0.5] - moon, moon) - [0.5, 0.25]
    return (1.5 * points + rng.normal(0, 0.1, (count, 2))).astype("float32")


def build(blocks: int, seed: int):
    """The network as a bijector."""
    layers = []

    def funnel(features, units, seed):
        conditioner = keras.Sequential(
            [
                keras.Input((units,)),
                keras.layers.Dense(64, "gelu"),
                keras.layers.Dense(64, "gelu"),
                keras.layers.Dense(25 * (features - units), kernel_initializer="zeros"),
            ]
        )
        transform = fb.Stack([fb.Affine(), fb.Spline(bound=3.0)])
        return fb.Funnel(fb.Linear.create(features, units, seed=seed), conditioner, transform)

    def spline():
        return fb.RationalQuadraticSpline(tf.Variable(tf.zeros([23])))

    for block in range(blocks):
        first = seed + 10 * block
        layers += [fb.Linear.create(2, 8, seed=first), spline()]
        layers += [funnel(8, 4, first + 1), spline(), funnel(4, 2, first + 2)]
    return fb.Sequential(layers)


class Exported(tf.Module):
    """What the SavedModel offers."""

    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def log_prob(self, x):
        return self.flow.log_prob(x, num_draws=100)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.int32)])
    def sample(self, count, seed):
        return self.flow.sample(count, seed=seed)


def train(flow, weights, steps: int, batch_size: int, data: np.ndarray):
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, steps))
    optimizer.build(weights)

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(flow.log_prob(batch))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    batches = tf.data.Dataset.from_tensor_slices(data).shuffle(len(data)).repeat().batch(batch_size)
    progress = keras.utils.Progbar(steps, stateful_metrics=["nats"], interval=0.5)
    smooth = None
    for batch in batches.take(steps):
        nats = -float(step(batch))
        smooth = nats if smooth is None else 0.98 * smooth + 0.02 * nats
        progress.add(1, [("nats", smooth)])


def picture(flow, data, path):
    axis = np.linspace(-3, 3, 120, dtype="float32")
    points = np.stack(np.meshgrid(axis, axis), axis=-1)
    score = tf.function(lambda x: flow.log_prob(x, num_draws=200))
    density = np.exp(score(points.reshape(-1, 2))).reshape(120, 120)
    samples = flow.sample(len(data), seed=1).numpy()
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), sharex=True, sharey=True, layout="constrained")
    for panel, points, title in zip(panels, (data, samples), ("test data", "samples"), strict=False):
        panel.scatter(*points.T, s=2, alpha=0.5)
        panel.set_title(title)
    panels[2].imshow(density, origin="lower", extent=(-3, 3, -3, 3), cmap="magma")
    panels[2].set_title("density, 200 importance-weighted draws")
    for panel in panels:
        panel.set(aspect="equal", xlim=(-3, 3), ylim=(-3, 3))
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return density.sum() * (axis[1] - axis[0]) ** 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="training steps (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="points in a step (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=3, help="how often it widens and narrows (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of data and weights (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/first_flow"), help="folder (default: %(default)s)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    keras.utils.set_random_seed(arguments.seed)
    train_data, test_data = two_moons(20_000, arguments.seed), two_moons(5_000, arguments.seed + 1)
    net = build(arguments.blocks, arguments.seed)
    flow = FlowDistribution(net)
    weights = flow.trainable_variables
    numbers = sum(int(np.prod(w.shape)) for w in weights)
    print(f"A network of {len(net.bijectors)} layers and {numbers:,} weights; trained for {arguments.steps} steps.")

    start = time.time()
    train(flow, weights, arguments.steps, arguments.batch_size, train_data)
    seconds = time.time() - start

    gaussian = tfp.distributions.MultivariateNormalTriL(
        train_data.mean(axis=0), np.linalg.cholesky(np.cov(train_data.T)).astype("float32")
    )
    rows = {
        "one Gaussian": gaussian.log_prob(test_data),
        "flow, one draw (the bound)": flow.log_prob(test_data, seed=1),
        "flow, 100 draws": flow.log_prob(test_data, num_draws=100, seed=1),
    }
    mass = picture(flow, test_data, arguments.out / "density.png")
    tf.saved_model.save(Exported(flow), arguments.out / "saved_model")

    print(f"\n{'test log-likelihood, nats':<30}{'mean':>9}{'std. error':>12}")
    for name, values in rows.items():
        print(f"{name:<30}{np.mean(values):>9.3f}{np.std(values) / np.sqrt(len(values)):>12.3f}")
    print(f"\nIntegral of the density over the picture: {mass:.3f}. Training took {seconds:.0f} s.")
    print(f"Wrote {arguments.out / 'density.png'} and {arguments.out / 'saved_model'}.")


if __name__ == "__main__":
    main()
