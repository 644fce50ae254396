"""Bad input at every door: each gets an error of its own, no memory is taken for it, and nothing is lost."""

import contextlib
import hashlib
import re
import resource
import types
import zipfile
from pathlib import Path

import bad_files as bad
import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from conditions import C as CONDITIONS
from conditions import X as GIVEN
from conditions import adapted_flow, label_network, plain
from models import digits_flow, normal, small_flow

from tfp_flowify import FlowModel
from tfp_flowify import layers as fl
from tfp_flowify.data import image_folder, load
from tfp_flowify.experiments.folder import load_flow
from tfp_flowify.experiments.keras_file import load_keras_file
from tfp_flowify.experiments.stored import SavedModelFlow, open_flow

X = normal(8, 3)
SEED = tf.constant([0, 1])
WEIGHTS = "variables/variables.data-00000-of-00001"


def having(value, dtype="float32"):
    """Good data but for one entry."""
    x = X.astype(dtype)
    x[2, 1] = value
    return x


def dataset(*parts):
    return tf.data.Dataset.from_tensors(parts if len(parts) > 1 else parts[0])


def batches(*elements):
    return (element for element in elements)


def drawn(things, n=2, temperature=1.0, seed=SEED):
    return things.signatures["sample"](n=tf.constant(n), temperature=tf.constant(temperature), seed=seed)


def scored(things, x, seed=SEED):
    return things.signatures["log_prob"](x=tf.constant(x), seed=seed)


def label(things, labels):
    inputs = {"x": tf.constant(GIVEN), "condition": tf.constant(labels, tf.int32), "seed": SEED}
    return things.labelled_signatures["log_prob"](**inputs)


