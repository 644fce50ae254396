"""Layers that are flow layers by added noise alone: whole numbers, and any function."""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.core.types import Shape
from tfp_flowify.layers.arguments import one_of, positive
from tfp_flowify.layers.base import Dropping, FlowLayer, register
from tfp_flowify.layers.conditioners import KerasFunction, ensure_built
from tfp_flowify.layers.densities import Densities


@register
class Dequantize(FlowLayer):
    """Takes whole numbers 0 ... levels - 1, such as pixels, to the middles of cells of (0, 1).

    In a flow they are uniform in the cell.

    Args:
      levels: Number of levels; 256 for images of eight bits.

    >>> Dequantize(4)(tf.constant([0.0, 3.0])).numpy().tolist()
    [0.125, 0.875]
    """

    def __init__(self, levels: int = 256, **kwargs: Any):
        super().__init__(**kwargs)
        self.autocast = False  # Whole numbers stay what they are.
        self.levels = fb.Dequantize(levels).levels

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return (tf.cast(x, self.variable_dtype) + 0.5) / self.levels  # In half precision, 255.5 / 256 would be 1.

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        return fb.bind(fb.Dequantize(self.levels, self.variable_dtype), shape)


@register
class Stochastic(Dropping):
    """Any function or Keras layer as a flow layer: z = f(x), in a flow f(x) + noise, with a density of x given z.

    The fallback for what has no layer of its own here. It is a variational autoencoder with encoder f. With the density
    of "funnel", a normal one, its bound is the loosest of all layers. With a conditional `FlowModel` of x given z as
    its density it is as good as that flow: so a whole network becomes one layer, a *block*.

    Args:
      function: A Keras layer or model, or a function. To be saved, a function must be one that Keras can find by name:
        one of its own, or registered with `keras.saving.register_keras_serializable`.
      noise: Kind of the noise.
      noise_scale: Its scale at the start, in units of the deviation of f(x), which `adapt` measures; it is trained, one
        for each channel of f(x).
      inference: Whether the function runs in inference mode while the flow trains too, so that dropout is off and
        batch normalization uses its moving statistics.
      **kwargs: The density of x given z, see `Dropping`; or `density=flow` for a `FlowModel` with `condition=` the
        shape of f(x).

    >>> Stochastic(keras.activations.softmax)(tf.zeros([5, 4])).numpy()[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(
        self,
        function: Callable,
        noise: str = "normal",
        noise_scale: float = 0.1,
        inference: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not callable(function):
            raise TypeError(f"Stochastic takes a function or a Keras layer. Received: function={function!r}")
        self.function = function
        self._shapes = {}  # Of what the function gives, by the shape of what it takes.
        self.noise = one_of("noise", noise, ("normal", "uniform"))
        self.noise_scale, self.inference = positive("noise_scale", noise_scale), bool(inference)

    def build(self, input_shape: Shape) -> None:
        self.compute_output_shape(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if self.inference and isinstance(self.function, keras.layers.Layer):
            return self.function(x, training=False)
        return self.function(x)

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        event = tuple(input_shape[1:])
        if event not in self._shapes:
            if isinstance(self.function, keras.layers.Layer):
                self._shapes[event] = ensure_built(self.function, event)[1:]
            else:
                spec = tf.TensorSpec(input_shape, self.compute_dtype)
                self._shapes[event] = tuple(tf.function(self.function).get_concrete_function(spec).output_shapes)[1:]
        return (input_shape[0], *self._shapes[event])

    def get_config(self) -> dict:
        if getattr(self.function, "__name__", "") == "<lambda>":
            raise ValueError(
                f"{self.name} holds a lambda, which cannot be saved: a file holds no code. Give a Keras layer, or a "
                "function registered with keras.saving.register_keras_serializable."
            )
        return super().get_config()

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        out = self.compute_output_shape((None, *shape))[1:]
        scale = densities.add("log_noise_scale", out[-1:], math.log(self.noise_scale))
        function = KerasFunction(self.function, self.inference)
        layer = fb.Stochastic(function, shape, out, scale, self.noise, self.noise_scale)
        if not hasattr(self.density, "whitening"):
            return self.funnel(layer, densities)
        whiten = densities.add_flow(self.density).whitening(shape, out)
        nodes = [fb.Node(layer, ("x",), ("z", "dropped")), fb.Node(whiten, ("z", "dropped"), ("z",))]
        return fb.Graph(nodes, {"x": shape}, ("z",), name=self.name)
