"""Training of a flow: Keras' methods, with data checked at the door."""

import inspect
import numbers
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.private import layers_inside, trackers_of
from tfp_flowify.model.condition import X
from tfp_flowify.model.entries import check_weights
from tfp_flowify.model.inputs import is_array, is_endless
from tfp_flowify.model.steps import NEEDS_LABELS, Steps
from tfp_flowify.optimizer import FusedAdam


def _as_in_keras(method):
    """Gives a method the signature of Keras' own, whose arguments it takes and hands on."""
    method.__signature__ = inspect.signature(getattr(keras.Model, method.__name__))
    return method


class Training(Steps):
    """Mixin that stands in front of `keras.Model`: training by maximum likelihood, with or without another loss."""

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "adam",
        loss: str | Callable | list | dict | None = None,
        loss_weights: float | list | dict | None = None,
        metrics: list | dict | None = None,
        weighted_metrics: list | dict | None = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
        *,
        likelihood_weight: float = 1.0,
    ) -> None:
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

    def get_compile_config(self) -> dict:
        config = super().get_compile_config()
        return {**config, "likelihood_weight": self._likelihood_weight} if config else {}

    def compile_from_config(self, config: dict) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    @property
    def metrics(self) -> list:
        """As in Keras; but models inside keep their metrics to themselves: those compiled, and flows."""
        models = [layer for layer in layers_inside(self) if isinstance(layer, keras.Model)]
        own = [model.metrics if isinstance(model, Training) else trackers_of(model) for model in models]
        foreign = {id(metric) for metrics in own for metric in metrics}
        return [metric for metric in super().metrics if id(metric) not in foreign]

    @_as_in_keras
    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
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
    def evaluate(self, *args: Any, **kwargs: Any) -> float | list | dict:
        """The loss and metrics on data, as for any Keras model; each call draws the same noise, one draw an example."""
        if not kwargs.get("_use_cached_eval_dataset"):  # Else `fit` has checked its validation data already.
            args, kwargs = (), self._admitted(Training.evaluate, args, kwargs)
        self._test_draws.assign(0)
        return super().evaluate(*args, **kwargs)

    @_as_in_keras
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the network, as for any Keras model."""
        return super().predict(**self._admitted(Training.predict, args, kwargs))

    @_as_in_keras
    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the network for one batch, as for any Keras model."""
        return super().predict_on_batch(**self._admitted(Training.predict_on_batch, args, kwargs))

    @_as_in_keras
    def train_on_batch(self, *args: Any, **kwargs: Any) -> float | list | dict:
        """One training step, as for any Keras model."""
        return super().train_on_batch(**self._admitted(Training.train_on_batch, args, kwargs))

    @_as_in_keras
    def test_on_batch(self, *args: Any, **kwargs: Any) -> float | list | dict:
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
            raise ValueError(NEEDS_LABELS)
        count = len(x[X] if isinstance(x, dict) else x)
        check_weights(sample_weight, count)
        return (np.zeros([count, 0], np.int8) if y is None and sample_weight is not None else y), sample_weight


def is_in_memory(inputs: object) -> bool:
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
