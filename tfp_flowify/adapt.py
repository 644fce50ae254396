"""A sane start: scales and shifts of a flow set by those of data, layer after layer."""

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.checks import as_list, bundle


class Adapter:
    """Goes forward through a bijector and sets each layer on its way, before what is behind it sees its output.

    Weights that are not trainable stay, and a layer that is used twice is set for its first use.

    Args:
      network: whether to change the weights of the network too, or those of densities only.
    """

    def __init__(self, network=True):
        self.network, self._done = network, set()

    def forward(self, bijector, parts) -> list:
        """What the bijector gives, once it is set."""
        if isinstance(bijector, fb.Linear | fb.FourierConv2D):
            self._set_linear(bijector, parts)
        elif isinstance(bijector, fb.Diagonal):
            self._set_diagonal(bijector, parts[0])
        elif isinstance(bijector, fb.Whiten):
            self._set_whiten(bijector, parts[1])
        elif isinstance(bijector, fb.ReLU):
            self._set_relu(bijector, parts[0])
        elif isinstance(bijector, fb.Graph):
            return as_list(bijector.walk(bundle(parts), self._step)[0])
        return as_list(bijector.forward_and_log_det(bundle(parts))[0])

    def set_base(self, base, z):
        """The mean and deviation of the network's output."""
        mean, deviation = _moments(z, len(base.loc.shape))
        _assign(base.loc, mean)
        _assign(base.log_scale, np.log(deviation))

    def _step(self, step, parts):
        return self.forward(step.bijector, parts), 0.0

    def _set_linear(self, linear, parts):
        """Outputs of mean zero; the part of them that comes from the input has unit variance in each of its directions.

        The singular values of a Fourier convolution are the exponential of a kernel's transform: all are scaled by its
        value at the origin.
        """
        scales = linear.log_singular
        if not self.network or not _trainable(scales) or id(scales) in self._done:
            return
        self._done.add(id(scales))
        if isinstance(linear, fb.Linear):
            self._turn(linear, parts[0])
        _assign(linear.bias, 0.0)
        signal = [parts[0], *map(tf.zeros_like, parts[1:])]
        z = np.asarray(as_list(linear.forward_and_log_det(bundle(signal))[0])[0], np.float64)
        variance = z.reshape(-1, z.shape[-1]).var(axis=0).sum() / scales.shape[-1]
        if variance > 0:
            origin = np.zeros(scales.shape)
            origin[tuple(size // 2 for size in scales.shape[:-1])] = -0.5 * np.log(variance)
            _assign(scales, np.asarray(tf.convert_to_tensor(scales)) + origin)
            z = z / np.sqrt(variance)
        _assign(linear.bias, -z.reshape(-1, z.shape[-1]).mean(axis=0))

    def _turn(self, linear, x):
        """Where dimensions are dropped, they are those in which the data vary least: the last principal axes."""
        right = linear.right
        if linear.left.size < right.size and hasattr(right.base, "assign"):
            turned = right.matrix().numpy()  # base @ rest
            axes = _principal_axes(np.asarray(x, np.float64).reshape(-1, right.size), linear.left.size)
            right.base.assign(axes @ turned.T @ np.asarray(right.base))

    def _set_diagonal(self, diagonal, x):
        """Channels of mean zero and unit variance, where both weights are variables: `Normalization`."""
        both = [diagonal.log_scale, diagonal.shift]
        if self.network and all(hasattr(weight, "assign") for weight in both):
            x = np.asarray(x, np.float64)
            axes = tuple(range(x.ndim - len(diagonal.inputs[0])))
            mean, deviation = x.mean(axes), x.std(axes)
            deviation = np.where(deviation > 1e-6 * np.abs(mean), deviation, 1.0)  # Columns may differ by any factor.
            diagonal.log_scale.assign(-np.log(deviation))
            diagonal.shift.assign(-mean / deviation)

    def _set_whiten(self, whiten, dropped):
        """The mean and deviation of what is dropped, as the constant part of a conditioner that is still constant.

        A convolutional conditioner has one constant for all places, so they are taken together.
        """
        conditioner, size = whiten.conditioner, whiten.transform.size
        first = whiten.transform.transforms[0] if isinstance(whiten.transform, fb.Stack) else whiten.transform
        bias = _bias_of_constant(conditioner)
        if not _trainable(bias) or not isinstance(first, fb.Affine | fb.Scale) or bias.shape[0] % size:
            return
        values, slots = np.asarray(dropped, np.float64), bias.shape[0] // size
        values = conditioner.spread(values) if hasattr(conditioner, "spread") else values
        if values[0].size % slots:
            return
        parameters = np.zeros([slots, size])
        if isinstance(first, fb.Affine):
            mean, deviation = _moments(values.reshape(-1, slots))
            parameters[:, 0], parameters[:, 1] = mean, np.log(deviation)
        else:
            parameters[:, 0] = np.log(_floored(np.sqrt(np.nanmean(values.reshape(-1, slots) ** 2, axis=0))))
        bias.assign(parameters.reshape(-1))

    def _set_relu(self, relu, x):
        """The root mean square of x where it is negative, for each channel."""
        if _trainable(relu.log_scale):
            x = np.asarray(x, np.float64).reshape(-1, *relu.inputs[0])
            squares = np.sum(np.minimum(x, 0) ** 2, axis=0) / np.maximum(np.sum(x < 0, axis=0), 1)
            relu.log_scale.assign(np.log(_floored(np.sqrt(squares))))


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
    return np.vstack([axes[:known], fb.random_orthogonal(size - known, seed=0) @ axes[known:]])


def _trainable(weight) -> bool:
    return hasattr(weight, "assign") and weight.trainable


def _assign(weight, value):
    if _trainable(weight):
        weight.assign(np.broadcast_to(value, weight.shape))


def _moments(x, event_ndims=1):
    """Mean and deviation over all axes in front."""
    x = np.asarray(x, np.float64)
    axes = tuple(range(x.ndim - event_ndims))
    return np.nanmean(x, axes), _floored(np.nanstd(x, axes))


def _floored(deviation):
    """What hardly varies in the data is given a hundredth of what the rest does: it may vary more in others."""
    typical = np.sqrt(np.mean(np.square(deviation)))
    return np.maximum(deviation, 0.01 * typical) if typical > 0 else np.ones_like(deviation)


def _bias_of_constant(conditioner):
    """The constant that a conditioner gives: its bias, or the last one of a network whose last kernel is zero; or None.

    The networks of fresh densities are such.
    """
    while conditioner is not None and not isinstance(conditioner, keras.Model):
        if hasattr(conditioner, "bias"):
            return conditioner.bias
        conditioner = getattr(conditioner, "network", None) or getattr(conditioner, "conditioner", None)
    last = conditioner.layers[-1] if conditioner is not None and conditioner.layers else None
    kernel, bias = getattr(last, "kernel", None), getattr(last, "bias", None)
    return None if bias is None or kernel is None or np.any(keras.ops.convert_to_numpy(kernel)) else bias
