"""Simulation-based inference: simulators and their reference posteriors agree, and flows learn them."""

import itertools
import json
import math
import types

import keras
import numpy as np
import pytest

from tfp_flowify import inference
from tfp_flowify.diagnostics import c2st, ranks, uniformity
from tfp_flowify.inference import TASKS, benchmark
from tfp_flowify.inference.reference import sample_chains, sample_grid
from tfp_flowify_cli import main

SLOW_REFERENCES = ("slcp", "sir")


@pytest.fixture
def looks_for_time(monkeypatch):
    """Ten looks at the clock are a second, so that what is learned does not depend on how busy the machine is.

    There are two looks for eight steps of training.
    """
    looks = itertools.count()
    monkeypatch.setattr(inference.posterior, "time", types.SimpleNamespace(perf_counter=lambda: next(looks) / 10))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow, pytest.mark.long] * (name in SLOW_REFERENCES)) for name in TASKS],
)
def test_references_are_posteriors_of_the_simulator(name):
    """Ranks of true parameters among reference samples are uniform: only true posteriors have that."""
    task, count = TASKS[name](), 60 if name in SLOW_REFERENCES else 400
    theta, x = task.draw(count, seed=1)
    assert theta.shape == (count, len(task.parameters)) and np.isfinite(x).all()
    generator = np.random.default_rng(2)
    draws = np.stack([task.reference(row.astype(np.float64), 99, generator) for row in x], axis=1)
    if task.low is not None:
        assert np.all((draws >= task.low) & (draws <= task.high)) and np.all((theta >= task.low) & (theta <= task.high))
    assert uniformity(ranks(theta, draws), 99, bins=10).min() > 1e-3


def test_simulations_are_the_same_for_the_same_seed():
    task = TASKS["slcp"]()
    for first, second, other in zip(task.draw(5, 1), task.draw(5, 1), task.draw(5, 2), strict=True):
        np.testing.assert_array_equal(first, second)
        assert np.any(first != other)


@pytest.mark.slow
def test_two_moons_by_the_density_of_its_simulator():
    """The reference against rejection: simulations whose data fall close to the observation."""
    task = TASKS["two_moons"]()
    theta, x = task.draw(2_000_000, seed=1)
    observed = np.array([-0.2, 0.1])
    close = theta[np.abs(x - observed).max(axis=1) < 0.01]
    reference = task.reference(observed, len(close), np.random.default_rng(1))
    assert len(close) > 100
    np.testing.assert_allclose(reference.mean(axis=0), close.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(reference.std(axis=0), close.std(axis=0), atol=0.03)


def test_grids_and_chains_sample_what_they_are_given():
    def log_density(x):
        """Correlated, with standard normal first and second coordinate."""
        return -0.5 * (x[:, 0] ** 2 - 1.2 * x[:, 0] * x[:, 1] + x[:, 1] ** 2) / (1 - 0.36)

    generator = np.random.default_rng(0)
    expected = generator.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 3000)
    grid = sample_grid(log_density, np.array([-50.0, -50.0]), np.array([50.0, 50.0]), 3000, generator)
    chains = sample_chains(log_density, lambda n: generator.uniform(-6, 6, (n, 2)), 3000, generator, steps=500)
    for samples in (grid, chains):
        np.testing.assert_allclose(np.cov(samples.T), np.cov(expected.T), atol=0.1)
        assert c2st(samples, expected, steps=400) < 0.56


def test_chains_find_modes_in_proportion():
    def log_density(x):
        return np.logaddexp(math.log(0.3) - 50 * np.sum((x - 2) ** 2, 1), math.log(0.7) - 50 * np.sum((x + 2) ** 2, 1))

    generator = np.random.default_rng(0)
    samples = sample_chains(log_density, lambda n: generator.uniform(-4, 4, (n, 2)), 4000, generator, steps=300)
    assert abs(np.mean(samples[:, 0] > 0) - 0.3) < 0.06


