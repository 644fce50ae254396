"""The flow as a distribution: one pass, importance weights in the memory of a chunk, samples, training, SavedModel."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import CASES, Net, funnel, linear, scalar, values

from tfp_flowify import FlowDistribution
from tfp_flowify import bijectors as fb
from tfp_flowify.distributions import Code, StandardNormal

tfd = tfp.distributions


def noisy_flow(dtype=tf.float32):
    return FlowDistribution(fb.Sequential([linear(3, 5, dtype), fb.LeakyReLU(0.3), funnel(5, 2, dtype)]))


def exact_flow(dtype=tf.float32):
    return FlowDistribution(fb.Sequential([linear(3, 3, dtype), fb.LeakyReLU(0.3), funnel(3, 2, dtype)]))


def mild_flow(dtype=tf.float64):
    """Its noise given x is not far from the noise that is drawn, so importance weights have no heavy tail."""
    layers = [
        fb.Linear.create(3, 5, seed=1, dtype=dtype),
        fb.LeakyReLU(0.7),
        fb.Linear.create(5, 2, seed=2, dtype=dtype),
    ]
    return FlowDistribution(fb.Sequential(layers))


def tfp_flow(dtype=tf.float32):
    return FlowDistribution(fb.Sequential([tfp.bijectors.Scale(tf.Variable(2.0, dtype=dtype))], event_shape=(3,)))


def conditioners(flow):
    return [module for module in flow.bijector.submodules if isinstance(module, Net)]


@pytest.mark.parametrize("make", [noisy_flow, exact_flow])
def test_log_prob_runs_each_conditioner_once(make):
    flow, x = make(), values((7, 3), tf.float32)
    (net,) = conditioners(flow)
    flow.log_prob(x)
    assert net.calls == 1
    tf.function(flow.log_prob).get_concrete_function(x)
    assert net.calls == 2
    parts = flow.joint.sample(7, seed=1)
    net.calls = 0
    tf.function(lambda parts: flow.joint.log_prob(parts)).get_concrete_function(parts)
    assert net.calls == 1
    flow.bijector.forward_and_log_det(parts)
    assert net.calls == 2


@pytest.mark.parametrize("make", [noisy_flow, exact_flow, tfp_flow])
def test_no_value_is_stale_when_a_weight_changes(make):
    """TFP's cache knows tensors by identity; the same tensor must not bring back what an older weight gave."""
    flow, x = make(), values((7, 3), tf.float32)
    parts = flow.joint.sample(7, seed=1)
    variables = flow.trainable_variables
    before = flow.log_prob(x, seed=1), flow.joint.log_prob(parts), flow.bijector.forward(parts)
    for variable in variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    with tf.GradientTape(persistent=True) as tape:
        after = flow.log_prob(x, seed=1), flow.joint.log_prob(parts), flow.bijector.forward(parts)
        losses = [sum(tf.reduce_sum(part) for part in tf.nest.flatten(value)) for value in after]
    for old, new, loss in zip(before, after, losses, strict=True):
        assert all(np.any(a != b) for a, b in zip(tf.nest.flatten(old), tf.nest.flatten(new), strict=True))
        assert any(gradient is not None for gradient in tape.gradient(loss, variables))


@pytest.mark.parametrize("make", [noisy_flow, exact_flow])
def test_joint_is_an_ordinary_transformed_distribution(make):
    flow = make(tf.float64)
    assert type(flow.joint).__name__.endswith("TransformedDistribution")
    parts = flow.joint.sample(5, seed=1)
    data, *noise = parts if flow.noise_shapes else [parts]
    assert [tuple(n.shape) for n in noise] == [(5, *shape) for shape in flow.noise_shapes]
    z, log_det = flow.bijector.forward_and_log_det(parts)
    bases = [StandardNormal(shape, tf.float64) for shape in [(2,), *flow.residual_shapes]]
    expected = log_det + sum(base.log_prob(part) for base, part in zip(bases, z, strict=True))
    np.testing.assert_allclose(flow.joint.log_prob(parts), expected, rtol=1e-12)
    if flow.is_exact:
        np.testing.assert_allclose(flow.log_prob(data), expected, rtol=1e-12)


