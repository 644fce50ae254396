"""Data by name and from files: what comes out, and what is said where it cannot."""

import numpy as np
import pytest
import tensorflow as tf
from shared import needs, shared_data

from tfp_flowify import data
from tfp_flowify.data import batches, load, tabular


def rows(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_all_rows_of_a_file_in_its_order(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "rows.npy", rows)
    data = load(str(tmp_path / "rows.npy"), whole=True, condition="1")
    np.testing.assert_array_equal(data.test, rows[:, [0, 2]])
    np.testing.assert_array_equal(data.given("test")["condition"], rows[:, [1]])
    assert data.is_for_scores and len(data.train) == len(data.validation) == 0
    assert data.describe().startswith("rows: 4 examples, shape (2,)")
    np.savez(tmp_path / "parts.npz", test=rows[3:], train=rows[:3])
    np.testing.assert_array_equal(load(str(tmp_path / "parts.npz"), whole=True).test, rows)
    np.save(tmp_path / "numbers.npy", np.arange(8).reshape(4, 2))
    assert load(str(tmp_path / "numbers.npy"), whole=True, condition="0").levels == 8
    np.savez(tmp_path / "shapes.npz", test=rows, train=rows[:, :2])
    with pytest.raises(ValueError, match=r"shapes needs examples of one shape. Received: \(4, 2\), \(4, 3\)"):
        load(str(tmp_path / "shapes.npz"), whole=True)
    rows[2, 1] = np.nan
    np.save(tmp_path / "bad.npy", rows)
    with pytest.raises(ValueError, match=r"1 of the 4 examples in bad have NaN.* first is example 2"):
        load(str(tmp_path / "bad.npy"), whole=True)
    with pytest.raises(ValueError, match="digits has splits of its own"):
        load("digits", whole=True)


def test_digits():
    loaded = load("digits")
    assert (len(loaded.train), len(loaded.validation), len(loaded.test)) == (1294, 143, 360)
    assert loaded.train.dtype == np.uint8 and loaded.levels == 17 and loaded.shape == (8, 8, 1)
    everything = np.concatenate([loaded.train, loaded.validation])
    np.testing.assert_array_equal(everything, data.digits()[0][0])


def test_batches_are_a_pass_in_another_order_for_each_epoch_and_can_begin_in_any():
    x = np.arange(10, dtype=np.uint8)
    taken = np.array([batch.numpy() for batch in batches(x, 3, seed=1).take(9)])
    assert taken.dtype == np.uint8
    passes = taken.reshape(3, 9)
    assert all(len(set(one)) == 9 for one in passes)
    assert not np.array_equal(passes[0], passes[1])
    later = np.array([batch.numpy() for batch in batches(x, 3, seed=1, first_epoch=2).take(3)])
    np.testing.assert_array_equal(later.reshape(-1), passes[2])
    other = np.array([batch.numpy() for batch in batches(x, 3, seed=2).take(3)])
    assert not np.array_equal(other.reshape(-1), passes[0])


def test_all_batches_have_one_size_that_fits():
    with pytest.raises(ValueError, match=r"1 to 4 of them. Received: 5"):
        batches(np.arange(4), 5)


def test_npz_of_splits(tmp_path):
    np.savez(tmp_path / "mine.npz", x_train=rows(40, 3), x_test=rows(10, 3), y_train=np.zeros(40))
    loaded = load(str(tmp_path / "mine.npz"))
    assert (len(loaded.train), len(loaded.validation), len(loaded.test)) == (36, 4, 10)
    assert loaded.train.dtype == np.float32 and loaded.levels is None and not loaded.is_image
    np.testing.assert_allclose(loaded.test, rows(10, 3), rtol=1e-6)


def test_npz_of_one_array_is_split_the_same_way_each_time(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, [50, 6, 5], np.uint8)
    np.savez(tmp_path / "grey.npz", image=x, label=np.zeros(50))
    first, second = load(str(tmp_path / "grey.npz")), load(str(tmp_path / "grey.npz"))
    assert (len(first.train), len(first.validation), len(first.test)) == (40, 5, 5)
    assert first.shape == (6, 5, 1) and first.levels == 256
    np.testing.assert_array_equal(first.train, second.train)
    every = np.concatenate([first.train, first.validation, first.test])[..., 0]
    np.testing.assert_array_equal(np.sort(every.reshape(50, -1), axis=0), np.sort(x.reshape(50, -1), axis=0))


def test_sorted_data_are_validated_on_all_kinds(tmp_path):
    x = np.repeat(np.arange(10.0), 20)[:, None] + 0.01 * rows(200, 2)
    np.savez(tmp_path / "sorted.npz", train=x, test=x)
    loaded = load(str(tmp_path / "sorted.npz"))
    assert len(set(loaded.validation[:, 0].round())) > 4
    every = np.concatenate([loaded.train, loaded.validation])
    np.testing.assert_allclose(np.sort(every[:, 0]), np.sort(x[:, 0]), rtol=1e-6)


def test_whole_numbers_have_levels(tmp_path):
    np.savez(tmp_path / "whole.npz", x=np.random.default_rng(0).integers(0, 17, [50, 3]))
    assert load(str(tmp_path / "whole.npz")).levels == 17
    np.savez(tmp_path / "negative.npz", x=np.arange(-5, 5).reshape(5, 2))
    with pytest.raises(ValueError, match=r"negative has -5 \.\.\. 4. Shift them"):
        load(str(tmp_path / "negative.npz"))


def test_entries_that_never_change_have_no_density(tmp_path):
    x = rows(50, 3)
    x[:, 1] = 2.0
    np.savez(tmp_path / "constant.npz", x=x)
    with pytest.raises(ValueError, match=r"constant has 1 of 3 entries .* the first at \(1,\)"):
        load(str(tmp_path / "constant.npz"))


def write_image(path, x):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tf.io.encode_png(x).numpy())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_folder_of_images(tmp_path, channels):
    images = np.random.default_rng(0).integers(0, 256, [12, 4, 5, channels], np.uint8)
    for i, image in enumerate(images):
        write_image(tmp_path / "train" / f"{i % 2}" / f"{i:02d}.png", image)
    write_image(tmp_path / "test" / "only.png", images[0])
    loaded = load(str(tmp_path))
    assert loaded.shape == (4, 5, channels) and loaded.levels == 256
    assert (len(loaded.train), len(loaded.validation), len(loaded.test)) == (11, 1, 1)
    np.testing.assert_array_equal(loaded.test[0], images[0])


