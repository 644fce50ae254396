"""Flows on disk: .keras files and SavedModels, read by another process."""

import json
import os
import subprocess
import sys
import textwrap
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import digits_flow, small_flow

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.data import digits
from tfp_flowify.experiments.folder import load_flow


def run_elsewhere(code, *arguments):
    """Runs code in a fresh process, where the arguments are sys.argv[1:]."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert done.returncode == 0, done.stderr


def test_a_keras_file_is_all_there_is(tmp_path):
    """Weights, log-likelihoods, the optimizer and the seed of the noise: training goes on as if it had not stopped."""
    keras.utils.set_random_seed(0)
    flow, x = digits_flow(), digits()[0][0][:400]
    flow.compile(keras.optimizers.Adam(1e-2))
    flow.fit(x, batch_size=100, epochs=2, shuffle=False, verbose=0)
    flow.save(tmp_path / "flow.keras")
    code = """
        import sys, keras, numpy as np
        import tfp_flowify
        folder = sys.argv[1]
        flow = keras.models.load_model(f"{folder}/flow.keras")
        x = tfp_flowify.data.digits()[0][0][:400]
        weights, scores = flow.get_weights(), flow.log_prob(x, seed=1)
        losses = flow.fit(x, batch_size=100, epochs=2, shuffle=False, verbose=0).history["loss"]
        np.savez(f"{folder}/seen.npz", *weights, scores=scores, losses=losses)
    """
    run_elsewhere(code, tmp_path)
    seen = np.load(tmp_path / "seen.npz")
    for i, weight in enumerate(flow.get_weights()):
        np.testing.assert_array_equal(seen[f"arr_{i}"], weight)
    np.testing.assert_allclose(seen["scores"], flow.log_prob(x, seed=1), rtol=1e-6)
    losses = flow.fit(x, batch_size=100, epochs=2, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(seen["losses"], losses, rtol=1e-5)


def test_what_was_frozen_and_how_it_was_compiled_comes_back(tmp_path):
    flow = small_flow()
    flow.network.trainable = False
    flow.compile("sgd", loss="mse", likelihood_weight=0.25, metrics=["mae"])
    flow.save(tmp_path / "flow.keras")
    loaded = keras.models.load_model(tmp_path / "flow.keras")
    assert len(loaded.trainable_variables) == len(flow.trainable_variables)
    assert not loaded.network.trainable_variables
    assert loaded.get_compile_config()["likelihood_weight"] == 0.25
    flow.network.trainable, flow.densities.parts[2].trainable = True, False
    flow.save(tmp_path / "flow.keras")
    loaded = keras.models.load_model(tmp_path / "flow.keras")
    assert len(loaded.trainable_variables) == len(flow.trainable_variables)
    assert not loaded.densities.parts[2].trainable
    flow.densities.parts[2].trainable = True
    flow.densities.parts[2].conditioners[0].layers[1].trainable = False  # At any depth.
    flow.save(tmp_path / "flow.keras")
    loaded = keras.models.load_model(tmp_path / "flow.keras")
    assert len(loaded.trainable_variables) == len(flow.trainable_variables)
    assert not loaded.densities.parts[2].conditioners[0].layers[1].trainable
    flow.densities.trainable = False
    flow.save(tmp_path / "flow.keras")
    assert not keras.models.load_model(tmp_path / "flow.keras").densities.trainable_variables


def test_weights_alone(tmp_path):
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    flow, other = small_flow(), small_flow()
    flow.save_weights(tmp_path / "flow.weights.h5")
    assert not np.allclose(other.log_prob(x, seed=1), flow.log_prob(x, seed=1))
    other.load_weights(tmp_path / "flow.weights.h5")
    np.testing.assert_array_equal(other.log_prob(x, seed=1), flow.log_prob(x, seed=1))


def test_the_network_is_saved_as_any_keras_model(tmp_path):
    flow, x = digits_flow(), digits()[0][0][:5]
    flow.network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    np.testing.assert_allclose(loaded(x), flow.network(x), rtol=1e-6)
    again = FlowModel(loaded)
    assert np.isfinite(again.log_prob(x)).all()


def test_loading_runs_no_code(tmp_path):
    """A lambda cannot be found by name: saving says so, before there is a file that cannot be read."""
    flow = FlowModel([keras.Input([3]), fl.Stochastic(lambda x: 2 * x)])
    assert flow.sample(2).shape == [2, 3]
    with pytest.raises(ValueError, match="register_keras_serializable"):
        flow.save(tmp_path / "flow.keras")


def hostile(folder, layer: dict):
    """A .keras file of a flow, with another layer put into its network by hand."""
    flow = FlowModel([keras.Input([3]), fl.Stochastic(keras.layers.Dense(3)), fl.Dense(2)])
    flow.save(folder / "flow.keras")
    with zipfile.ZipFile(folder / "flow.keras") as file:
        contents = {name: file.read(name) for name in file.namelist()}
    config = json.loads(contents["config.json"])
    stochastic = next(c for c in config["config"]["network"]["config"]["layers"] if c["class_name"] == "Stochastic")
    stochastic["config"]["function"] = layer
    contents["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(folder / "hostile.keras", "w") as file:
        for name, content in contents.items():
            file.writestr(name, content)
    return folder / "hostile.keras"


def lambda_layer(folder):
    """Code inside the file, as Keras stores that of a lambda."""
    code = "lambda x: [x, open(__import__('os').environ['FLOWIFY_MARK'], 'w').close()][0]"
    return keras.saving.serialize_keras_object(keras.layers.Lambda(eval(code)))


def saved_model_layer(folder):
    """A program of TensorFlow's beside the file."""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3])])
        def serve(self, x):
            with tf.control_dependencies([tf.io.write_file(os.environ["FLOWIFY_MARK"], "x")]):
                return tf.identity(x)

    module = Module()
    tf.saved_model.save(module, str(folder / "program"), signatures={"serve": module.serve})
    config = {"filepath": str(folder / "program"), "call_endpoint": "serve", "name": "program"}
    return {"module": "keras.layers", "class_name": "TFSMLayer", "config": config, "registered_name": None}


