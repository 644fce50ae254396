"""Repetition of pixels in overlapping patches, with orthogonal noise."""

import numpy as np
import tensorflow as tf

from tfp_flowify.augmentation import StandardNormal, orthogonal_noise
from tfp_flowify.bijectors.base import FlowBijector
from tfp_flowify.bijectors.context import Context
from tfp_flowify.bijectors.padding import pixels
from tfp_flowify.core.checks import parameter
from tfp_flowify.core.types import TensorLike
from tfp_flowify.math.patches import Patches


class Unfold(FlowBijector):
    """Repeats every pixel in all the patches that see it, with noise orthogonal to the repetition.

    A pixel in N patches becomes N copies, and the noise, patch-shaped, sums to zero over them:

        forward: [x, noise] -> z = extract(x) + sqrt(N) a noise
        inverse: x = overlap_mean(z), the rest is the noise
        log_det = sum over pixels with N > 0 and channels of (N / 2) log N + (N - 1) log a

    There is no noise part where no patches overlap. Pixels that no patch sees (N = 0) are a residual part.
    Shapes: [(..., h, w, c), (..., rows, columns, kernel * c)] -> [(..., rows, columns, kernel * c), (..., unseen, c)].
    Mate et al. 2022, section 3.2.

    Args:
      patches: The geometry.
      log_noise_scale: log a, a scalar.
      noise: "normal", or "uniform" on the ball as in the paper's appendix.

    >>> unfold = Unfold(Patches((3, 1, 1), kernel_size=(2, 1), strides=(1, 1)))
    >>> unfold.without_noise(tf.reshape([1.0, 2.0, 3.0], [3, 1, 1])).numpy().tolist()
    [[[1.0, 2.0]], [[2.0, 3.0]]]
    """

    def __init__(
        self,
        patches: Patches,
        log_noise_scale: TensorLike = 0.0,
        noise: str = "normal",
        dtype: tf.DType | str = tf.float32,
        name: str | None = None,
    ) -> None:
        self.patches = patches
        scale = parameter(log_noise_scale, "Unfold log_noise_scale", (), dtype)
        dtype = tf.as_dtype(scale.dtype)
        self.log_noise_scale = scale if patches.noise_dimension else tf.zeros([], dtype)
        unseen = (len(patches.uncovered), patches.channels)
        counts = patches.overlap_counts[patches.overlap_counts > 0]
        self._repetition_log_det = patches.channels * 0.5 * float((counts * np.log(counts)).sum())
        self._root_counts = patches.cell_values(np.sqrt(patches.overlap_counts), outside=1).astype(dtype.as_numpy_dtype)
        super().__init__(
            inputs=[patches.image_shape],
            outputs=[patches.shape],
            noise=[orthogonal_noise(noise, patches, dtype)] if patches.noise_dimension else [],
            residuals=[StandardNormal(unseen, dtype)] if unseen[0] else [],
            dtype=dtype,
            name=name,
        )

    def forward_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        image, *noise = parts
        z = self.patches.extract(image)
        if noise:
            z += self.noise_factor() * noise[0]
        return [z, self._unseen(image)] if self.residuals else [z], self.log_det()

    def inverse_and_log_det(self, parts: list[tf.Tensor], context: Context) -> tuple[list[tf.Tensor], tf.Tensor]:
        copies, *unseen = parts
        seen = self.patches.overlap_mean(copies)
        image = self._put_unseen(seen, *unseen) if unseen else seen
        if not self.noise:
            return [image], -self.log_det()
        return [image, (copies - self.patches.extract(seen)) / self.noise_factor()], -self.log_det()

    def noise_factor(self) -> tf.Tensor:
        """sqrt(N) a, for each number of the patches."""
        return self._root_counts * tf.exp(tf.convert_to_tensor(self.log_noise_scale))

    def log_det(self) -> tf.Tensor:
        """The log-det, which is the same for all images."""
        return self._repetition_log_det + self.patches.noise_dimension * tf.convert_to_tensor(self.log_noise_scale)

    def _unseen(self, image):
        return tf.gather(pixels(image, self.patches.ndims), self.patches.uncovered, axis=-2)

    def _put_unseen(self, seen, unseen):
        """Takes each pixel from one of the two, by a fixed permutation."""
        all_pixels = tf.concat([pixels(seen, self.patches.ndims), unseen], axis=-2)
        source = np.arange(self.patches.overlap_counts.size)
        source[self.patches.uncovered] = source.size + np.arange(len(self.patches.uncovered))
        return tf.reshape(tf.gather(all_pixels, source, axis=-2), tf.shape(seen))
