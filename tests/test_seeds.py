"""One seed from the user, and draws for different purposes that have nothing to do with each other."""

import keras
import numpy as np
import tensorflow as tf
from models import normal, small_flow

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.augmentation import StandardNormal
from tfp_flowify.core.seeds import numbered, salted, stateless_seed


def wide_flow(seed=0):
    """All but its first two outputs is noise."""
    return FlowModel([keras.Input([2]), fl.Widen(40)], base="standard", seed=seed)


class Drawn(StandardNormal):
    """Noise that remembers what was drawn."""

    def _sample_n(self, n, seed=None):
        draws = super()._sample_n(n, seed)
        self.draws.append(draws.numpy().ravel())
        return draws


def recording(flow):
    noise = flow.distribution.bijector.noise
    noise[0] = Drawn(noise[0].event_shape)
    noise[0].draws = []
    return noise[0].draws


def related(a, b):
    count = min(len(a), len(b))
    return abs(np.corrcoef(a[:count], b[:count])[0, 1]) > 0.2


def all_unrelated(draws):
    return not any(related(a, b) for i, a in enumerate(draws) for b in draws[:i])


def test_validation_does_not_shift_the_noise_of_training():
    def losses(validate):
        flow, x = small_flow(), normal(64, 3)
        flow._noise_seed.assign(5)
        flow.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
        data = {"validation_data": (x,)} if validate else {}
        return flow.fit(x, batch_size=16, epochs=3, shuffle=False, verbose=0, **data).history["loss"]

    keras.utils.set_random_seed(1)
    alone = losses(validate=False)
    keras.utils.set_random_seed(1)
    np.testing.assert_array_equal(losses(validate=True), alone)


def test_each_evaluation_draws_the_same_noise():
    flow, x = small_flow(), normal(64, 3)
    flow.compile("adam", run_eagerly=True)
    figures = [flow.evaluate(x, batch_size=16, verbose=0, return_dict=True)["loss"] for _ in range(2)]
    assert figures[0] == figures[1]


def test_training_testing_and_adapt_draw_different_noise():
    flow, x = wide_flow(), normal(30, 2)
    draws = recording(flow)
    flow.compile("adam", run_eagerly=True)
    flow.adapt(x, seed=0)
    flow.fit(x, batch_size=30, epochs=2, verbose=0)
    flow.evaluate(x, batch_size=30, verbose=0)
    flow.distribution.log_prob(x, seed=0)
    assert len(draws) == 5
    assert all_unrelated(draws)


def test_batches_of_one_draw_and_chunks_of_many_differ():
    flow, x = wide_flow(), normal(64, 2)
    draws = recording(flow)
    tf.config.run_functions_eagerly(True)
    try:
        flow.log_prob(x, seed=3, batch_size=16)
        batches = len(draws)
        flow.log_prob(x[:4], num_draws=64, seed=3)
    finally:
        tf.config.run_functions_eagerly(False)
    assert batches == 4 and len(draws) == 8
    assert all_unrelated(draws)


def test_seeds_are_salted_by_their_purpose():
    assert stateless_seed(7).numpy().tolist() == [0, 7]
    seeds = [salted(7, purpose) for purpose in ("a", "b")] + [salted(8, "a")]
    stream = numbered(7, "batches")
    seeds += [next(stream) for _ in range(3)]
    assert len({tuple(seed.numpy()) for seed in seeds}) == 6
    assert seeds[3].numpy().tolist() == [0, 7]  # The first batch has the user's own seed.
