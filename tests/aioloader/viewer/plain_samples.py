"""A format of samples with fields, as simple as possible: what the viewer shows does not depend on a real one.

A shard is a sequence of samples; a sample is its length and that of its head, the head (JSON: the key, and the name and
the size of each field) and the fields.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aioloader.datasets.fields import FieldKind, FieldReader
from aioloader.datasets.shard_dataset import ShardDataset, ShardTable, TextKeys
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.foundation.types import IntArray, ItemLocation, Spans

_LENGTHS = struct.Struct("<II")
_KINDS = {
    "jpg": FieldKind.IMAGE,
    "json": FieldKind.JSON,
    "txt": FieldKind.TEXT,
    "cls": FieldKind.INTEGER,
    "npy": FieldKind.VALUE,
}


@dataclass(frozen=True)
class PlainReader:
    """Reader of such a sample; a field named ``*.npy`` becomes an array of bytes."""

    def _fields(self, data: memoryview, location: ItemLocation) -> dict[str, memoryview]:
        _, length = _LENGTHS.unpack_from(data)
        if bytes(data[8:9]) != b"{":
            raise SampleFormatError(
                "the head of the sample is damaged",
                path=location.path,
                offset=location.offset,
                key=location.key,
            )
        found = {}
        begin = 8 + length
        for name, nbytes in json.loads(bytes(data[8:begin]))["fields"]:
            found[name] = data[begin : begin + nbytes]
            begin += nbytes
        return found

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        fields = self._fields(data, location)
        for name in names:
            if name not in fields:
                raise MissingFieldError(name, tuple(fields), path=location.path, key=location.key)
        return [
            np.frombuffer(fields[name], np.uint8) if name.endswith("npy") else fields[name] for name in names
        ]

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        return tuple(self._fields(data, location))

    def kind(self, name: str) -> FieldKind:
        return _KINDS.get(name.rpartition(".")[2], FieldKind.BYTES)


class PlainDataset(ShardDataset):
    """Dataset of such shards.

    Attributes:
        opened: paths of the shards whose tables were opened.
    """

    def __init__(
        self, paths: Sequence[str | Path], *, image: str = "jpg", label: str = "cls", **options: Any
    ) -> None:
        self.opened: list[str] = []
        super().__init__([str(path) for path in paths], image=image, label=label, fields=None, **options)

    def _reader(self) -> FieldReader:
        return PlainReader()

    def _open_table(self, path: str, version: Any) -> ShardTable:
        self.opened.append(path)
        data = Path(path).read_bytes()
        offsets, keys, begin = [], [], 0
        while begin < len(data):
            if begin + 8 > len(data) or data[begin] == 0xFF:
                raise SampleFormatError("a sample begins with wrong bytes", path=path, offset=begin)
            nbytes, length = _LENGTHS.unpack_from(data, begin)
            offsets.append(begin)
            head = data[begin + 8 : begin + 8 + length]
            key = json.loads(head)["key"] if head[:1] == b"{" else "?"
            keys.append(key.encode("utf-8", "surrogateescape"))
            begin += nbytes
        found: IntArray = np.array(offsets, np.int64)
        ends: IntArray = np.cumsum([len(key) for key in keys], dtype=np.int64)
        return ShardTable(
            path=path,
            nbytes=len(data),
            offset=found,
            length=np.diff(found, append=len(data)),
            keys=TextKeys(np.frombuffer(b"".join(keys), np.uint8), ends),
        )


class HugeLabels(PlainDataset):
    """Dataset whose labels cost more reads than the viewer makes without asking."""

    def _label_spans(self, indices: IntArray) -> tuple[Spans, Any]:
        spans = self.spans(indices)
        return Spans(spans.file, spans.offset, spans.length + (1 << 31)), None


def sample_bytes(key: str, fields: dict[str, bytes]) -> bytes:
    """Return a sample."""
    head = json.dumps({"key": key, "fields": [[name, len(body)] for name, body in fields.items()]}).encode()
    body = b"".join(fields.values())
    return _LENGTHS.pack(8 + len(head) + len(body), len(head)) + head + body


def write_shard(path: Path, samples: Sequence[tuple[str, dict[str, bytes]]]) -> Path:
    """Write a shard of (key, fields)."""
    path.write_bytes(b"".join(sample_bytes(key, fields) for key, fields in samples))
    return path
