"""The densities are densities and the bounds are bounds, by quadrature over data and noise."""

import itertools
import math
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import Net, funnel, linear, scalar, staged, weight
from test_bijectors import coordinates

from tfp_flowify import FlowDistribution, transforms
from tfp_flowify import bijectors as fb
from tfp_flowify.augmentation import draw
from tfp_flowify.core.checks import bundle
from tfp_flowify.distributions import Code

tfb, tfd = tfp.bijectors, tfp.distributions
T = tf.float64


def end(features, layer):
    """A layer, then a bend and a rotation, so that nothing is special about its directions."""
    return fb.Sequential([layer, fb.Spline(weight((23,), T)), linear(features, features, T)])


def sequence(length):
    return (length, 1, 1)


def flatten(layer):
    size = int(np.prod(layer.outputs[0]))
    return fb.Sequential([layer, tfb.Reshape((size,), layer.outputs[0]), linear(size, size, T)])


class Around(Net):
    """A conditioner of one number whose mean and log-scale are around given ones."""

    def __init__(self, features, loc, log_scale):
        super().__init__(features, 2, T)
        self.around = tf.constant([loc, log_scale], T)

    def __call__(self, x):
        return 0.3 * super().__call__(x) + self.around


def narrow(layer):
    """What a window loses on the scale of the grid, else its tail leaves it."""
    parameters = tf.constant([-0.5] * math.prod(layer.residuals[0].event_shape), T)
    return fb.Funnel(layer, lambda z: parameters, transforms.Standardize(shift=False))


EXACT = {
    "linear_equal": lambda: end(2, linear(2, 2, T)),
    "linear_fewer": lambda: end(1, linear(2, 1, T)),
    "funnel": lambda: end(1, funnel(2, 1, T)),
    "funnel_spline": lambda: end(
        1, funnel(2, 1, T, transform=transforms.Stack([transforms.Standardize(), transforms.Spline()]))
    ),
    "coupling": lambda: end(2, fb.Coupling(2, Net(1, 23, T), dtype=T)),
    "staged_funnel": lambda: end(1, staged(3, 1, T, stages=2)),
    "conv_tiles": lambda: flatten(fb.Conv2D(sequence(2), funnel(2, 1, T), (2, 1), (2, 1))),
    "conv_gaps": lambda: flatten(fb.Conv2D(sequence(2), linear(1, 1, T), 1, 2)),
    "crop": lambda: flatten(fb.Crop(sequence(2), ((1, 0), (0, 0)), T)),
    "max_pool": lambda: flatten(narrow(fb.MaxPool2D(sequence(2), (2, 1), dtype=T))),
    "average_pool": lambda: flatten(narrow(fb.AveragePool2D(sequence(2), (2, 1), dtype=T))),
    "multiply": lambda: fb.Graph(
        [
            fb.Node(fb.Split(2, 1, T), "x", ("a", "b")),
            fb.Node(fb.Funnel(fb.Multiply((1,), dtype=T), Around(1, 2.0, -1.0)), ("a", "b"), "z"),
        ],
        {"x": (2,)},
        "z",
    ),
    "fourier": lambda: flatten(
        fb.FourierConv2D(
            (1, 1, 2), weight((1, 1, 2, 2), T), weight((1, 1, 1), T, seed=1), weight((1, 1, 1, 1), T), weight((1,), T)
        )
    ),
}
BOUND = {
    "linear_more": lambda: end(2, linear(1, 2, T)),
    "linear_more_uniform": lambda: end(2, linear(1, 2, T, noise="uniform")),
    "pad": lambda: flatten(fb.Pad(sequence(1), ((1, 0), (0, 0)), scalar(-0.3, T))),
    "unfold_overlap": lambda: flatten(
        fb.Conv2D(sequence(2), linear(2, 2, T), (2, 1), padding="same", log_noise_scale=scalar(-0.3, T))
    ),
    "unfold_overlap_uniform": lambda: flatten(
        narrow(fb.MaxPool2D(sequence(2), (2, 1), 1, "same", log_noise_scale=scalar(-0.5, T), noise="uniform"))
    ),
    "max_pool_overlap": lambda: flatten(
        narrow(fb.MaxPool2D(sequence(2), (2, 1), 1, "same", log_noise_scale=scalar(-0.5, T)))
    ),
    "relu": lambda: end(1, fb.ReLU((1,), weight((1,), T, seed=1), weight((1,), T, seed=2), weight((1,), T, seed=3))),
    "residual": lambda: end(
        1, fb.Residual(linear(1, 1, T), conditioner=Net(1, 2, T), log_noise_scale=scalar(-0.5, T))
    ),
    "stochastic": lambda: end(
        1, fb.Funnel(fb.Stochastic(tf.nn.gelu, (1,), (1,), scalar(-0.5, T)), Net(1, 2, T))
    ),
    "block": lambda: end(
        1,
        fb.Graph(
            [
                fb.Node(fb.Stochastic(tf.nn.gelu, (1,), (1,), scalar(-0.5, T)), "x", ("z", "d")),
                fb.Node(fb.WhitenByFlow((1,), fb.ConditionalTransform((1,), Net(1, 2, T), dtype=T)), ("z", "d"), "z"),
            ],
            {"x": (1,)},
            "z",
        ),
    ),
    "normalize": lambda: end(
        2, fb.Funnel(fb.Normalize(2, False, 0.5, tf.Variable([-0.5], dtype=T)), Around(2, 0.3, -1.2))
    ),
    "graph": lambda: fb.Graph(
        [
            fb.Node(fb.Duplicate((1,), 2, scalar(-0.5, T)), ("x",), ("a", "b")),
            fb.Node(fb.Spline(weight((1, 23), T)), ("a",), ("a",)),
            fb.Node(fb.Concatenate([1, 1]), ("a", "b"), ("c",)),
            fb.Node(linear(2, 2, T), ("c",), ("z",)),
        ],
        inputs={"x": (1,)},
        outputs=("z",),
    ),
}  # fmt: skip
POINTS = {1: 2000, 2: 700, 3: 130, 4: 46}


