"""A good start for training: scales and shifts of a flow are set by those of data, layer after layer."""

import warnings
from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify import transforms
from tfp_flowify.bijectors.binding import Bound
from tfp_flowify.bijectors.levels import cuts_for
from tfp_flowify.bijectors.orthogonal import random_orthogonal
from tfp_flowify.core.moments import moments, not_too_small, standardization, typical
from tfp_flowify.distributions import ConditionalNormal, DiagonalNormal
from tfp_flowify.layers.densities import Densities
from tfp_flowify.math.limits import LARGEST_LOG_SINGULAR, LEAST_LOG_SCALE

#: Noise is well above the floor of the scales of densities, so that those behind it can follow it.
LEAST_LOG_NOISE_SCALE = LEAST_LOG_SCALE + 2.5

#: Layers that fill what they add with noise.
_NOISY = (fb.Pad, fb.Unfold, fb.Widen, fb.Duplicate, fb.ReLU)


class Adapter:
    """Goes forward through a bijector and sets each layer on its way, before what is behind it sees its output.

    A layer that is used twice is set for its first use.

    Args:
      frozen: Variables that stay as they are.
      densities_only: Whether to set the weights of densities only.
      densities: Those of the flow.
      context: The context of the pass, with the condition of the data.
    """

    def __init__(
        self,
        frozen: Iterable[keras.Variable] = (),
        densities_only: bool = False,
        densities: Densities | None = None,
        context: fb.Context | None = None,
    ):
        self._context = context or fb.Context()
        self._frozen, self._done = {id(variable) for variable in frozen}, set()
        self._free = {id(variable) for variable in densities.variables} if densities_only else None
        self._keeps_network = densities_only  # Not inside a flow that is itself a density.
        self._signals = {}  # Typical deviations of what goes into layers that add noise, in a pass without any.
        self._scale = 0.0  # The typical deviation of what went into the layer in front.
        self._least = 0.0  # The least log-scale of a density.

    def measure(self, bijector: fb.FlowBijector, parts: list) -> list:
        """Measures what goes into layers that add noise, for `forward` to make their noise as large, and sets nothing.

        For a network that is left as it is, and parts without noise: where noise is as large as what goes in with the
        noise of layers before, it grows from layer to layer.
        """
        if isinstance(bijector, Bound):
            return self.measure(bijector.bijector, parts)
        if isinstance(bijector, fb.Graph):
            return bijector.walk(parts, lambda inside, taken: (self.measure(inside, taken), 0.0))[0]
        if isinstance(bijector, _NOISY):
            self._signals[id(bijector)] = typical(moments(parts[0], 0)[1])
        return self._values(bijector, parts)

    def forward(self, bijector: fb.FlowBijector, parts: list) -> list:
        """Sets a bijector, and returns what it then gives."""
        if isinstance(bijector, Bound):
            return self.forward(bijector.bijector, parts)
        if isinstance(bijector, fb.ShapedNoise):
            return self.forward(bijector.layer, bijector.shape_noise(parts, self._context)[0])
        if isinstance(bijector, fb.Graph) and (self._keeps_network or not isinstance(bijector, fb.Linear)):
            return bijector.walk(parts, lambda inside, taken: (self.forward(inside, taken), 0.0))[0]
        if isinstance(bijector, fb.WhitenByFlow):
            return self._forward_by_flow(bijector, *parts)
        if not isinstance(bijector, fb.Whiten):
            self._scale = typical(moments(parts[0], 0)[1])
        if id(bijector) in self._signals:
            log_scale = np.log(self._signals[id(bijector)] or 1.0)
            self._assign(bijector.log_noise_scale, max(log_scale, LEAST_LOG_NOISE_SCALE))
        if isinstance(bijector, fb.Linear | fb.FourierConv2D):
            self._set_linear(bijector, parts)
        elif isinstance(bijector, fb.Diagonal):
            self._set_diagonal(bijector, parts[0])
        elif isinstance(bijector, fb.Whiten):
            self._set_whiten(bijector, parts[1])
        elif isinstance(bijector, fb.ConditionalTransform):
            self._set_whiten(bijector, parts[0])
        elif isinstance(bijector, fb.ReLU):
            self._set_relu(bijector, parts[0])
        elif isinstance(bijector, fb.Stochastic):
            self._set_noise(bijector, parts)
        elif isinstance(bijector, fb.Subsample | fb.Spread):
            self._set_levels(bijector.levels_of, parts[0])
        return self._values(bijector, parts)

    def _forward_by_flow(self, whiten, given, *rest):
        """Sets a flow that is the density of a part, at the condition that the other part is."""
        if whiten.embed is not None:
            whiten.embed.adapt(given)
        before = self._context, self._keeps_network
        self._context, self._keeps_network = whiten.context_for(given, self._context), False
        residuals = self.forward(whiten.net, rest)
        self._context, self._keeps_network = before
        return [given, *residuals]

    def set_base(self, base: ConditionalNormal | DiagonalNormal, z: tf.Tensor) -> None:
        """Sets a base to the mean and deviation of the network's output."""
        if isinstance(base, ConditionalNormal):
            self._set_whiten(base.whiten, z)
            return
        mean, deviation = moments(z, len(base.loc.shape))
        self._assign(base.loc, mean)
        self._assign(base.log_scale, np.log(not_too_small(deviation)))

    def warn_of_small_units(self) -> None:
        """Warns where the data are in such units that densities would start at the floor of their scales."""
        if self._least < LEAST_LOG_SCALE + 1:
            warnings.warn(
                f"Some dropped values deviate by {np.exp(self._least):.1g}, and scales of densities have a floor of "
                f"{np.exp(LEAST_LOG_SCALE):.1g}: likelihoods would be too low. Put Normalization() in front.",
                stacklevel=4,
            )

    def _may_set(self, weight, trained=True) -> bool:
        """Whether a weight is a variable that is not frozen; those with `trained=False` are not trained by design."""
        if not hasattr(weight, "assign") or id(weight) in self._frozen or (trained and not weight.trainable):
            return False
        return self._free is None or id(weight) in self._free

    def _assign(self, weight, value):
        if self._may_set(weight):
            weight.assign(np.broadcast_to(value, weight.shape))

    def _set_linear(self, linear, parts):
        """Gives a layer outputs of mean zero, and unit variance in each direction that comes from the input.

        The singular values of a Fourier convolution are the exponential of a kernel's transform: all are scaled by its
        value at the origin.
        """
        scales = linear.log_singular
        if not self._may_set(scales) or id(scales) in self._done:
            return
        self._done.add(id(scales))
        if isinstance(linear, fb.Linear):
            self._turn(linear, parts[0])
        self._assign(linear.bias, 0.0)
        signal = [parts[0], *map(tf.zeros_like, parts[1:])]
        z = np.asarray(self._values(linear, signal)[0], np.float64)
        variance = z.reshape(-1, z.shape[-1]).var(axis=0).sum() / scales.shape[-1]
        if variance > 0:
            before, added = np.asarray(tf.convert_to_tensor(scales)), np.zeros(scales.shape)
            step = -0.5 * np.log(variance)
            if isinstance(linear, fb.Linear):
                step = _within_limits(step, before)
            added[tuple(size // 2 for size in scales.shape[:-1])] = step
            self._assign(scales, before + added)
            z = z * np.exp(step)
        self._assign(linear.bias, -z.reshape(-1, z.shape[-1]).mean(axis=0))

    def _turn(self, linear, x):
        """Turns a layer that drops dimensions, so that it drops those in which the data vary least."""
        right = linear.right
        if linear.left.size < right.size and self._may_set(right.start, trained=False):
            turned = right.matrix().numpy()  # start @ rest
            axes = _principal_axes(np.asarray(x, np.float64).reshape(-1, right.size), linear.left.size)
            right.start.assign(axes @ turned.T @ tf.convert_to_tensor(right.start).numpy())

    def _set_diagonal(self, diagonal, x):
        """Gives channels mean zero and unit variance, where both weights are variables: `Normalization`."""
        weights = (diagonal.log_scale, diagonal.shift)
        if diagonal.sign is None and all(self._may_set(weight, trained=False) for weight in weights):
            shift, log_scale = standardization(x, len(diagonal.inputs[0]))
            diagonal.shift.assign(shift)
            diagonal.log_scale.assign(log_scale)

    def _set_whiten(self, whiten, dropped):
        """Sets the constant of a conditioner that is still constant to the mean and deviation of what is dropped.

        A convolutional conditioner has one constant for all places, so they are taken together.
        """
        conditioner, size = whiten.conditioner, whiten.transform.size
        first = whiten.transform.transforms[0] if isinstance(whiten.transform, transforms.Stack) else whiten.transform
        bias = _bias_of_constant(conditioner)
        if not self._may_set(bias) or not isinstance(first, transforms.Standardize) or bias.shape[0] % size:
            return
        values, slots = np.asarray(dropped, np.float64), bias.shape[0] // size
        values = conditioner.spread(values) if hasattr(conditioner, "spread") else values
        if values[0].size % slots:
            return
        parameters, values = np.zeros([slots, size]), values.reshape(-1, slots)
        seen = ~np.isnan(values).all(axis=0)  # A cell may be off the image in all windows.
        values = values[:, seen]
        if first.shift:
            mean, deviation = moments(values)
            parameters[seen, 0], parameters[seen, 1] = mean, np.log(not_too_small(deviation, self._scale))
        else:
            parameters[seen, 0] = np.log(not_too_small(np.sqrt(np.nanmean(values**2, axis=0)), self._scale))
        self._least = min(self._least, parameters[:, first.size - 1].min())
        bias.assign(parameters.reshape(-1))

    def _set_noise(self, stochastic, parts):
        """Sets the scale of the noise to its share of the deviation of what the noise is added to."""
        if stochastic.noise_share is None or not self._may_set(stochastic.log_noise_scale):
            return
        x, noise = parts
        value = self._values(stochastic, [x, tf.zeros_like(noise)])[0]
        deviation = not_too_small(moments(value, len(stochastic.log_noise_scale.shape))[1])
        stochastic.log_noise_scale.assign(np.log(stochastic.noise_share * deviation))

    def _set_relu(self, relu, x):
        """Sets the scale of each channel to the root mean square of x where it is negative."""
        log_scale = getattr(relu.log_scale, "bias", relu.log_scale)
        if self._may_set(log_scale):
            x = np.asarray(x, np.float64).reshape(-1, *relu.inputs[0])
            squares = np.sum(np.minimum(x, 0) ** 2, axis=0) / np.maximum(np.sum(x < 0, axis=0), 1)
            log_scale.assign(np.log(not_too_small(np.sqrt(squares))))

    def _set_levels(self, levels, x):
        """Sets the cuts between levels so that each level has the share that it has in the data."""
        channels = np.asarray(x, np.int64).reshape(-1, levels.channels).T
        first_cut, log_gaps = cuts_for([np.bincount(values, minlength=levels.count) for values in channels])
        self._assign(levels.first_cut, first_cut)
        self._assign(levels.log_gaps, log_gaps)

    def _values(self, bijector, parts):
        return bijector.forward_and_log_det(parts, self._context)[0]


def _within_limits(step, log_singular) -> float:
    """A step that takes no singular value beyond its limits; with a warning where it is another than the given one."""
    within = np.clip(step, -LARGEST_LOG_SINGULAR - log_singular.min(), LARGEST_LOG_SINGULAR - log_singular.max())
    if abs(within - step) > 1e-3:
        warnings.warn(
            f"What goes into a linear layer deviates by {np.exp(-step):.1g}, beyond what its singular values reach. "
            "Put Normalization() in front.",
            stacklevel=2,
        )
    return float(within)


def _principal_axes(x, kept):
    """Orthonormal rows, in the order of the variance of the data along them.

    A few examples tell a few axes, a quarter of their number at most. The others are random: along those in which the
    examples vary least, of which they know nothing, other data would vary far more.
    """
    x = x - x.mean(axis=0)
    count, size = x.shape
    if count >= 4 * size:
        return np.linalg.eigh(x.T @ x)[1].T[::-1]
    axes, known = np.linalg.svd(x)[2], min(kept, count // 4)
    return np.vstack([axes[:known], random_orthogonal(size - known, seed=0) @ axes[known:]])


def _bias_of_constant(conditioner):
    """The constant that a conditioner gives: its bias, or the last one of a network whose last kernel is zero; or None.

    The networks of fresh densities are such.
    """
    while not isinstance(conditioner, keras.layers.Layer):
        if conditioner is None or hasattr(conditioner, "bias"):
            return getattr(conditioner, "bias", None)
        conditioner = getattr(conditioner, "layer", None) or getattr(conditioner, "conditioner", None)
    last = conditioner.layers[-1] if isinstance(conditioner, keras.Model) and conditioner.layers else conditioner
    kernel, bias = getattr(last, "kernel", None), getattr(last, "bias", None)
    return None if bias is None or kernel is None or np.any(keras.ops.convert_to_numpy(kernel)) else bias