def test_opacity_is_kept_where_there_is_any(tmp_path):
    colours = np.random.default_rng(0).integers(0, 256, [6, 4, 4, 4], np.uint8)
    for name, opaque in (("clear", False), ("opaque", True)):
        for i, image in enumerate(colours):
            image = np.concatenate([image[..., :3], np.full([4, 4, 1], 255, np.uint8)], -1) if opaque else image
            write_image(tmp_path / name / f"{i}.png", image)
    assert load(str(tmp_path / "clear")).shape == (4, 4, 4)
    assert load(str(tmp_path / "opaque")).shape == (4, 4, 3)


def test_images_of_a_folder_can_be_resized(tmp_path):
    for i, side in enumerate((4, 6, 8)):
        write_image(tmp_path / f"{i}.png", np.full([side, side, 3], 50 * i, np.uint8))
    with pytest.raises(ValueError, match=r"0.png is \(4, 4\), .*1.png is \(6, 6\).*image_size="):
        load(str(tmp_path))
    loaded = load(str(tmp_path), image_size=(2, 2))
    assert loaded.shape == (2, 2, 1)
    assert {int(x.mean()) for x in (loaded.train, loaded.validation, loaded.test)} == {0, 50, 100}


def test_power_from_its_table(tmp_path):
    (tmp_path / "power").mkdir()
    table = rows(1000, 8)
    np.save(tmp_path / "power/data.npy", table)
    train, validation, test = tabular.power(tmp_path)
    assert [len(part) for part in (train, validation, test)] == [810, 90, 100]
    seen = np.concatenate([train, validation])
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std(axis=0), 1, atol=1e-5)
    # The last column has no noise: it is the shuffled column of the table, standardized.
    order = np.random.RandomState(42).permutation(1000)
    np.testing.assert_allclose(np.corrcoef(test[:, -1], table[order[900:], 7])[0, 1], 1, atol=1e-6)