def grid(dimensions, points=None, half_width=9.0):
    """Midpoints of equal cells: no kink at zero falls inside a cell."""
    points = points or POINTS[dimensions]
    axis = (np.arange(points) + 0.5) / points * 2 * half_width - half_width
    return np.stack(np.meshgrid(*[axis] * dimensions, indexing="ij"), -1).reshape(-1, dimensions), (
        2 * half_width / points
    ) ** dimensions


def noise_coordinates(flow):
    """Bases of the noise to integrate over; a `Code` is left at a half, since no density depends on it."""
    pairs = zip(flow.bijector.noise, coordinates(flow.bijector)[1:], strict=True)
    return [None if isinstance(d, Code) else basis for d, basis in pairs]


def noise_parts(flow, u):
    """Parts of noise from coordinates u (points, dimensions)."""
    bases, parts = noise_coordinates(flow), []
    pieces = iter(np.split(u, np.cumsum([b.shape[1] for b in bases if b is not None])[:-1], axis=-1))
    for d, basis in zip(flow.bijector.noise, bases, strict=True):
        part = np.full((len(u), *d.event_shape), 0.5) if basis is None else next(pieces) @ basis.T
        parts.append(tf.constant(part.reshape(len(u), *d.event_shape), T))
    return parts


def log_joint(flow, x, u):
    """log p(x, noise) for arrays (points, data dimensions) and (points, noise dimensions)."""
    x = tf.reshape(tf.constant(x, T), [-1, *flow.event_shape])
    return flow.joint.log_prob(bundle([x, *noise_parts(flow, u)]))


def integrated_and_covered(flow, x):
    """log p(x), the noise integrated out by quadrature: over all of it, and over what is drawn."""
    noise = sum(b.shape[1] for b in noise_coordinates(flow) if b is not None)
    u, cell = grid(noise, points={1: 20000, 2: 1500}[noise])
    joint = log_joint(flow, np.broadcast_to(x, (len(u), len(x))), u).numpy()
    drawn = sum(d.log_prob(n).numpy() for d, n in zip(flow.bijector.noise, noise_parts(flow, u), strict=True))
    covered = np.where(np.isfinite(drawn), joint, -np.inf)
    return np.log(np.exp(joint).sum() * cell), np.log(np.exp(covered).sum() * cell)


@pytest.mark.parametrize("name", EXACT)
def test_exact_densities_integrate_to_one(name):
    flow = FlowDistribution(EXACT[name]())
    assert flow.is_exact
    x, cell = grid(math.prod(flow.event_shape))
    log_prob = tf.function(flow.log_prob)(tf.reshape(tf.constant(x, T), [-1, *flow.event_shape]))
    assert abs(np.exp(log_prob).sum() * cell - 1) < 1e-3


