"""What a flow model is given and cannot take: errors that name the thing, the sizes and the way out."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import digits_flow, normal

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl


def unbuilt():
    return FlowModel([fl.Dense(2)])


BAD = {
    "unbuilt log_prob": (lambda f: unbuilt().log_prob(normal(2, 3)), "not built.*keras.Input"),
    "unbuilt sample": (lambda f: unbuilt().sample(2), "not built.*keras.Input"),
    "unbuilt decode": (lambda f: unbuilt().decode([normal(2, 2)]), "not built.*keras.Input"),
    "unbuilt export": (lambda f: unbuilt().export("nowhere"), "not built.*keras.Input"),
    "unbuilt fit": (lambda f: unbuilt().fit([1, 2]), "not built.*do not tell their shape"),
    "shape": (lambda f: f.log_prob(normal(4, 5)), r"batches \(n, 3\).*shape=\(4, 5\)"),
    "no batch": (lambda f: f.log_prob(normal(3)), r"batches \(n, 3\).*shape=\(3,\)"),
    "empty": (lambda f: f.log_prob(normal(0, 3)), "one or more"),
    "nan": (lambda f: f.log_prob(np.float32([[0, np.nan, 0]])), r"1 of 3 entries.*nan at \(0, 1\)"),
    "fit shape": (lambda f: f.fit(normal(4, 5)), r"batches \(n, 3\).*shape=\(4, 5\)"),
    "fit nan": (lambda f: f.fit(np.full([2, 3], np.inf)), "finite numbers.*6 of 6 entries"),
    "validation": (lambda f: f.fit(normal(4, 3), validation_data=(normal(4, 5),)), r"shape=\(4, 5\)"),
    "evaluate": (lambda f: f.evaluate(normal(4, 5)), r"shape=\(4, 5\)"),
    "encode": (lambda f: f.encode(normal(4, 5)), r"shape=\(4, 5\)"),
    "reconstruct": (lambda f: f.reconstruct(np.float32([[np.nan] * 3])), "3 of 3 entries"),
    "draws": (lambda f: f.log_prob(normal(4, 3), num_draws=0), "num_draws=0"),
    "half a draw": (lambda f: f.log_prob(normal(4, 3), num_draws=2.5), "num_draws=2.5"),
    "count": (lambda f: f.sample(-1), "n=-1"),
    "counts": (lambda f: f.sample((2, 3)), r"n=\(2, 3\)"),
    "nothing": (lambda f: f.fit(), "Received: nothing"),
    "dict": (lambda f: f.fit({"x": normal(4, 3)}), "Received: dict"),
    "batches of a generator": (lambda f: f.fit(b for b in [(normal(4, 2, 3),)]), r"batches \(n, 3\).*4, 2, 3"),
    "temperature": (lambda f: f.sample(1, temperature=0.0), "temperature=0.0"),
    "parts": (lambda f: f.decode([normal(4, 2)]), r"parts of \(n, 2\), \(n, 3\).*\[\(4, 2\)\]"),
    "part shape": (lambda f: f.decode([normal(4, 2), normal(4, 2)]), r"\(4, 2\), \(4, 2\)"),
    "part batches": (lambda f: f.decode([normal(4, 2), normal(5, 3)]), r"\(4, 2\), \(5, 3\)"),
    "part nan": (lambda f: f.decode([normal(4, 2), np.full([4, 3], np.nan)]), "entries in residual_0"),
    "weight": (lambda f: f.compile("adam", likelihood_weight=-1.0), "likelihood_weight=-1.0"),
    "unbatched": (lambda f: f.fit(tf.data.Dataset.from_tensor_slices(normal(4, 3))), r"call .batch\(size\)"),
    "dataset shape": (lambda f: f.fit(tf.data.Dataset.from_tensors(normal(4, 5))), r"a dataset of \(4, 5\)"),
    "dataset of dicts": (lambda f: f.fit(tf.data.Dataset.from_tensors({"image": normal(4, 3)})), "dataset of x or"),
    "two inputs": (
        lambda f: FlowModel(keras.Model(*[[a := keras.Input([3]), b := keras.Input([3])], fl.Add()([a, b])])),
        "one input. Received: a network with 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_named(case, flow):
    action, message = BAD[case]
    flow.compile("adam", run_eagerly=True)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        action(flow)


def test_what_is_no_network_is_named(flow):
    x = keras.Input([3])
    h = fl.Dense(3)(x)
    for network, message in (
        (keras.Model(x, h + x), r"Received: add.*\(Add\). Use tfp_flowify.layers.Add"),
        (keras.Model(x, h[:, :2]), r"\(GetItem\). Use tfp_flowify.layers.Split"),
        (flow, "Received: FlowModel 'flow_model"),
        ([keras.Input([3]), flow], "Received: flow_model.*Stochastic"),
        (keras.layers.Dense(3), "Received: <Dense"),
        ([], r"Received: \[\]"),
    ):
        with pytest.raises(TypeError, match=message):
            FlowModel(network)
    with pytest.raises(ValueError, match="is used nowhere"):
        FlowModel(keras.Model(x, fl.Duplicate(2)(x)[0]))
    with pytest.raises(TypeError, match=r"layers of .* work in float32, the flow in float64"):
        FlowModel([keras.Input([3]), fl.Dense(3)], dtype="float64")


def test_layers_of_keras_are_named():
    with pytest.raises(TypeError, match=r"Received: <Dense.*Stochastic"):
        FlowModel([keras.Input([3]), keras.layers.Dense(3)])
    x = keras.Input([3])
    with pytest.raises(TypeError, match=r"Received: activation.*Stochastic"):
        FlowModel(keras.Model(x, keras.layers.Activation("relu")(fl.Dense(3)(x))))
    with pytest.raises(TypeError, match="Stochastic"):
        fl.Residual([keras.layers.Dense(3)])


@pytest.mark.parametrize("value", [17, -1, 0.5])
def test_numbers_out_of_range_for_dequantize(value, images):
    flow, x = digits_flow(), images[0][:3].astype("float32")
    flow.compile("adam", run_eagerly=True)
    x[1, 2, 3, 0] = value
    message = r"whole numbers 0 ... 16. Received: 1 of 192 entries are others; the first is .* at \(1, 2, 3, 0\)"
    for action in (flow.log_prob, flow.fit, flow.encode):
        with pytest.raises(ValueError, match=message):
            action(x)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"whole numbers 0 \.\.\. 16"):
        flow.fit(tf.data.Dataset.from_tensors(x), verbose=0)


LAYER_ERRORS = {
    "units": (lambda: fl.Dense(0), "units=0"),
    "density": (lambda: fl.Dense(2, density="funel"), "density='funel'"),
    "transform": (lambda: fl.Dense(2, transform="cubic"), "transform='cubic'"),
    "orthogonal": (lambda: fl.Dense(2, orthogonal="qr"), "orthogonal='qr'"),
    "noise": (lambda: fl.Dense(2, noise="cauchy"), "noise='cauchy'"),
    "stages": (lambda: fl.Dense(2, stages=0), "stages=0"),
    "own stages": (lambda: fl.Dense(2, stages=2, density=keras.layers.Dense(6)), "one stage. Received: stages=2"),
    "noise scale": (lambda: fl.Dense(2, noise_scale=0.0), "noise_scale=0.0"),
    "kernel size": (lambda: fl.Conv2D(2, (1, 2, 3)), r"2 of them. Received: kernel_size=\(1, 2, 3\)"),
    "padding": (lambda: fl.Conv2D(2, 2, padding="full"), "padding='full'"),
    "image": (lambda: fl.Conv2D(2, 2)(keras.Input([4, 4])), r"\(batch, side, side, channels\).*\(None, 4, 4\)"),
    "window": (lambda: fl.Conv2D(2, 5)(keras.Input([4, 4, 1])), r"\(5, 5\) do not fit into \(4, 4\)"),
    "unknown size": (lambda: FlowModel([keras.Input([None, 4, 1]), fl.Conv2D(2, 2)]), "shapes that are known"),
    "kept": (lambda: fl.SplineCoupling(kept=5)(keras.Input([5])), "kept=5 of 5"),
    "split": (lambda: fl.Split(5)(keras.Input([3])), "3 -> 5. Use Widen"),
    "widen": (lambda: fl.Widen(2)(keras.Input([3])), "3 -> 2. Use Split"),
    "permute": (lambda: fl.Permute((2, 1))(keras.Input([2, 3, 4])), "permutes 2 axes"),
    "pool": (lambda: fl.MaxPooling2D()(keras.Input([4])), r"\(batch, side, side, channels\)"),
    "pool noise": (lambda: fl.MaxPooling2D(noise="cauchy"), "noise='cauchy'"),
    "fourier": (lambda: fl.FourierConv2D(2)(keras.Input([None, None, 2])), "known size"),
    "coupling": (lambda: fl.SplineCoupling()(keras.Input([None, None, 2])), "known size"),
    "reshape": (lambda: fl.Reshape((4, -1))(keras.Input([6])), r"\(4, -1\) of \(6,\)"),
    "dims": (lambda: fl.Permute((0, 1)), r"dims=\(0, 1\)"),
    "crop": (lambda: fl.Cropping2D((1, 2, 3)), r"cropping=\(1, 2, 3\)"),
    "scale": (lambda: fl.Rescaling(0.0), "scale=0.0"),
    "branches": (lambda: fl.Add()([keras.Input([3]), keras.Input([4])]), r"\(None, 3\), \(None, 4\)"),
    "one branch": (lambda: fl.Add()(keras.Input([3])), "list of two tensors"),
    "sides": (lambda: fl.Residual([fl.Dense(3)])(keras.Input([4])), r"\(None, 4\) -> \(None, 3\).*identity"),
    "conditioner": (
        lambda: FlowModel([keras.Input([4]), fl.Dense(2, density=keras.layers.Dense(3))]),
        "gives 3 numbers.*needs 2 numbers for each: 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(LAYER_ERRORS))
def test_bad_arguments_of_layers_are_named(case):
    action, message = LAYER_ERRORS[case]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        action()
