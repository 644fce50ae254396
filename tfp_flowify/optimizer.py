"""Adam in one operation for each weight."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_flowify.core.private import DecaysSome, SumsGradientsFirst, adam_slots


@keras.saving.register_keras_serializable("tfp_flowify")
class FusedAdam(SumsGradientsFirst, DecaysSome, keras.optimizers.Adam):
    """Keras' Adam, each weight updated by TensorFlow's own kernel: a fifteenth of the operations.

    A flow has many small weights, so that these count, above all while the first step is being compiled. Arguments,
    updates and what is saved are those of `keras.optimizers.Adam`; `amsgrad=True` and gradients of single rows are left
    to that.

    A step whose gradients are not all finite is not taken: weights and moments stay as they are (what is left to Keras
    keeps its weights, and its moments fade a little; what decays does so even then). In `FlowModel.fit` the loss is NaN
    then.

    On several devices or machines gradients are summed, and then clipped: steps are those of one device with the whole
    batch. (Keras clips the gradients of each device, and then sums.)

    Args:
      *args, **kwargs: As of `keras.optimizers.Adam`.
      decayed: Names of the weights that decay, where there is `weight_decay`, such as ["kernel"]; all if left out.

    >>> float(FusedAdam(0.5).learning_rate)
    0.5
    """

    def __init__(self, *args: Any, decayed: Iterable[str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.decayed = decayed if decayed is None else list(decayed)

    def get_config(self) -> dict[str, Any]:
        own = {} if self.decayed is None else {"decayed": self.decayed}  # Without it, it is the config of Keras' Adam.
        return {**super().get_config(), **own}

    def apply(
        self,
        grads: Sequence[tf.Tensor | tf.IndexedSlices | None],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        self._numbers: dict[tf.DType, dict[str, tf.Tensor]] = {}  # Once for a step, in the graph of that step.
        return super().apply(grads, trainable_variables)

    def update_step(
        self, gradient: tf.Tensor | tf.IndexedSlices, variable: keras.Variable | tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        if self.amsgrad or not isinstance(gradient, tf.Tensor):
            return super().update_step(gradient, variable, tf.maximum(learning_rate, 0))
        first_moment, second_moment = adam_slots(self, variable)
        tf.raw_ops.ResourceApplyAdam(
            var=_handle(variable),
            m=_handle(first_moment),
            v=_handle(second_moment),
            grad=tf.cast(gradient, variable.dtype),
            **self._numbers_of(variable.dtype, learning_rate),
        )

    def _numbers_of(self, dtype, learning_rate):
        """The numbers that the kernel takes beside the tensors."""
        if dtype not in self._numbers:
            step = tf.cast(self.iterations + 1, dtype)
            beta1, beta2, epsilon = (tf.constant(x, dtype) for x in (self.beta_1, self.beta_2, self.epsilon))
            powers = {"beta1_power": beta1**step, "beta2_power": beta2**step}
            beta1, beta2 = (tf.where(learning_rate < 0, tf.ones([], dtype), beta) for beta in (beta1, beta2))
            learning_rate = tf.cast(tf.maximum(learning_rate, 0), dtype)
            rest = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "lr": learning_rate}
            self._numbers[dtype] = {**powers, **rest}
        return self._numbers[dtype]


def _handle(variable):
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle
