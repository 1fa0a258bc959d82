"""Writer of MDS sets for tests, with the facts of docs/formats.md; values are given encoded."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {
    **dict.fromkeys(("int", "int64", "uint64", "float64"), 8),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int16", "uint16", "float16"), 2),
    **dict.fromkeys(("int8", "uint8"), 1),
}
"""Sizes of the values of encodings with a fixed size."""


def size_of(encoding: str) -> int | None:
    """Return the size of the values of an encoding; None if it varies."""
    name, *arguments = encoding.split(":")
    if name == "ndarray" and len(arguments) == 2:
        return int(np.dtype(arguments[0]).itemsize * np.prod([int(each) for each in arguments[1].split(",")]))
    return SIZES.get(encoding)


def sample_of(columns: Mapping[str, str], values: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a sample."""
    names = sorted(columns)
    sizes = [len(values[name]) for name in names if size_of(columns[name]) is None]
    return np.array(sizes, "<u4").tobytes() + b"".join(values[name] for name in names)


def shard_of(samples: Sequence[bytes], settings: bytes = b'{"format": "mds"}') -> bytes:
    """Return a shard."""
    begin = 4 * (len(samples) + 2) + len(settings)
    ends = np.cumsum([begin, *map(len, samples)])
    return struct.pack("<I", len(samples)) + ends.astype("<u4").tobytes() + settings + b"".join(samples)


def compress(codec: str, data: bytes) -> bytes:
    """Return compressed data; skip the test if the package is missing."""
    try:
        return _compressed(codec, data)
    except ModuleNotFoundError as error:
        import pytest

        pytest.skip(f"needs {error.name}")


def _compressed(codec: str, data: bytes) -> bytes:
    if codec == "gz":
        return gzip.compress(data, mtime=0)
    if codec == "bz2":
        return bz2.compress(data)
    if codec == "zstd":
        import zstandard

        return bytes(zstandard.compress(data))
    if codec == "br":
        import brotli

        return bytes(brotli.compress(data, quality=5))
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))


def describe(columns: Mapping[str, str], shard: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a shard in an index."""
    names = sorted(columns)
    return {
        "column_names": names,
        "column_encodings": [columns[name] for name in names],
        "column_sizes": [size_of(columns[name]) for name in names],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": None,
        "version": 2,
        "zip_data": None,
        **shard,
    }


def write_set(
    folder: Path,
    columns: Mapping[str, str],
    samples: Sequence[Mapping[str, bytes]],
    *,
    per_shard: int = 10,
    codec: str | None = None,
    hashes: Sequence[str] = (),
) -> Path:
    """Write a set; return its folder.

    Args:
        folder: made if it is missing.
        columns: name to encoding.
        samples: the encoded values of each, by column.
        per_shard: samples of a shard; a list has the number of each.
        codec: of the shards, such as "zstd"; None: they are not compressed.
        hashes: algorithms of the hashes in the index.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards = []
    for number, low in enumerate(range(0, len(samples), per_shard)):
        some = samples[low : low + per_shard]
        raw = shard_of([sample_of(columns, values) for values in some])
        name = f"shard.{number:05}.mds"
        entry: dict[str, Any] = {
            "samples": len(some),
            "raw_data": file_of(name, raw, hashes),
            "hashes": list(hashes),
        }
        if codec is None:
            (folder / name).write_bytes(raw)
        else:
            packed = compress(codec, raw)
            entry |= {"compression": f"{codec}:3", "zip_data": file_of(f"{name}.{codec}", packed, hashes)}
            (folder / f"{name}.{codec}").write_bytes(packed)
        shards.append(describe(columns, entry))
    write_index(folder, shards)
    return folder


def file_of(name: str, data: bytes, hashes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the entry of a file in an index."""
    digests = {each: hashlib.new(each, data).hexdigest() for each in hashes}
    return {"basename": name, "bytes": len(data), "hashes": digests}


def write_index(folder: Path, shards: Sequence[Mapping[str, Any]], version: Any = 2) -> None:
    """Write an index."""
    (folder / "index.json").write_text(json.dumps({"version": version, "shards": list(shards)}))


def number(value: int) -> bytes:
    """Return the value of a column of the encoding "int"."""
    return struct.pack("<q", value)
