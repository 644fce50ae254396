"""Data and conditions on their way into a flow, in any of the forms that Keras' methods take."""

import numbers
import types
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_flowify.core.types import RawCondition, TensorLike
from tfp_flowify.model.condition import CONDITION, Condition, X
from tfp_flowify.model.entries import with_asserted_weights
from tfp_flowify.model.inputs import InputCheck, data_of, is_array, map_data


class Door:
    """Lets data in: x alone, or x with a condition as `[x, condition]` or `{"x": x, "condition": condition}`.

    Args:
      check: What data the flow takes.
      condition: What conditions it takes; None for a flow without a condition.
    """

    def __init__(self, check: InputCheck, condition: Condition | None = None):
        self.check, self.condition = check, condition

    def inputs(self, inputs: Any) -> Any:
        """Checks what Keras' methods take: arrays; or batches, which are checked as they are read.

        See `InputCheck.data`. With a condition, arrays and batches come out as {"x": x, "condition": leaves}.
        """
        if self.condition is None:
            self._refuse_condition(inputs)
            return self.check.data(inputs)
        if isinstance(inputs, tf.data.Dataset):
            return self._dataset(inputs)
        if isinstance(inputs, types.GeneratorType):
            return map_data(inputs, self._arrays)
        if inputs is None or is_lone(inputs) or isinstance(inputs, dict | list | tuple | str | numbers.Number):
            return self._arrays(inputs)
        return inputs

    def _arrays(self, inputs) -> dict:
        x, condition = self._pair(inputs)
        x = self.check.array(x)
        return {X: x, CONDITION: self.for_each(condition, len(x))}

    def batch(self, inputs: Any) -> tuple:
        """x and the leaves of its condition, or None, of a batch in a training step; its shapes are checked."""
        if self.condition is None:
            self.check.batch(inputs)
            return inputs, None
        x, condition = self._pair(inputs)
        self.check.batch(x)
        leaves = self._leaves_that_fit(condition)
        self.condition.check_rows({name: leaf.shape[0] for name, leaf in leaves.items()}, x.shape[0])
        return x, {name: self.condition.cast(name, leaf) for name, leaf in leaves.items()}

    def _leaves_that_fit(self, condition) -> dict:
        """The leaves of a batch of conditions, or their specs, with shapes that the flow takes."""
        leaves = self.condition.leaves(condition)
        for name, spec in self.condition.specs.items():
            if not spec.shape.is_compatible_with(leaves[name].shape):
                raise ValueError(f"This flow takes {self.condition.wanted()}. Received: {name} of {leaves[name].shape}")
        return leaves

    def asked(self, x: TensorLike, condition: RawCondition) -> tuple:
        """An array and the leaves of its condition, {} without one, as the methods for densities take them."""
        self.refuse(condition)
        if self.condition is not None and condition is None and (isinstance(x, dict) or _is_pair(x)):
            raise ValueError("Data and condition are given apart here: (x, condition=condition).")
        x = self.check.array(x)
        return x, ({} if self.condition is None else self.for_each(condition, len(x)))

    def first_examples(self, dataset: tf.data.Dataset, most: int) -> tuple:
        """Data and the leaves of their conditions, {} without, of the first batches of a dataset."""
        taken, count = [], 0
        for x, leaves in map(self.batch, map(data_of, self.inputs(dataset))):
            taken.append((x, leaves or {}))
            count += len(x)
            if count >= most:
                break
        if not taken:
            raise ValueError("adapt was given an empty dataset.")
        data, conditions = zip(*taken, strict=True)
        leaves = {name: tf.concat([leaves[name] for leaves in conditions], axis=0) for name in conditions[0]}
        return tf.concat(data, axis=0), leaves

    def for_each(self, condition: RawCondition, count: int) -> dict:
        """The leaves of a condition, with a row for each of `count` examples."""
        leaves = self.condition.checked(condition, count)
        return {name: value if len(value) == count else np.repeat(value, count, 0) for name, value in leaves.items()}

    def refuse(self, condition: RawCondition) -> None:
        """Raises an error where a condition is given to a flow that takes none."""
        if self.condition is None and condition is not None:
            raise ValueError("This flow takes no condition. Make one that does: FlowModel(network, condition=shape).")

    @staticmethod
    def refuse_beside_dataset(condition: RawCondition) -> None:
        """Raises an error where a condition is given beside a dataset, which has its own."""
        if condition is not None:
            raise ValueError("The condition of a dataset comes with its data: leave out condition=...")

    def data_in(self, inputs: Any) -> Any:
        """x alone, of anything that `inputs` takes but a dataset: for its shape."""
        return inputs if self.condition is None else self._pair(inputs)[0]

    def _pair(self, inputs):
        if isinstance(inputs, dict) and set(inputs) == {X, CONDITION}:
            return inputs[X], inputs[CONDITION]
        if isinstance(inputs, list | tuple) and len(inputs) == 2 and not np.isscalar(inputs[0]):
            return inputs[0], inputs[1]
        given = "nothing" if inputs is None else type(inputs).__name__
        given = f"a dict with keys {list(inputs)}" if isinstance(inputs, dict) else given
        raise ValueError(
            f"This flow takes data and {self.condition.wanted()}: [x, condition] or "
            f'{{"x": x, "condition": condition}}. Received: {given}'
        )

    def _refuse_condition(self, inputs):
        """Names a condition that is too much; any other data that do not fit get the errors of the check."""
        is_pair = _is_pair(inputs) and len(inputs[0].shape) == len(self.check.event_shape) + 1
        if is_pair or (isinstance(inputs, dict) and CONDITION in inputs):
            self.refuse(inputs)

    def _dataset(self, dataset):
        spec = dataset.element_spec
        first = data_of(spec)
        if hasattr(first, "shape"):
            raise ValueError(
                f"This flow takes data and {self.condition.wanted()}; the elements of a dataset are ((x, condition),) "
                f'or {{"x": x, "condition": condition}}, with labels behind if wanted. Received: {spec}'
            )
        x, condition = self._pair(first)
        self.check.element(x)
        self._leaves_that_fit(condition)

        def check(*element):
            x, leaves = self.batch(element[0])
            checked = {X: self.check.asserted(x), CONDITION: self.condition.asserted(leaves, tf.shape(x)[0])}
            return (checked, *with_asserted_weights(element[1:])) if isinstance(spec, tuple) else checked

        return dataset.map(check, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def is_lone(inputs: object) -> bool:
    """Whether this is one array or tensor."""
    return is_array(inputs) and not isinstance(inputs, list)


def _is_pair(inputs) -> bool:
    """Whether this is a list of two arrays."""
    return isinstance(inputs, list | tuple) and len(inputs) == 2 and all(hasattr(value, "shape") for value in inputs)