@pytest.mark.parametrize("name", BOUND)
def test_densities_with_noise_integrated_out_integrate_to_one(name):
    flow = FlowDistribution(BOUND[name]())
    assert not flow.is_exact
    data = math.prod(flow.event_shape)
    noise = sum(b.shape[1] for b in noise_coordinates(flow) if b is not None)
    points, cell = grid(data + noise)
    total = sum(
        np.exp(log_joint(flow, chunk[:, :data], chunk[:, data:])).sum()
        for chunk in np.array_split(points, max(1, len(points) // 500_000))
    )
    assert abs(total * cell - 1) < 1e-3


@pytest.mark.parametrize("point", [(0.4, -0.7), (-0.6, 0.5)], ids=str)
@pytest.mark.parametrize("name", BOUND)
def test_bounds_are_bounds_and_rise_with_the_draws(name, point):
    flow = FlowDistribution(BOUND[name]())
    x = np.array(point)[: math.prod(flow.event_shape)]
    integrated, covered = integrated_and_covered(flow, x)
    means, errors = [], []
    for k, repeats in [(1, 40_000), (10, 10_000), (100, 2_000), (1000, 400)]:
        batch = tf.broadcast_to(tf.reshape(tf.constant(x, T), flow.event_shape), [repeats, *flow.event_shape])
        got = flow.log_prob(batch, num_draws=k, seed=(k, 1), chunk_size=100).numpy()
        means.append(got.mean())
        errors.append(got.std() / math.sqrt(repeats))
    tight = name == "relu" and x[0] > 0  # There relu is the identity, and its noise cancels.
    assert means[0] < integrated - (-1e-9 if tight else 1e-3)
    for (low, low_error), (high, high_error) in itertools.pairwise(zip(means, errors, strict=True)):
        assert low <= high + 3 * math.hypot(low_error, high_error) + 1e-9
    assert abs(means[-1] - covered) < 0.02 + 3 * errors[-1]
    assert means[-1] <= integrated + 3 * errors[-1] + 1e-9
    if "uniform" in name:
        assert covered < integrated - 1e-3, "uniform noise covers only part of the joint"


@pytest.mark.parametrize(
    "name, point, exact, limit",
    [
        ("linear_more_uniform", (0.4,), -1.233, -1.562),
        ("linear_more_uniform", (-0.6,), -3.301, -3.388),
        ("unfold_overlap_uniform", (0.4, -0.7), -2.673, -2.803),
        ("unfold_overlap_uniform", (-0.6, 0.5), -2.300, -2.409),
    ],
)
def test_what_uniform_noise_loses_is_what_the_documentation_says(name, point, exact, limit):
    integrated, covered = integrated_and_covered(FlowDistribution(BOUND[name]()), np.array(point))
    assert (integrated, covered) == pytest.approx((exact, limit), abs=6e-4)
    rows = (Path(__file__).parent.parent / "docs/maths.md").read_text()
    assert f"| {exact:.3f} | {limit:.3f} |" in rows


@pytest.mark.slow
def test_the_drawn_density_of_the_noise_varies_less_than_its_entropy_would():
    """Once a network has learned, log p(x, noise) follows log q(noise), and only the drawn value cancels it."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 4000)
    data = np.stack([np.cos(angle), np.sin(angle)], 1) * rng.normal(1.5, 0.1, (4000, 1))
    data = tf.constant(data, tf.float32)
    layers = []
    for i in range(3):
        conditioner = keras.Sequential([keras.Input([2]), keras.layers.Dense(64, "gelu"), keras.layers.Dense(8)])
        layers += [fb.Linear.create(2, 6, seed=i), fb.Spline(tf.Variable(tf.zeros([23])))]
        layers += [fb.Funnel(fb.Linear.create(6, 2, seed=10 + i), conditioner)]
    flow = FlowDistribution(fb.Sequential(layers))
    optimizer = keras.optimizers.Adam(2e-3)
    optimizer.build(flow.trainable_variables)

    @tf.function
    def train_step(batch):
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(flow.log_prob(batch))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, flow.trainable_variables), flow.trainable_variables, strict=True)
        )

    for step in range(600):
        train_step(data[(step * 250) % 4000 :][:250])
    drawn, closed = [], []
    for x in data[:10]:
        noise = draw(flow.bijector.noise, [2000], tf.constant([1, 2]))
        log_q = sum(d.log_prob(n) for d, n in zip(flow.bijector.noise, noise, strict=True))
        log_p = flow.joint.log_prob([tf.broadcast_to(x, [2000, 2]), *noise])
        drawn.append(np.var(log_p - log_q))
        closed.append(np.var(log_p))
    assert 3 * np.mean(drawn) < np.mean(closed)


@pytest.mark.parametrize(
    "bijector, mass",
    [
        (tfb.Tanh(), math.erf(1 / math.sqrt(2))),
        (tfb.Sigmoid(), 0.5 * math.erf(1 / math.sqrt(2))),
        (tfb.Softplus(), 0.5),
        (fb.ELU(), 0.5 * (1 + math.erf(1 / math.sqrt(2)))),
        (fb.SELU(), 0.5 * (1 + math.erf(1.7580993408473766 / math.sqrt(2)))),
        (fb.Abs(0.4, T), 0.5),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_functions_onto_part_of_the_line_have_the_mass_of_that_part(bijector, mass):
    flow = FlowDistribution(fb.Sequential([bijector, fb.Diagonal(shift=tf.zeros([1], T))], event_shape=(1,)))
    assert flow.is_exact and not flow.bijector.is_onto
    x, cell = grid(1, points=100_000, half_width=30.0)
    assert abs(np.exp(flow.log_prob(x)).sum() * cell - mass) < 1e-3
    samples = flow.sample(2000, seed=1)
    assert np.isfinite(samples).all()
    z = flow.without_noise(samples)
    assert abs(np.mean(np.abs(z)) - np.mean(np.abs(_truncated(bijector)))) < 0.05


def _truncated(bijector):
    """Standard normals that the bijector can reach."""
    z = np.random.default_rng(0).normal(size=(100_000, 1))
    reach = {"tanh": (-1, 1), "sigmoid": (0, 1), "softplus": (0, np.inf), "ELU": (-1, np.inf), "SELU": (-1.758, np.inf)}
    low, high = reach.get(bijector.name, (0, np.inf))
    return z[(z > low) & (z < high)]


def test_abs_is_normalised_on_a_base_it_reaches():
    half_normal = tfd.Independent(tfd.HalfNormal(tf.ones([1], T)), 1)
    flow = FlowDistribution(fb.Sequential([fb.Abs(0.4, T)], event_shape=(1,)), base=half_normal)
    x, cell = grid(1, points=100_000)
    assert abs(np.exp(flow.log_prob(x)).sum() * cell - 1) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("squash", [True, False], ids=["logit behind", "nothing confines it"])
def test_probabilities_of_whole_numbers_sum_to_one(squash):
    layers = [fb.Dequantize(4, T), *([tfb.Invert(tfb.Sigmoid())] if squash else []), linear(1, 1, T)]
    flow = FlowDistribution(fb.Sequential(layers, event_shape=(1,)))
    # The cells of the levels, with the end cells reaching as far as there is mass.
    z = (np.arange(400_000) + 0.5) / 400_000
    z = z if squash else 40 * z - 20
    level = np.clip(np.floor(4 * z), 0, 3)
    weights = np.exp(flow.joint.log_prob([tf.constant(level[:, None]), tf.constant((4 * z - level - 0.5)[:, None])]))
    probability = np.array([weights[level == k].sum() for k in range(4)]) * 4 * (z[1] - z[0])
    assert abs(probability.sum() - 1) < 1e-4
    bounds = flow.log_prob(np.repeat(np.arange(4), 5000)[:, None], seed=1).numpy().reshape(4, 5000)
    assert np.all(bounds.mean(axis=1) < np.log(probability))
    assert np.all(flow.log_prob(np.arange(4)[:, None], num_draws=20_000, seed=1) < np.log(probability) + 0.02)
    drawn = flow.sample(20_000, seed=3).numpy().flatten()
    np.testing.assert_allclose([np.mean(drawn == k) for k in range(4)], probability, atol=0.015)
    assert np.isneginf(flow.log_prob([[-1.0], [0.5], [4.0]])).all()


def test_saturated_pixels_survive_a_logit():
    net = fb.Sequential([fb.Dequantize(256), tfb.Invert(tfb.Sigmoid())], event_shape=(1000,))
    flow = FlowDistribution(net)
    x = tf.repeat(tf.constant([[0.0], [255.0]]), 1000, axis=1)
    for seed in range(500):
        assert np.isfinite(flow.log_prob(x, seed=seed)).all()


@pytest.mark.parametrize("name", [*EXACT, *BOUND])
def test_samples_follow_the_density(name):
    """The probability of a half-plane from samples is that from the density."""
    flow = FlowDistribution({**EXACT, **BOUND}[name]())
    data = math.prod(flow.event_shape)
    noise = sum(b.shape[1] for b in noise_coordinates(flow) if b is not None)
    count = {2: 360, 3: 90, 4: 36}[data + noise]
    points, cell = grid(data + noise, count)
    density = np.exp(log_joint(flow, points[:, :data], points[:, data:]).numpy()) * cell
    samples = tf.function(flow.sample)(20_000, seed=5).numpy().reshape(-1, data)
    for i in range(data):
        for level in (0.0, 0.5 if count == 36 else 0.6):  # An edge between cells.
            inside = density[points[:, i] < level].sum() / density.sum()
            assert abs(inside - np.mean(samples[:, i] < level)) < 0.015, (i, level)
