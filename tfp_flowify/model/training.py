"""Training of a flow: Keras' methods and steps, with the likelihood as loss."""

import inspect
import numbers
import warnings

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.private import (
    Figures,
    FitOnManyMachines,
    layers_inside,
    logs_for_keras,
    track_loss,
    trackers_of,
)
from tfp_flowify.core.seeds import fold_in, salted
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.model.condition import X
from tfp_flowify.model.diagnosis import where_not_finite
from tfp_flowify.model.entries import check_weights
from tfp_flowify.model.inputs import is_array, is_endless
from tfp_flowify.optimizer import FusedAdam


def _as_in_keras(method):
    """Gives a method the signature of Keras' own, whose arguments it takes and hands on."""
    method.__signature__ = inspect.signature(getattr(keras.Model, method.__name__))
    return method


class Training(FitOnManyMachines):
    """Mixin that stands in front of `keras.Model`: training by maximum likelihood, with or without another loss."""

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

    def compile(
        self,
        optimizer="adam",
        loss=None,
        loss_weights=None,
        metrics=None,
        weighted_metrics=None,
        run_eagerly=False,
        steps_per_execution=1,
        jit_compile="auto",
        auto_scale_loss=True,
        *,
        likelihood_weight=1.0,
    ):
        """Sets up training. Arguments are those of Keras, and one more.

        Args:
          optimizer: As in Keras, but "adam" is `FusedAdam`: Keras' Adam with the same config, by a faster kernel.
          loss: Loss of the network's output, with labels y given to `fit`; None to learn the density alone.
          loss_weights: As in Keras.
          metrics, weighted_metrics: Metrics of the network's output, beside `nll` and `bits_per_dim`.
          run_eagerly, steps_per_execution, jit_compile, auto_scale_loss: As in Keras.
          likelihood_weight: Weight of the negative log-likelihood beside that loss.
        """
        if not isinstance(likelihood_weight, numbers.Real) or not 0 <= likelihood_weight < np.inf:
            raise ValueError(
                f"likelihood_weight is a number, zero or more. Received: likelihood_weight={likelihood_weight!r}"
            )
        super().compile(
            FusedAdam() if optimizer == "adam" else optimizer,
            loss,
            loss_weights,
            metrics,
            weighted_metrics,
            run_eagerly,
            steps_per_execution,
            jit_compile,
            auto_scale_loss,
        )
        self._likelihood_weight, self._supervised = float(likelihood_weight), loss is not None
        self._needs_labels = bool(self._supervised or metrics or weighted_metrics)
        networks = [self.network] if self.condition_network is None else [self.network, self.condition_network]
        inside = [layer for network in networks for layer in layers_inside(network)]
        watched = any(layer.activity_regularizer is not None for layer in inside)
        self._output_is_used = self._needs_labels or watched

    def get_compile_config(self):
        config = super().get_compile_config()
        return {**config, "likelihood_weight": self._likelihood_weight} if config else {}

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    @property
    def metrics(self):
        """As in Keras; but models inside keep their metrics to themselves: those compiled, and flows."""
        models = [layer for layer in layers_inside(self) if isinstance(layer, keras.Model)]
        own = [model.metrics if isinstance(model, Training) else trackers_of(model) for model in models]
        foreign = {id(metric) for metrics in own for metric in metrics}
        return [metric for metric in super().metrics if id(metric) not in foreign]

    # The steps: Keras' own, but for the network, which runs only where a loss or a metric looks at its output.

    def train_step(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            output, loss = self._output_and_loss(x, y, sample_weight, training=True)
            scaled = self.optimizer.scale_loss(loss)
        weights = self.trainable_weights
        if weights:
            self.optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
        else:
            warnings.warn(f"{self.name} has no trainable weights.", stacklevel=2)
        return logs_for_keras(self.compute_metrics(x, y, output, sample_weight=sample_weight))

    def test_step(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        output, _ = self._output_and_loss(x, y, sample_weight, training=False)
        return logs_for_keras(self.compute_metrics(x, y, output, sample_weight=sample_weight))

    def _output_and_loss(self, x, y, sample_weight, training):
        output = self.call(x, training=training) if self._output_is_used else None
        loss = self.compute_loss(x, y, output, sample_weight, training)
        track_loss(self, loss * _replicas(), tf.shape(self._door.batch(x)[0])[0])
        return output, loss

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The negative log-likelihood of a batch, averaged over examples, and beside it the loss of the output."""
        if self._supervised and y is None:
            raise ValueError(_NEEDS_LABELS)
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

    def where_not_finite(self, x, step=None, *, condition=None) -> str | None:
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

    # Keras' methods, with data checked at the door.

    @_as_in_keras
    def fit(self, *args, **kwargs):
        """Trains as any Keras model; data are checked first. Without a loss in `compile`, labels are not used.

        A conditional flow takes `fit([x, condition])` or `fit({"x": x, "condition": condition})`, or a dataset of such.
        """
        arguments = self._admitted(Training.fit, args, kwargs)
        in_memory = is_in_memory(arguments["x"])
        if in_memory:
            self._check.warn_of_no_density(self._door.data_in(args[0] if args else kwargs["x"]))
        if arguments.get("class_weight") is not None and arguments["y"] is None and in_memory:
            raise ValueError("class_weight is for labels: fit(x, y, class_weight=...).")
        if self.compiled and not self.optimizer.built:
            with self.distribute_strategy.scope():  # Else Keras traces the first step twice.
                self.optimizer.build(self.trainable_variables)
        validation = arguments.get("validation_data")
        if isinstance(validation, list | tuple):
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tuple(validation))
            x = self._door.inputs(x)
            arguments["validation_data"] = (x, *self._labels(x, y, sample_weight))
        elif validation is not None:
            validation = self._door.inputs(validation)
            arguments["validation_data"] = (validation,) if isinstance(validation, dict) else validation
        return super().fit(**arguments)

    @_as_in_keras
    def evaluate(self, *args, **kwargs):
        """The loss and metrics on data, as for any Keras model; each call draws the same noise, one draw an example."""
        if not kwargs.get("_use_cached_eval_dataset"):  # Else `fit` has checked its validation data already.
            args, kwargs = (), self._admitted(Training.evaluate, args, kwargs)
        self._test_draws.assign(0)
        return super().evaluate(*args, **kwargs)

    @_as_in_keras
    def predict(self, *args, **kwargs):
        """The outputs of the network, as for any Keras model."""
        return super().predict(**self._admitted(Training.predict, args, kwargs))

    @_as_in_keras
    def predict_on_batch(self, *args, **kwargs):
        """The outputs of the network for one batch, as for any Keras model."""
        return super().predict_on_batch(**self._admitted(Training.predict_on_batch, args, kwargs))

    @_as_in_keras
    def train_on_batch(self, *args, **kwargs):
        """One training step, as for any Keras model."""
        return super().train_on_batch(**self._admitted(Training.train_on_batch, args, kwargs))

    @_as_in_keras
    def test_on_batch(self, *args, **kwargs):
        """The loss and metrics of one batch, as for any Keras model."""
        return super().test_on_batch(**self._admitted(Training.test_on_batch, args, kwargs))

    def _admitted(self, method, args, kwargs) -> dict:
        """The arguments of a method by name, with data checked. Builds the flow where it is not built yet."""
        arguments = inspect.signature(method).bind(self, *args, **kwargs).arguments
        del arguments["self"]
        arguments.update(arguments.pop("kwargs", {}))
        x = arguments.get("x")
        _check_sizes(x, arguments, "steps_per_epoch" if method is Training.fit else "steps")
        self.build_from(x)
        x = arguments["x"] = self._door.inputs(x)
        if "sample_weight" in inspect.signature(method).parameters:
            y, sample_weight = self._labels(x, arguments.get("y"), arguments.get("sample_weight"))
            arguments.update(y=y, sample_weight=sample_weight)
        return arguments

    def _labels(self, x, y, sample_weight):
        """Labels and weights as Keras keeps them: it drops weights where there are no labels, so there must be some."""
        if not is_in_memory(x):
            return y, sample_weight
        if y is None and self._needs_labels:
            raise ValueError(_NEEDS_LABELS)
        count = len(x[X] if isinstance(x, dict) else x)
        check_weights(sample_weight, count)
        return (np.zeros([count, 0], np.int8) if y is None and sample_weight is not None else y), sample_weight


def is_in_memory(inputs) -> bool:
    """Whether inputs that have come through the door are arrays, not a dataset or a generator."""
    return isinstance(inputs, dict) or is_array(inputs)


def _check_sizes(x, arguments, steps):
    """Raises an error where sizes that Keras' methods take are not positive, or batches would never end."""
    for name in ("batch_size", "validation_batch_size", "steps_per_epoch", "steps", "validation_steps"):
        if arguments.get(name) is not None:
            arguments[name] = whole_number(name, arguments[name])
    if not 0 <= arguments.get("validation_split", 0.0) < 1:
        raise ValueError(f"validation_split is 0 to 1. Received: validation_split={arguments['validation_split']}")
    _check_end("x", x, steps, arguments)
    _check_end("validation_data", arguments.get("validation_data"), "validation_steps", arguments)


def _check_end(name, dataset, steps, arguments):
    """Raises an error where a dataset has no batches, or has no end and nothing says how many to take."""
    if not isinstance(dataset, tf.data.Dataset):
        return
    if int(dataset.cardinality()) == 0:
        raise ValueError(f"{name} is an empty dataset: it has no batches.")
    if is_endless(dataset) and arguments.get(steps) is None:
        raise ValueError(f"{name} is a dataset without an end. Say how many batches to take: {steps}=N.")


_NEEDS_LABELS = "The flow was compiled with a loss or with metrics, so fit and evaluate need labels: fit(x, y)."


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
