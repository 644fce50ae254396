"""Types of arguments that many functions take."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

#: What TensorFlow makes a tensor of.
TensorLike: TypeAlias = tf.Tensor | tf.Variable | np.ndarray | Sequence | float

#: Sizes of the axes of a tensor.
Shape: TypeAlias = Sequence[int] | tf.TensorShape

#: A number, or the pair of numbers that TensorFlow's stateless functions take; None for a new one each time.
Seed: TypeAlias = int | Sequence[int] | tf.Tensor | None

#: A raw condition: a tensor, or several by name or in order.
RawCondition: TypeAlias = TensorLike | dict[str, Any] | list | tuple | None

#: A function of one tensor, such as a Keras model.
TensorFunction: TypeAlias = Callable[[Any], Any]

#: Examples: a batch of them, or a dataset of batches.
Examples: TypeAlias = TensorLike | tf.data.Dataset

#: What TensorFlow makes a type of numbers of.
DTypeLike: TypeAlias = tf.DType | np.dtype | type | str

#: A path of a file or a folder.
PathLike: TypeAlias = str | os.PathLike[str]
