"""What must hold for every bijector, on the one registry of cases, with TFP's cache broken by fresh tensors."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from cases import CASES, draw_inputs
from coordinates import coordinates, flat, from_coordinates
from nets import some

from tfp_flowify.bijectors import Context
from tfp_flowify.core.checks import as_list, bundle

all_cases = pytest.mark.parametrize("name", CASES)


def fresh(parts):
    return tf.nest.map_structure(tf.identity, parts)


def assert_parts_close(a, b, atol, rtol=0):
    for x, y in zip(as_list(a), as_list(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


@all_cases
@pytest.mark.parametrize("dtype, atol", [(tf.float64, 1e-9), (tf.float32, 1e-4)], ids=["float64", "float32"])
def test_round_trip(name, dtype, atol):
    bijector = CASES[name](dtype)
    x = draw_inputs(bijector, dtype, batch=(7,))
    z = bijector.forward(x)
    back = bijector.inverse(fresh(z))
    assert_parts_close(back, x, atol)
    assert_parts_close(bijector.forward(fresh(back)), z, 10 * atol, rtol=10 * atol)
    assert all(np.isfinite(part).all() for part in as_list(z))


@all_cases
def test_log_det_is_that_of_the_jacobian(name):
    bijector = CASES[name](tf.float64)
    x = draw_inputs(bijector, tf.float64, batch=(3,))
    bases = coordinates(bijector)
    start = tf.concat(
        [
            flat(part, len(shape)) @ basis
            for part, shape, basis in zip(as_list(x), bijector.shapes_in, bases, strict=True)
        ],
        axis=-1,
    )
    with tf.GradientTape() as tape:
        tape.watch(start)
        z = flat(bijector.forward(from_coordinates(bijector, start, bases, x)), bijector.inverse_min_event_ndims)
    jacobian = tape.batch_jacobian(z, start).numpy()
    if bijector.takes_integers:  # Whole numbers have no derivative: only the noise moves, and what is made of it.
        whole = int(np.prod(bijector.outputs[0])) if bijector.output_levels else 0
        jacobian = jacobian[:, :, int(np.prod(bijector.inputs[0])) :]
        assert not jacobian[:, :whole].any()
        jacobian = jacobian[:, whole:]
    assert jacobian.shape[1] == jacobian.shape[2], "the augmented dimensions must agree"
    expected = np.linalg.slogdet(jacobian)[1]
    got = bijector.forward_log_det_jacobian(fresh(x))
    np.testing.assert_allclose(np.broadcast_to(got, expected.shape), expected, rtol=0, atol=1e-8)


@all_cases
def test_log_dets_cancel(name):
    bijector = CASES[name](tf.float64)
    x = draw_inputs(bijector, tf.float64, batch=(7,))
    forward = bijector.forward_log_det_jacobian(fresh(x))
    inverse = bijector.inverse_log_det_jacobian(fresh(bijector.forward(x)))
    np.testing.assert_allclose(forward + inverse, np.zeros_like(forward + inverse), atol=1e-8)


@all_cases
@pytest.mark.parametrize("batch", [(), (0,), (1,), (7,), (2, 3)], ids=str)
def test_shapes_and_dtypes_are_what_tfp_promises(name, batch):
    bijector = CASES[name](tf.float32)
    x = draw_inputs(bijector, tf.float32, batch)
    z = bijector.forward(x)
    event = bundle([tf.TensorShape(shape) for shape in bijector.shapes_in])
    promised = as_list(bijector.forward_event_shape(event))
    assert [tuple(p.shape) for p in as_list(z)] == [(*batch, *shape) for shape in promised]
    assert [tuple(s) for s in as_list(bijector.inverse_event_shape(bundle(promised)))] == bijector.shapes_in
    tensors = bijector.forward_event_shape_tensor(bundle([tf.constant(s, tf.int32) for s in bijector.shapes_in]))
    assert [tuple(t.numpy()) for t in as_list(tensors)] == [tuple(s) for s in promised]
    assert {p.dtype for p in as_list(z)} == {tf.float32}
    assert bijector.experimental_batch_shape() == []
    log_det = bijector.forward_log_det_jacobian(x)
    assert log_det.dtype == tf.float32
    assert tf.broadcast_static_shape(log_det.shape, tf.TensorShape(batch)) == batch
    back = bijector.inverse(fresh(z))
    assert [tuple(p.shape) for p in as_list(back)] == [tuple(p.shape) for p in as_list(x)]


@all_cases
def test_leading_axes_of_an_event_are_summed_over(name):
    bijector = CASES[name](tf.float64)
    x = draw_inputs(bijector, tf.float64, batch=(5, 2))
    each = tf.broadcast_to(bijector.forward_log_det_jacobian(fresh(x)), [5, 2])
    event_ndims = tf.nest.map_structure(lambda n: n + 1, bijector.forward_min_event_ndims)
    np.testing.assert_allclose(
        tf.broadcast_to(bijector.forward_log_det_jacobian(fresh(x), event_ndims), [5]),
        tf.reduce_sum(each, 1),
        atol=1e-9,
    )


@pytest.mark.parametrize("name", some(CASES, every=6, but=["deep"]))
def test_eager_graph_and_xla_agree_with_gradients(name):
    bijector = CASES[name](tf.float64)
    x = draw_inputs(bijector, tf.float64, batch=(3,))
    eager = forward_inverse_and_gradients(bijector, x)
    for jit_compile in (False, True):
        function = tf.function(functools.partial(forward_inverse_and_gradients, bijector), jit_compile=jit_compile)
        for got, expected in zip(function(x), eager, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-9)


@all_cases
def test_every_parameter_gets_a_finite_gradient(name):
    bijector = CASES[name](tf.float64)
    x = draw_inputs(bijector, tf.float64, batch=(5,))
    with tf.GradientTape() as tape:
        log_det = bijector.forward_log_det_jacobian(fresh(x))
        loss = tf.reduce_sum(log_det) + sum(tf.reduce_sum(p**3) for p in as_list(bijector.forward(fresh(x))))
    for variable, gradient in zip(
        bijector.trainable_variables, tape.gradient(loss, bijector.trainable_variables), strict=True
    ):
        if variable.shape.num_elements():  # A rotation of one dimension has no angles.
            assert gradient is not None, variable.name
            assert np.isfinite(gradient).all() and np.any(gradient), variable.name


@all_cases
def test_gradients_are_finite_far_out(name):
    """Where a formula holds on one side only, the other side must not leak into the gradient."""
    bijector = CASES[name](tf.float32)
    scale = 30.0 if bijector.is_onto and name != "deep" else 3.0  # An exponential overflows, and may.
    inputs = as_list(draw_inputs(bijector, tf.float32, batch=(5,)))
    if not bijector.takes_integers:
        inputs[: len(bijector.inputs)] = [scale * x for x in inputs[: len(bijector.inputs)]]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        z, log_det = bijector.forward_and_log_det(inputs, Context())
        loss = tf.reduce_sum(log_det) + sum(tf.reduce_sum(p) for p in z)
    for gradient in tape.gradient(loss, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO):
        assert np.isfinite(gradient).all()


def forward_inverse_and_gradients(bijector, x):
    """All that training and sampling use, as one flat list of tensors."""
    variables = list(bijector.trainable_variables)
    parts = as_list(fresh(x))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(parts)
        z, log_det = bijector.forward_and_log_det(parts, Context())
        back, inverse_log_det = bijector.inverse_and_log_det(fresh(z), Context())
        loss = tf.reduce_sum(log_det) + sum(tf.reduce_sum(tf.sin(p)) for p in z)
        loss_back = tf.reduce_sum(inverse_log_det) + sum(tf.reduce_sum(tf.sin(p)) for p in back)
    gradients = [
        gradient
        for target in (loss, loss_back)
        for gradient in tape.gradient(target, variables + parts, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    ]
    return [*z, log_det, *back, inverse_log_det, *gradients]
