"""A step of training or testing: Keras' own, with the likelihood as loss."""

import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import all_finite
from tfp_flowify.core.private import Figures, FitOnManyMachines, logs_for_keras, track_loss
from tfp_flowify.core.seeds import fold_in, salted
from tfp_flowify.core.types import RawCondition, TensorLike
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.model.diagnosis import where_not_finite

NEEDS_LABELS = "The flow was compiled with a loss or with metrics, so fit and evaluate need labels: fit(x, y)."


class Steps(FitOnManyMachines):
    """Mixin that stands in front of `keras.Model`: its steps, their loss and their noise.

    The network itself runs only where a loss or a metric looks at its output.
    """

    def _set_up_training(self, seed):
        """Adds what training needs. The counters are weights, so that a saved flow goes on with the noise to come."""
        self._noise_seed = self._add_counter("noise_seed", seed)
        self._training_draws, self._test_draws = self._add_counter("training_draws"), self._add_counter("test_draws")
        self._figures = Figures(["nll", "bits_per_dim"], self.variable_dtype)
        self._likelihood_loss = _NegativeMean(name="nll", dtype=self.variable_dtype)
        self._likelihood_weight, self._supervised = 1.0, False
        self._needs_labels, self._output_is_used = False, False

    def _add_counter(self, name, value=0):
        return self.add_weight(
            name=name,
            shape=(),
            dtype="int64",
            initializer=keras.initializers.Constant(value),
            trainable=False,
            aggregation="only_first_replica",
        )

    def train_step(self, data: Any) -> dict:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            output, loss = self._output_and_loss(x, y, sample_weight, training=True)
            scaled = self.optimizer.scale_loss(loss)
        weights = self.trainable_weights
        if weights:
            gradients = tape.gradient(scaled, weights)
            loss = self._nan_where_not_finite(loss, gradients)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        else:
            warnings.warn(f"{self.name} has no trainable weights.", stacklevel=2)
        self._track(loss, x)
        return logs_for_keras(self.compute_metrics(x, y, output, sample_weight=sample_weight))

    def test_step(self, data: Any) -> dict:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        output, loss = self._output_and_loss(x, y, sample_weight, training=False)
        self._track(loss, x)
        return logs_for_keras(self.compute_metrics(x, y, output, sample_weight=sample_weight))

    def _output_and_loss(self, x, y, sample_weight, training):
        output = self.call(x, training=training) if self._output_is_used else None
        return output, self.compute_loss(x, y, output, sample_weight, training)

    def _track(self, loss, x):
        track_loss(self, loss * _replicas(), tf.shape(self._door.batch(x)[0])[0])

    def _nan_where_not_finite(self, loss, gradients):
        """The loss; NaN where a gradient is not finite, so that a step that is not taken can be seen.

        Where losses are scaled, as for float16, gradients overflow by design, and the scale then falls.
        """
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            return loss
        return tf.where(all_finite(gradients), loss, np.nan)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> tf.Tensor:
        """The negative log-likelihood of a batch, averaged over examples, and beside it the loss of the output."""
        if self._supervised and y is None:
            raise ValueError(NEEDS_LABELS)
        data, leaves = self._door.batch(x)
        points = tf.cast(data, self.distribution.dtype)
        log_prob = self.distribution.score(
            points, 1, self._next_seed(training), training=training, condition=self._vectors(data, leaves, training)
        )
        weight = _of_examples(sample_weight)
        figures = {"nll": -log_prob, "bits_per_dim": bits_per_dim(log_prob, self._check.event_shape)}
        self._figures.update_state(figures, weight)
        loss = self._likelihood_weight * self._likelihood_loss(log_prob, log_prob, weight)
        if self._output_is_used:
            if self._supervised or self.losses:
                loss += tf.cast(super().compute_loss(x, y, y_pred, sample_weight, training), loss.dtype)
        else:  # Other losses than these would be of an earlier call of the network.
            loss += sum(w.regularizer(w) for w in self.trainable_weights if w.regularizer is not None) / _replicas()
        return loss

    def where_not_finite(self, x: TensorLike, step: int | None = None, *, condition: RawCondition = None) -> str | None:
        """Says in which layer a training step on a batch first has NaN or infinity; None where all numbers are finite.

        Where `fit` gives a loss that is not finite, ask this of the batch. With `FusedAdam` the weights are still those
        before that step.

        Args:
          x: A batch of examples.
          step: Number of a training step, for its noise; the next one if left out.
          condition: For a conditional flow, as for `log_prob`.
        """
        x, leaves = self._door.asked(x, condition)
        points = tf.cast(x, self.distribution.dtype)
        seed = self._seed(self._training_draws if step is None else step, "training")
        vectors = self._vectors(points, leaves or None, training=True)
        return where_not_finite(self.distribution, self.trainable_weights, points, seed, vectors)

    def _next_seed(self, training):
        """A new seed for each step and each replica; training and testing have streams of their own."""
        counter, purpose = (self._training_draws, "training") if training else (self._test_draws, "testing")
        seed = self._seed(counter, purpose)
        counter.assign_add(1)
        replica = tf.distribute.get_replica_context()
        if replica and replica.num_replicas_in_sync > 1:
            seed = fold_in(seed, replica.replica_id_in_sync_group)
        return seed

    def _seed(self, number, purpose):
        number, seed = (tf.convert_to_tensor(n, tf.int64) % (2**31 - 1) for n in (number, self._noise_seed))
        return fold_in(salted(seed, purpose), number)


def _replicas() -> int:
    """The number of replicas: Keras divides losses by it, since their gradients are summed."""
    return tf.distribute.get_strategy().num_replicas_in_sync


class _NegativeMean(keras.losses.Loss):
    """-y_pred, averaged as Keras averages losses: over examples, weights and replicas."""

    def call(self, y_true, y_pred):
        return -y_pred


def _of_examples(sample_weight):
    """Weights of examples as a tensor; None where there are none, or different ones for each of several outputs."""
    if sample_weight is None or isinstance(sample_weight, dict):
        return None
    if isinstance(sample_weight, list | tuple) and any(np.ndim(weight) for weight in sample_weight):
        return None
    return tf.convert_to_tensor(sample_weight)
