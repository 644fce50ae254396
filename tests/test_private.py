"""The private API that the library uses is still what it was: one test for each use in core/private.py."""

import inspect

import keras
import numpy as np
import tensorflow as tf
from models import normal, small_flow

from tfp_flowify import FusedAdam
from tfp_flowify.core import private
from tfp_flowify.distributions.inverted import Inverted


def two_layers():
    inner = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    return inner, keras.Sequential([keras.Input([3]), keras.layers.Dense(3), inner])


def test_every_use_has_a_test_here():
    tested = inspect.getsource(inspect.getmodule(test_every_use_has_a_test_here))
    for name, value in vars(private).items():
        is_own = getattr(value, "__module__", "") == private.__name__ and not name.startswith("_")
        if is_own or name == "BijectorCacheWithGreedyAttrs":
            assert f"private.{name}" in tested, name


def test_the_cache_of_tfp_makes_one_pass_for_a_value_and_its_log_det(monkeypatch):
    assert Inverted._cache is not None and isinstance(vars(Inverted)["_cache"], private.BijectorCacheWithGreedyAttrs)
    flow, x = small_flow().distribution, normal(4, 3)
    passes, forward = [], type(flow.bijector).forward_and_log_det
    monkeypatch.setattr(
        type(flow.bijector), "forward_and_log_det", lambda *args: passes.append(args[0]) or forward(*args)
    )
    assert flow.joint.log_prob([tf.constant(x), tf.zeros([4, 2])]).shape == [4]
    assert passes.count(flow.bijector) == 1


def test_the_arguments_of_a_call_are_recorded_with_constants():
    x, other = keras.Input([3]), keras.Input([3])
    model = keras.Model(x, 2.0 * keras.layers.Dense(2)(x))
    dense, product = private.calls_of(model)
    assert private.arguments_of(dense, {id(x): other}) == ((other,), {})
    args, kwargs = private.arguments_of(product, {id(dense.output_tensors[0]): other})
    assert set(map(id, args)) >= {id(other)} and 2.0 in [a for a in args if isinstance(a, float)] and not kwargs


def test_modules_hold_what_they_hold():
    module = tf.Module()
    module.layer = keras.layers.Dense(2)
    found = private.modules_inside(module, lambda value: isinstance(value, keras.layers.Layer))
    assert found == [module.layer]


def test_calls_are_those_of_the_graph():
    inner, model = two_layers()
    assert [call.operation for call in private.calls_of(model)] == model.layers
    assert private.calls_of(model)[-1].operation is inner
    (first, _), middle = model.layers, model.layers[0].output
    assert [call.operation for call in private.calls_between(model.inputs, [middle])] == [first]
    assert [call.operation for call in private.calls_between([middle], model.outputs)] == [inner]


def test_calls_of_networks_deeper_than_the_stack():
    x = inputs = keras.Input([2])
    for _ in range(1500):
        x = keras.layers.Identity()(x)
    assert len(private.calls_between([inputs], [x])) == 1500


def test_layers_at_all_depths():
    inner, model = two_layers()
    assert inner.layers[0] in private.layers_inside(model)


def test_metrics_that_compile_gave():
    inner, _ = two_layers()
    inner.compile("sgd", "mse", metrics=["mae"])
    inner.fit(normal(4, 3), normal(4, 2), verbose=0)
    assert [metric.name for metric in private.trackers_of(inner)][:1] == ["loss"]
    assert all(metric in inner.metrics for metric in private.trackers_of(inner))


def test_the_loss_that_keras_reports():
    flow, x = small_flow(), normal(8, 3)
    flow.compile("adam", run_eagerly=True)
    flow.evaluate(x, verbose=0)
    flow.reset_metrics()
    private.track_loss(flow, tf.constant(3.0), 4)
    private.track_loss(flow, tf.constant(9.0), 2)
    assert float(flow.get_metrics_result()["loss"]) == 5.0