def function_of_python(folder):
    """A function of any module, by its name."""
    return {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"}


@pytest.mark.parametrize("make", [lambda_layer, saved_model_layer, function_of_python])
def test_hostile_files_are_refused_and_run_nothing(make, tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    monkeypatch.setenv("FLOWIFY_MARK", str(mark))
    path = hostile(tmp_path, make(tmp_path))
    with pytest.raises(ValueError, match=r"which is a program|which is not known here"):
        load_flow(path)
    with pytest.raises((ValueError, TypeError)):
        keras.models.load_model(path)
    assert not mark.exists()


WITHOUT_LIBRARIES = """
    import sys

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("tfp_flowify", "tensorflow_probability", "tf_keras"):
                raise ImportError(f"{name} is not to be had here")

    sys.meta_path.insert(0, Refuse())
    import numpy as np
    import tensorflow as tf

    folder = sys.argv[1]
    given = np.load(f"{folder}/given.npz")
    model = tf.saved_model.load(f"{folder}/saved")
    signatures = model.signatures
    x, seed = tf.constant(given["x"]), tf.constant([0, 7])
    seen = {name: signatures[name](x=x, seed=seed)[name] for name in ("log_prob", "bits_per_dim")}
    seen["sample"] = signatures["sample"](n=tf.constant(6), temperature=tf.constant(0.8), seed=seed)["x"]
    parts = signatures["encode"](x=x, seed=seed)
    seen["decode"] = signatures["decode"](**parts)["x"]
    seen["predict"] = signatures["predict"](x=x)["output"]
    assert signatures["log_prob"](x=x[:1], seed=seed)["log_prob"].shape == [1]
    np.savez(f"{folder}/seen.npz", **seen, **parts)
"""


@pytest.mark.parametrize("name", ["digits", pytest.param("branches", marks=pytest.mark.slow)])
def test_a_saved_model_needs_tensorflow_alone(name, tmp_path):
    keras.utils.set_random_seed(0)
    flow = digits_flow() if name == "digits" else branches()
    x = flow.sample(9, seed=3).numpy()
    flow.export(tmp_path / "saved", num_draws=40)
    np.savez(tmp_path / "given.npz", x=x)
    run_elsewhere(WITHOUT_LIBRARIES, tmp_path)
    seen = np.load(tmp_path / "seen.npz")
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(seen["log_prob"], flow.log_prob(x, num_draws=40, seed=7), **close)
    np.testing.assert_allclose(seen["bits_per_dim"], flow.bits_per_dim(x, num_draws=40, seed=7), **close)
    np.testing.assert_allclose(seen["sample"], flow.sample(6, temperature=0.8, seed=7), **close)
    np.testing.assert_allclose(seen["predict"], flow.network(x), **close)
    np.testing.assert_allclose(seen["decode"], x, atol=1e-4)
    parts = flow.encode(x, seed=7)
    names = ["z", *(f"residual_{i}" for i in range(len(parts) - 1))]
    for part, key in zip(parts, names, strict=True):
        np.testing.assert_allclose(seen[key], part, **close)


def branches():
    x = keras.Input([4])
    h = fl.Dense(6, orthogonal="cayley")(x)
    h = fl.Residual([fl.Dense(6, orthogonal="householder"), fl.ReLU()])(fl.Add()([h, fl.Spline()(h)]))
    return FlowModel(keras.Model(x, fl.SplineCoupling()(fl.Dense(3, transform="affine+spline")(h))))


def test_named_outputs_are_exported(tmp_path):
    x = keras.Input([3])
    flow = FlowModel(keras.Model(x, {"a": fl.Dense(2)(x), "b": fl.Dense(1)(x)}))
    flow.export(tmp_path / "saved")
    outputs = tf.saved_model.load(str(tmp_path / "saved")).signatures["predict"](x=tf.zeros([4, 3]))
    assert {name: tuple(value.shape) for name, value in outputs.items()} == {"a": (4, 2), "b": (4, 1)}


def test_every_weight_is_stored_once(tmp_path):
    flow = FlowModel([keras.Input([300]), fl.Dense(300), fl.LeakyReLU(), fl.Dense(200)])
    flow.compile("adam")  # Its state is not part of what is exported.
    flow.export(tmp_path / "saved")
    weights = sum(w.numpy().nbytes for w in flow.network.variables + flow.densities.variables)
    files = {path: path.stat().st_size for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    graph = files[tmp_path / "saved/saved_model.pb"]
    assert sum(files.values()) < 1.1 * (weights + graph)
    assert sum(files.values()) - graph < 1.1 * weights
    assert graph < weights  # No weights hide in it as constants.
    assert len(tf.saved_model.load(str(tmp_path / "saved")).weights) == len(
        flow.network.variables + flow.densities.variables
    )
