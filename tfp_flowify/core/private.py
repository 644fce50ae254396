"""All private API of Keras, TFP and TensorFlow that the library uses, with the reason for each use.

Names that start with an underscore may change in any release of these libraries. Whoever raises the version ranges in
pyproject.toml reads this file first; tests/test_private.py fails where one of them has changed.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers import compile_utils
from tensorflow_probability.python.internal import cache_util

from tfp_flowify.core.checks import all_finite

#: TFP asks a bijector for a value and then for the log-det there. This cache answers the second question from the
#: first pass, so that a likelihood takes one pass through the network and not two. No public class does.
BijectorCacheWithGreedyAttrs = cache_util.BijectorCacheWithGreedyAttrs


def modules_inside(module: tf.Module, predicate: Callable[[Any], bool]) -> list:
    """All objects that a module holds, at any depth, for which the predicate is true.

    `tf.Module.submodules` finds modules only, and Keras layers and variables are none.
    """
    return list(module._flatten(predicate=predicate))


def calls_of(network: keras.Model) -> list:
    """The calls of layers in a Keras functional model, each behind those whose results it takes."""
    return calls_between(network.inputs, network.outputs)


def calls_between(inputs: list, outputs: list) -> list:
    """The calls of layers that lead from some Keras tensors to others, each behind those whose results it takes.

    Each has `operation`, `input_tensors` and `output_tensors`. Keras records them to run and save the model, but has no
    public way to walk them.
    """
    calls, known, waiting = [], {id(tensor) for tensor in inputs}, list(reversed(outputs))
    while waiting:  # No recursion: networks may be deeper than Python's stack.
        tensor = waiting[-1]
        operation, index, _ = tensor._keras_history
        call = operation._inbound_nodes[index]
        missing = [] if id(tensor) in known else [t for t in call.input_tensors if id(t) not in known]
        if missing:
            waiting += reversed(missing)
            continue
        if id(waiting.pop()) not in known:
            known.update(map(id, call.output_tensors))
            calls.append(call)
    return calls


def arguments_of(call: Any, tensors: dict) -> tuple:
    """The arguments that a layer was called with, as (args, kwargs), with other tensors in place of those of the call.

    Keras records constants and keywords beside tensors, but has no public way to read them.

    Args:
      call: One of `calls_of`.
      tensors: The tensor to put in the place of each, by the identity of the one it replaces.
    """
    return call.arguments.fill_in(tensors)


def layers_inside(layer: keras.layers.Layer) -> list:
    """All layers that a Keras layer holds, at any depth. `Model.layers` knows the first level only."""
    return list(layer._flatten_layers(include_self=False))


def trackers_of(model: keras.Model) -> list:
    """The metrics that `compile` gave a Keras model: its loss, and metrics of its output; not those of its layers.

    `Model.metrics` of a layer that holds models names all of them, as if they were the layer's own.
    """
    found = [model._loss_tracker, model._compile_metrics]
    found += model._compile_loss.metrics if model._compile_loss is not None else []
    return [metric for metric in found if metric is not None]


def track_loss(model: keras.Model, loss: tf.Tensor, count: tf.Tensor | int) -> None:
    """Adds the loss of a batch of `count` examples to the mean that Keras reports as `loss`.

    Keras' own steps do so; a model with steps of its own has no public way to that metric.
    """
    model._loss_tracker.update_state(loss, sample_weight=count)


class Figures(compile_utils.MetricsList):
    """Means that callbacks with `mode="auto"` know to be better where they are lower.

    Callbacks look for metrics inside objects of this class alone, and for the direction in an attribute of theirs.

    Args:
      names: Names of the means.
      dtype: Their type.
    """

    def __init__(self, names: Sequence[str], dtype: str):
        super().__init__([keras.metrics.Mean(name=name, dtype=dtype) for name in names], name="figures")
        for metric in self.metrics:
            metric._direction = "down"

    def update_state(self, values: dict, sample_weight: tf.Tensor | None = None) -> None:
        for metric in self.metrics:
            metric.update_state(values[metric.name], sample_weight)

    def result(self) -> dict:
        return self.get_result()


def adam_slots(optimizer: keras.optimizers.Adam, variable: keras.Variable) -> tuple:
    """The first and second moment that `keras.optimizers.Adam` keeps for a variable."""
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


@contextlib.contextmanager
def averaged(model: keras.Model) -> Iterator[bool]:
    """A model with the moving averages of its weights for a while, where its optimizer keeps some; tells whether.

    As `keras.callbacks.SwapEMAWeights` does, which knows of epochs and predictions only.
    """
    optimizer = model.optimizer
    averages = optimizer._model_variables_moving_average if optimizer.use_ema and optimizer.built else []
    weights = optimizer._trainable_variables if averages else []
    before = [keras.ops.copy(weight) for weight in weights]
    for weight, average in zip(weights, averages, strict=True):
        weight.assign(average)
    try:
        yield bool(averages)
    finally:
        for weight, value in zip(weights, before, strict=True):
            weight.assign(value)


def untracked(module: tf.Module, value: Any) -> Any:
    """A value to keep as an attribute of a module that TensorFlow shall neither wrap nor save."""
    return module._no_dependency(value)


class FitOnManyMachines:
    """Mixin in front of `keras.Model`, which cannot be trained under `MultiWorkerMirroredStrategy` (keras issue 20585).

    Keras builds a model from its first batch, for which it takes the mean over replicas; of replicas on other machines
    it has no batch. Here it is built from the batch of the first replica on this machine.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None and is_multi_worker(self.distribute_strategy):
            data_batch = next(next(steps) for _, _, steps in iterator)
            local = self.distribute_strategy.experimental_local_results
            data_batch, iterator = keras.tree.map_structure(lambda part: local(part)[0], data_batch), None
        super()._maybe_symbolic_build(iterator, data_batch)