def test_gas_leaves_out_sensors_that_are_copies(tmp_path):
    (tmp_path / "gas").mkdir()
    table = rows(1000, 19)
    table[:, 5] = table[:, 4] + 0.01 * rows(1000, seed=1)
    np.save(tmp_path / "gas/ethylene_CO.npy", table)
    train, validation, test = tabular.gas(tmp_path)
    assert train.shape == (810, 15)
    everything = np.concatenate([train, validation, test])
    expected = np.delete(table, [0, 1, 2, 4], axis=1)
    np.testing.assert_allclose(everything, (expected - expected.mean(0)) / expected.std(0, ddof=1), atol=1e-4)


def test_hepmass_is_the_signal_without_columns_that_repeat(tmp_path):
    (tmp_path / "hepmass").mkdir()
    for name, count, seed in (("1000_train.csv", 400, 0), ("1000_test.csv", 60, 1)):
        table = rows(count, 29, seed=seed)
        table[:, 0] = np.arange(count) % 2
        table[:, 3] = np.maximum(table[:, 3], 0)  # Half of it is zero.
        names = ",".join(["# label", *(f"f{i}" for i in range(27)), "mass"])
        np.savetxt(tmp_path / "hepmass" / name, table, delimiter=",", header=names, comments="")
    train, validation, test = tabular.hepmass(tmp_path)
    assert train.shape == (180, 26) and validation.shape == (20, 26) and test.shape == (30, 26)
    np.testing.assert_allclose(np.concatenate([train, validation]).mean(axis=0), 0, atol=1e-5)


def test_miniboone_and_bsds300(tmp_path):
    import h5py

    (tmp_path / "miniboone").mkdir()
    np.save(tmp_path / "miniboone/data.npy", rows(200, 43))
    assert [part.shape for part in tabular.miniboone(tmp_path)] == [(162, 43), (18, 43), (20, 43)]
    (tmp_path / "BSDS300").mkdir()
    with h5py.File(tmp_path / "BSDS300/BSDS300.hdf5", "w") as file:
        for name, count in (("train", 20), ("validation", 5), ("test", 6)):
            file[name] = rows(count, 63)
    assert [part.shape for part in tabular.bsds300(tmp_path)] == [(20, 63), (5, 63), (6, 63)]


def pickled(path):
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def broken(path):
    path.write_bytes(b"PK\x03\x04 this is no archive")