def test_figures_are_metrics_that_callbacks_know():
    figures = private.Figures(["a"], "float32")
    figures.update_state({"a": [1.0, 3.0]})
    assert {name: float(value) for name, value in figures.result().items()} == {"a": 2.0}
    figures.reset_state()
    assert figures.metrics[0]._direction == "down"


def test_moments_of_adam():
    weight, optimizer = keras.Variable([1.0, 2.0]), keras.optimizers.Adam()
    optimizer.build([weight])
    optimizer.apply([tf.constant([1.0, 1.0])])
    first, second = private.adam_slots(optimizer, weight)
    np.testing.assert_allclose(first, [0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(second, [0.001, 0.001], rtol=1e-4)


def test_lists_stay_lists():
    module = tf.Module()
    module.numbers = private.untracked(module, [1, 2])
    assert type(module.numbers) is list


def test_keras_still_asks_how_to_build_a_model():
    """tests/test_workers.py trains with `private.FitOnManyMachines` on two machines; here its hook is still called."""
    assert list(inspect.signature(keras.Model._maybe_symbolic_build).parameters) == ["self", "iterator", "data_batch"]
    flow, seen = small_flow(), []
    assert isinstance(flow, private.FitOnManyMachines)
    flow._maybe_symbolic_build = lambda iterator=None, data_batch=None: seen.append(iterator)
    flow.compile("adam")
    flow.fit(normal(8, 3), verbose=0)
    assert len(seen) == 1


def test_logs_have_an_axis_on_many_machines(monkeypatch):
    logs = {"loss": tf.constant(1.0)}
    assert private.logs_for_keras(logs) == logs and not private.is_multi_worker(tf.distribute.get_strategy())
    monkeypatch.setattr(private, "is_multi_worker", lambda strategy: True)
    assert private.logs_for_keras(logs)["loss"].shape == [1]


def test_gradients_are_summed_once(two_devices):
    """By `private.SumsGradientsFirst`, and not by Keras behind it."""
    with two_devices.scope():
        weight, optimizer = keras.Variable([1.0]), FusedAdam()
        optimizer.build([weight])
    summed = two_devices.run(tf.function(lambda: optimizer._all_reduce_sum_gradients([(tf.ones([1]), weight)])[0][0]))
    assert [float(part[0]) for part in two_devices.experimental_local_results(summed)] == [1.0, 1.0]
    two_devices.run(tf.function(lambda: optimizer.apply([tf.constant([2.0])])))
    first, _ = private.adam_slots(optimizer, weight)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(tf.convert_to_tensor(first.value)), [0.4], rtol=1e-6)


def test_moving_averages_of_weights_take_their_place_for_a_while():
    flow, x = small_flow(), normal(8, 3)
    flow.compile(FusedAdam(0.1, use_ema=True, ema_momentum=0.5), jit_compile=False)
    kept = []
    for _ in range(3):
        flow.train_on_batch(x)
        kept.append([np.array(w) for w in flow.trainable_weights])
    with private.averaged(flow) as differs:
        assert differs
        for weight, first, second, third in zip(flow.trainable_weights, *kept, strict=True):
            np.testing.assert_allclose(weight, 0.25 * first + 0.25 * second + 0.5 * third, atol=1e-6)
    for weight, last in zip(flow.trainable_weights, kept[-1], strict=True):
        np.testing.assert_array_equal(weight, last)
    flow.compile(FusedAdam(0.1))
    with private.averaged(flow) as differs:
        assert not differs


def test_a_saved_optimizer_knows_what_decays(two_devices):
    assert issubclass(FusedAdam, private.DecaysSome)
    optimizer = FusedAdam(1e-12, weight_decay=9e11, decayed=["kernel"])
    for strategy in (tf.distribute.get_strategy(), two_devices):
        with strategy.scope():
            again = FusedAdam.from_config(optimizer.get_config())
            weights = [keras.Variable([1.0], name=name) for name in ("kernel", "bias")]
            again.build(weights)
        strategy.run(lambda again=again, weights=weights: again.apply([tf.constant([0.0])] * 2, weights))
        kernel, bias = (float(weight.numpy()[0]) for weight in weights)
        assert abs(kernel) < 0.2 and bias == 1
