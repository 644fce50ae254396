"""Dense layers: their weights are those of a singular value decomposition."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.conditional import stage_sizes
from tfp_flowify.bijectors.linear import decompose, singular_values
from tfp_flowify.core.checks import whole_number
from tfp_flowify.core.moments import lift
from tfp_flowify.core.types import Shape, TensorLike
from tfp_flowify.layers.activations import activation_layer
from tfp_flowify.layers.arguments import one_of, positive
from tfp_flowify.layers.base import Dropping, register
from tfp_flowify.layers.densities import Densities
from tfp_flowify.layers.rotations import ORTHOGONAL, add_rotation, add_rotations, constant
from tfp_flowify.math.limits import SINGULAR_RANGE

_NO_KERNEL = "the kernel is computed from rotations and singular values and is not a weight"


class Linear(Dropping):
    """The weights of a linear map W = V S U between vectors; `Dense` and the convolutions use it.

    A fresh one keeps lengths: its rotations are random and all its singular values are `gain`.

    Args:
      activation: Function behind the layer, by Keras' name or as a layer of this package; see `activation_layer`.
      use_bias: Whether to add a bias.
      kernel_initializer: A Keras initializer for the kernel, which is decomposed; None for random rotations and `gain`.
      bias_initializer, bias_regularizer, bias_constraint: As in Keras.
      orthogonal: How the rotations V and U are held: "expm", "cayley" or "householder", which reach every rotation, at
        a cost of n^3 a step; or "auto", which for more than 128 dimensions takes 64 reflections of a random rotation,
        at a cost of n^2.
      gain: The singular values at the start.
      noise: "normal" or "uniform", for the dimensions that it adds.
      noise_scale: Scale of the noise at the start; it is trained.
      stages: In how many stages the dropped dimensions leave, at most. With one they are independent given the output;
        with more, each stage is given the output and the stages before, by a network of its own: better, and slower.
      **kwargs: The density of the dimensions that it drops, see `Dropping`.

    >>> layer = Dense(2, gain=0.5)
    >>> layer(tf.ones([5, 3])).shape.as_list(), layer.kernel.shape.as_list()
    ([5, 2], [3, 2])
    """

    #: Number of groups of features, each with a matrix of its own.
    groups = 1

    #: What `start_at` lifted: a number of singular values, and the change of the kernel.
    lifted = (0, 0.0)

    _start = None

    fixed_arguments: ClassVar = {
        "kernel_regularizer": ((None,), f"{_NO_KERNEL}; use weight decay in the optimizer, keras.optimizers.AdamW"),
        "kernel_constraint": ((None,), _NO_KERNEL),
    }

    def __init__(
        self,
        activation: str | Callable | None = None,
        use_bias: bool = True,
        kernel_initializer: str | Callable | None = None,
        bias_initializer: str | Callable = "zeros",
        bias_regularizer: str | Callable | None = None,
        bias_constraint: str | Callable | None = None,
        orthogonal: str = "auto",
        gain: float = 1.0,
        noise: str = "normal",
        noise_scale: float = 1.0,
        stages: int = 1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.stages = whole_number("stages", stages)
        if self.stages > 1 and isinstance(self.density, keras.layers.Layer):
            raise ValueError(f"A network of one's own is for one stage. Received: stages={stages}")
        self.activation = activation_layer(activation, self.dtype_policy)
        self.use_bias = bool(use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.orthogonal = one_of("orthogonal", orthogonal, ORTHOGONAL)
        self.noise = one_of("noise", noise, ("normal", "uniform"))
        self.gain, self.noise_scale = positive("gain", gain), positive("noise_scale", noise_scale)
        if kernel_initializer is not None and self.gain != 1:
            raise ValueError(f"Give a kernel_initializer or a gain. Received: both, gain={gain}")

    def start_at(self, kernel: TensorLike, bias: TensorLike | None = None) -> Self:
        """Makes a layer that is not built yet start at given weights, those of an ordinary layer; returns the layer.

        Singular values that are next to zero are lifted, see `core.moments.lift`; `lifted` then says how many were, and
        how much the kernel changed, as a share of its norm.
        """
        if self.built:
            raise ValueError(f"{self.name} is built already. Call start_at before the layer is called.")
        self._start = (np.asarray(kernel, np.float64), bias if bias is None else np.asarray(bias))
        return self

    def build_linear(self, kernel_shape: Sequence[int]) -> None:
        """Adds the weights of the layer whose kernel has this shape, the units last."""
        features, units = math.prod(kernel_shape[:-1]), kernel_shape[-1] // self.groups
        left, log_singular, right, bias = self._decomposed(kernel_shape)
        self.right = self._add_rotation("right", features, right)
        rank = min(features, units)
        start = keras.initializers.Constant(math.log(self.gain)) if log_singular is None else constant(log_singular)
        shape = [rank] if self.groups == 1 else [self.groups, rank]
        self.log_singular = self.add_weight(name="log_singular", shape=shape, initializer=start)
        self.left = self._add_rotation("left", units, left)
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=kernel_shape[-1:],
                initializer=self.bias_initializer if bias is None else constant(bias),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _decomposed(self, shape):
        """V, log s, U and b that the layer starts at; None for what it starts at by chance or by its arguments."""
        if self._start is not None:
            (kernel, bias), self._start = self._start, None
            left, singular, right = singular_values(self._as_matrix(kernel.reshape(shape)))
            singular, self.lifted = lift(singular, *SINGULAR_RANGE)
            return left, np.log(singular), right, bias
        if self.kernel_initializer is None:
            return None, None, None, None
        left, singular, right = decompose(self._as_matrix(np.asarray(self.kernel_initializer(shape))))
        return left, np.log(singular), right, None

    def _add_rotation(self, name, size, matrix):
        if self.groups == 1:
            return add_rotation(self, name, size, matrix)
        return add_rotations(self, name, self.groups, size, matrix)

    def _as_matrix(self, kernel):
        """A kernel (..., units) as a matrix (features, units), or one for each group."""
        if self.groups == 1:
            return kernel.reshape(-1, kernel.shape[-1])
        return kernel.reshape(-1, self.groups, kernel.shape[-1] // self.groups).swapaxes(0, 1)

    def build_activation(self, input_shape: Shape) -> None:
        if self.activation is not None and not self.activation.built:
            self.activation.build(self.compute_output_shape(input_shape))

    def make_linear(self, densities: Densities) -> fb.FlowBijector:
        added = self.left.size - self.right.size
        scales = densities.add("log_noise_scale", [added], math.log(self.noise_scale)) if added > 0 else 0.0
        return self._linear(self.bias, scales, self.noise)

    def _linear(self, *arguments):
        """The bijector of vectors, over the weights of this layer."""
        return fb.Linear(self.right, self.log_singular, self.left, *arguments)

    def with_density(
        self, linear: fb.FlowBijector, given: Shape, densities: Densities, kind: str | None = None
    ) -> fb.FlowBijector:
        """The linear layer with a density for what it drops at each place of its output, of the shape `given`."""
        if not linear.residuals:
            return linear
        dropped, units = math.prod(linear.residuals[0].event_shape), given[-1]
        conditioners: list[Any] = []
        for size in stage_sizes(dropped, min(self.stages, dropped)):
            shape = (size,) if kind == "last" else (*given[:-1], size)
            conditioners.append(self.conditioner(densities, (*given[:-1], units), shape, kind))
            units += size
        if conditioners[0] is None:
            return linear
        if len(conditioners) == 1:
            return fb.Funnel(linear, conditioners[0], self.make_transform())
        return fb.StagedFunnel(linear, conditioners, self.make_transform())

    @property
    def kernel(self) -> tf.Tensor:
        """The weight matrix (features, units) of the ordinary layer, computed from the weights."""
        return tf.cast(self._linear().kernel, self.compute_dtype)

    def add_bias(self, z: tf.Tensor) -> tf.Tensor:
        return z if self.bias is None else z + tf.cast(self.bias, z.dtype)

    def activate(self, z: tf.Tensor) -> tf.Tensor:
        return z if self.activation is None else self.activation(z)

    def with_activation(self, bijector: fb.FlowBijector, densities: Densities) -> fb.FlowBijector:
        """The bijector with that of the activation behind it."""
        if self.activation is None:
            return bijector
        part = densities.add_part(self.activation)
        return fb.Sequential([bijector, self.activation.make_bijector(bijector.outputs[0], part)])


@register
class Dense(Linear):
    """z = x @ kernel + bias, on the last axis.

    In a flow, fewer units drop dimensions, with a density for them; more units add noise.

    Args:
      units: Number of features that go out.
      activation, use_bias: As in Keras, see `Linear`.
      **kwargs: See `Linear` and `Dropping`.

    >>> Dense(2)(tf.ones([5, 3])).shape.as_list()
    [5, 2]
    """

    def __init__(self, units: int, activation: str | Callable | None = None, use_bias: bool = True, **kwargs: Any):
        super().__init__(activation, use_bias, **kwargs)
        self.units = whole_number("units", units)

    def build(self, input_shape: Shape) -> None:
        self.build_linear((input_shape[-1], self.units))
        self.build_activation(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.activate(self.add_bias(keras.ops.matmul(x, self.kernel)))

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        return (*input_shape[:-1], self.units)

    def make_bijector(self, shape: Shape, densities: Densities) -> fb.FlowBijector:
        linear = self.with_density(self.make_linear(densities), (*shape[:-1], self.units), densities, kind="last")
        return self.with_activation(fb.bind(linear, shape), densities)