@pytest.mark.slow
def test_a_posterior_in_less_than_a_minute(looks_for_time):
    task = TASKS["gaussian_mixture"]()
    theta, x = task.draw(3000, seed=1)
    keras.utils.set_random_seed(0)
    flow = inference.posterior_flow(2, (2,), task.low, task.high, blocks=2, width=16)
    figures = inference.fit_posterior(flow, theta, x, minutes=0.75)
    assert flow.is_exact and figures["epochs"] > 2 and figures["seconds"] < 46
    held_out = task.draw(1000, seed=2)
    validation = float(np.mean(flow.log_prob(held_out[0], condition=held_out[1])))
    assert abs(validation - figures["validation"]) < 0.3 and validation > -2.5  # The prior has -6.0.
    samples = flow.sample(2000, condition=[9.9, 9.9], seed=1).numpy()
    assert np.all(np.abs(samples) <= 10)


def test_what_cannot_be_learned_from_is_named():
    theta, x = TASKS["two_moons"]().draw(30, seed=1)
    with pytest.raises(ValueError, match="both sides"):
        inference.posterior_flow(2, (2,), low=[-1.0, -1.0])
    flow = inference.posterior_flow(2, (2,), theta.min(axis=0), theta.max(axis=0))
    with pytest.raises(ValueError, match="not on them"):
        inference.fit_posterior(flow, theta, x)
    with pytest.raises(ValueError, match="Received: 19"):
        inference.fit_posterior(flow, theta[:19], x[:19])


@pytest.mark.slow
def test_training_is_the_same_for_the_same_seed_and_can_go_on():
    theta, x = TASKS["two_moons"]().draw(200, seed=1)
    figures = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        flow = inference.posterior_flow(2, (2,), blocks=1, width=8)
        flow.adapt(theta, condition=x)
        flow.compile(keras.optimizers.SGD(1e-3))
        data = inference.posterior._batches(theta, x, np.arange(200), 50, seed=3)
        figures.append(flow.fit(data, epochs=2, verbose=0, shuffle=False).history["nll"])
    np.testing.assert_allclose(figures[0], figures[1], rtol=1e-5)
    trained = inference.fit_posterior(flow, theta, x, minutes=0.1)["validation"]
    assert inference.fit_posterior(flow, theta, x, minutes=0.01, adapt=False)["validation"] >= trained - 1e-4


@pytest.mark.slow
def test_one_parameter_and_a_network_for_the_data(looks_for_time):
    keras.utils.set_random_seed(0)
    generator = np.random.default_rng(0)
    theta = generator.normal(size=(1000, 1)).astype("float32")
    sets = (theta[:, None] + generator.normal(size=(1000, 7, 1))).astype("float32")
    points = keras.Input((None, 1))
    network = keras.Model(points, keras.layers.GlobalAveragePooling1D()(keras.layers.Dense(4)(points)))
    flow = inference.posterior_flow(1, network)
    inference.fit_posterior(flow, theta, sets, minutes=0.2)
    drawn = flow.given(sets[:50]).sample(200, seed=1).numpy()[..., 0]
    assert np.corrcoef(drawn.mean(axis=0), sets[:50].mean(axis=(1, 2)))[0, 1] > 0.9


@pytest.mark.slow
def test_the_command_measures_writes_and_goes_on(tmp_path, capsys):
    arguments = ["infer", "--simulations", "300", "--minutes", "0.05", "--observations", "1", "--samples", "100"]
    arguments += ["--truths", "40", "--out", str(tmp_path / "runs")]
    assert main(arguments) == 0
    path = tmp_path / "runs/two_moons_300_tfp_flowify.json"
    figures = json.loads(path.read_text())
    assert 0.3 < figures["c2st_mean"] <= 1 and figures["outside_prior"] == 0 and len(figures["sbc_p_values"]) == 2
    for name in ("two_moons_300_ranks", "two_moons_300_coverage", "two_moons_300_tfp_flowify_posterior"):
        assert (tmp_path / f"runs/{name}.png").stat().st_size > 5000
    assert "| two_moons | 300 | tfp_flowify |" in (tmp_path / "runs/README.md").read_text()
    before = path.stat().st_mtime_ns
    assert main(arguments) == 0 and path.stat().st_mtime_ns == before
    assert "there already" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--tasks", "one_moon"], "--tasks takes two_moons.*Received: one_moon"),
        (["--estimators", "none"], "--estimators takes tfp_flowify, zuko.*none"),
        (["--minutes", "0"], "--minutes takes positive numbers"),
        (["--simulations", "-5"], "--simulations takes positive numbers"),
    ],
)
def test_what_the_command_cannot_do_is_named(arguments, message, capsys):
    assert main(["infer", *arguments]) == 2
    assert __import__("re").search(message, capsys.readouterr().err)


