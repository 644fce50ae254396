"""Data that ships with the package."""

from pathlib import Path

import numpy as np


def digits() -> tuple:
    """1797 handwritten digits of 8 x 8 pixels with whole numbers 0 ... 16: `Dequantize(17)`.

    Returns:
      (x_train, y_train), (x_test, y_test): 1437 and 360 images (n, 8, 8, 1) and labels, as uint8.

    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998: its
    test set in a fixed random order. Licence: CC BY 4.0. See docs/data.md.

    >>> (x_train, y_train), (x_test, y_test) = digits()
    >>> x_train.shape, x_test.shape, int(x_train.max())
    ((1437, 8, 8, 1), (360, 8, 8, 1), 16)
    """
    with np.load(Path(__file__).parent / "digits.npz") as file:
        return (file["x_train"], file["y_train"]), (file["x_test"], file["y_test"])
