"""A format of shards for tests of what all formats share: JSON values and an image for each sample.

A sample is two lengths (uint32, little endian), the JSON object of its values, and its image, which may be empty. The
kind of a field follows from the suffix of its name: "a.json", "a.txt", "a.cls", "a.bin" and "a.jpg" are stored as text.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aioloader.datasets.fields import FieldKind
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.datasets.shard_tables import NumberKeys, ShardTable
from aioloader.datasets.shards import record_files
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.foundation.types import ItemLocation
from aioloader.sample_index import SampleIndex, open_index
from aioloader.storage.remote.opening import read_text
from aioloader.storage.remote.transport import Version
from aioloader.storage.urls import is_url

KIND = "toy-1"
LENGTHS = struct.Struct("<II")
_KINDS = {
    ".json": FieldKind.JSON,
    ".txt": FieldKind.TEXT,
    ".cls": FieldKind.INTEGER,
    ".bin": FieldKind.BYTES,
    ".jpg": FieldKind.IMAGE,
}


def toy_sample(image: bytes = b"", **values: Any) -> bytes:
    """Return the bytes of a sample."""
    text = json.dumps(values).encode()
    return LENGTHS.pack(len(text), len(image)) + text + image


def write_shard(path: Path, samples: Sequence[bytes]) -> Path:
    """Write a shard."""
    path.write_bytes(b"".join(samples))
    return path


def read_all(path: str) -> bytes:
    """Return the bytes of a shard, or of its URL."""
    return read_text(path) if is_url(path) else Path(path).read_bytes()


def scan(data: bytes, path: str) -> SampleIndex:
    """Return the index of a shard."""
    offsets, lengths, at = [], [], 0
    while at < len(data):
        if len(data) - at < LENGTHS.size:
            raise SampleFormatError("it ends inside a sample", path=path, offset=at)
        length = LENGTHS.size + sum(LENGTHS.unpack_from(data, at))
        offsets.append(at)
        lengths.append(length)
        at += length
    return SampleIndex(KIND, {"offset": np.array(offsets, np.int64), "length": np.array(lengths, np.int64)})


@dataclass(frozen=True)
class ToyReader:
    """See `FieldReader`."""

    def _parts(self, data: memoryview, location: ItemLocation) -> tuple[dict[str, Any], memoryview]:
        text, image = LENGTHS.unpack_from(data)
        if LENGTHS.size + text + image != len(data):
            raise SampleFormatError(
                "the lengths of the sample are wrong",
                path=location.path,
                offset=location.offset,
                key=location.key,
                expected=len(data),
                found=LENGTHS.size + text + image,
            )
        begin = LENGTHS.size + text
        return json.loads(bytes(data[LENGTHS.size : begin])), data[begin:]

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        values, image = self._parts(data, location)
        return (*values, *(["image"] if len(image) else []))

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        values, image = self._parts(data, location)
        found: list[Any] = []
        for name in names:
            if name == "image" and len(image):
                found.append(image)
            elif name not in values:
                known = self.names(data, extra, location)
                raise MissingFieldError(name, known, path=location.path, key=location.key)
            elif self.kind(name) is FieldKind.VALUE:
                found.append(values[name])
            else:
                found.append(memoryview(values[name].encode("latin-1")))
        return found

    def kind(self, name: str) -> FieldKind:
        return FieldKind.IMAGE if name == "image" else _KINDS.get(os.path.splitext(name)[1], FieldKind.VALUE)


class ToyDataset(ShardDataset):
    """Dataset over shards of this format.

    Args:
        paths: a shard, a pattern, or a list of them.
        image, label, fields, options: see `ShardDataset`.

    Attributes:
        scans: number of shards that were scanned.
        index_kind: see `ShardDataset`.
    """

    index_kind = KIND

    def __init__(
        self, paths: Any, *, image: str = "image", label: str = "label", fields: Any = None, **options: Any
    ) -> None:
        self.scans = 0
        super().__init__(record_files(paths), image=image, label=label, fields=fields, **options)

    def _open_table(self, path: str, version: Version | None) -> ShardTable:
        def make() -> SampleIndex:
            self.scans += 1
            return scan(read_all(path), path)

        arrays = open_index(path, version, KIND, make).arrays
        return ShardTable(
            path=path,
            nbytes=os.path.getsize(path) if version is None else version.nbytes,
            offset=arrays["offset"],
            length=arrays["length"],
            keys=NumberKeys(),
        )

    def _reader(self) -> ToyReader:
        return ToyReader()

    def scan_shard(self, number: int, tick: Callable[[int], object] | None = None) -> SampleIndex:
        """See `ShardDataset.scan_shard`."""
        self.scans += 1
        return scan(read_all(self.paths[number]), self.paths[number])

    def check_shard(
        self, number: int, tick: Callable[[int], object] | None = None
    ) -> Generator[SampleFormatError, None, int]:
        """See `ShardDataset.check_shard`: a sample is damaged if its values are not JSON."""
        path, count = self.paths[number], 0
        data = read_all(path)
        try:
            offsets = scan(data, path).arrays["offset"].tolist()
        except SampleFormatError as error:
            yield error
            return 0
        for row, at in enumerate(offsets):
            text, _ = LENGTHS.unpack_from(data, at)
            try:
                json.loads(data[at + LENGTHS.size : at + LENGTHS.size + text])
            except ValueError as error:
                yield SampleFormatError(str(error), path=path, offset=at, key=str(row))
            else:
                count += 1
        if tick is not None:
            tick(len(data))
        return count