def test_the_command_knows_all_tasks():
    from tfp_flowify_cli.infer import TASKS as NAMES

    assert tuple(TASKS) == NAMES and set(benchmark.PUBLISHED) == set(TASKS)


# Known densities.


@pytest.mark.slow
@pytest.mark.long
def test_a_linear_gaussian_posterior_in_ten_dimensions():
    """x = A theta + noise. The divergence of the flow from the posterior is below 0.02 nats."""
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(10, 10)) / math.sqrt(10)
    precision = np.eye(10) + matrix.T @ matrix / 0.25
    covariance = np.linalg.inv(precision)

    def draw(count):
        theta = generator.normal(size=(count, 10))
        return theta.astype("float32"), (theta @ matrix.T + 0.5 * generator.normal(size=(count, 10))).astype("float32")

    keras.utils.set_random_seed(0)
    flow = inference.posterior_flow(10, (10,), blocks=2, width=64)
    theta, x = draw(300_000)
    inference.fit_posterior(flow, theta, x, minutes=2.5, batch_size=512)
    theta, x = draw(20_000)
    error = theta - x @ (covariance @ matrix.T / 0.25).T
    exact = -0.5 * np.sum(error @ precision * error, axis=1) + 0.5 * np.linalg.slogdet(precision)[1]
    exact -= 5 * math.log(2 * math.pi)
    gap = exact - np.asarray(flow.log_prob(theta, condition=x))
    print(f"KL {gap.mean():.4f} +- {gap.std() / math.sqrt(len(gap)):.4f} nats")
    assert gap.mean() < 0.02


@pytest.mark.slow
def test_a_bent_density_whose_spread_depends_on_the_condition(looks_for_time):
    """x1 around a sine of c, x2 around a parabola of x1, with deviations that depend on c and on x1."""
    generator = np.random.default_rng(0)

    def moments(c, first):
        return [(np.sin(3 * c), 0.2 + 0.3 * c**2), (c * (first**2 - 1), 0.1 + 0.2 / (1 + np.exp(-3 * first)))]

    def draw(count):
        c, noise = generator.uniform(-1, 1, count), generator.normal(size=(2, count))
        mean, deviation = moments(c, 0)[0]
        first = mean + deviation * noise[0]
        mean, deviation = moments(c, first)[1]
        return np.stack([first, mean + deviation * noise[1]], 1).astype("float32"), c[:, None].astype("float32")

    def log_prob(x, c):
        parts = zip(x.T, moments(c[:, 0], x[:, 0]), strict=True)
        return sum(-0.5 * ((v - m) / s) ** 2 - np.log(s) - 0.5 * math.log(2 * math.pi) for v, (m, s) in parts)

    keras.utils.set_random_seed(0)
    flow = inference.posterior_flow(2, (1,))
    x, c = draw(50_000)
    inference.fit_posterior(flow, x, c, minutes=2.5, batch_size=256)
    x, c = draw(20_000)
    gap = log_prob(x.astype(np.float64), c) - np.asarray(flow.log_prob(x, condition=c), np.float64)
    print(f"gap {gap.mean():.4f} +- {gap.std() / math.sqrt(len(gap)):.4f} nats")
    assert gap.mean() < 0.05
