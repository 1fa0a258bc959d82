"""Files of the same samples in the formats that this project reads: tar, TFRecord, MDS and Parquet.

The layouts are those that the usual tools write, with their usual sizes of shards. The tests compare files of the
tools themselves.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FORMATS = ("tar", "tfrecord", "mds", "parquet")

_SHARDS = 16
_ROW_GROUP = 100


class Photographs(Protocol):
    """Protocol of the samples that are written, such as a `RecFile`."""

    def __len__(self) -> int: ...

    def image(self, number: int) -> tuple[bytes, int]:
        """Return (JPEG bytes, label) of a sample."""


def write_format(name: str, records: Photographs, folder: Path) -> None:
    """Write all samples as 16 shards.

    Args:
        name: one of `FORMATS`.
        records: the samples.
        folder: where the files are written.
    """
    parts = np.array_split(np.arange(len(records)), _SHARDS)
    write = {"tar": _write_tar, "tfrecord": _write_tfrecord, "mds": _write_mds, "parquet": _write_parquet}[
        name
    ]
    names = [
        write(folder, shard, [records.image(number) for number in part]) for shard, part in enumerate(parts)
    ]
    if name == "mds":
        (folder / "index.json").write_text(json.dumps({"version": 2, "shards": names}))


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a tar of (name, content)."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def _write_tar(folder: Path, shard: int, samples: Sequence[tuple[bytes, int]]) -> None:
    members: list[tuple[str, bytes]] = []
    for data, label in samples:
        members += [(f"{label:08d}.cls", str(label).encode()), (f"{label:08d}.jpg", data)]
    write_tar(folder / f"train-{shard:05d}.tar", members)


def _write_tfrecord(folder: Path, shard: int, samples: Sequence[tuple[bytes, int]]) -> None:
    with open(folder / f"train-{shard:05d}.tfrecord", "wb") as file:
        for data, label in samples:
            features = _entry("image/encoded", _field(1, _field(1, data)))
            features += _entry("image/class/label", _field(3, _field(1, _varint(label))))
            example = _field(1, features)
            length = struct.pack("<Q", len(example))
            file.write(length + _masked_crc(length) + example + _masked_crc(example))


def _entry(name: str, feature: bytes) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, feature))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _masked_crc(data: bytes) -> bytes:
    import google_crc32c  # only here: the other formats need no CRC-32C

    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _write_mds(folder: Path, shard: int, samples: Sequence[tuple[bytes, int]]) -> dict[str, object]:
    rows = [struct.pack("<I", len(data)) + data + struct.pack("<q", label) for data, label in samples]
    begin = 4 * (len(rows) + 2)
    columns = {
        "column_names": ["image", "label"],
        "column_encodings": ["jpeg", "int"],
        "column_sizes": [None, 8],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "samples": len(rows),
        "size_limit": 1 << 26,
        "version": 2,
        "zip_data": None,
    }
    text = json.dumps(columns, sort_keys=True).encode()
    begin += len(text)
    ends = begin + np.cumsum([0, *map(len, rows)])
    name = f"shard.{shard:05d}.mds"
    data = struct.pack("<I", len(rows)) + ends.astype("<u4").tobytes() + text + b"".join(rows)
    (folder / name).write_bytes(data)
    return {**columns, "raw_data": {"basename": name, "bytes": len(data), "hashes": {}}}


def _write_parquet(folder: Path, shard: int, samples: Sequence[tuple[bytes, int]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "image": [{"bytes": data, "path": f"{label:08d}.jpg"} for data, label in samples],
            "label": [label for _, label in samples],
        }
    )
    name = f"train-{shard:05d}-of-{_SHARDS:05d}.parquet"
    pq.write_table(table, folder / name, row_group_size=_ROW_GROUP, compression="snappy")
