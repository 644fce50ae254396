"""Convolution through the Fourier transform: exact, without noise, on a circle (the paper's appendix)."""

import math

import numpy as np
import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.core.checks import check_dtype, parameter
from tfp_flowify.core.types import Shape, TensorLike
from tfp_flowify.math.expm import expm


class FourierConv2D(FlowBijector):
    """A circular convolution, at each frequency f the matrix V_f S_f U_f: exact, for as many channels or fewer.

        y_f = U_f x_f,   z_f = V_f (s_f * y_f[:m]),   dropped = y[m:]
        log_det = h w (sum of log_singular at the origin)

    U_f = exp(A_f), with A the transform of a real kernel a that is skew-symmetric as a convolution,
    a(-p)^T = -a(p). So A_f is skew-Hermitian, U_f unitary, and U_-f the conjugate of U_f: the map is real and
    orthogonal by construction. Likewise log s_f is the transform of a real, even kernel, so it is real and even, and
    its sum over all frequencies is h w times the kernel's value at the origin. Kernels are small; the filter they
    generate is not confined to them, and decays.

    Shapes: (..., h, w, n) -> [(..., h, w, m), (..., h, w, n - m)], the second only for m < n.
    Cost: O(h w n^3) for the matrices, O(h w (n log(h w) + n^2)) an image.

    Args:
      image_shape: (h, w, n).
      right: (rows, columns, n, n) kernel of any kind; its skew-symmetric part is used. Rows and columns are odd and
        at most h and w.
      log_singular: (rows, columns, m) kernel; its even part is used.
      left: (rows, columns, m, m), as `right`.
      bias: (m,), or None.

    >>> conv = FourierConv2D((4, 4, 2), tf.zeros([3, 3, 2, 2]), tf.zeros([3, 3, 1]), tf.zeros([3, 3, 1, 1]))
    >>> [tuple(part.shape) for part in conv.forward(tf.ones([5, 4, 4, 2]))]
    [(5, 4, 4, 1), (5, 4, 4, 1)]
    """

    def __init__(
        self,
        image_shape: Shape,
        right: TensorLike,
        log_singular: TensorLike,
        left: TensorLike,
        bias: TensorLike | None = None,
        name: str | None = None,
    ) -> None:
        self.height, self.width, channels = image_shape
        self.right = parameter(right, "FourierConv2D right", (None, None, channels, channels))
        self.log_singular = parameter(log_singular, "FourierConv2D log_singular", (None, None, None))
        self.filters, dtype = self.log_singular.shape[-1], tf.as_dtype(self.right.dtype)
        filters = self.filters
        self.left = parameter(left, "FourierConv2D left", (None, None, filters, filters))
        self.bias = bias if bias is None else parameter(bias, "FourierConv2D bias", (filters,))
        for kernel in (self.right, self.log_singular, self.left):
            check_dtype("A kernel of FourierConv2D", kernel, dtype)
            rows, columns = kernel.shape[:2]
            if not (rows % 2 and columns % 2 and rows <= self.height and columns <= self.width):
                raise ValueError(
                    f"Kernels have an odd number of rows and columns, at most {(self.height, self.width)}. "
                    f"Received: {(rows, columns)}"
                )
        if filters > channels:
            raise ValueError(
                f"FourierConv2D keeps or drops channels: got {channels} -> {filters}. Use Conv2D, or Widen in front."
            )
        dropped = (self.height, self.width, channels - filters)
        super().__init__(
            inputs=[image_shape],
            outputs=[(self.height, self.width, filters)],
            residuals=[StandardNormal(dropped, dtype)] if dropped[-1] else [],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        turned = _apply(self._unitary(self.right), self._to_frequencies(parts[0]))
        kept, dropped = turned[..., : self.filters], turned[..., self.filters :]
        z = self._to_image(_apply(self._unitary(self.left), kept * self._singular(1)))
        z = z if self.bias is None else z + self.bias
        return [z, self._to_image(dropped)] if self.residuals else [z], self._log_det()

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        image, *dropped = parts
        image = image if self.bias is None else image - self.bias
        left, right = self._unitary(self.left), self._unitary(self.right)
        turned = _apply(tf.linalg.adjoint(left), self._to_frequencies(image)) * self._singular(-1)
        if dropped:
            turned = tf.concat([turned, self._to_frequencies(*dropped)], axis=-1)
        return [self._to_image(_apply(tf.linalg.adjoint(right), turned))], -self._log_det()

    @property
    def kernel(self) -> tf.Tensor:
        """The circular filter as an array (h, w, n, m): the response to a unit pulse at the origin, less the bias."""
        channels = self.inputs[0][-1]
        pulses = np.zeros([channels, *self.inputs[0]])
        pulses[np.arange(channels), 0, 0, np.arange(channels)] = 1
        response: tf.Tensor = self.without_noise(tf.constant(pulses, self.dtype))
        return tf.transpose(response if self.bias is None else response - self.bias, [1, 2, 0, 3])

    def _unitary(self, kernel):
        kernel = tf.convert_to_tensor(kernel)
        skew = kernel - tf.transpose(tf.reverse(kernel, [0, 1]), [0, 1, 3, 2])
        return expm(self._transform(skew))

    def _singular(self, power):
        kernel = tf.convert_to_tensor(self.log_singular)
        log_singular = self._transform(0.5 * (kernel + tf.reverse(kernel, [0, 1])))
        return tf.exp(power * log_singular)

    def _log_det(self):
        rows, columns, _ = self.log_singular.shape
        return self.height * self.width * tf.reduce_sum(self.log_singular[rows // 2, columns // 2])

    def _transform(self, kernel):
        """The Fourier transform of a small kernel centred at the origin, at the frequencies of a real transform."""
        rows, columns, *rest = kernel.shape
        phases = np.multiply.outer(
            _phases(np.fft.fftfreq(self.height), rows), _phases(np.fft.rfftfreq(self.width), columns)
        )
        phases = np.transpose(phases, [0, 2, 1, 3]).reshape(-1, rows * columns)
        flat = tf.cast(tf.reshape(kernel, [rows * columns, -1]), _complex(kernel.dtype))
        return tf.reshape(tf.constant(phases, flat.dtype) @ flat, [-1, *rest])

    def _to_frequencies(self, image):
        """(..., h, w, c) -> (..., frequencies, c)."""
        spectrum = tf.signal.rfft2d(_move_axis(image, -1, -3))
        shape = tf.concat([tf.shape(spectrum)[:-2], [self.height * (self.width // 2 + 1)]], axis=0)
        return _move_axis(tf.reshape(spectrum, shape), -2, -1)

    def _to_image(self, spectrum):
        spectrum = _move_axis(spectrum, -1, -2)
        shape = tf.concat([tf.shape(spectrum)[:-1], [self.height, self.width // 2 + 1]], axis=0)
        image = tf.signal.irfft2d(tf.reshape(spectrum, shape), fft_length=[self.height, self.width])
        return _move_axis(image, -3, -1)


def _apply(matrices, spectrum):
    return tf.einsum("fij,...fj->...fi", matrices, spectrum)


def _phases(frequencies, size):
    """exp(-2 pi i f p) for the points p of a kernel centred at the origin."""
    return np.exp(-2j * math.pi * np.multiply.outer(frequencies, np.arange(size) - size // 2))


def _complex(dtype):
    return {tf.float32: tf.complex64, tf.float64: tf.complex128}[dtype]


def _move_axis(x, source, target):
    axes = list(range(x.shape.rank))
    axes.insert(target % x.shape.rank, axes.pop(source % x.shape.rank))
    return tf.transpose(x, axes)