def test_conventions_of_tfp():
    flow = noisy_flow()
    assert isinstance(flow, tfd.Distribution)
    assert (flow.event_shape, flow.batch_shape, flow.dtype) == ((3,), (), tf.float32)
    assert flow.event_shape_tensor().numpy().tolist() == [3]
    for shape in [(), 4, (2, 3), (0,)]:
        x = flow.sample(shape, seed=1)
        assert x.shape == (*np.zeros(shape if shape != 4 else (4,)).shape, 3)
        assert flow.log_prob(x).shape == x.shape[:-1]
        assert flow.log_prob(x, num_draws=3).shape == x.shape[:-1]
        assert x.dtype == flow.log_prob(x).dtype == tf.float32
    for seed in [(1, 2), 7, tf.constant([3, 4])]:
        np.testing.assert_array_equal(flow.sample(4, seed=seed), flow.sample(4, seed=seed))
        np.testing.assert_array_equal(flow.log_prob(x, seed=seed), flow.log_prob(x, seed=seed))
    x = flow.sample(4, seed=1)
    assert np.all(flow.log_prob(x) != flow.log_prob(x)), "without a seed, draws are new"
    np.testing.assert_allclose(flow.prob(x, seed=(1, 2)), np.exp(flow.log_prob(x, seed=(1, 2))), rtol=1e-6)
    np.testing.assert_array_equal(flow.copy(name="again").sample(4, seed=1), x)
    assert "Flow" in repr(flow) and "Sequential" in repr(flow.bijector) and "Flow" in str(flow)


def test_unseeded_draws_are_new_in_each_call_of_a_function():
    flow, x = noisy_flow(), values((4, 3), tf.float32)
    log_prob = tf.function(flow.log_prob)
    assert np.all(log_prob(x) != log_prob(x))


@pytest.mark.parametrize("num_draws, chunk_size", [(1, 16), (5, 4), (8, 4), (3, 16)])
def test_importance_weights_are_unbiased_for_the_density(num_draws, chunk_size):
    """E exp(log_prob(k)) = p(x) for every k: also when the last chunk is not full."""
    flow = mild_flow()
    x = tf.broadcast_to(values((3,), tf.float64), [100_000, 3])
    weights = np.exp(flow.log_prob(x, num_draws=num_draws, chunk_size=chunk_size, seed=(1, 1)))
    reference = np.exp(flow.log_prob(x[:100], num_draws=20_000, chunk_size=500, seed=(2, 2)))
    error = math.hypot(weights.std() / math.sqrt(len(weights)), reference.std() / 10)
    assert abs(weights.mean() - reference.mean()) < 4 * error
    assert error < 0.01 * reference.mean()


def test_importance_weights_in_a_function_are_those_of_eager():
    flow, x = noisy_flow(tf.float64), values((4, 3), tf.float64)
    score = functools.partial(flow.log_prob, num_draws=10, chunk_size=4, seed=(1, 2))
    np.testing.assert_allclose(tf.function(score)(x), score(x), rtol=1e-10)


def test_importance_weights_under_xla_bound_the_same_density():
    """XLA draws other numbers from the same seed, as it does for all of TensorFlow's random functions."""
    flow, x = mild_flow(), values((4, 3), tf.float64)
    score = functools.partial(flow.log_prob, num_draws=20_000, chunk_size=500, seed=(1, 2))
    compiled = tf.function(score, jit_compile=True)
    np.testing.assert_allclose(compiled(x), score(x), atol=0.03)
    np.testing.assert_array_equal(compiled(x), compiled(x))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_importance_weighted_bound_can_be_trained(jit_compile):
    flow, x = noisy_flow(), values((4, 3), tf.float32)

    @tf.function(jit_compile=jit_compile)
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(flow.log_prob(x, num_draws=10, chunk_size=4, seed=(1, 2)))
        return tape.gradient(loss, flow.trainable_variables)

    assert all(np.isfinite(gradient).all() for gradient in gradients())


def test_memory_does_not_grow_with_the_draws():
    """No tensor of the graph is larger with 1000 draws than with the 8 of one chunk."""

    def largest(num_draws):
        flow = noisy_flow()
        graph = (
            tf.function(lambda x: flow.log_prob(x, num_draws=num_draws, chunk_size=8))
            .get_concrete_function(tf.TensorSpec([50, 3]))
            .graph.as_graph_def(add_shapes=True)
        )
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        shapes = [shape for node in nodes for shape in node.attr["_output_shapes"].list.shape]
        return max(math.prod(dim.size for dim in shape.dim) for shape in shapes if not shape.unknown_rank)

    assert largest(1000) == largest(8) >= 8 * 50 * 3