#: Arrays, tensors and numbers that a flow is given: what is done, and the error.
GIVEN_TO_A_FLOW = {
    # Numbers.
    "NaN": (lambda t: t.flow.log_prob(having(np.nan)), r"1 of 24 entries are others; the first is nan at \(2, 1\)"),
    "infinity": (lambda t: t.flow.encode(having(-np.inf)), r"finite numbers, 1e\+18 at most.*first is -inf"),
    "1e30": (lambda t: t.flow.log_prob(having(1e30)), r"1e\+18 at most.*first is 1.0.*e\+30 .*Divide by a constant"),
    "1e30 in fit": (lambda t: t.flow.fit(having(1e30)), r"first is 1.0.*e\+30 at \(2, 1\). Divide"),
    "infinity for float64": (lambda t: t.double.log_prob(having(np.inf)), r"1e\+153 at most.*first is inf"),
    "1e300 for float32": (lambda t: t.flow.adapt(having(1e300, "float64")), r"first is 1e\+300"),
    "whole 2**62": (lambda t: t.flow.predict(np.full([2, 3], 2**62)), "first is 4611686018427387904"),
    "denormal level": (lambda t: t.digits.log_prob(np.full([1, 8, 8, 1], 1e-45, "float32")), "0 ... 16.*e-45"),
    "level out of range": (lambda t: t.digits.log_prob(np.full([2, 8, 8, 1], 200, "uint8")), "128 of 128.*is 200"),
    "level 2**32": (lambda t: t.digits.encode(np.full([1, 8, 8, 1], 2**32)), "0 ... 16.*first is 4294967296"),
    # Shapes.
    "rank": (lambda t: t.flow.log_prob(normal(2, 4, 3)), r"batches \(n, 3\).*shape=\(2, 4, 3\)"),
    "no axes": (lambda t: t.flow.log_prob(np.array(3.0)), r"batches \(n, 3\).*shape=\(\)"),
    "channels": (lambda t: t.digits.log_prob(np.zeros([2, 8, 8, 3], "uint8")), r"\(n, 8, 8, 1\).*\(2, 8, 8, 3\)"),
    "channels first": (lambda t: t.digits.log_prob(np.zeros([2, 1, 8, 8], "uint8")), r"shape=\(2, 1, 8, 8\)"),
    "no examples": (lambda t: t.flow.evaluate(X[:0]), r"one or more. Received: shape=\(0, 3\)"),
    "rows of lengths": (lambda t: t.flow.log_prob([[1.0, 2.0, 3.0], [1.0]]), "rows of different lengths"),
    # Types.
    "complex": (lambda t: t.flow.log_prob(X.astype(complex)), "Received: data of type complex128"),
    "complex tensor": (lambda t: t.flow.log_prob(tf.complex(X, X)), "Received: data of type complex64"),
    "numbers as text": (lambda t: t.flow.log_prob(np.full([2, 3], "1.5")), "data of type <U3"),
    "text tensor": (lambda t: t.flow.fit(tf.fill([2, 3], "a")), "data of type string"),
    "objects": (lambda t: t.flow.log_prob(np.full([2, 3], {})), "data of type object: float.. argument"),
    "dates": (lambda t: t.flow.log_prob(np.zeros([2, 3], "datetime64[s]")), "data of type datetime64"),
    "records": (lambda t: t.flow.log_prob(np.zeros([2], "f4, f4, f4")), "data of type .*f0"),
    "table with text": (lambda t: t.flow.fit(table(c=["u"] * 8)), "type object: could not convert string .*'u'"),
    "table with dates": (lambda t: t.flow.log_prob(table(c=[np.datetime64("2020-01-01", "s")] * 8)), "object: float"),
    "ragged": (lambda t: t.flow.log_prob(tf.ragged.constant([[1.0], [2.0, 3.0]])), "with gaps, a RaggedTensor"),
    "sparse": (lambda t: t.flow.fit(tf.sparse.from_dense(X)), "with gaps, a SparseTensor"),
    "masked": (lambda t: t.flow.log_prob(np.ma.masked_less(X, 0)), "with gaps, a MaskedArray"),
    "a path": (lambda t: t.flow.fit("data.npz"), "as an array, a tensor or a dataset. Received: str"),
    "a generator": (lambda t: t.flow.log_prob(batches(X)), "data of type generator"),
    "nothing": (lambda t: t.flow.encode(None), "data of type NoneType"),
    # Batches.
    "generator of NaN": (lambda t: t.flow.fit(batches((having(np.nan),))), r"first is nan at \(2, 1\)"),
    "generator of nothing": (lambda t: t.flow.fit(batches((X[:0],))), r"one or more. Received: shape=\(0, 3\)"),
    "generator of weights": (lambda t: t.flow.fit(batches((X, X, -np.ones(8)))), "each of 8 .*first is -1.0"),
    "dataset of text": (lambda t: t.flow.fit(dataset(np.full([2, 3], "a"))), "a dataset of .*tf.string"),
    "dataset of gaps": (lambda t: t.flow.fit(dataset(tf.sparse.from_dense(X))), "a dataset of SparseTensorSpec"),
    "empty batches": (lambda t: t.flow.log_prob(dataset(X[:0])), r"a dataset of TensorSpec\(shape=\(0, 3\)"),
    "no batches": (lambda t: t.flow.fit(dataset(X).take(0)), "x is an empty dataset"),
    "endless": (lambda t: t.flow.log_prob(dataset(X).repeat()), r"without an end. Take .*x.take\(n\)"),
    "endless in fit": (lambda t: t.flow.fit(dataset(X).repeat()), "x is a dataset without an end.*steps_per_epoch=N"),
    "endless in evaluate": (lambda t: t.flow.evaluate(dataset(X).repeat()), "without an end.*: steps=N"),
    "endless validation": (
        lambda t: t.flow.fit(X, validation_data=dataset(X).repeat()), "validation_data is a.*: validation_steps=N"
    ),
    # Weights, labels and conditions.
    "weights too few": (lambda t: t.flow.fit(X, sample_weight=np.ones(3)), r"each of 8 examples.*shape=\(3,\)"),
    "weights of entries": (lambda t: t.flow.fit(X, sample_weight=np.ones([8, 3])), r"shape=\(8, 3\)"),
    "weights NaN": (lambda t: t.flow.evaluate(X, sample_weight=np.full(8, np.nan)), "8 of 8 entries.*first is nan"),
    "weights of text": (lambda t: t.flow.fit(X, sample_weight=np.full(8, "a")), "weights of type <U1"),
    "validation weights": (
        lambda t: t.flow.fit(X, validation_data=(X, None, np.full(8, np.inf))), "sample_weight.*first is inf"
    ),
    "too few targets": (lambda t: t.flow.fit(X, np.zeros(3)), "'x' sizes: 8.*'y' sizes: 3"),
    "label too large": (lambda t: t.labelled.sample(3, condition=5), r"whole numbers 0 \.\.\. 4.*first is 5"),
    "label negative": (lambda t: t.labelled.log_prob(GIVEN, condition=np.full(40, -1)), "0 ... 4.*first is -1"),
    "label 2**40": (lambda t: t.labelled.fit([GIVEN, np.full(40, 2**40)]), "first is 1099511627776"),
    "label of text": (lambda t: t.labelled.log_prob(GIVEN, condition=np.full(40, "a")), "condition of type <U1"),
    "label outside in given": (lambda t: t.labelled.given(7), r"0 \.\.\. 4. Received: 1 of 1 .*first is 7"),
    "condition 1e30": (lambda t: t.given.sample(1, condition=[0.0, 0.0, 1e30]), r"1 of 3 .*of condition.*is 1e\+30"),
    "condition complex": (lambda t: t.given.given(CONDITIONS * 1j), "condition of type complex"),
    "condition sparse": (
        lambda t: t.given.log_prob(GIVEN, condition=tf.sparse.from_dense(CONDITIONS)), "condition with gaps, a Sparse"
    ),
    "conditions too few in batches": (
        lambda t: t.given.fit(batches(((GIVEN, CONDITIONS[:7]),))), "each of 40 examples.*condition has 7"
    ),
    # Parts.
    "parts complex": (lambda t: t.flow.decode([normal(4, 2) * 1j, normal(4, 3)]), "a part of type complex"),
    "parts by name": (lambda t: t.flow.decode({"z": normal(4, 2)}), "a part of type dict"),
    # Numbers beside data.
    "batch size 0": (lambda t: t.flow.fit(X, batch_size=0), "batch_size must be a whole number.*batch_size=0"),
    "batch size NaN": (lambda t: t.flow.log_prob(X, batch_size=np.nan), "batch_size=nan"),
    "batch size 2.5": (lambda t: t.flow.predict(X, batch_size=2.5), "batch_size=2.5"),
    "batch size -1": (lambda t: t.flow.decode(t.flow.encode(X), batch_size=-1), "batch_size=-1"),
    "infinite draws": (lambda t: t.flow.log_prob(X, num_draws=np.inf), "num_draws=inf"),
    "draws of an export": (lambda t: t.flow.export("nowhere", num_draws=0), "num_draws=0"),
    "10**12 samples": (lambda t: t.flow.sample(10**12), r"1,000,000,000,000 examples.* 12.0 TB.*Draw fewer"),
    "samples of NaN": (lambda t: t.flow.sample(np.nan), "n must be a whole number.*n=nan"),
    "temperature NaN": (lambda t: t.flow.sample(2, temperature=np.nan), "temperature=nan"),
    "temperature tensor": (lambda t: t.flow.sample(2, temperature=tf.constant(-1.0)), "temperature=-1.0"),
    "temperature 1e30": (lambda t: t.flow.sample_alike(X, temperature=1e30), r"1e\+18 at most.*=1e\+30"),
    "temperature of text": (lambda t: t.flow.sample(2, temperature="hot"), "temperature of type str"),
    "seed of text": (lambda t: t.flow.log_prob(X, seed="a"), "whole number, or a pair of them.*seed='a'"),
    "seed 1.5": (lambda t: t.flow.sample(2, seed=1.5), "pair of them.*seed=1.5"),
    "three seeds": (lambda t: t.flow.adapt(X, seed=[1, 2, 3]), r"seed=\[1, 2, 3\]"),
    "typical NaN": (lambda t: t.flow.score(X, typical=np.nan), "typical has a finite mean.*typical=nan"),
    "validation split": (lambda t: t.flow.fit(X, validation_split=2.0), "validation_split=2.0"),
    "likelihood weight": (lambda t: t.flow.compile("adam", likelihood_weight=np.nan), "likelihood_weight=nan"),
    "stored: n": (lambda t: t.stored.sample(-1), "n must be a whole number.*n=-1"),
    "stored: draws": (lambda t: t.stored.log_prob(X, num_draws=0), "num_draws=0"),
    "stored: temperature": (lambda t: t.stored.sample(2, temperature=0.0), "temperature=0.0"),
    "stored: 1e30": (lambda t: t.stored.log_prob(having(1e30)), r"first is 1.0.*e\+30"),
}  # fmt: skip

