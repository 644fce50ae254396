"""Data on their way into a flow: every door checks, and takes what users have."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import digits_flow, normal, small_flow

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl


def tables():
    return pytest.importorskip("pandas", reason="pandas is not installed: tables of it are not tried")


def with_nan():
    x = normal(8, 3)
    x[2, 1] = np.nan
    return x


METHODS = ["fit", "evaluate", "predict", "predict_on_batch", "train_on_batch", "test_on_batch"]
METHODS += ["log_prob", "bits_per_dim", "encode", "reconstruct", "adapt"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["table", "list", "array"])
def test_nan_is_found_in_whatever_is_like_an_array(method, kind, flow):
    flow.compile("adam", run_eagerly=True)
    make = {"table": tables().DataFrame, "list": np.ndarray.tolist, "array": np.asarray}[kind]
    with pytest.raises(ValueError, match=r"1 of 24 entries are others; the first is nan at \(2, 1\)"):
        getattr(flow, method)(make(with_nan()))


def test_calling_the_flow_checks(flow):
    assert flow(normal(4, 3)).shape == [4, 2]
    with pytest.raises(ValueError, match="1 of 24 entries"):
        flow(with_nan())
    with pytest.raises(ValueError, match=r"shape=\(4, 5\)"):
        flow(normal(4, 5))
    x = keras.Input([3])
    assert keras.Model(x, flow(x))(normal(4, 3)).shape == [4, 2]  # As a layer of another model, too.


def test_tables_and_lists_train_and_are_scored(flow):
    pandas, x = tables(), normal(16, 3)
    flow = small_flow()
    flow.compile("adam", run_eagerly=True)
    table = pandas.DataFrame(x, columns=["a", "b", "c"])
    for data in (table, x.tolist(), x):
        assert np.isfinite(flow.fit(data, verbose=0, validation_data=(data,)).history["val_loss"]).all()
        np.testing.assert_allclose(flow.log_prob(data, seed=1), flow.log_prob(x, seed=1), rtol=1e-6)
    mixed = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": np.arange(16)})
    assert flow.log_prob(mixed).shape == [16]
    with pytest.raises(ValueError, match=r"finite numbers.*type object"):
        flow.log_prob(pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": ["x"] * 16}))


def test_datasets_are_scored_and_adapted_to():
    x = normal(40, 3)
    flow = FlowModel([fl.Normalization(), fl.Dense(5), fl.Dense(2)])
    batches = tf.data.Dataset.from_tensor_slices((x, np.zeros(40))).batch(16)
    flow.adapt(batches, seed=1)  # Builds it, too.
    other = FlowModel([fl.Normalization(), fl.Dense(5), fl.Dense(2)])
    other.adapt(x, seed=1)
    assert flow.built and other.built
    np.testing.assert_allclose(flow.network.layers[0].shift, other.network.layers[0].shift, rtol=1e-5)
    scores = flow.log_prob(batches, seed=1)
    assert scores.shape == [40]
    np.testing.assert_allclose(scores[:16], flow.log_prob(x[:16], seed=1), rtol=1e-5)
    np.testing.assert_allclose(flow.bits_per_dim(batches, seed=1), -scores / (3 * np.log(2)), rtol=1e-5)
    bad = tf.data.Dataset.from_tensors(with_nan())
    for action in (flow.log_prob, flow.adapt):
        with pytest.raises(tf.errors.InvalidArgumentError, match="finite numbers"):
            action(bad)


@pytest.mark.parametrize("method", ["log_prob", "encode", "reconstruct"])
def test_no_more_than_a_batch_is_cast_at_once(method, monkeypatch):
    """All of a set of bytes as floats would take four times its memory."""
    flow = digits_flow()
    x = flow.sample(300, seed=1).numpy().astype("uint8")
    cast, sizes = tf.cast, []

    def watched(x, dtype, name=None):
        if isinstance(x, np.ndarray):
            sizes.append(len(x))
        return cast(x, dtype, name)

    monkeypatch.setattr(tf, "cast", watched)
    results = getattr(flow, method)(x, batch_size=64)
    monkeypatch.undo()
    assert sizes and max(sizes) <= 64
    for result in results if isinstance(results, list) else [results]:
        assert len(result) == 300


def test_parts_of_batches_are_those_of_the_whole(flow):
    x = normal(50, 3)
    parts = flow.encode(x, seed=1, batch_size=16)
    np.testing.assert_allclose(flow.decode(parts, batch_size=7), x, atol=1e-4)
    np.testing.assert_allclose(flow.reconstruct(x, batch_size=16), flow.reconstruct(x), atol=1e-5)


def test_exported_signatures_refuse_bad_input(tmp_path):
    flow = digits_flow()
    flow.export(tmp_path / "saved", verbose=True)
    signatures = tf.saved_model.load(str(tmp_path / "saved")).signatures
    x, seed = tf.fill([2, 8, 8, 1], 3.0), tf.constant([0, 1])
    parts = signatures["encode"](x=x, seed=seed)
    for value in (np.nan, 17.0, 2.5, -1.0):
        bad = tf.tensor_scatter_nd_update(x, [[1, 2, 3, 0]], [value])
        for name in ("log_prob", "bits_per_dim", "encode"):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"whole numbers 0 \.\.\. 16"):
                signatures[name](x=bad, seed=seed)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"whole numbers 0 \.\.\. 16"):
            signatures["predict"](x=bad)
    with pytest.raises(tf.errors.InvalidArgumentError, match="z is not finite"):
        signatures["decode"](**{**parts, "z": parts["z"] * np.nan})


def test_nothing_at_all_is_named(flow):
    empty = tf.data.Dataset.from_tensor_slices(normal(0, 3)).batch(4)
    for action in (flow.log_prob, flow.encode, flow.adapt):
        with pytest.raises(ValueError, match="empty dataset"):
            action(empty)
    with pytest.raises(ValueError, match=r"n > 0"):
        flow.decode([normal(0, 2), normal(0, 3)])


def test_other_formats_are_refused_before_anything_is_written(flow, tmp_path):
    for suffix in (".h5", ".hdf5"):
        with pytest.raises(ValueError, match=r"saved to a \.keras file"):
            flow.save(tmp_path / f"flow{suffix}")
    with pytest.raises(ValueError, match="format='onnx'"):
        flow.export(tmp_path / "onnx", format="onnx")
    assert not list(tmp_path.iterdir())
