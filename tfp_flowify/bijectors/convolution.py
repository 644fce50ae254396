"""Convolutions: a linear layer on every patch, behind padding and unfolding."""

import math
import numbers
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfp_flowify.bijectors.base import FlowBijector, check_layer
from tfp_flowify.bijectors.conditional import Funnel, StagedFunnel
from tfp_flowify.bijectors.context import Context
from tfp_flowify.bijectors.graph import Sequential
from tfp_flowify.bijectors.linear import Linear
from tfp_flowify.bijectors.orthogonal import multiply
from tfp_flowify.bijectors.padding import Pad
from tfp_flowify.bijectors.unfold import Unfold
from tfp_flowify.core.types import Shape, TensorLike
from tfp_flowify.math.patches import Patches

#: Larger patches cost less as factors, whose reflections take n k operations each in place of n^2.
LARGEST_WHOLE = 256


class PatchLinear(Sequential):
    """`Unfold` and a `Linear` layer on every patch, forward as one convolution.

    With W the whole matrix of the linear layer, of all its factors, the convolution is linear in pixels and noise:

        forward: [x, noise, added] -> conv(x, W) + sqrt(N) a noise W + added W' + [b, 0] = [z, dropped]

    so no patches of x are cut out, and there is one product for each place. The inverse goes through the factors.
    Shapes: [(*sides, c), (*places, n), (*places, m - n)] -> [(*places, m), (*places, n - m)].

    Args:
      unfold: An `Unfold` that sees all pixels.
      linear: The `Linear` layer.

    >>> layer = PatchLinear(Unfold(Patches((4, 4, 1), (2, 2), (2, 2))), Linear.create(4, 3, seed=0))
    >>> [tuple(part.shape) for part in layer.forward(tf.ones([5, 4, 4, 1]))]
    [(5, 2, 2, 3), (5, 2, 2, 1)]
    """

    def __init__(self, unfold: Unfold, linear: Linear, name: str | None = None) -> None:
        self.unfold, self.linear = unfold, linear
        super().__init__([unfold, linear], name=name)

    @staticmethod
    def is_for(patches: Patches, linear: FlowBijector) -> bool:
        """Whether it can be made of these, and costs less than they do one after the other."""
        is_small = isinstance(linear, Linear) and max(linear.right.size, linear.left.size) <= LARGEST_WHOLE
        return is_small and patches.can_convolve and not len(patches.uncovered)

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        image, *noise = parts
        matrix, log_det = self.linear.whole(context)
        of_patches, of_added = matrix[: self.linear.right.size], matrix[self.linear.right.size :]
        z = self.unfold.patches.convolve(image, of_patches)
        if self.unfold.noise:
            z += multiply(self.unfold.noise_factor() * noise.pop(0), of_patches)
        if self.linear.noise:
            z += multiply(noise.pop(0), of_added)
        units = self.outputs[0][-1]  # Slices: behind a split, XLA for CPUs gave some kernels wrong gradients.
        kept, dropped = z[..., :units], [z[..., units:]] if self.residuals else []
        kept = kept if self.linear.bias is None else kept + self.linear.bias
        return [kept, *dropped], self.unfold.log_det() + math.prod(self.outputs[0][:-1]) * log_det


