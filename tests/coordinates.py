"""Coordinates of the parts that go into a bijector: what its Jacobian is taken in."""

import numpy as np
import tensorflow as tf

from tfp_flowify.core.checks import as_list, bundle


def coordinates(bijector):
    """For each part an orthonormal basis of the space it lives in: all of it, or that of orthogonal noise."""
    bases = [np.eye(int(np.prod(shape))) for shape in bijector.inputs]
    for distribution in bijector.noise:
        patches = getattr(distribution, "patches", None)
        size = int(np.prod(distribution.event_shape))
        if patches is None:
            bases.append(np.eye(size))
            continue
        unit = tf.reshape(tf.eye(size, dtype=tf.float64), [size, *distribution.event_shape]) * patches.mask
        projection = tf.reshape(unit - patches.extract(patches.overlap_mean(unit)), [size, size]).numpy()
        eigenvalues, eigenvectors = np.linalg.eigh((projection + projection.T) / 2)
        assert np.allclose(projection, projection.T)
        bases.append(eigenvectors[:, eigenvalues > 0.5])
        assert bases[-1].shape[1] == distribution.dimension
    return bases


def from_coordinates(bijector, start, bases, like):
    """The parts at coordinates, of the shapes of other ones."""
    pieces = tf.split(start, [basis.shape[1] for basis in bases], axis=-1)
    return bundle(
        [
            tf.reshape(piece @ basis.T, tf.shape(part))
            for piece, basis, part in zip(pieces, bases, as_list(like), strict=True)
        ]
    )


def flat(parts, event_ndims):
    """All parts as one vector."""
    return tf.concat(
        [
            tf.reshape(p, tf.concat([tf.shape(p)[: p.shape.rank - ndims], [-1]], 0))
            for p, ndims in zip(as_list(parts), as_list(event_ndims), strict=True)
        ],
        axis=-1,
    )