@pytest.mark.parametrize(
    "name, write, message",
    [
        ("miniboone/data.npy", pickled, "not a file of plain arrays"),
        ("miniboone/data.npy", lambda path: np.save(path, rows(5, 3)), r"should have 43 columns.*\(5, 3\)"),
        ("miniboone.npz", broken, "is damaged"),
        ("miniboone.npz", lambda path: np.savez(path, val=rows(3, 43), test=rows(3, 43)), "lacks the arrays train"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, name, write, message):
    (tmp_path / "miniboone").mkdir()
    write(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        load("miniboone", tmp_path)


def test_what_is_missing_is_named_with_the_place_and_the_way_to_it(tmp_path):
    with pytest.raises(ValueError, match=r"Data are one of digits, mnist.*Received: 'numbers'"):
        load("numbers")
    with pytest.raises(
        FileNotFoundError, match=rf"no mnist of TensorFlow Datasets in {tmp_path}.*data_dir=.*download=True"
    ):
        load("mnist", tmp_path)
    with pytest.raises(FileNotFoundError, match=rf"power needs a file in {tmp_path}.*power.npz.*zenodo"):
        load("power", tmp_path)
    with pytest.raises(FileNotFoundError, match="data_dir="):
        load("gas")
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        load(str(tmp_path / "none.npz"))
    (tmp_path / "table.xls").write_text("1,2")
    with pytest.raises(ValueError, match=r"table.xls is no .csv, .npy, .npz file"):
        load(str(tmp_path / "table.xls"))
    with pytest.raises(FileNotFoundError, match="no images in"):
        load(str(tmp_path))


def test_a_damaged_set_of_tensorflow_datasets_is_named(tmp_path):
    (tmp_path / "mnist/3.0.1").mkdir(parents=True)
    (tmp_path / "mnist/3.0.1/dataset_info.json").write_text("{")
    with pytest.raises(ValueError, match=r"mnist in .* could not be read.*download=True"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("named", [True, False])
def test_tables_of_text(tmp_path, separator, named):
    x = rows(30, 3)
    header = {"header": separator.join("abc"), "comments": ""} if named else {}
    np.savetxt(tmp_path / "table.csv", x, delimiter=separator, **header)
    loaded = load(str(tmp_path / "table.csv"))
    assert loaded.columns == (("a", "b", "c") if named else None) and loaded.levels is None
    everything = np.concatenate([loaded.train, loaded.validation, loaded.test])
    np.testing.assert_allclose(np.sort(everything, axis=0), np.sort(x, axis=0), rtol=1e-6)


def test_tables_of_text_that_cannot_be_read(tmp_path):
    for text, message in (
        ("a,b\n1,2\n3,x\n", "Row 3 of .* 'x' is not a number"),
        ("1,2\n3,\n", "Row 2 of .* '' is not a number"),
        ("1,2\n3\n", "Row 2 of .* it has 1 values, not 2"),
        ("1,2\nnan,3\n", "Row 2 of .* 'nan' is not a number"),
        ("a,b\n", "no rows"),
        ("", "is empty"),
    ):
        (tmp_path / "table.csv").write_text(text)
        with pytest.raises(ValueError, match=message):
            load(str(tmp_path / "table.csv"))
    (tmp_path / "table.csv").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match="not a text file"):
        load(str(tmp_path / "table.csv"))
    (tmp_path / "table.csv").write_text("a,b\n" + "1,2\n" * 30)
    with pytest.raises(ValueError, match="the first at a: they have no density"):
        load(str(tmp_path / "table.csv"))


def test_npy(tmp_path):
    np.save(tmp_path / "table.npy", rows(30, 3))
    assert load(str(tmp_path / "table.npy")).shape == (3,)
    np.save(tmp_path / "pictures.npy", np.random.default_rng(0).integers(0, 256, [30, 4, 4], np.uint8))
    assert load(str(tmp_path / "pictures.npy")).shape == (4, 4, 1)
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="not a file of plain arrays: it holds objects"):
        load(str(tmp_path / "objects.npy"))


def test_numbers_that_are_none(tmp_path):
    x = rows(30, 2)
    x[3, 1] = np.nan
    np.savez(tmp_path / "nan.npz", x=x)
    with pytest.raises(ValueError, match=r"1 of the 30 examples in nan have NaN or infinite.*example 3"):
        load(str(tmp_path / "nan.npz"))


@needs("tfds/mnist")
def test_mnist():
    loaded = load("mnist", shared_data("tfds"))
    assert [len(part) for part in (loaded.train, loaded.validation, loaded.test)] == [55000, 5000, 10000]
    assert loaded.shape == (28, 28, 1) and loaded.train.dtype == np.uint8
    assert abs(np.concatenate([loaded.train, loaded.validation]).mean() - 33.318) < 0.01


@needs("tabular/power.npz")
def test_power_has_the_sizes_and_the_gaussian_likelihood_of_the_benchmark():
    loaded = load("power", shared_data("tabular"))
    assert [len(part) for part in (loaded.train, loaded.validation, loaded.test)] == [1659917, 184435, 204928]
    train, test = loaded.train.astype(np.float64), loaded.test.astype(np.float64)
    mean, covariance = train.mean(axis=0), np.cov(train.T)
    apart = test - mean
    distance = np.einsum("ni,ij,nj->n", apart, np.linalg.inv(covariance), apart)
    nats = -0.5 * (distance + np.linalg.slogdet(2 * np.pi * covariance)[1])
    assert abs(nats.mean() + 7.74) < 0.02  # As in the paper on masked autoregressive flows.


@needs("tfds/mnist")
def test_what_a_histogram_knows_of_mnist():
    """The figures that results/README.md gives for scale."""
    loaded = load("mnist", shared_data("tfds"))
    train = np.concatenate([loaded.train, loaded.validation]).reshape(60000, 784)
    test = loaded.test.reshape(10000, 784)
    shared = (np.bincount(train.ravel(), minlength=256) + 1) / (train.size + 256)
    assert abs(-np.log2(shared)[test].mean() - 1.97) < 0.005
    counts = np.stack([np.bincount(column, minlength=256) for column in train.T])
    own = (counts + 25.6 * shared) / (60000 + 25.6)
    assert abs(-np.log2(own[np.arange(784), test]).mean() - 1.69) < 0.005
