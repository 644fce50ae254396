"""The variables of a module, with those that Keras owns."""

import tensorflow as tf


class AllVariables:
    """Mixin for modules: `variables` and `trainable_variables` also name those of Keras layers and variables inside."""

    @property
    def variables(self) -> tuple:
        """All variables, also those of Keras models inside."""
        return _all_variables(self, "variables")

    @property
    def trainable_variables(self) -> tuple:
        """All trainable variables, also those of Keras models inside."""
        return _all_variables(self, "trainable_variables")


def _all_variables(module, kind) -> tuple:
    """Each variable once, as the `tf.Variable` it is."""
    found = list(getattr(tf.Module, kind).fget(module))
    for held in module._flatten(predicate=_is_of_keras):
        weights = [held] if hasattr(held, "value") else getattr(held, kind)
        found += [weight.value for weight in weights if weight.trainable or kind == "variables"]
    return tuple({id(variable): variable for variable in found}.values())


def _is_of_keras(value):
    """A layer, also one of a user's class, or a variable."""
    return hasattr(value, "trainable") and any(t.__module__.startswith("keras.") for t in type(value).__mro__)
