"""The variables of a module, including those that Keras owns."""

import tensorflow as tf

from tfp_flowify.core.private import modules_inside


class AllVariables:
    """Mixin for `tf.Module`: `variables` and `trainable_variables` also name those of Keras layers inside it."""

    @property
    def variables(self) -> tuple:
        """All variables, also those of Keras layers inside."""
        return _all_variables(self, "variables")

    @property
    def trainable_variables(self) -> tuple:
        """All trainable variables, also those of Keras layers inside."""
        return _all_variables(self, "trainable_variables")


def _all_variables(module, kind) -> tuple:
    """Each variable once, as the `tf.Variable` that it is."""
    found = list(getattr(tf.Module, kind).fget(module))
    for held in modules_inside(module, _is_of_keras):
        weights = [held] if hasattr(held, "value") else getattr(held, kind)
        found += [weight.value for weight in weights if weight.trainable or kind == "variables"]
    return tuple({id(variable): variable for variable in found}.values())


def _is_of_keras(value):
    """Whether this is a Keras layer, also one of a user's class, or a Keras variable."""
    return hasattr(value, "trainable") and any(t.__module__.startswith("keras.") for t in type(value).__mro__)
