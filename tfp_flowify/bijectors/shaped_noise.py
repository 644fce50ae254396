"""Noise whose mean and deviation depend on the data and on the condition."""

import math
from collections.abc import Sequence

import tensorflow as tf

from tfp_flowify import transforms
from tfp_flowify.augmentation import Augmentation, Code, OrthogonalNormal, OrthogonalUniform
from tfp_flowify.bijectors.base import FlowBijector, check_layer
from tfp_flowify.bijectors.conditional import parameters_for
from tfp_flowify.bijectors.context import Context, InContext
from tfp_flowify.core.checks import sum_over
from tfp_flowify.core.types import TensorFunction, TensorLike
from tfp_flowify.math.limits import floored


class ShapedNoise(FlowBijector):
    """A layer whose noise has a mean and a deviation that depend on its input, and on the condition where there is one.

        forward: [h, *noise] -> layer([h, *(loc_i(h) + scale_i(h) noise_i)])
        log_det = that of the layer, and sum log scale_i(h)

    With noise at zero it is the ordinary layer: `without_noise` leaves the map of the noise out. Orthogonal noise, of
    overlapping patches, stays in its space: its mean is projected there, and all copies of a pixel share a scale.

    Args:
      layer: A layer with noise.
      conditioners: For each part of its noise, a function of its first input, or None to leave that part as it is. It
        gives a mean and a log-scale for each entry; for orthogonal noise `noise_numbers` many: a mean for each entry of
        the patches, then a log-scale for each entry of the image.

    >>> from tfp_flowify.bijectors import Widen
    >>> shaped = ShapedNoise(Widen(1, 2), [lambda h: tf.concat([h, 0 * h], axis=-1)])  # loc and log-scale
    >>> shaped.forward([[3.0], [0.5]]).numpy().tolist(), shaped.without_noise([3.0]).numpy().tolist()
    ([3.0, 3.5], [3.0, 0.0])
    """

    def __init__(
        self, layer: FlowBijector, conditioners: Sequence[TensorFunction | InContext | None], name: str | None = None
    ) -> None:
        check_layer(layer, "ShapedNoise")
        if layer.levels is not None:
            raise ValueError(f"The noise of {layer.name} must stay within a level, so it cannot be shaped.")
        if len(conditioners) != len(layer.noise) or not layer.noise:
            raise ValueError(
                f"ShapedNoise takes a conditioner for each part of the noise of {layer.name}, of which there are "
                f"{len(layer.noise)}. Received: {len(conditioners)}"
            )
        for noise, conditioner in zip(layer.noise, conditioners, strict=True):
            if isinstance(noise, Code) and conditioner is not None:
                raise ValueError(f"A Code of {layer.name} carries a choice and cannot be shaped: give None for it.")
        self.layer, self.conditioners = layer, list(conditioners)
        pairs = zip(layer.noise, conditioners, strict=True)
        self._maps = [None if c is None else _map_of(noise)(noise, c, f"noise of {layer.name}") for noise, c in pairs]
        super().__init__(
            layer.inputs, layer.outputs, layer.noise, layer.residuals, layer.dtype, name or f"ShapedNoise_{layer.name}"
        )
        self.is_onto = layer.is_onto

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        if context.without_noise:
            return self.layer.forward_and_log_det(parts, context)
        shaped, log_scale = self.shape_noise(parts, context)
        results, log_det = self.layer.forward_and_log_det(shaped, context)
        return results, log_det + log_scale

    def shape_noise(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The parts that the layer inside takes, with noise of its mean and deviation; and the log-det of that."""
        count = len(self.inputs)
        noise, log_scale = self._mapped("forward", parts[0], parts[count:], context)
        return [*parts[:count], *noise], log_scale

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        count = len(self.inputs)
        results, log_det = self.layer.inverse_and_log_det(parts, context)
        noise, log_scale = self._mapped("inverse", results[0], results[count:], context)
        return [*results[:count], *noise], log_det + log_scale

    def _mapped(self, direction, given, noise, context):
        """Noise on the other side of the maps, and the sum of their log-dets."""
        mapped, total = [], tf.zeros([], given.dtype)
        for part, noise_map in zip(noise, self._maps, strict=True):
            log_det = 0.0
            if noise_map is not None:
                parameters = context.run(noise_map.conditioner, given)
                part, log_det = getattr(noise_map, direction)(part, parameters, given, len(self.inputs[0]))
            mapped.append(part)
            total += log_det
        return mapped, total


def noise_numbers(noise: Augmentation) -> int:
    """How many numbers describe the mean and the deviation of a part of noise; none for a `Code`."""
    return 0 if isinstance(noise, Code) else _map_of(noise).numbers(noise)


def _map_of(noise):
    return _OrthogonalMap if isinstance(noise, OrthogonalNormal | OrthogonalUniform) else _Map


class _Map(tf.Module):
    """loc + scale noise, entry by entry."""

    transform = transforms.Standardize()

    def __init__(self, noise: Augmentation, conditioner: TensorFunction | InContext, name: str) -> None:
        super().__init__()
        self.title = name
        self.shape, self.conditioner = tuple(noise.event_shape), conditioner

    @staticmethod
    def numbers(noise: Augmentation) -> int:
        return 2 * math.prod(noise.event_shape)

    def forward(
        self, noise: tf.Tensor, parameters: TensorLike, given: tf.Tensor, given_ndims: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self._run(self.transform.inverse, noise, parameters, given, given_ndims)

    def inverse(
        self, noise: tf.Tensor, parameters: TensorLike, given: tf.Tensor, given_ndims: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self._run(self.transform.forward, noise, parameters, given, given_ndims)

    def _run(self, function, noise, parameters, given, given_ndims):
        noise, log_slope = function(
            noise, parameters_for(self.title, self.transform, parameters, given, given_ndims, self.shape)
        )
        return noise, sum_over(log_slope, self.shape)


class _OrthogonalMap(_Map):
    """The same in the space of patches whose copies of a pixel sum to zero."""

    def __init__(
        self, noise: OrthogonalNormal | OrthogonalUniform, conditioner: TensorFunction | InContext, name: str
    ) -> None:
        super().__init__(noise, conditioner, name)
        self.patches, self.prefix = noise.patches, noise.prefix

    @staticmethod
    def numbers(noise: Augmentation) -> int:
        return math.prod(noise.event_shape) + math.prod((*noise.prefix, *noise.patches.image_shape))

    def forward(
        self, noise: tf.Tensor, parameters: TensorLike, given: tf.Tensor, given_ndims: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        loc, log_scale = self._parts(parameters, given, given_ndims)
        return loc + noise * self.patches.extract(tf.exp(log_scale)), self._log_det(log_scale)

    def inverse(
        self, noise: tf.Tensor, parameters: TensorLike, given: tf.Tensor, given_ndims: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        loc, log_scale = self._parts(parameters, given, given_ndims)
        return (noise - loc) * self.patches.extract(tf.exp(-log_scale)), -self._log_det(log_scale)

    def _parts(self, parameters, given, given_ndims):
        batch = tf.shape(given)[: given.shape.rank - given_ndims]
        image = (*self.prefix, *self.patches.image_shape)
        flat = tf.reshape(parameters, tf.concat([batch, [-1]], axis=0))
        loc, log_scale = tf.split(flat, [math.prod(self.shape), math.prod(image)], axis=-1)
        loc = tf.reshape(loc, tf.concat([batch, self.shape], axis=0)) * self.patches.mask
        return (
            loc - self.patches.extract(self.patches.overlap_mean(loc)),
            floored(tf.reshape(log_scale, tf.concat([batch, image], axis=0))),
        )

    def _log_det(self, log_scale):
        directions = tf.maximum(tf.constant(self.patches.overlap_counts[..., None] - 1, log_scale.dtype), 0)
        axes = len(self.prefix) + self.patches.ndims + 1
        return tf.reduce_sum(log_scale * directions, axis=list(range(-axes, 0)))
