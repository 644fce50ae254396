"""The base of all Keras layers: the ordinary layer, and a bijector over the same weights."""

import inspect

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.layers.arguments import whole
from tfp_flowify.layers.conditioners import InPrecision, PerChannel, conditioner_for, ensure_built, training_mode

register = keras.saving.register_keras_serializable("tfp_flowify")


# What `Layer` takes care of itself.
_OF_KERAS = ("self", "args", "kwargs", "name", "dtype", "trainable", "autocast", "activity_regularizer")


class FlowLayer(keras.layers.Layer):
    """An ordinary Keras layer that is a flow layer too.

    Called on a tensor it is the ordinary layer, and its weights are those of the ordinary layer: it can stand in any
    Keras model. A `FlowModel` asks it for its bijector over the same weights, by

        make_bijector(shape, inverse) -> FlowBijector

    with the event shape that comes in, or a list of them. Weights that only the flow needs, the scales of noise and the
    densities of what is dropped, are added to `inverse`, and so belong to the flow, not to the layer.

    A layer keeps each argument of `__init__` as an attribute of the same name; its config follows from that. Weights
    are kept in full precision, in which the flow runs; `call` runs in the layer's compute dtype.

    >>> class Double(FlowLayer):
    ...     def call(self, x):
    ...         return 2 * x
    ...     def make_bijector(self, shape, inverse):
    ...         return fb.Sequential([fb.Diagonal(log_scale=tf.math.log(2.0))], event_shape=shape)
    >>> Double()(tf.ones([2])).numpy().tolist()
    [2.0, 2.0]
    """

    def make_bijector(self, shape, inverse: "Inverse") -> fb.FlowBijector:
        raise NotImplementedError(f"{type(self).__name__} must define make_bijector(shape, inverse).")

    def add_weight(self, *args, autocast=False, **kwargs):
        return super().add_weight(*args, autocast=autocast, **kwargs)

    def run(self, bijector, x, training=False):
        """The ordinary layer as a bijector knows it, in full precision."""
        with training_mode(training):
            return tf.cast(bijector.network(tf.cast(x, self.variable_dtype)), self.compute_dtype)

    def get_config(self):
        own = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self._argument_names()}
        return {**super().get_config(), **own}

    @classmethod
    def _argument_names(cls):
        """The arguments of `__init__`, also those that it hands on to the classes it builds on."""
        own = [vars(c)["__init__"] for c in cls.__mro__[: cls.__mro__.index(FlowLayer)] if "__init__" in vars(c)]
        names = [name for init in reversed(own) for name in inspect.signature(init).parameters]
        return [name for name in dict.fromkeys(names) if name not in _OF_KERAS]

    @classmethod
    def from_config(cls, config):
        is_object = {name: name != "dtype" and _is_serialized(value) for name, value in config.items()}
        read = keras.saving.deserialize_keras_object
        return super().from_config({name: read(v) if is_object[name] else v for name, v in config.items()})


class Dropping(FlowLayer):
    """A layer that may drop dimensions, with a density for them.

    Args:
      inverse: "funnel", a density given the output, by a small network; "multiscale", standard normal, with no weights;
        or a conditioner of one's own: any Keras model of the output that gives the parameters of the transform.
      transform: how what is dropped is made standard normal: "affine" (the paper's Gaussian), "spline" or
        "affine+spline".
      width: units of the hidden layers of that small network; chosen by its input and output if left out.

    >>> from tfp_flowify.layers import Dense
    >>> own = keras.Sequential([keras.Input([2]), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
    >>> Dense(2, inverse=own)(tf.ones([5, 3])).shape.as_list()  # One dropped value, with a mean and a log-scale.
    [5, 2]
    """

    #: Whether what is dropped is positive by nature, so that its density is one of sizes.
    odd = False

    def __init__(self, inverse="funnel", transform="affine", width=None, **kwargs):
        super().__init__(**kwargs)
        self.width = width if width is None else whole("width", width)
        if inverse not in ("funnel", "multiscale") and not isinstance(inverse, keras.layers.Layer):
            raise ValueError(f'inverse is "funnel", "multiscale" or a Keras model. Received: inverse={inverse!r}')
        make_transform(transform)
        self.transform = transform
        self._inverse = _Untracked(inverse)

    @property
    def inverse(self):
        return self._inverse.value

    def conditioner(self, inverse, given, dropped, kind=None):
        """The network that gives the parameters of what is dropped, or None for "multiscale"."""
        if self.inverse == "multiscale":
            return None
        network = self.inverse
        if network == "funnel":
            size = make_transform(self.transform, self.odd).size
            network = conditioner_for(given, dropped, size, self.dtype_policy, kind, self.width)
        ensure_built(network, given)
        return inverse.network(network)

    def with_density_of_unseen(self, bijector, inverse):
        """Where strides leave pixels that no window sees: a mean and a deviation for each channel of them."""
        if self.inverse == "multiscale" or not bijector.unseen:
            return bijector
        pixels, channels = bijector.residuals[0].event_shape
        return fb.Funnel(bijector, PerChannel(inverse.weight("unseen", [2 * channels]), pixels), name=bijector.name)

    def funnel(self, bijector, inverse, kind=None):
        """The bijector with a density for its first residual, if it has one."""
        if not bijector.residuals:
            return bijector
        dropped = tuple(bijector.residuals[0].event_shape)
        conditioner = self.conditioner(inverse, bijector.outputs[0], dropped, kind)
        if conditioner is None:
            return bijector
        return fb.Funnel(bijector, conditioner, make_transform(self.transform, self.odd))


@register
class Inverse(keras.layers.Layer):
    """What a flow adds to its network: scales of noise, and densities of what is dropped. One part for each layer.

    `flow.inverse.trainable = False` freezes them, `flow.network.trainable = False` all others.

    >>> from tfp_flowify import FlowModel, layers
    >>> flow = FlowModel([keras.Input([2]), layers.Dense(3)])
    >>> [weight.name for weight in flow.inverse.parts[0].weights]
    ['log_noise_scale']
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parts, self.networks = [], []
        self.built = True

    def part(self, layer) -> "Inverse":
        """A place for the weights of one layer."""
        self.parts.append(Inverse(dtype=layer.dtype_policy, name=f"{layer.name}_inverse"))
        return self.parts[-1]

    def weight(self, name, shape=(), value=0.0):
        """A trainable weight in full precision."""
        start = keras.initializers.Constant(value)
        return self.add_weight(name=name, shape=shape, initializer=start, autocast=False)

    def network(self, network):
        """A function that runs a Keras model in its own precision and gives the result in that of its input."""
        self.networks.append(network)
        return InPrecision(network)


class _Untracked:
    """Hides a Keras model from the layer that keeps it as an argument: its weights are not the layer's."""

    def __init__(self, value):
        self.value = value


def make_transform(name: str, odd=False):
    """The transform that a layer's argument names; the odd one of its kind where only the size counts."""
    affine, spline = (fb.Scale, fb.OddSpline) if odd else (fb.Affine, fb.Spline)
    kinds = {"affine": affine, "spline": spline, "affine+spline": lambda: fb.Stack([affine(), spline(bound=3.0)])}
    if name not in kinds:
        raise ValueError(f"transform is one of {list(kinds)}. Received: transform={name!r}")
    return kinds[name]()


def _is_serialized(value) -> bool:
    if isinstance(value, dict):
        return "class_name" in value
    return isinstance(value, list) and any(_is_serialized(v) for v in value)
