"""Data in memory, in three splits, and fast batches of them."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Data:
    """Examples in three splits, as arrays (n, ...).

    Args:
      name: Name of the data.
      train, validation, test: The splits. Data that are only to be scored are all in `test`; the others are empty.
      levels: How many whole numbers 0 ... levels - 1 there are; None for real numbers.
      columns: Names of the columns of a table, where they are known.
      condition: What the examples are to be conditioned on, with the same rows in the same splits; None for nothing.
        Labels are such data, of shape () and with as many levels as there are classes.

    >>> data = Data("toy", *(np.zeros([n, 8, 8, 1], np.uint8) for n in (80, 10, 10)), levels=16)
    >>> data.shape, data.is_image
    ((8, 8, 1), True)
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    levels: int | None = None
    columns: tuple[str, ...] | None = None
    condition: "Data | None" = None

    def __post_init__(self):
        for split in SPLITS:
            x = getattr(self, split)
            if self.condition is not None and len(getattr(self.condition, split)) != len(x):
                raise ValueError(
                    f"The {split} examples of {self.name} need a condition each. Received: {len(x)} examples and "
                    f"{len(getattr(self.condition, split))} conditions."
                )
            is_missing = not len(x) and (split == "test" or not self.is_for_scores)
            if is_missing or x.shape[1:] != self.train.shape[1:]:
                raise ValueError(
                    f"The splits of {self.name} need examples of one shape. Received: train {self.train.shape}, "
                    f"{split} {x.shape}"
                )

    @property
    def is_for_scores(self) -> bool:
        """Whether all examples are in `test`: there are none to train and validate on."""
        return not len(self.train) and not len(self.validation)

    @property
    def shape(self) -> tuple:
        """The shape of one example."""
        return self.train.shape[1:]

    @property
    def is_image(self) -> bool:
        """Whether an example has height, width and channels."""
        return len(self.shape) == 3

    @property
    def classes(self) -> int | None:
        """The number of classes, where the condition is a label; else None."""
        return self.condition.levels if self.condition is not None and self.condition.shape == () else None

    def given(self, split: str, rows: slice | np.ndarray = slice(None)) -> dict:
        """The condition of rows of a split as an argument for a flow: {} where there is none."""
        return {} if self.condition is None else {"condition": getattr(self.condition, split)[rows]}

    def describe(self) -> str:
        """One line about the data."""
        counts = [len(self.test)] if self.is_for_scores else [len(getattr(self, split)) for split in SPLITS]
        purpose = "" if self.is_for_scores else " to train, validate and test"
        sizes = " / ".join(f"{count:,}" for count in counts) + f" examples{purpose}"
        kind = "real numbers" if self.levels is None else f"whole numbers 0 ... {self.levels - 1}"
        given = "" if self.condition is None else f", given {self.condition.name}"
        return f"{self.name}: {sizes}, shape {self.shape}, {kind}{given}"


def batches(
    x: np.ndarray | tf.Tensor,
    batch_size: int,
    seed: int = 0,
    first_epoch: int = 0,
    condition: np.ndarray | tf.Tensor | None = None,
    shift: int = 0,
) -> tf.data.Dataset:
    """Endless batches of shuffled examples; one epoch is `len(x) // batch_size` of them.

    Examples keep their dtype: bytes stay bytes until the flow takes them. The order depends on the seed and the number
    of the epoch alone, so that training can go on in a later one as if it had never stopped.

    Args:
      x: An array (n, ...), held in memory once.
      batch_size: Size of all batches.
      seed: Seed for the order.
      first_epoch: Number of the epoch to begin with.
      condition: An array with a row for each example; then batches are {"x": x, "condition": condition}.
      shift: Images are moved by up to so many pixels, at random; their borders are mirrored.

    >>> [batch.numpy().tolist() for batch in batches(np.arange(4), 2, seed=1).take(2)]
    [[1, 2], [0, 3]]
    """
    count, examples = len(x), tf.convert_to_tensor(x)
    given = None if condition is None else tf.convert_to_tensor(condition)
    if not 1 <= batch_size <= count:
        raise ValueError(f"Batches of {count} training examples have 1 to {count} of them. Received: {batch_size}")

    def order(epoch):
        rows = tf.random.experimental.stateless_shuffle(tf.range(count), seed=tf.stack([seed, epoch]))
        whole = count // batch_size
        return tf.data.Dataset.from_tensor_slices(tf.reshape(rows[: whole * batch_size], [whole, batch_size]))

    def take(number, rows):
        batch = tf.gather(examples, rows)
        batch = shifted(batch, shift, tf.stack([tf.cast(seed, tf.int64), number])) if shift else batch
        return batch if given is None else {"x": batch, "condition": tf.gather(given, rows)}

    epochs = tf.data.Dataset.counter(first_epoch, dtype=tf.int64).map(lambda epoch: tf.cast(epoch, tf.int32))
    rows = epochs.flat_map(order).enumerate(start=first_epoch * (count // batch_size))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    taken = rows.map(take, num_parallel_calls=tf.data.AUTOTUNE)
    return taken.prefetch(tf.data.AUTOTUNE).with_options(options)


def shifted(images: tf.Tensor, most: int, seed: tf.Tensor | Sequence[int]) -> tf.Tensor:
    """Images (n, height, width, channels), each moved by up to `most` pixels along both sides; borders are mirrored.

    >>> moved = shifted(tf.reshape(tf.range(8), [1, 4, 2, 1]), 1, seed=[0, 0])
    >>> moved.shape.as_list()
    [1, 4, 2, 1]
    """
    if images.shape.rank != 4 or most > min(images.shape[1:3]):
        raise ValueError(
            f"Images (height, width, channels) are moved, by no more pixels than they have. Received: shift={most} for "
            f"examples of shape {tuple(images.shape[1:])}"
        )
    count, height, width = tf.unstack(tf.shape(images)[:3])
    wide = tf.pad(images, [(0, 0), (most, most), (most, most), (0, 0)], mode="SYMMETRIC")
    first = tf.random.stateless_uniform([count, 2], seed, 0, 2 * most + 1, tf.int32)
    rows, columns = (first[:, i, tf.newaxis] + tf.range(size) for i, size in enumerate((height, width)))
    return tf.gather(tf.gather(wide, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)


def random_split(x: np.ndarray, validation: float = 0.1, test: float = 0.1) -> tuple:
    """Train, validation and test examples of an array, in a fixed random order.

    >>> [len(part) for part in random_split(np.arange(100))]
    [80, 10, 10]
    """
    count = len(x)
    sizes = [max(1, round(count * share)) for share in (validation, test)]
    if count < 3:
        raise ValueError(f"Three splits need three examples or more. Received: {count}")
    order = np.random.default_rng(0).permutation(count)
    bounds = np.cumsum([count - sum(sizes), sizes[0]])
    return tuple(x[rows] for rows in np.split(order, bounds))
