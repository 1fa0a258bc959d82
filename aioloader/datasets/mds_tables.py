"""Tables of the samples of MDS shards, which are at the beginning of the shards.

The table of a local shard is read with one call, which takes less time than reading an index of it. Those of remote
shards are read with many requests at a time; all tables of a set are kept in one file in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

import numpy as np

from aioloader.errors import SampleFormatError
from aioloader.formats.mds import parse_table, table_nbytes
from aioloader.foundation.types import SpanKind, Spans
from aioloader.sample_index.layout import SampleIndex
from aioloader.sample_index.store import open_index
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import cache_name, redact_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.datasets.mds_sets import ShardFile
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.transport import Version

_KIND: Final = "mds-1"
_READ_AT_A_TIME_NBYTES: Final = 64 << 20


def local_table(path: str, file: ShardFile) -> IntArray:
    """Return the table of a local shard; see `aioloader.formats.mds.parse_table`.

    Args:
        path: of the shard without compression.
        file: of the shard, for errors.

    Raises:
        OSError: it cannot be read.
        SampleFormatError: it does not have the size that the index says, or its table is damaged.
    """
    descriptor = open_regular(path)
    try:
        _check_size(file, os.fstat(descriptor).st_size, file.shard.raw.nbytes)
        data = bytearray(table_nbytes(file.shard.samples))
        got = read_into(descriptor, memoryview(data), 0)
    finally:
        os.close(descriptor)
    return parse_table(memoryview(data)[:got], file.shard, redact_url(file.path))


def remote_tables(
    index_url: str, files: Sequence[ShardFile], versions: Sequence[Version], *, keep: bool
) -> list[IntArray]:
    """Return the tables of remote shards; see `aioloader.formats.mds.parse_table`.

    Args:
        index_url: the index of the set.
        files: of the shards, not compressed.
        versions: of the files.
        keep: the files are all of the set: their tables are kept in the user's cache directory, and read from there.

    Raises:
        RemoteReadError: a shard cannot be read.
        SampleFormatError: a shard does not have the size that the index says, or its table is damaged.
    """
    for file, version in zip(files, versions, strict=True):
        _check_size(file, version.nbytes, file.shard.raw.nbytes)
    lengths = np.array([table_nbytes(file.shard.samples) for file in files], np.int64)

    def read() -> SampleIndex:
        return SampleIndex(_KIND, {"tables": _read_tables(files, versions, lengths)})

    index = open_index(index_url, _state(files, versions), _KIND, read) if keep else read()
    tables = index.arrays.get("tables")
    if tables is None or tables.dtype != np.uint8 or tables.shape != (int(lengths.sum()),):
        tables = _read_tables(files, versions, lengths)
    data = tables.data
    found, at = [], 0
    for file, length in zip(files, lengths.tolist(), strict=True):
        found.append(parse_table(data[at : at + length], file.shard, redact_url(file.path)))
        at += length
    return found


def _state(files: Sequence[ShardFile], versions: Sequence[Version]) -> Version:
    """Return one version for all shards, without a tag if one of them has none."""
    from aioloader.storage.remote.transport import Version

    tags = [version.tag for version in versions]
    digest = hashlib.sha256()
    for file, tag in zip(files, tags, strict=True):
        digest.update(
            f"{cache_name(file.path)}\0{file.shard.samples}\0{tag}\0".encode("utf-8", "surrogateescape")
        )
    tag = None if None in tags else digest.hexdigest()
    return Version(sum(version.nbytes for version in versions), tag, None)


def _read_tables(files: Sequence[ShardFile], versions: Sequence[Version], lengths: IntArray) -> Array:
    """Return the tables, one behind the other, uint8 (n,)."""
    from aioloader.storage.remote.source import RemoteByteSource

    tables = np.empty(int(lengths.sum()), np.uint8)
    ends = np.cumsum(lengths)
    source = RemoteByteSource([file.path for file in files], kind=SpanKind.EXACT, versions=versions)
    try:
        low = 0
        while low < len(files):
            begin = int(ends[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(ends, begin + _READ_AT_A_TIME_NBYTES, side="right")))
            numbers = np.arange(low, high)
            spans = Spans(numbers, np.zeros(len(numbers), np.int64), lengths[low:high])
            data, starts = source.fetch_spans(spans)
            for place, number in enumerate(numbers.tolist()):
                start, length = int(starts[place]), int(lengths[number])
                tables[ends[number] - length : ends[number]] = np.frombuffer(
                    data[start : start + length], np.uint8
                )
            low = high
    finally:
        source.close()
    return tables


def _check_size(file: ShardFile, found: int, expected: int) -> None:
    if found != expected:
        raise SampleFormatError(
            "the shard does not have the size that index.json says; copy it again",
            path=redact_url(file.path),
            expected=f"{expected} bytes",
            found=found,
        )
