"""Writer of TFRecord files with TensorFlow: `python make.py FOLDER [COUNT [SEED]]`.

`examples.tfrecord` has examples with features of every kind, serialized by TensorFlow, and examples in unusual forms
that protobuf allows, serialized here. `expected.json` has for each record the values that `tf.train.Example` reads; those
of usual examples are compared with `tf.io.parse_single_example` as well. `gzip.tfrecord` and `zlib.tfrecord` are compressed.
"""

import base64
import json
import math
import os
import random
import struct
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

INTEGERS = (0, 1, -1, 127, 128, -128, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1.0, 0.1, math.inf, -math.inf, math.nan, 1e-45, 3.4028234e38)
NAMES = ("image/encoded", "image/class/label", "größe", "", "k" * 130, "a", "b/c", "floats", "text")


def draw_feature(rng: random.Random) -> tf.train.Feature:
    count = rng.choice((0, 1, 1, 1, 2, 3, 17, 40))
    kind = rng.randrange(10)
    if kind == 0:
        return tf.train.Feature()
    if kind < 4:
        sizes = [rng.choice((0, 1, 3, 127, 128, 900, 2000)) for _ in range(min(count, 4))]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[rng.randbytes(size) for size in sizes]))
    if kind < 7:
        values = [rng.choice((*INTEGERS, rng.randrange(1000))) for _ in range(count)]
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    values = [rng.choice((*FLOATS, rng.random())) for _ in range(count)]
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def draw_example(rng: random.Random) -> tf.train.Example:
    names = rng.sample(NAMES, rng.randrange(len(NAMES) + 1))
    features = {name: draw_feature(rng) for name in names}
    return tf.train.Example(features=tf.train.Features(feature=features))


# -- unusual forms ----------------------------------------------------------------------------------------------------


def varint(value: int, nbytes: int = 1) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 127 or len(parts) < nbytes - 1:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def field(number: int, content: bytes, rng: random.Random | None = None) -> bytes:
    longer = rng is not None and rng.random() < 0.1
    return varint(number << 3 | 2, 2 if longer else 1) + varint(len(content), 3 if longer else 1) + content


def draw_unknown(rng: random.Random) -> bytes:
    group = b"\x2b\x08\x01" + (b"\x33\x0a\x01a\x34" if rng.random() < 0.5 else b"") + b"\x2c"
    unknown = (group, b"\x20\x07", b"\x21" + bytes(8), field(9, b"abc"), b"\x25" + bytes(4), b"\x08\x01")
    return rng.choice(unknown) if rng.random() < 0.3 else b""


def draw_list(rng: random.Random) -> bytes:
    """Return one of the kinds of a `Feature`; values packed, not packed, or both."""
    kind = rng.randrange(1, 4)
    parts = []
    for _ in range(rng.randrange(5)):
        if kind == 1:
            parts.append(field(1, rng.randbytes(rng.choice((0, 2, 300))), rng))
            continue
        values = [
            struct.pack("<f", rng.choice(FLOATS)) if kind == 2 else varint(rng.choice(INTEGERS), rng.randrange(1, 11))
            for _ in range(rng.randrange(30))
        ]
        if rng.random() < 0.5:
            parts.append(field(1, b"".join(values), rng))
        else:
            parts += [(b"\x0d" if kind == 2 else b"\x08") + value for value in values]
    # Field 1 of the other type is a value in a list of numbers.
    unknown = [part for part in (draw_unknown(rng) for _ in parts) if part[:1] != b"\x08"]
    mixed = parts + unknown
    if rng.random() < 0.5:
        rng.shuffle(mixed)
    return field(kind, b"".join(mixed), rng)


def draw_unusual(rng: random.Random) -> bytes:
    data, body = b"", b""
    for _ in range(rng.randrange(8)):
        name = field(1, rng.choice(NAMES).encode(), rng)
        parts = [name, *(field(2, b"".join(draw_list(rng) for _ in range(rng.choice((0, 1, 1, 2))))) for _ in range(1))]
        if rng.random() < 0.2:
            parts.append(field(2, draw_list(rng), rng))
        if rng.random() < 0.1:
            parts.append(field(1, b"other", rng))
        if rng.random() < 0.1:
            parts.remove(name)
        # No unknown field: protobuf's runtimes differ there, and that of Python forgets such an entry.
        if rng.random() < 0.5:
            rng.shuffle(parts)
        body += field(1, b"".join(parts), rng) + draw_unknown(rng)
        if rng.random() < 0.2:
            data, body = data + field(1, body, rng) + draw_unknown(rng), b""
    return data + field(1, body, rng)


# -- values -----------------------------------------------------------------------------------------------------------


def values_of(example: tf.train.Example) -> dict[str, list]:
    """Return the kind and the values of each feature: bytes as base64, floats by their bits."""
    found = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind == "bytes_list":
            found[name] = ["bytes", [base64.b64encode(value).decode() for value in feature.bytes_list.value]]
        elif kind == "int64_list":
            found[name] = ["int64", list(feature.int64_list.value)]
        elif kind == "float_list":
            found[name] = ["float32", np.array(feature.float_list.value, "<f4").tobytes().hex()]
    return found


def check_parsed(serialized: bytes, expected: dict[str, list]) -> None:
    """Fail unless `tf.io.parse_single_example` reads the same values."""
    dtypes = {"bytes": tf.string, "int64": tf.int64, "float32": tf.float32}
    # An empty name is not allowed there.
    wanted = {name: tf.io.VarLenFeature(dtypes[kind]) for name, (kind, _) in expected.items() if name}
    if not wanted:
        return
    parsed = tf.io.parse_single_example(serialized, wanted)
    for name in wanted:
        kind, values = expected[name]
        found = parsed[name].values.numpy()
        if kind == "bytes":
            assert [base64.b64encode(value).decode() for value in found] == values, name
        elif kind == "int64":
            assert found.tolist() == values, name
        else:
            assert found.astype("<f4").tobytes().hex() == values, name


def main(folder: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    payloads = []
    for number in range(count):
        if number % 2:
            payloads.append(draw_unusual(rng))
        else:
            payloads.append(draw_example(rng).SerializeToString())
    path = str(folder / "examples.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for payload in payloads:
            writer.write(payload)
    read = [bytes(record.numpy()) for record in tf.data.TFRecordDataset(path)]
    assert read == payloads
    expected = [values_of(tf.train.Example.FromString(payload)) for payload in read]
    for payload, values in list(zip(read, expected, strict=True))[::2]:
        check_parsed(payload, values)
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")
    for kind in ("GZIP", "ZLIB"):
        with tf.io.TFRecordWriter(str(folder / f"{kind.lower()}.tfrecord"), kind) as writer:
            writer.write(payloads[0])
    counts = {}
    for values in expected:
        for kind, _ in values.values():
            counts[kind] = counts.get(kind, 0) + 1
    print(tf.__version__, len(payloads), "records", counts)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(each) for each in sys.argv[2:] or (30,)), *([7] if len(sys.argv) < 4 else []))