def test_exact_flows_need_no_draws():
    flow, x = exact_flow(), values((4, 3), tf.float32)
    assert flow.is_exact
    np.testing.assert_array_equal(flow.log_prob(x), flow.log_prob(x, num_draws=1000))
    pooled = FlowDistribution(CASES["max_pool"](tf.float32))
    assert pooled.is_exact and all(isinstance(noise, Code) for noise in pooled.bijector.noise)
    images = values((4, 4, 4, 2), tf.float32)
    np.testing.assert_allclose(pooled.log_prob(images, seed=1), pooled.log_prob(images, seed=2), rtol=1e-6)


def test_samples_with_residuals_at_their_mean_share_the_latents():
    flow = noisy_flow(tf.float64)
    drawn, mean = flow.sample(6, seed=(1, 2)), flow.sample(6, seed=(1, 2), mean=True)
    assert np.all(drawn != mean)
    noise = [tf.zeros([6, *shape], tf.float64) for shape in flow.noise_shapes]
    assert flow.bijector.forward([mean, *noise])[0].shape == [6, 2]
    parts = flow.bijector.inverse([tf.zeros([1, 2], tf.float64), tf.zeros([1, 3], tf.float64)])
    np.testing.assert_allclose(flow.sample(1, seed=(1, 2), mean=True, temperature=0.0), parts[0], atol=1e-12)
    exact = exact_flow(tf.float64)
    z = [exact.network(exact.sample(6, seed=(1, 2), mean=m)) for m in (False, True)]
    np.testing.assert_allclose(z[0], z[1], atol=1e-10)


def test_temperature_scales_the_normal_parts():
    flow = FlowDistribution(linear(3, 3, tf.float64))
    centre = flow.sample(1, seed=1, temperature=0.0)
    hot, cold = (flow.sample(50, seed=(1, 2), temperature=t) - centre for t in (2.0, 0.5))
    np.testing.assert_allclose(hot, 4 * cold, atol=1e-10)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", ["linear_more", "conv_overlap_same", "relu", "max_pool", "residual_conv", "tanh"])
def test_sampling_and_scoring_in_functions(name, jit_compile):
    flow = FlowDistribution(CASES[name](tf.float32))
    sample = tf.function(lambda seed: flow.sample(5, seed=seed), jit_compile=jit_compile)
    score = tf.function(lambda x, seed: flow.log_prob(x, seed=seed), jit_compile=jit_compile)
    seed = tf.constant([1, 2])
    x = sample(seed)
    np.testing.assert_array_equal(x, sample(seed))
    np.testing.assert_array_equal(score(x, seed), score(x, seed))
    assert x.shape == [5, *flow.event_shape] and np.isfinite(x).all() and np.isfinite(score(x, seed)).all()
    if not jit_compile:
        np.testing.assert_allclose(x, flow.sample(5, seed=seed), atol=1e-4)
    if not jit_compile or flow.is_exact:
        np.testing.assert_allclose(score(x, seed), flow.log_prob(x, seed=seed), rtol=1e-4, atol=1e-4)


def test_several_outputs_with_a_base_each():
    net = fb.Graph(
        [fb.Node(fb.Duplicate((2,), 2, scalar(-0.5, tf.float32)), ("x",), ("a", "b"))],
        inputs={"x": (2,)},
        outputs=("a", "b"),
    )
    base = tfd.MultivariateNormalDiag([1.0, 2.0])
    flow = FlowDistribution(net, base=[base, base])
    assert flow.sample(4, seed=1).shape == [4, 2]
    assert flow.log_prob(flow.sample(4, seed=1)).shape == [4]


def test_whole_numbers_may_be_given_as_integers():
    flow = FlowDistribution(fb.Sequential([fb.Dequantize(256), linear(4, 4, tf.float32)], event_shape=(4,)))
    images = np.array([[0, 17, 128, 255]], np.uint8)
    np.testing.assert_array_equal(
        flow.log_prob(images, seed=(1, 2)), flow.log_prob(images.astype("float32"), seed=(1, 2))
    )
    assert set(np.unique(flow.sample(50, seed=1) % 1)) == {0.0}


SINGLE_INPUT = [name for name in CASES if name not in ("concatenate", "whiten", "whiten_spline", "whiten_constant")]
SINGLE_INPUT = [name for name in SINGLE_INPUT if not name.startswith("sum")]


