"""Footers of Parquet files, read from their ends, and kept for the next time as sample indexes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from aioloader.datasets.shard_dataset import NumberKeys, ShardTable
from aioloader.foundation.types import SpanKind, Spans
from aioloader.sample_index.layout import SampleIndex
from aioloader.sample_index.store import open_index
from aioloader.storage.blocks.parquet.footer import (
    LIKELY_NBYTES,
    ParquetFooter,
    footer_nbytes,
    parse_footer,
)
from aioloader.storage.local.source import LocalByteSource

if TYPE_CHECKING:
    from aioloader.abc import FetchingByteSource
    from aioloader.storage.remote.transport import Version

_KIND: Final = "parquet-1"


@dataclass(frozen=True, eq=False, kw_only=True)
class ParquetTable(ShardTable):
    """Rows of one Parquet file. Their offsets and lengths are 0, because no bytes of the file are those of one row.

    Attributes:
        footer: of the file.
        modified: time of modification of a local file in nanoseconds, when its footer was read; None for an object.
    """

    footer: ParquetFooter
    modified: int | None

    def __post_init__(self) -> None:
        """Check nothing: there are no places of rows."""


def open_parquet_table(path: str, version: Version | None) -> ParquetTable:
    """Return the table of a file. Blocking.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.

    Raises:
        OSError: the file cannot be read.
        ParquetError: it is not a Parquet file, or its footer is damaged.
        MissingPackageError: pyarrow is not installed, and the footer was not read before.
    """
    status = os.stat(path) if version is None else None
    nbytes = status.st_size if status is not None else version.nbytes if version is not None else 0

    def make() -> SampleIndex:
        footer = parse_footer(_read_footer(path, version, nbytes), path, nbytes)
        return SampleIndex(_KIND, footer.arrays())

    index = open_index(path, version, _KIND, make)
    try:
        footer = ParquetFooter.of_arrays(path, nbytes, index.arrays)
    except (ValueError, KeyError, TypeError):  # it was not written by `make`
        footer = ParquetFooter.of_arrays(path, nbytes, make().arrays)
    # Without memory for each row: how many there are is only what the footer says.
    nothing = np.broadcast_to(np.int64(0), int(footer.rows.sum()))
    return ParquetTable(
        path=path,
        nbytes=nbytes,
        offset=nothing,
        length=nothing,
        keys=NumberKeys(),
        footer=footer,
        modified=None if status is None else status.st_mtime_ns,
    )


def open_bytes(path: str, version: Version | None) -> FetchingByteSource:
    """Return a source of the bytes of one file.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.
    """
    if version is None:
        return LocalByteSource([path], kind=SpanKind.EXACT, watch=False)
    from aioloader.storage.remote.source import RemoteByteSource

    return RemoteByteSource([path], kind=SpanKind.EXACT, versions=[version])


def read_footer(path: str, version: Version | None) -> ParquetFooter:
    """Return the footer of a file, from the file itself. Blocking.

    Args:
        path, version: as for `open_bytes`.

    Raises:
        OSError: the file cannot be read.
        ParquetError: it is not a Parquet file, or its footer is damaged.
        MissingPackageError: pyarrow is not installed.
    """
    nbytes = os.stat(path).st_size if version is None else version.nbytes
    return parse_footer(_read_footer(path, version, nbytes), path, nbytes)


def _read_footer(path: str, version: Version | None, nbytes: int) -> bytes:
    """Return the footer of a file, its length and the magic; most often with one read."""
    source = open_bytes(path, version)
    try:
        length = min(nbytes, LIKELY_NBYTES)
        tail = _fetch(source, nbytes - length, length)
        needed = footer_nbytes(tail, path, nbytes)
        if needed > length:
            tail = _fetch(source, nbytes - needed, needed)
        return bytes(tail[len(tail) - needed :])
    finally:
        source.close()


def _fetch(source: FetchingByteSource, offset: int, length: int) -> memoryview:
    if not length:
        return memoryview(b"")
    plan, data = source.fetch(Spans(np.zeros(1, np.int64), np.array([offset]), np.array([length])))
    start = int(plan.start[0])
    return data[start : start + length]