#: What graphs are given, datasets and exported signatures: these fail in TensorFlow.
GIVEN_TO_A_GRAPH = {
    "dataset of 1e30": (lambda t: t.flow.log_prob(dataset(having(1e30))), r"finite numbers, 1e\+18 at most"),
    "dataset of weights": (lambda t: t.flow.fit(dataset(X, X, having(-1.0)[:, 1])), "sample_weight is zero or more"),
    "dataset of labels": (
        lambda t: t.labelled.log_prob(dataset({"x": GIVEN, "condition": np.full(40, 9)})), r"whole numbers 0 \.\.\. 4"
    ),
    "exported: NaN": (lambda t: scored(t, having(np.nan)), r"batches \(n, 3\) of finite numbers"),
    "exported: 1e30": (lambda t: scored(t, having(1e30)), r"1e\+18 at most"),
    "exported: shape": (lambda t: scored(t, normal(4, 1)), r"\[4,1\] is not compatible with expected shape \[\?,3\]"),
    "exported: rank": (lambda t: scored(t, normal(3)), r"\[3\] is not compatible with expected shape \[\?,3\]"),
    "exported: type": (lambda t: scored(t, X.astype("float64")), "expected to be a float tensor but is a double"),
    "exported: text": (lambda t: scored(t, np.full([2, 3], "a")), "but is a string tensor"),
    "exported: seeds": (lambda t: scored(t, X, tf.constant([1, 2, 3])), r"seed must have shape \[2\], not \[3\]"),
    "exported: n = -1": (lambda t: drawn(t, n=-1), "sample draws 0 ... 715827882 examples at once"),
    "exported: n = 2**31 - 1": (lambda t: drawn(t, n=2**31 - 1), "sample draws 0 ... 715827882 examples"),
    "exported: n = 10**12": (lambda t: drawn(t, n=10**12), "expected to be a int32 tensor but is a int64"),
    "exported: temperature NaN": (lambda t: drawn(t, temperature=np.nan), "The temperature is a positive number"),
    "exported: temperature -1": (lambda t: drawn(t, temperature=-1.0), "The temperature is a positive number"),
    "exported: parts": (
        lambda t: t.signatures["decode"](z=tf.zeros([4, 2]), residual_0=tf.zeros([5, 3])), "z, residual_0 have a row"
    ),
    "exported: label": (lambda t: label(t, np.full(40, 5)), r"A condition has whole numbers 0 \.\.\. 4"),
    "exported: labels too few": (lambda t: label(t, np.zeros(7, int)), r"a row for each example.*\[7\] \[40\]"),
}  # fmt: skip

