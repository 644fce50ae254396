"""A sane start: scales and shifts of a flow set by those of data, layer after layer."""

import keras
import numpy as np
import tensorflow as tf

from tfp_flowify import bijectors as fb
from tfp_flowify.bijectors.checks import as_list, bundle


def adapt_bijector(bijector, parts, network=True):
    """Goes forward and sets each layer on its way, before what is behind it sees its output.

    Args:
      bijector: of a flow; eager, with variables for parameters.
      parts: data and noise.
      network: whether to change the weights of the network too, or those of densities only.

    Returns:
      what the bijector gives now, as a list of parts.
    """
    if isinstance(bijector, fb.Linear):
        if network:
            _adapt_linear(bijector, parts)
    elif isinstance(bijector, fb.Diagonal):
        if network:
            _adapt_diagonal(bijector, parts[0])
    elif isinstance(bijector, fb.Whiten):
        _adapt_whiten(bijector, *parts)
    elif isinstance(bijector, fb.ReLU):
        _adapt_relu(bijector, parts[0])
    elif isinstance(bijector, fb.Graph):
        run = lambda step, taken: (adapt_bijector(step.bijector, taken, network), 0.0)  # noqa: E731
        return as_list(bijector.walk(bundle(parts), run)[0])
    return as_list(bijector.forward_and_log_det(bundle(parts))[0])


def adapt_base(base, z):
    """The mean and deviation of the network's output."""
    mean, variance = _moments(z, z.shape.rank - 1)
    base.loc.assign(mean)
    base.log_scale.assign(0.5 * np.log(variance + 1e-12))


def _adapt_linear(linear, parts):
    """Outputs of mean zero; the part of them that comes from the input has unit variance in each of its directions."""
    if linear.bias is not None:
        linear.bias.assign(tf.zeros_like(linear.bias))
    signal = [parts[0], *map(tf.zeros_like, parts[1:])]
    mean, variance = _moments(as_list(linear.forward_and_log_det(bundle(signal))[0])[0])
    scale = 1 / np.sqrt(variance.sum() / linear.log_singular.shape[0] + 1e-12)
    linear.log_singular.assign_add(tf.fill(linear.log_singular.shape, tf.cast(np.log(scale), linear.dtype)))
    if linear.bias is not None:
        linear.bias.assign(-mean * scale)


def _adapt_diagonal(diagonal, x):
    """Channels of mean zero and unit variance, where both weights are variables: `Normalization`."""
    if hasattr(diagonal.log_scale, "assign") and hasattr(diagonal.shift, "assign"):
        mean, variance = _moments(x)
        scale = 1 / np.sqrt(variance + 1e-12)
        diagonal.log_scale.assign(np.log(scale))
        diagonal.shift.assign(-mean * scale)


def _adapt_whiten(whiten, given, dropped):
    """The mean and deviation of what is dropped, as the constant part of a conditioner that is still constant."""
    bias = _bias_of_constant(whiten.conditioner)
    first = whiten.transform.transforms[0] if isinstance(whiten.transform, fb.Stack) else whiten.transform
    if bias is None or not isinstance(first, fb.Affine | fb.Scale):
        return
    mean, variance = _moments(dropped, len(whiten.inputs[1]))
    parameters = np.zeros([*mean.shape, whiten.transform.size])
    if isinstance(first, fb.Affine):
        parameters[..., 0], parameters[..., 1] = mean, 0.5 * np.log(variance + 1e-12)
    else:
        parameters[..., 0] = 0.5 * np.log(variance + mean**2 + 1e-12)
    if parameters.size % bias.shape[0] == 0:
        bias.assign(parameters.reshape(-1, bias.shape[0]).mean(axis=0))


def _adapt_relu(relu, x):
    """The root mean square of x where it is negative, for each channel."""
    x = np.asarray(x, np.float64).reshape(-1, *relu.inputs[0])
    squares = np.sum(np.minimum(x, 0) ** 2, axis=0) / np.maximum(np.sum(x < 0, axis=0), 1)
    relu.log_scale.assign(0.5 * np.log(np.where(squares > 0, squares, 1.0)))


def _moments(x, event_ndims=1):
    x = np.asarray(x, np.float64)
    axes = tuple(range(x.ndim - event_ndims))
    return x.mean(axes), x.var(axes)


def _bias_of_constant(conditioner):
    """The last bias of a network whose last kernel is zero, as those of fresh densities are; else None."""
    while conditioner is not None and not isinstance(conditioner, keras.Model):
        conditioner = getattr(conditioner, "network", None) or getattr(conditioner, "conditioner", None)
    last = conditioner.layers[-1] if conditioner is not None else None
    kernel, bias = getattr(last, "kernel", None), getattr(last, "bias", None)
    return bias if bias is not None and not np.any(keras.ops.convert_to_numpy(kernel)) else None
