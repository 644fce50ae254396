"""The flow as a distribution: conventions, one pass, no stale values, training, SavedModel."""

import copy

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import CASES, draw_inputs, flow_layer, linear, scalar, values
from flows import conditioners, exact_flow, noisy_flow, tfp_flow

from tfp_flowify import FlowDistribution, transforms
from tfp_flowify import bijectors as fb
from tfp_flowify.core.checks import as_list
from tfp_flowify.distributions import StandardNormal

tfd = tfp.distributions


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
    flow.joint.log_prob(parts)
    assert net.calls == 1
    tf.function(lambda parts: flow.joint.log_prob(parts)).get_concrete_function(parts)
    assert net.calls == 2
    flow.bijector.forward_and_log_det(as_list(parts), flow.prepare())
    assert net.calls == 3


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
    z, log_det = flow.bijector.forward_and_log_det(as_list(parts), flow.prepare())
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


@pytest.mark.parametrize("name", list(CASES))
def test_bijectors_can_be_copied(name):
    bijector = CASES[name](tf.float64)
    again, x = bijector.copy(), draw_inputs(bijector, tf.float64, (3,))
    assert type(again) is type(bijector) and again is not bijector
    for a, b in zip(as_list(again.forward(x)), as_list(bijector.forward(x)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_copies_with_other_arguments():
    assert fb.LeakyReLU(0.5).copy(negative_slope=0.25).forward([-4.0]).numpy().tolist() == [-1.0]
    assert fb.Conv1D((6, 1), linear(2, 2, tf.float32), 2, 2, padding="same").copy(strides=1).outputs == [(6, 2)]


def test_deep_copies_have_weights_of_their_own():
    flow, x = noisy_flow(), values((4, 3), tf.float32)
    again = copy.deepcopy(flow)
    before = again.log_prob(x, seed=1)
    np.testing.assert_allclose(before, flow.log_prob(x, seed=1), rtol=1e-6)
    for variable in flow.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    np.testing.assert_array_equal(again.log_prob(x, seed=1), before)
    assert not {id(v) for v in again.bijector.copy().variables} & {id(v) for v in flow.variables}


def test_flows_stand_in_joint_distributions():
    flow = exact_flow()
    joint = tfd.JointDistributionSequential([flow, lambda z: tfd.MultivariateNormalDiag(loc=2 * z)])
    z, x = joint.sample(5, seed=1)
    expected = flow.log_prob(z) + tfd.MultivariateNormalDiag(loc=2 * z).log_prob(x)
    np.testing.assert_allclose(joint.log_prob([z, x]), expected, rtol=1e-5)
    named = tfd.JointDistributionNamed({"z": flow, "x": lambda z: tfd.MultivariateNormalDiag(loc=z)})
    assert named.log_prob(named.sample(4, seed=1)).shape == [4]
    noisy = noisy_flow()
    behind = tfd.JointDistributionSequential([tfd.Normal(0.0, 1.0), lambda z: noisy])
    assert np.isfinite(behind.log_prob(behind.sample(3, seed=1))).all()


def test_unseeded_draws_are_new_in_each_call_of_a_function():
    flow, x = noisy_flow(), values((4, 3), tf.float32)
    log_prob = tf.function(flow.log_prob)
    assert np.all(log_prob(x) != log_prob(x))


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


@pytest.mark.slow
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
            fb.Coupling(2, net, swap=bool(i % 2), transform=transforms.Spline(bound=3.0)),
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


@pytest.mark.parametrize("name", list(CASES))
def test_what_is_exact_does_not_depend_on_draws(name):
    """No density may depend on a code."""
    bijector = flow_layer(name, tf.float64)
    if len(bijector.inputs) > 1:
        return
    flow = FlowDistribution(bijector, dtype=tf.float64)
    x = as_list(draw_inputs(bijector, tf.float64, (5,)))[0]
    first, second = (flow.log_prob(x, seed=seed).numpy() for seed in (1, 2))
    if flow.is_exact:
        np.testing.assert_allclose(first, second, rtol=1e-9)
    else:
        assert not np.allclose(first, second, rtol=1e-9)
