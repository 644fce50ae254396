"""Conditional flows are densities over x at each condition, by quadrature, and their samples follow them."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import ConditionalNet, Net, conv, funnel, given, linear, scalar, staged, values, weight
from test_density import end, grid, log_joint, narrow, noise_coordinates, sequence

from tfp_flowify import FlowDistribution, transforms
from tfp_flowify import bijectors as fb
from tfp_flowify.distributions import ConditionalNormal

tfb, tfd = tfp.bijectors, tfp.distributions
T = tf.float64

#: Flows whose mass leaves the usual grid.
WIDE = ("shaped_noise", "relu")

#: The conditions at which each flow is looked at; two of them behind the slow marker.
CONDITIONS = [(0.0, 0.0), (0.7, -0.4), (-1.2, 0.9)]


AT = [pytest.param(c, marks=[pytest.mark.slow] * (c != CONDITIONS[1])) for c in CONDITIONS]


def affine(size, transform=None):
    numbers = size * (transform or transforms.Standardize()).size
    return fb.ConditionalTransform((size,), Net(2, numbers, T), transform, T)


def both():
    return transforms.Stack([transforms.Standardize(), transforms.Spline(4)])


def flat(layer):
    size = math.prod(layer.outputs[0])
    return fb.Sequential([layer, tfb.Reshape((size,), layer.outputs[0]), affine(size)])


def base(size, transform=None):
    numbers = size * (transform or transforms.Standardize()).size
    return ConditionalNormal((size,), Net(2, numbers, T), transform, T)


def flow_base():
    return FlowDistribution(end(2, fb.Coupling(2, ConditionalNet(1, 23, T), dtype=T)), condition_shape=(2,))


EXACT = {
    "affine": lambda: (fb.Sequential([affine(2), linear(2, 2, T)]), None),
    "spline": lambda: (end(2, affine(2, transforms.Spline())), None),
    "affine_and_spline": lambda: (end(1, affine(1, both())), None),
    "funnel": lambda: (end(1, funnel(2, 1, T, net=ConditionalNet)), None),
    "staged_funnel": lambda: (end(1, staged(3, 1, T, stages=2, net=ConditionalNet)), None),
    "coupling": lambda: (end(2, fb.Coupling(2, ConditionalNet(1, 23, T), dtype=T)), None),
    "convolution": lambda: (
        flat(fb.Conv2D(sequence(2), funnel(2, 1, T, net=ConditionalNet), (2, 1), (2, 1))), None
    ),
    "max_pool": lambda: (flat(narrow(fb.MaxPool2D(sequence(2), (2, 1), dtype=T))), None),
    "normal_base": lambda: (end(2, linear(2, 2, T)), base(2)),
    "spline_base": lambda: (linear(2, 2, T), base(2, both())),
    "flow_base": lambda: (linear(2, 2, T), flow_base()),
}  # fmt: skip
BOUND = {
    "shaped_noise": lambda: (end(2, fb.ShapedNoise(linear(1, 2, T), [ConditionalNet(1, 2, T)])), base(2)),
    "relu": lambda: (
        end(1, fb.ReLU((1,), weight((1,), T, seed=1), ConditionalNet(1, 1, T), ConditionalNet(1, 1, T))), base(1)
    ),
    "stochastic": lambda: (
        fb.Funnel(fb.Stochastic(ConditionalNet(1, 1, T), (1,), (1,), scalar(-0.5, T)), ConditionalNet(1, 2, T)), base(1)
    ),
    "shaped_overlap": lambda: (
        fb.Sequential(
            [
                fb.ShapedNoise(
                    fb.Unfold(fb.Conv2D(sequence(3), linear(2, 2, T), (2, 1)).unfold.patches, scalar(-0.3, T)),
                    [lambda x: tf.reshape(tf.tanh(tf.repeat(x, 3, axis=1))[:, :7], [-1, 7])],
                ),
                tfb.Reshape((4,), (2, 1, 2)),
            ],
            event_shape=sequence(3),
        ),
        base(4),
    ),
}  # fmt: skip


def make(name):
    bijector, base = {**EXACT, **BOUND}[name]()
    return FlowDistribution(bijector, base, condition_shape=(2,))


def dimensions(flow):
    data = math.prod(flow.event_shape)
    return data, sum(b.shape[1] for b in noise_coordinates(flow) if b is not None)


@pytest.mark.parametrize("condition", AT, ids=str)
@pytest.mark.parametrize("name", [*EXACT, *BOUND])
def test_densities_integrate_to_one_at_each_condition(name, condition):
    flow = make(name)
    assert flow.is_exact == (name in EXACT)
    at = flow.at(condition)
    data, noise = dimensions(at)
    points, cell = grid(data + noise, 1100, 14.0) if name in WIDE else grid(data + noise)
    if name in EXACT:
        x = tf.reshape(tf.constant(points, T), [-1, *flow.event_shape])
        log_prob = tf.function(lambda x: flow.log_prob(x, condition=condition))(x)
        total = np.exp(log_prob).sum()
    else:
        chunks = np.array_split(points, max(1, len(points) // 500_000))
        total = sum(np.exp(log_joint(at, chunk[:, :data], chunk[:, data:])).sum() for chunk in chunks)
    assert abs(total * cell - 1) < 1e-3


@pytest.mark.parametrize("name", [*EXACT, *BOUND])
def test_the_condition_counts_and_rows_are_what_they_are_alone(name):
    flow, conditions = make(name), tf.constant(CONDITIONS, T)
    x = tf.cast(values((3, *flow.event_shape), T), T)
    together = flow.log_prob(x, condition=conditions, seed=1)
    assert len(set(np.round(flow.log_prob(x[:1], condition=conditions, seed=1), 6))) == 3
    if name in EXACT:
        alone = [flow.at(c).log_prob(point) for c, point in zip(CONDITIONS, x, strict=True)]
        np.testing.assert_allclose(together, alone, rtol=1e-10)
    drawn = flow.generate(3, tf.constant([1, 2]), condition=conditions)
    again = [
        flow.generate(3, tf.constant([1, 2]), condition=tf.repeat(c[None], 3, 0))[i] for i, c in enumerate(conditions)
    ]
    np.testing.assert_allclose(drawn, tf.stack(again), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", BOUND)
def test_bounds_are_bounds_and_rise_with_the_draws(name):
    flow, condition = make(name), CONDITIONS[1]
    at = flow.at(condition)
    data, noise = dimensions(at)
    x = np.array([0.4, -0.7, 0.2])[:data]
    u, cell = grid(noise, points={1: 20_000, 2: 1500}[noise])
    integrated = np.log(np.exp(log_joint(at, np.broadcast_to(x, (len(u), data)), u)).sum() * cell)
    batch = tf.broadcast_to(tf.reshape(tf.constant(x, T), flow.event_shape), [2000, *flow.event_shape])
    one, many = (
        flow.log_prob(batch[:rows], condition=condition, num_draws=k, seed=3, chunk_size=100).numpy()
        for k, rows in ((1, 2000), (1000, 200))
    )
    assert one.mean() < integrated + 3 * one.std() / math.sqrt(2000) + 1e-9
    assert abs(many.mean() - integrated) < 0.02 + 3 * many.std() / math.sqrt(200)


@pytest.mark.parametrize("condition", AT, ids=str)
@pytest.mark.parametrize("name", [*EXACT, *BOUND])
def test_samples_follow_the_density(name, condition):
    flow = make(name)
    at = flow.at(condition)
    data, noise = dimensions(at)
    count = {1: 4000, 2: 360, 3: 90, 4: 36}[data + noise]
    points, cell = grid(data + noise, count)
    density = np.exp(log_joint(at, points[:, :data], points[:, data:]).numpy()) * cell
    samples = tf.function(lambda: flow.given(condition).sample(20_000, seed=5))().numpy().reshape(-1, data)
    for i in range(data):
        for level in (0.0, 0.5 if count == 36 else 0.6):
            inside = density[points[:, i] < level].sum() / density.sum()
            assert abs(inside - np.mean(samples[:, i] < level)) < 0.015, (i, level)


def test_given_is_an_ordinary_distribution():
    flow, conditions = make("coupling"), tf.constant(CONDITIONS, T)
    at = flow.given(conditions)
    assert isinstance(at, tfd.Distribution)
    assert at.batch_shape == [3] and at.event_shape == [2] and at.dtype == T
    assert at.batch_shape_tensor().numpy().tolist() == [3]
    x = at.sample([4, 5], seed=1)
    assert x.shape == [4, 5, 3, 2]
    assert at.log_prob(x).shape == [4, 5, 3] and at.log_prob(x[0, 0, 0]).shape == [3]
    assert at.log_prob(x[:, :, :1]).shape == [4, 5, 3]
    np.testing.assert_allclose(at.prob(x), np.exp(at.log_prob(x)))
    np.testing.assert_allclose(at[1:].log_prob(x[0, 0, 1:]), at.log_prob(x[0, 0])[1:])
    np.testing.assert_allclose(at.copy(condition=conditions[:1]).log_prob(x[0, 0, :1]), at.log_prob(x[0, 0])[:1])
    nested = flow.given(tf.zeros([2, 3, 2], T))
    assert nested.batch_shape == [2, 3] and nested.sample(4, seed=1).shape == [4, 2, 3, 2]
    assert flow.given(CONDITIONS[0]).batch_shape == []
    np.testing.assert_array_equal(flow.sample(4, seed=1, condition=conditions), at.sample(4, seed=1))
    assert tfd.Independent(at, 1).log_prob(x).shape == [4, 5]


def test_given_stands_in_joint_distributions_and_mcmc():
    flow = make("coupling")
    prior = tfd.MultivariateNormalDiag(tf.zeros([2], T))
    joint = tfd.JointDistributionSequential([prior, lambda c: flow.given(c)])
    c, x = joint.sample(7, seed=1)
    expected = prior.log_prob(c) + flow.log_prob(x, condition=c)
    np.testing.assert_allclose(joint.log_prob([c, x]), expected, rtol=1e-10)
    named = tfd.JointDistributionNamed({"c": prior, "x": lambda c: flow.given(c)})
    assert named.log_prob(named.sample(4, seed=1)).shape == [4]
    auto = tfd.JointDistributionCoroutineAutoBatched(_model(prior, flow))
    assert auto.log_prob(auto.sample(seed=1)).shape == []

    @tf.function
    def chain():
        kernel = tfp.mcmc.HamiltonianMonteCarlo(
            lambda c: prior.log_prob(c) + flow.given(c).log_prob(x[0]), step_size=0.2, num_leapfrog_steps=3
        )
        return tfp.mcmc.sample_chain(50, tf.zeros([2], T), kernel=kernel, trace_fn=None, seed=(1, 2))

    states = chain().numpy()
    assert np.isfinite(states).all() and states.std() > 0.05


def _model(prior, flow):
    def model():
        c = yield prior
        yield flow.given(c)

    return model


@pytest.mark.parametrize("name", [*EXACT, *BOUND])
def test_densities_and_samples_have_gradients_for_the_condition(name):
    flow, c = make(name), tf.constant(CONDITIONS, T)
    x = values((3, *flow.event_shape), T)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        log_prob = flow.log_prob(x, condition=c, seed=1)
        samples = flow.given(c).sample(seed=1)
    for target in (log_prob, samples):
        gradient = tape.gradient(target, c)
        assert gradient is not None and np.isfinite(gradient).all() and np.any(gradient)
    step = 1e-6
    moved = flow.log_prob(x, condition=c + [[step, 0.0]], seed=1) - flow.log_prob(
        x, condition=c - [[step, 0.0]], seed=1
    )
    np.testing.assert_allclose(tape.gradient(log_prob, c)[:, 0], moved / (2 * step), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_draws_in_chunks_keep_the_condition_of_their_point():
    flow, c = make("shaped_noise"), tf.constant(CONDITIONS, T)
    x = values((3, *flow.event_shape), T)
    together = flow.log_prob(x, condition=c, num_draws=4000, seed=1, chunk_size=7)
    alone = [flow.log_prob(x[i], condition=c[i], num_draws=4000, seed=2, chunk_size=100) for i in range(3)]
    np.testing.assert_allclose(together, alone, atol=0.1)


@pytest.mark.parametrize(
    "action, message",
    [
        (lambda f: f.log_prob(tf.zeros([3, 2], T)), r"density given a condition: give .*\(..., 2\)"),
        (lambda f: f.sample(3), "density given a condition"),
        (lambda f: f.log_prob(tf.zeros([3, 2], T), condition=tf.zeros([3, 5], T)), r"Received: shape=\(3, 5\)"),
        (lambda f: f.given(1.0), r"Received: shape=\(\)"),
        (lambda f: f.joint, r"given\(condition\).joint"),
        (lambda f: f.given(tf.zeros([3, 2], T)).joint, r"one condition. Received: a batch of \(3,\)"),
        (lambda f: f.bijector.forward(tf.zeros([3, 2], T)), "depends on a condition, and none was given"),
        (
            lambda f: f.bijector.forward(tf.zeros([3, 2], T), condition=tf.zeros([4, 2], T)),
            r"leading axes .*\(3,\), condition of shape \(4, 2\)",
        ),
        (
            lambda f: FlowDistribution(linear(2, 2, T)).log_prob(tf.zeros([3, 2], T), condition=[0.0]),
            "takes no condition",
        ),
        (lambda f: fb.ShapedNoise(linear(2, 2, T), []), "of which there are 0"),
        (lambda f: fb.ShapedNoise(fb.bind(fb.Dequantize(4), (2,)), [None]), "within a level"),
        (lambda f: fb.ShapedNoise(fb.Abs(), [lambda x: x]), "Code of Abs carries a choice"),
        (
            lambda f: given(fb.ConditionalTransform((3,), Net(2, 5, T), dtype=T), T).forward(tf.zeros([4, 3], T)),
            r"gives 5 numbers for \(3,\).*needs 2 for each: 6",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(action, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        action(make("coupling"))


def test_conditions_are_broadcast_to_data():
    flow, x = make("coupling"), values((3, 2), T)
    one = flow.without_noise(x, CONDITIONS[1])
    np.testing.assert_allclose(one, flow.without_noise(x, tf.constant([CONDITIONS[1]] * 3, T)))
    np.testing.assert_allclose(flow.prob(x, condition=CONDITIONS[1]), np.exp(flow.log_prob(x, condition=CONDITIONS[1])))
    with pytest.raises(ValueError, match=r"takes a condition of \(2,\), the flow has one of \(3,\)"):
        FlowDistribution(linear(2, 2, T), flow_base(), condition_shape=(3,))


def test_parameters_that_are_the_same_for_all_examples_and_places():
    layer = fb.bind(fb.ConditionalTransform((2,), lambda c: tf.constant([1.0, 0.0, 2.0, 0.0], T), dtype=T), (5, 2))
    z = layer.forward(tf.zeros([2, 5, 2], T), condition=tf.zeros([2, 1], T))
    np.testing.assert_allclose(z, np.broadcast_to([-1.0, -2.0], (2, 5, 2)))


def test_a_layer_may_read_any_shape_of_condition():
    layer = fb.ConditionalTransform((2,), lambda c: tf.reshape(c, [-1, 4]), dtype=T)
    flow = FlowDistribution(layer, condition_shape=(2, 2))
    assert flow.given(tf.zeros([5, 2, 2], T)).sample(3, seed=1).shape == [3, 5, 2]
    deep = conv((4, 4, 2), 3, T, kernel=2, strides=2, layer=lambda *a: funnel(*a, net=ConditionalNet))
    x = values((3, 4, 4, 2), T)
    z = deep.forward(x, condition=tf.constant(CONDITIONS, T))
    np.testing.assert_allclose(deep.inverse(z, condition=tf.constant(CONDITIONS, T)), x, atol=1e-9)