DATA, IMAGES = (lambda path: load(str(path))), image_folder


def bsds300(folder):
    return load("bsds300", folder)


#: Files: what writes one, what opens it, and the error.
FILES = {
    # Arrays.
    "npy of 10**12 rows": (
        lambda d, t: bad.written(d / "a.npy", bad.header(10**12, 3)), DATA, "24.0 TB, more than half of the memory"
    ),
    "npy of 2**65 bytes": (
        lambda d, t: bad.written(d / "a.npy", bad.header(2**61, 2)), DATA, "would take 36,893,488.1 TB"
    ),
    "npy of -1 rows": (lambda d, t: bad.written(d / "a.npy", bad.header(-1, 3)), DATA, r"its shape is \(-1, 3\)"),
    "npy cut short": (lambda d, t: bad.cut(bad.npy(d, normal(90, 3))), DATA, "cut short: its header says 1.1 kB, it"),
    "npy with a cut header": (lambda d, t: bad.cut(bad.npy(d, normal(9, 3)), 0.2), DATA, "damaged.*EOF.*header"),
    "npy with code": (
        lambda d, t: bad.written(d / "a.npy", bad.header(3, 3).replace(b"(3, 3), ", b"exit(3),")), DATA, "malformed"
    ),
    "npy of objects": (lambda d, t: bad.npy(d, np.array([{}])), DATA, "it holds objects of Python, a pickle"),
    "npy that is a zip": (
        lambda d, t: bad.npz(d, x=X).rename(d / "a.npy"), DATA, r"is not an array of NumPy: it begins with b'PK"
    ),
    "pickle dressed as npz": (lambda d, t: bad.pickled(d / "a.npz"), DATA, "a.npz is a pickle, which can run code"),
    "pickle inside an npz": (
        lambda d, t: bad.archive(d / "a.npz", {"x.npy": bad.pickled(d / "x").read_bytes()}), DATA, "x.npy in .*a pickle"
    ),
    "npz of 10**12 rows": (
        lambda d, t: bad.archive(d / "a.npz", {"x.npy": bad.header(10**12, 3)}), DATA, "unpacks to would take 24.0 TB"
    ),
    "npz beyond memory": (lambda d, t: bad.npz(d, x=np.zeros([10**5, 3])), DATA, "would take 2.4 MB.*is 1.0 MB"),
    "npz member cut short": (
        lambda d, t: bad.archive(d / "a.npz", {"x.npy": bad.header(90, 3) + bytes(90)}), DATA, "x.npy in .*90 bytes"
    ),
    "npz cut short": (lambda d, t: bad.cut(bad.npz(d, x=X)), DATA, "damaged, cut short or not an archive"),
    "npz with a wrong bit": (lambda d, t: bad.flipped(bad.npz(d, x=normal(90, 3))), DATA, "is damaged"),
    "npz that leads outside": (
        lambda d, t: bad.archive(d / "a.npz", {"../x.npy": b""}), DATA, r"'../x.npy' leads out of the folder"
    ),
    "npz of complex numbers": (lambda d, t: bad.npz(d, x=X * 1j), DATA, r"of numbers.*all, complex64 of \(8, 3\)"),
    "npz of text": (lambda d, t: bad.npz(d, x=np.full([8, 3], "a")), DATA, "all, <U1 of"),
    "npz of records": (lambda d, t: bad.npz(d, train=np.zeros(8, "f4, f4"), test=X), DATA, "train, .*f0.* of .8,"),
    "npz without examples": (lambda d, t: bad.npz(d, train=X[:0], test=X), DATA, r"train, float32 of \(0, 3\)"),
    "npz of other columns": (lambda d, t: bad.npz(d, train=X, test=normal(8, 4)), DATA, r"train \(7, 3\), test \(8, 4"),
    "npz of 1e30": (lambda d, t: bad.npz(d, x=having(1e30)), DATA, r"some beyond 1e\+18"),
    "npz of denormals": (lambda d, t: bad.npz(d, x=X * np.float32(1e-41)), DATA, "3 of 3 .*differ by less than 1e-38"),
    "hdf5 of 10**12 rows": (
        lambda d, t: bad.hdf5(d, lambda f: f.create_dataset("train", (10**12, 63), "f8", chunks=(9, 63))),
        bsds300, "504.0 TB",
    ),
    "hdf5 with a link": (
        lambda d, t: bad.hdf5(d, lambda f: f.update({"train": h5py.ExternalLink("../other.hdf5", "train")})),
        bsds300, "train in .*is not an array of the file itself",
    ),
    "hdf5 of another file": (lambda d, t: bad.hdf5(d, bad.virtual), bsds300, "train in .*not an array of the file"),
    "hdf5 of text": (
        lambda d, t: bad.hdf5(d, lambda f: f.create_dataset("train", (5, 63), h5py.string_dtype())),
        bsds300, "63 columns of numbers. Received: object",
    ),
    # Tables of text.
    "csv with NUL": (lambda d, t: bad.written(d / "a.csv", b"a,b\n1,\x002\n"), DATA, "byte 6 is NUL. Save it as CSV"),
    "csv in UTF-16": (lambda d, t: bad.written(d / "a.csv", "a,b".encode("utf-16")), DATA, "not a text file in UTF-8"),
    "csv of two encodings": (
        lambda d, t: bad.written(d / "a.csv", "ä\n".encode() + "ä".encode("latin1")), DATA, "0xe4 in position 3"
    ),
    "csv of one long line": (lambda d, t: bad.written(d / "a.csv", b"1" * 10**6), DATA, "not a table .*field limit"),
    "csv of 1e39": (lambda d, t: bad.written(d / "a.csv", b"1,2\n3,4\n5,1e39\n"), DATA, "in a have .*example 2"),
    # Images.
    "png of gigabytes": (lambda d, t: bad.png(d / "i/a.png", 40_000, 40_000), IMAGES, "40,000 x 40,000 pixels. An"),
    "jpeg of gigabytes": (lambda d, t: bad.jpeg(d / "i/a.jpg", 65_000, 60_000), IMAGES, "65,000 x 60,000 pixels"),
    "bmp of gigabytes": (lambda d, t: bad.bmp(d / "i/a.bmp", 10**6, -(10**6)), IMAGES, "1,000,000 x 1,000,000 pixels"),
    "gif of gigabytes": (lambda d, t: bad.gif(d / "i/a.gif", 5000, 5000, 90), IMAGES, "5,000 x 5,000 .*in 91 frames"),
    "png cut short": (
        lambda d, t: bad.cut(bad.png(d / "i/a.png", 50, 50) / "a.png", 0.8).parent, IMAGES, "a.png is not an image that"
    ),
    "no image": (lambda d, t: bad.written(d / "i/a.png", b"hello").parent, IMAGES, "it is no PNG, JPEG, GIF or BMP"),
    "images beyond memory": (
        lambda d, t: [bad.png(d / f"i/{i}.png", 300, 300) for i in range(3)].pop(), IMAGES, "All 3 images .*1.1 MB"
    ),
    "images resized to gigabytes": (
        lambda d, t: bad.png(d / "i/a.png", 5, 5), lambda path: image_folder(path, (10**5, 10**5)), "size=.100000, 100"
    ),
    # Models.
    "keras cut short": (lambda d, t: bad.cut(bad.keras_file(d, t)), load_flow, "cut short or not an archive"),
    "keras with a wrong bit": (lambda d, t: bad.flipped(bad.keras_file(d, t)), load_flow, "flow.keras is damaged: "),
    "keras with config cut": (
        lambda d, t: bad.keras_file(d, t, config__json=b'{"a"'), load_flow, "its config.json cannot be read"
    ),
    "keras with deep config": (
        lambda d, t: bad.keras_file(d, t, config__json=b"[" * 10**5), load_flow, "config.json cannot .* recursion"
    ),
    "keras without config": (
        lambda d, t: bad.keras_file(d, t, config__json=None), load_flow, "a whole .keras file: it has no config.json"
    ),
    "keras without weights": (
        lambda d, t: bad.keras_file(d, t, model__weights__h5=None), load_flow, "it has no model.weights.h5"
    ),
    "keras with weights cut": (
        lambda d, t: bad.keras_file(d, t, model__weights__h5=t.members["model.weights.h5"][:3000]),
        load_flow, "is damaged, of another version.*truncated",
    ),
    "keras with more members": (
        lambda d, t: bad.with_member(d, t, "run.py"), load_flow, "Keras does not write a member 'run.py'"
    ),
    "keras that leads outside": (
        lambda d, t: bad.with_member(d, t, "assets/../../x"), load_flow, "'assets/../../x' leads out of the folder"
    ),
    "keras with a root": (lambda d, t: bad.with_member(d, t, "/etc/x"), load_flow, "'/etc/x' has a name that is not"),
    "keras with a drive": (lambda d, t: bad.with_member(d, t, r"C:\x"), load_flow, "'C:.*x' has a name that is not"),
    "keras with a link": (lambda d, t: bad.with_link(d, t), load_flow, "'assets/link' is a link to another file"),
    "keras bomb": (
        lambda d, t: bad.with_member(d, t, "assets/x", bytes(5 * 10**7)), load_flow, "unpacks from .* kB to 50.0 MB"
    ),
    "keras with a Lambda": (lambda d, t: bad.with_lambda(d), load_keras_file, "holds a Lambda, which is a program"),
    "keras with a TFSMLayer": (
        lambda d, t: bad.with_layer(d, t, module="keras.layers", class_name="TFSMLayer"), load_flow, "holds a TFSMLayer"
    ),
    "keras with a class of Python": (
        lambda d, t: bad.with_layer(d, t, module="os", class_name="system"), load_flow, "needs os.system, which is not"
    ),
    "keras with an unknown layer": (
        lambda d, t: bad.with_layer(d, t, module="keras.layers", class_name="Dance"), load_flow, "needs code.*Dance"
    ),
    "SavedModel without graph": (
        lambda d, t: bad.saved_model(d, t, lambda s: (s / "saved_model.pb").unlink()),
        SavedModelFlow, "it has no saved_model.pb",
    ),
    "SavedModel without weights": (
        lambda d, t: bad.saved_model(d, t, lambda s: (s / WEIGHTS).unlink()), open_flow, f"it has no {WEIGHTS}. Copy it"
    ),
    "SavedModel without index": (
        lambda d, t: bad.saved_model(d, t, lambda s: (s / "variables/variables.index").unlink()),
        open_flow, "it has no variables/variables.index",
    ),
    "SavedModel with weights cut": (
        lambda d, t: bad.saved_model(d, t, lambda s: bad.cut(s / WEIGHTS)), open_flow, "be read: Read less bytes than"
    ),
    "SavedModel with a wrong bit": (
        lambda d, t: bad.saved_model(d, t, lambda s: bad.flipped(s / WEIGHTS)), open_flow, "Checksum does not match"
    ),
    "SavedModel with graph cut": (
        lambda d, t: bad.saved_model(d, t, lambda s: bad.cut(s / "saved_model.pb")), open_flow, "Cannot parse file"
    ),
    "SavedModel of others": (
        lambda d, t: bad.other_program(d), open_flow, r"not an exported flow: it has no signature log_prob\(seed, x\)"
    ),
}  # fmt: skip