class Conv(Sequential):
    """A convolution: `Pad`, `Unfold`, then the same linear layer on every patch.

        forward: [x, *noise] -> [z, *residuals],  log_det = the sum of the three.

    With noise zero it is the Keras layer with the same kernel, strides and padding. Exact where no patches overlap, no
    border is added and the linear layer adds no units; else a bound.
    Shapes: (..., *sides, c) -> (..., *places, filters), beside noise and residuals: a sequence has one side, a picture
    two, a volume three.

    Args:
      image_shape: (*sides, c).
      linear: A bijector (kernel * c,) -> (filters,): `Linear`, or `Funnel` of one.
      kernel_size, strides: A number, or one for each side.
      padding: "valid", "same" or "causal".
      dilation: Distance between neighbouring cells of a patch: a number, or one for each side.
      log_noise_scale: log a of the repetition, a scalar.
      log_pad_scale: log a of the border, a scalar.
      noise: "normal" or "uniform".

    >>> conv = Conv((4, 4, 1), Linear.create(4, 2, seed=0), kernel_size=2, strides=2)
    >>> [tuple(part.shape) for part in conv.forward(tf.ones([5, 4, 4, 1]))]
    [(5, 2, 2, 2), (5, 2, 2, 2)]
    """

    def __init__(
        self,
        image_shape: Shape,
        linear: FlowBijector,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        log_noise_scale: TensorLike = 0.0,
        log_pad_scale: TensorLike = 0.0,
        noise: str = "normal",
        dilation: int | Sequence[int] = 1,
        name: str | None = None,
    ) -> None:
        check_layer(linear, "Conv")
        ndims, dtype = len(image_shape) - 1, linear.dtype
        size, strides, dilation = (per_side(value, ndims) for value in (kernel_size, strides, dilation))
        self.linear, self.kernel_size = linear, size
        wanted = math.prod(size) * image_shape[-1]
        if linear.inputs[0] != (wanted,):
            raise ValueError(
                f"The linear layer of a convolution with kernel_size={size} over {image_shape[-1]} channels takes "
                f"{wanted} features. Received: {linear.inputs[0]}"
            )
        patches = Patches(image_shape, size, strides, padding, dilation)
        layers: list[FlowBijector] = []
        if any(sum(pair) for pair in patches.border):
            layers.append(Pad(image_shape, patches.border, log_pad_scale, noise, dtype))
            patches = Patches(layers[0].outputs[0], size, strides, dilation=dilation)
        self.unfold = Unfold(patches, log_noise_scale, noise, dtype)
        inner = linear.layer if isinstance(linear, Funnel | StagedFunnel) else linear
        if PatchLinear.is_for(patches, inner):
            whole = PatchLinear(self.unfold, inner)
            layers.append(whole if inner is linear else linear.copy(layer=whole))
        else:
            layers += [self.unfold, linear]
        super().__init__(layers, name=name)

    @classmethod
    def from_weights(
        cls,
        image_shape: Shape,
        kernel: TensorLike,
        bias: TensorLike | None = None,
        orthogonal_kind: str = "expm",
        noise: str = "normal",
        dtype: tf.DType | str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Takes over an ordinary layer: kernel (*kernel_size, channels, filters) as in Keras, bias (filters,).

        The parameters become trainable variables that start there exactly; the scales of the noise start at one.
        """
        kernel = np.asarray(kernel)
        linear = Linear.from_weights(kernel.reshape(-1, kernel.shape[-1]), bias, orthogonal_kind, noise, dtype=dtype)
        return cls(image_shape, linear, kernel.shape[:-2], noise=noise, **{**_free_scales(linear.dtype), **kwargs})

    @property
    def adds_border(self) -> bool:
        """Whether padding adds noise, of scale `log_pad_scale`."""
        return any(isinstance(bijector, Pad) for bijector in self.bijectors)

    @property
    def unseen(self) -> int:
        """The number of pixels that no patch sees: they are the first residual."""
        return len(self.unfold.patches.uncovered)

    @property
    def repeats_pixels(self) -> bool:
        """Whether patches overlap, so that there is noise of scale `log_noise_scale`."""
        return bool(self.unfold.noise)

    @property
    def kernel(self) -> tf.Tensor:
        """The kernel of the ordinary layer, (*kernel_size, channels, filters)."""
        matrix = getattr(self.linear, "layer", self.linear).kernel
        return tf.reshape(matrix, [*self.kernel_size, -1, matrix.shape[-1]])

    @property
    def bias(self) -> tf.Tensor | tf.Variable | None:
        """The bias of the ordinary layer, (filters,), or None."""
        return getattr(self.linear, "layer", self.linear).bias


#: The names that Keras has for one and for two sides.
Conv1D = Conv2D = Conv


def _free_scales(dtype):
    return {name: tf.Variable(0.0, dtype=dtype, name=name) for name in ("log_noise_scale", "log_pad_scale")}


def per_side(value: int | Sequence[int], ndims: int) -> tuple[int, ...]:
    """A number for each of some sides, or one for all."""
    return (int(value),) * ndims if isinstance(value, numbers.Integral) else tuple(value)  # type: ignore[arg-type]
