"""Shapes: what moves entries about, repeats them, adds some and drops some; and what is not there at inference."""

import math

import keras

from tfp_flowify import layers as fl
from tfp_flowify.conversion.converters.axes import channels_last, sides
from tfp_flowify.conversion.registry import register_layer

kl = keras.layers


@register_layer(
    kl.Dropout, kl.SpatialDropout1D, kl.SpatialDropout2D, kl.SpatialDropout3D, kl.AlphaDropout, kl.GaussianDropout,
    kl.GaussianNoise, kl.ActivityRegularization, kl.Identity, kl.RandomBrightness, kl.RandomColorDegeneration,
    kl.RandomColorJitter, kl.RandomContrast, kl.RandomErasing, kl.RandomFlip, kl.RandomGaussianBlur, kl.RandomGrayscale,
    kl.RandomHue, kl.RandomInvert, kl.RandomPerspective, kl.RandomPosterization, kl.RandomRotation, kl.RandomSaturation,
    kl.RandomSharpness, kl.RandomShear, kl.RandomTranslation, kl.RandomZoom,
)  # fmt: skip
def _nothing(layer, x):
    return x


@register_layer(kl.Flatten)
def _flatten(layer, x):
    if layer.data_format == "channels_first" and len(x.shape) > 2:
        x = fl.Permute((*range(2, len(x.shape)), 1))(x)
    return fl.Flatten(name=layer.name)(x)


@register_layer(kl.Reshape)
def _reshape(layer, x):
    return fl.Reshape(layer.target_shape, name=layer.name)(x)


@register_layer(kl.Permute)
def _permute(layer, x):
    return fl.Permute(layer.dims, name=layer.name)(x)


_PADDING = {kl.ZeroPadding1D: fl.ZeroPadding1D, kl.ZeroPadding2D: fl.ZeroPadding2D, kl.ZeroPadding3D: fl.ZeroPadding3D}
_CROPPING = {kl.Cropping1D: fl.Cropping1D, kl.Cropping2D: fl.Cropping2D, kl.Cropping3D: fl.Cropping3D}


@register_layer(*_PADDING, noise=lambda call: math.prod(call.shape) - math.prod(call.shapes[0]))
def _padding(layer, x):
    kind = _kind(layer, _PADDING)
    return channels_last(layer, x, kind(layer.padding, name=layer.name)) if _is_any(layer.padding) else x


@register_layer(*_CROPPING)
def _cropping(layer, x):
    kind = _kind(layer, _CROPPING)
    return channels_last(layer, x, kind(layer.cropping, name=layer.name)) if _is_any(layer.cropping) else x


def _kind(layer, kinds):
    return next(kinds[kind] for kind in type(layer).__mro__ if kind in kinds)


def _is_any(border) -> bool:
    return any(keras.tree.flatten(border))


def _is_nearest(layer) -> bool:
    return getattr(layer, "interpolation", "nearest") == "nearest"


@register_layer(
    kl.UpSampling1D,
    kl.UpSampling2D,
    kl.UpSampling3D,
    noise=lambda call: math.prod(call.shape) - math.prod(call.shapes[0]) if _is_nearest(call.layer) else None,
)
def _up_sampling(layer, x):
    """All copies of an image side by side as channels; then each in its place."""

    def convert(x):
        *places, channels = x.shape[1:]
        ndims = len(places)
        size = sides(layer.size, ndims)
        copies = math.prod(size)
        if copies == 1:
            return x
        z = fl.Concatenate()(fl.Duplicate(copies, name=layer.name)(x))
        z = fl.Reshape((*places, *size, channels))(z)
        order = [axis for i in range(ndims) for axis in (i + 1, ndims + i + 1)]
        z = fl.Permute((*order, 2 * ndims + 1))(z)
        return fl.Reshape((*(a * b for a, b in zip(places, size, strict=True)), channels))(z)

    return channels_last(layer, x, convert)


@register_layer(kl.RepeatVector, noise=lambda call: math.prod(call.shape) - math.prod(call.shapes[0]))
def _repeat_vector(layer, x):
    if layer.n == 1:
        return fl.Reshape((1, x.shape[-1]), name=layer.name)(x)
    z = fl.Concatenate()(fl.Duplicate(layer.n, name=layer.name)(x))
    return fl.Reshape((layer.n, x.shape[-1]))(z)