BEYOND_LITTLE_MEMORY = ("npz beyond memory", "images beyond memory")
CASES = {**GIVEN_TO_A_FLOW, **GIVEN_TO_A_GRAPH, **FILES}


def table(**columns):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: tables of it are not tried")
    return pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns})


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """Flows that no case changes, and what they wrote."""
    folder = tmp_path_factory.mktemp("things")
    keras.utils.set_random_seed(0)
    things = types.SimpleNamespace(
        flow=small_flow(), digits=digits_flow(), given=adapted_flow(), saved=folder / "saved"
    )
    things.labelled = plain(condition=label_network())
    things.double = FlowModel([keras.Input([3]), fl.Dense(2, dtype="float64")])
    for flow in (things.flow, things.given, things.labelled):
        flow.compile("adam", run_eagerly=True)
    things.flow.export(things.saved)
    things.stored = SavedModelFlow(things.saved)
    things.signatures = things.stored.signatures
    things.labelled.export(folder / "labelled")
    things.module = tf.saved_model.load(str(folder / "labelled"))
    things.labelled_signatures = things.module.signatures
    things.flow.save(folder / "flow.keras")
    with zipfile.ZipFile(folder / "flow.keras") as file:
        things.members = {name: file.read(name) for name in file.namelist()}
    return things


