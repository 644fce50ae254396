"""Files that are damaged or hostile, made by hand; each function writes one and gives its path."""

import io
import json
import pickle
import shutil
import struct
import zipfile
import zlib

import h5py
import keras
import numpy as np
import tensorflow as tf
from models import normal


def written(path, content: bytes):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def cut(path, share=0.5):
    """The beginning of a file in its place."""
    content = path.read_bytes()
    return written(path, content[: int(share * len(content))])


def flipped(path):
    """A file with one bit changed in its middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    return written(path, bytes(content))


# Arrays.


def npy(folder, array):
    np.save(folder / "mine.npy", array, allow_pickle=True)
    return folder / "mine.npy"


def npz(folder, **arrays):
    np.savez_compressed(folder / "mine.npz", **arrays)
    return folder / "mine.npz"


def header(*shape, descr="<f8") -> bytes:
    """The header of an array, which says what it likes."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def archive(path, members: dict):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def pickled(path):
    return written(path, pickle.dumps({"x": [1.0]}))


def hdf5(folder, add):
    """The folder of BSDS300 with a file whose training data are added by a function."""
    (folder / "BSDS300").mkdir()
    with h5py.File(folder / "other.hdf5", "w") as file:
        file["train"] = normal(5, 63)
    with h5py.File(folder / "BSDS300/BSDS300.hdf5", "w") as file:
        file["validation"], file["test"] = normal(5, 63), normal(5, 63)
        add(file)
    return folder


def virtual(file):
    layout = h5py.VirtualLayout((5, 63), "f4")
    layout[:] = h5py.VirtualSource("other.hdf5", "train", (5, 63))
    file.create_virtual_dataset("train", layout)


# Images.


def png(path, height, width):
    """A white image of one bit for each pixel, which is small on disk however large it is."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packed, row = zlib.compressobj(1), bytes(1 + (width + 7) // 8)
    data = b"".join(packed.compress(row) for _ in range(height)) + packed.flush()
    size = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", size) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return written(path, b"\x89PNG\r\n\x1a\n" + chunks).parent


def gif(path, height, width, frames):
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\x00"
    return written(path, b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0x80, 0, 0) + bytes(6) + frames * frame + b";").parent


def bmp(path, height, width):
    sizes = struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return written(path, b"BM" + sizes).parent


def jpeg(path, height, width):
    content = tf.io.encode_jpeg(tf.zeros([8, 8, 3], tf.uint8)).numpy()
    place = content.index(b"\xff\xc0") + 5
    return written(path, content[:place] + struct.pack(">HH", height, width) + content[place + 4 :]).parent


# Models.


def keras_file(folder, things, **changes):
    """The .keras file of a flow with other members; None takes one away."""
    members = {**things.members, **{name.replace("__", "."): content for name, content in changes.items()}}
    return archive(folder / "flow.keras", {name: content for name, content in members.items() if content is not None})


def with_member(folder, things, name, content=b"x"):
    return archive(folder / "flow.keras", {**things.members, name: content})


def with_link(folder, things):
    path, link = keras_file(folder, things), zipfile.ZipInfo("assets/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(link, "/etc/passwd")
    return path


def with_layer(folder, things, **changes):
    """The .keras file of a flow in which a layer is another."""
    config = json.loads(things.members["config.json"])
    config["config"]["network"]["config"]["layers"][1].update(registered_name=None, **changes)
    return keras_file(folder, things, config__json=json.dumps(config))


def with_lambda(folder):
    keras.Sequential([keras.Input([3]), keras.layers.Lambda(lambda x: 2 * x)]).save(folder / "model.keras")
    return folder / "model.keras"


def saved_model(folder, things, change):
    """A copy of an exported flow, changed by a function of its folder."""
    shutil.copytree(things.saved, folder / "saved")
    change(folder / "saved")
    return folder / "saved"


def other_program(folder):
    """A SavedModel with signatures of the same names, which take something else."""
    module = tf.Module()
    module.f = tf.function(lambda y: {"y": y}, input_signature=[tf.TensorSpec([None, 3])])
    tf.saved_model.save(module, str(folder / "saved"), {"log_prob": module.f, "sample": module.f})
    return folder / "saved"
