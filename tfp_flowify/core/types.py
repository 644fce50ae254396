"""Types of arguments that many functions take."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

#: What TensorFlow makes a tensor of.
TensorLike = tf.Tensor | tf.Variable | np.ndarray | Sequence | float

#: Sizes of the axes of a tensor.
Shape = Sequence[int] | tf.TensorShape

#: A number, or the pair of numbers that TensorFlow's stateless functions take; None for a new one each time.
Seed = int | Sequence[int] | tf.Tensor | None

#: A raw condition: a tensor, or several by name or in order.
Condition = TensorLike | dict[str, Any] | list | tuple | None

#: A function of one tensor, such as a Keras model.
TensorFunction = Callable[[Any], Any]