def weights_of(things) -> list:
    return [weight for flow in (things.flow, things.given, things.labelled) for weight in flow.get_weights()]


def forget_peak() -> float:
    """Makes the peak of memory what the process holds now (Linux; elsewhere it stays), in megabytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_megabytes()


def peak_megabytes() -> float:
    with contextlib.suppress(OSError):
        return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def digest(folder) -> dict:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def test_there_are_many_cases():
    assert len(CASES) == len(GIVEN_TO_A_FLOW) + len(GIVEN_TO_A_GRAPH) + len(FILES) >= 150


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_and_nothing_is_lost(name, things, tmp_path, monkeypatch):
    *make, act, message = CASES[name]
    given = make[0](tmp_path, things) if make else things
    if name in BEYOND_LITTLE_MEMORY:
        monkeypatch.setattr("tfp_flowify.core.memory.memory", lambda: 10**6)
    kinds = tf.errors.InvalidArgumentError if name in GIVEN_TO_A_GRAPH else (ValueError, TypeError, FileNotFoundError)
    monkeypatch.chdir(tmp_path)
    before, weights = digest(tmp_path) | digest(things.saved), weights_of(things)
    held = forget_peak()
    with pytest.raises(kinds, match=f"(?s){message}"):
        act(given)
    assert peak_megabytes() - held < 300
    assert digest(tmp_path) | digest(things.saved) == before
    for weight, now in zip(weights, weights_of(things), strict=True):
        np.testing.assert_array_equal(now, weight)


@pytest.mark.parametrize("scale", [1e-45, 1e-30, 1e17])
def test_numbers_at_the_ends_of_the_range_are_scored(scale, things):
    x = X * np.float32(scale)
    assert np.isfinite(things.flow.log_prob(x)).all()
    assert all(np.isfinite(part).all() for part in things.flow.encode(x))