@pytest.mark.parametrize("name", SINGLE_INPUT)
def test_every_layer_scores_and_samples_with_unknown_batch_size(name):
    flow = FlowDistribution(CASES[name](tf.float32))
    x = tf.cast(flow.sample(3, seed=1), tf.float32)
    signature = [tf.TensorSpec([None, *flow.event_shape])]
    for num_draws in (1, 3):
        score = functools.partial(flow.log_prob, num_draws=num_draws, chunk_size=2, seed=(1, 2))
        np.testing.assert_allclose(tf.function(score, input_signature=signature)(x), score(x), rtol=1e-3, atol=1e-3)
    sample = tf.function(lambda n: flow.sample(n, seed=(1, 2)), input_signature=[tf.TensorSpec([], tf.int32)])
    np.testing.assert_allclose(sample(tf.constant(3)), flow.sample(3, seed=(1, 2)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("make", [noisy_flow, exact_flow, tfp_flow])
def test_no_value_is_stale_in_a_function(make):
    flow, x = make(), values((7, 3), tf.float32)
    parts = flow.joint.sample(7, seed=1)
    joint = flow.joint

    @tf.function
    def twice():
        first = joint.log_prob(parts), flow.bijector.forward(parts), flow.log_prob(x, seed=1)
        for variable in flow.trainable_variables:
            variable.assign_add(0.1 * tf.ones_like(variable))
        with tf.GradientTape(persistent=True) as tape:
            second = joint.log_prob(parts), flow.bijector.forward(parts), flow.log_prob(x, seed=1)
            losses = [sum(tf.reduce_sum(part) for part in tf.nest.flatten(value)) for value in second]
        return first, second, [tape.gradient(loss, flow.trainable_variables[0]) for loss in losses]

    first, second, gradients = twice()
    assert all(np.any(a != b) for a, b in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True))
    assert all(gradient is not None for gradient in gradients)


def test_keras_conditioners_see_one_batch_axis_whatever_the_data_has():
    conditioner = tf.keras.Sequential([tf.keras.Input([4, 4, 1]), tf.keras.layers.Conv2D(2, 3, padding="same")])
    funnel = fb.Funnel(fb.Sequential([fb.Linear.create(2, 1, seed=1)], (4, 4, 2)), conditioner)
    flow, x = FlowDistribution(funnel), values((2, 3, 4, 4, 2), tf.float32)
    expected = flow.log_prob(tf.reshape(x, [6, 4, 4, 2]))
    np.testing.assert_allclose(tf.reshape(flow.log_prob(x), [6]), expected, rtol=1e-5)
    np.testing.assert_allclose(tf.reshape(flow.joint.log_prob(x), [6]), expected, rtol=1e-5)
    np.testing.assert_allclose(flow.joint.log_prob(x[0, 0]), expected[0], rtol=1e-5)
    np.testing.assert_allclose(funnel.forward(x[0, 0])[1], funnel.forward(x)[1][0, 0], atol=1e-5)


def test_points_that_no_draw_reaches_have_density_zero():
    base = tfd.Independent(tfd.Uniform(-tf.ones(3), tf.ones(3)), 1)
    flow = FlowDistribution(fb.Linear.create(2, 3, seed=0), base)
    x = tf.constant([[0.1, 0.1], [5.0, 5.0]])
    with tf.GradientTape() as tape:
        log_prob = flow.log_prob(x, num_draws=40, chunk_size=2, seed=1)
        loss = log_prob[0]
    assert np.isfinite(log_prob[0]) and np.isneginf(log_prob[1])
    assert all(np.isfinite(g).all() for g in tape.gradient(loss, flow.trainable_variables) if g is not None)


@pytest.mark.parametrize(
    "bijector",
    [tfp.bijectors.Softsign(), tfp.bijectors.SoftClip(-1.0, 1.0), tfp.bijectors.Chain([tfp.bijectors.Tanh()])],
)
def test_bijectors_of_tfp_that_are_not_onto_are_sampled_by_their_density(bijector):
    flow = FlowDistribution(fb.Sequential([bijector, tfp.bijectors.Scale(0.8)], event_shape=(1,)))
    assert not flow.bijector.is_onto
    samples = flow.sample(20_000, seed=1).numpy()
    z = flow.network(samples).numpy()
    reachable = np.random.default_rng(0).normal(size=100_000)
    reachable = reachable[np.abs(reachable) < 0.8]
    assert np.abs(z).max() <= 0.8
    assert abs(np.mean(z**2) - np.mean(reachable**2)) < 0.01


def test_gradients_through_samples_are_claimed_only_where_they_are_right():
    full = tfd.FULLY_REPARAMETERIZED
    assert exact_flow().reparameterization_type == full == noisy_flow().reparameterization_type
    for name in ("tanh", "max_pool", "abs", "relu", "dequantize"):
        assert FlowDistribution(CASES[name](tf.float32)).reparameterization_type != full
    mixture = tfd.MixtureSameFamily(tfd.Categorical([0.0, 0.0]), tfd.MultivariateNormalDiag(tf.zeros([2, 2])))
    assert FlowDistribution(linear(3, 2, tf.float32), mixture).reparameterization_type != full


def test_variables_of_a_base_are_kept(tmp_path):
    mean = tf.Variable([1.0, 2.0])
    flow = FlowDistribution(linear(3, 2, tf.float32), tfd.MultivariateNormalDiag(mean))
    assert any(variable is mean for variable in flow.trainable_variables)
    path = tf.train.Checkpoint(flow=flow).save(tmp_path / "checkpoint")
    mean.assign([0.0, 0.0])
    tf.train.Checkpoint(flow=flow).restore(path)
    np.testing.assert_array_equal(mean, [1.0, 2.0])
    module = tf.Module()
    module.flow = flow
    module.score = tf.function(flow.log_prob, input_signature=[tf.TensorSpec([None, 3])])
    tf.saved_model.save(module, tmp_path / "saved")
    x = values((4, 3), tf.float32)
    loaded = tf.saved_model.load(tmp_path / "saved")
    np.testing.assert_allclose(loaded.score(x), flow.log_prob(x), rtol=1e-5)


def test_layers_made_with_one_seed_have_different_rotations():
    layer = fb.Linear.create(4, 4, seed=3, dtype=tf.float64)
    assert np.abs(layer.right.matrix() - layer.left.matrix()).max() > 0.1
    assert np.abs(layer.kernel - np.eye(4)).max() > 0.1


@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_finds_a_density(jit_compile):
    """On a ring, which no linear map makes normal, the flow beats the best Gaussian by far."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 4000)
    data = (np.stack([np.cos(angle), np.sin(angle)], 1) * rng.normal(2, 0.1, (4000, 1))).astype("float32")
    layers = []
    for i in range(4):
        net = tf.keras.Sequential(
            [
                tf.keras.Input([1]),
                tf.keras.layers.Dense(32, "gelu"),
                tf.keras.layers.Dense(23, kernel_initializer="zeros"),
            ]
        )
        layers += [
            fb.Linear.create(2, 2, seed=i),
            fb.Coupling(2, net, swap=bool(i % 2), transform=fb.Spline(bound=3.0)),
        ]
    flow = FlowDistribution(fb.Sequential(layers))
    variables = flow.trainable_variables
    assert len(variables) == 4 * (4 + 4), "those of the linear layers and of the Keras models"
    optimizer = tf.keras.optimizers.Adam(0.01)

    optimizer.build(variables)

    @tf.function(jit_compile=jit_compile)
    def train_step(batch):
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(flow.log_prob(batch))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for step in range(300):
        train_step(tf.constant(data[(step * 250) % 4000 :][:250]))
    gaussian = tfd.MultivariateNormalTriL(data.mean(0), np.linalg.cholesky(np.cov(data.T)).astype("float32"))
    assert np.mean(flow.log_prob(data)) > np.mean(gaussian.log_prob(data)) + 0.7
    radius = np.linalg.norm(flow.sample(1000, seed=1), axis=1)
    assert np.mean(np.abs(radius - 2) < 0.5) > 0.85


def test_saved_model_gives_the_same_numbers(tmp_path):
    class Exported(tf.Module):
        def __init__(self):
            super().__init__()
            self.flow = noisy_flow()

        @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([2], tf.int32)])
        def log_prob(self, x, seed):
            return self.flow.log_prob(x, num_draws=5, seed=seed)

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.int32)])
        def sample(self, n, seed):
            return self.flow.sample(n, seed=seed)

    module, seed = Exported(), tf.constant([1, 2])
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    x = loaded.sample(tf.constant(6), seed)
    np.testing.assert_allclose(x, module.flow.sample(6, seed=seed), atol=1e-5)
    np.testing.assert_allclose(
        loaded.log_prob(x, seed), module.flow.log_prob(x, num_draws=5, seed=seed), rtol=1e-5, atol=1e-5
    )