def logs_for_keras(logs: dict) -> dict:
    """What a step returns, so that Keras can take its mean over replicas: on many machines it does so along an axis."""
    if not is_multi_worker(tf.distribute.get_strategy()):
        return logs
    return {name: tf.expand_dims(value, axis=0) for name, value in logs.items()}


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Whether a strategy spans several processes; one with a single worker does not, and Keras asks in the same way."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and strategy.extended._in_multi_worker_mode()


class SumsGradientsFirst:
    """Mixin in front of a Keras optimizer: gradients are summed over replicas before all else.

    Keras sums them behind clipping, so that several devices take other steps than one with the same batch. Where any
    gradient is not finite, all are zero and the learning rate is -1, for `update_step` to leave its weight as it is.
    """

    def apply(self, grads: Sequence, trainable_variables: Sequence | None = None) -> None:
        return super().apply(_summed_over_replicas(grads), trainable_variables)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        is_finite = all_finite(grads)
        kept = [_times_or_zero(gradient, is_finite) for gradient in grads]
        learning_rate = tf.convert_to_tensor(learning_rate)
        super()._backend_update_step(kept, trainable_variables, tf.where(is_finite, learning_rate, -1))


class DecaysSome:
    """Mixin in front of a Keras optimizer: weights whose names are in `decayed` decay, and no others; all for None.

    Keras' `exclude_from_weight_decay` is not in the config of an optimizer, so that one from a file forgets it.
    """

    decayed: list[str] | None = None

    def _use_weight_decay(self, variable):
        # Those of several devices have names such as kernel/replica_1:0.
        path = [name for name in variable.name.partition(":")[0].split("/") if not name.startswith("replica_")]
        return (self.decayed is None or path[-1] in self.decayed) and super()._use_weight_decay(variable)


def _times_or_zero(gradient, is_finite):
    """A gradient, of all entries or of single rows; zero where the flag says that some gradient is not finite."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_times_or_zero(gradient.values, is_finite), gradient.indices, gradient.dense_shape)
    return tf.math.multiply_no_nan(gradient, tf.cast(is_finite, gradient.dtype))


def _summed_over_replicas(gradients) -> list:
    """The gradients, each summed over all replicas; None stays None."""
    gradients, replica = list(gradients), tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return gradients
    summed = iter(replica.all_reduce("SUM", [gradient for gradient in gradients if gradient is not None]))
    return [None if gradient is None else next(summed) for gradient in gradients]
