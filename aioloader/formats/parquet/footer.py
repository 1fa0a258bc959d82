"""Footers of Parquet files: rows, sizes and places of the row groups, the schema, and the blocks that are read.

Parsing needs pyarrow.

A file ends with the footer (Thrift), its length (4 bytes, little-endian) and the magic ``PAR1``. The numbers in it are
not trusted: the places of column chunks are compared with the size of the file when a row group is read.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.datasets.shard_tables import NumberKeys, ShardTable
from aioloader.errors import MissingPackageError, ParquetError
from aioloader.formats.parquet.arrow_columns import columns_of
from aioloader.formats.parquet.block import Column, ColumnKind
from aioloader.foundation.types import SpanKind, Spans
from aioloader.sample_index import SampleIndex, open_index
from aioloader.storage.local.source import LocalByteSource
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.abc import ByteSource
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.transport import Version


TAIL_NBYTES: Final = 8
"""Bytes behind the footer: its length and the magic."""
LIKELY_NBYTES: Final = 64 << 10
"""Bytes at the end of a file that contain the footer of most files."""

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_MOST_FOOTER_NBYTES: Final = 256 << 20
_MOST_ROWS: Final = 1 << 40

# Columns of the table of column chunks.
OFFSET, STORED, DECODED, VALUES = range(4)


@dataclass(frozen=True, eq=False, kw_only=True)
class ParquetFooter:
    """Footer of one file.

    Attributes:
        path: the file, or its URL.
        nbytes: size of the file.
        rows: int64 (groups,), rows of each row group.
        chunks: int64 (groups, leaves, 4), of each column chunk: offset in the file, bytes there, bytes after
            decompression, number of values.
        leaves: path of each leaf of the schema, its names separated by dots.
        columns: the columns.
        features: text of the schema's metadata "huggingface" (JSON), or "".
        raw: the footer, its length and the magic.
    """

    path: str
    nbytes: int
    rows: IntArray
    chunks: IntArray
    leaves: tuple[str, ...]
    columns: tuple[Column, ...]
    features: str
    raw: bytes

    def leaves_of(self, names: Sequence[str]) -> IntArray:
        """Return the numbers of the leaves of some columns, ascending."""
        return np.array(
            [
                number
                for number, leaf in enumerate(self.leaves)
                if any(leaf == name or leaf.startswith(f"{name}.") for name in names)
            ],
            np.int64,
        )

    def chunks_of(self, groups: Sequence[int], leaves: IntArray) -> IntArray:
        """Return `chunks` of some row groups and leaves, int64 (groups, leaves, 4)."""
        found: IntArray = self.chunks[np.array(groups, np.int64)][:, leaves]
        return found

    def column(self, name: str) -> Column | None:
        """Return a column by its name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    def metadata(self) -> Any:
        """Return pyarrow's object for the footer."""
        return _metadata(self.raw, self.path)

    def arrays(self) -> dict[str, Array]:
        """Return the footer as arrays, for an index."""
        columns = [[column.name, column.kind.value, column.dtype] for column in self.columns]
        schema = json.dumps({"leaves": self.leaves, "columns": columns, "features": self.features})
        return {
            "rows": self.rows,
            "chunks": self.chunks,
            "schema": np.frombuffer(schema.encode(), np.uint8),
            "raw": np.frombuffer(self.raw, np.uint8),
        }

    @classmethod
    def of_arrays(cls, path: str, nbytes: int, arrays: Mapping[str, Array]) -> ParquetFooter:
        """Return the footer of some arrays that `arrays` returned.

        Args:
            path: the file, or its URL.
            nbytes: its size.
            arrays: name to array.

        Raises:
            ValueError, KeyError, TypeError: they are not those of a footer.
        """
        schema = json.loads(arrays["schema"].tobytes())
        leaves = tuple(map(str, schema["leaves"]))
        rows, chunks = arrays["rows"].astype(np.int64), arrays["chunks"].astype(np.int64)
        if chunks.shape != (len(rows), len(leaves), 4):
            raise ValueError(f"the table of column chunks has the shape {chunks.shape}")
        if not _possible(rows):
            raise ValueError("the numbers of rows are impossible")
        return cls(
            path=path,
            nbytes=nbytes,
            rows=rows,
            chunks=chunks,
            leaves=leaves,
            columns=tuple(Column(name, ColumnKind(kind), dtype) for name, kind, dtype in schema["columns"]),
            features=str(schema["features"]),
            raw=arrays["raw"].tobytes(),
        )


def footer_nbytes(tail: memoryview, path: str, nbytes: int) -> int:
    """Return the bytes at the end of a file that are its footer, length and magic included.

    Args:
        tail: the last bytes of the file, 8 or more unless it is shorter.
        path: the file, for errors.
        nbytes: its size.

    Raises:
        ParquetError: it is not a Parquet file, is encrypted, or ends before its footer does.
    """
    name = redact_url(path)
    end = bytes(tail[-TAIL_NBYTES:])
    if end[4:] == _ENCRYPTED:
        raise ParquetError("the file is encrypted, which is not supported", path=name)
    if len(end) < TAIL_NBYTES or end[4:] != _MAGIC or nbytes < TAIL_NBYTES + len(_MAGIC):
        raise ParquetError(
            "this is not a Parquet file, or it was cut off",
            path=name,
            offset=max(0, nbytes - len(_MAGIC)),
            expected=f"{_MAGIC!r} at the end",
            found=repr(end[4:]),
        )
    length = int.from_bytes(end[:4], "little")
    if length > min(nbytes - TAIL_NBYTES - len(_MAGIC), _MOST_FOOTER_NBYTES):
        raise ParquetError(
            "the length of the footer is wrong",
            path=name,
            offset=nbytes - TAIL_NBYTES,
            expected=f"{min(nbytes - TAIL_NBYTES - len(_MAGIC), _MOST_FOOTER_NBYTES)} bytes at most",
            found=f"{length} bytes",
        )
    return length + TAIL_NBYTES


def parse_footer(raw: bytes, path: str, nbytes: int) -> ParquetFooter:
    """Parse a footer.

    Args:
        raw: the footer, its length and the magic.
        path: the file, or its URL.
        nbytes: its size.

    Raises:
        MissingPackageError: pyarrow is not installed.
        ParquetError: the footer is damaged.
    """
    metadata = _metadata(raw, path)
    name = redact_url(path)
    try:
        schema = metadata.schema.to_arrow_schema()
        leaves = tuple(metadata.schema.column(number).path for number in range(metadata.num_columns))
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        rows = np.array([group.num_rows for group in groups], np.int64)
        chunks = np.array(
            [[_chunk(group.column(leaf)) for leaf in range(len(leaves))] for group in groups], np.int64
        )
    except Exception as error:
        raise ParquetError(f"the footer is damaged: {type(error).__name__}: {error}", path=name) from error
    if not _possible(rows):
        raise ParquetError("the footer has an impossible number of rows", path=name, found=rows.tolist()[:10])
    if int(rows.sum()) != metadata.num_rows:
        raise ParquetError(
            "the rows of the row groups are not those of the file",
            path=name,
            expected=f"{metadata.num_rows} rows",
            found=f"{int(rows.sum())}",
        )
    features = (schema.metadata or {}).get(b"huggingface", b"")
    return ParquetFooter(
        path=path,
        nbytes=nbytes,
        rows=rows,
        chunks=chunks.reshape(len(rows), len(leaves), 4),
        leaves=leaves,
        columns=columns_of(schema),
        features=features.decode("utf-8", "replace"),
        raw=raw,
    )


def _possible(rows: IntArray) -> bool:
    return not len(rows) or 0 <= int(rows.min()) <= int(rows.max()) <= _MOST_ROWS


def _metadata(raw: bytes, path: str) -> Any:
    pa, pq = load_pyarrow()
    try:
        # The places in a footer are not followed here, so the rest of the file may be missing.
        return pq.read_metadata(pa.BufferReader(_MAGIC + raw))
    except Exception as error:
        raise ParquetError(
            f"the footer is damaged: {type(error).__name__}: {error}", path=redact_url(path)
        ) from error


def _chunk(chunk: Any) -> tuple[int, int, int, int]:
    """Return place and sizes of a column chunk; one in another file has no place."""
    offset = chunk.data_page_offset
    if (
        chunk.has_dictionary_page
        and chunk.dictionary_page_offset
        and 0 < chunk.dictionary_page_offset < offset
    ):
        offset = chunk.dictionary_page_offset
    if chunk.file_path:
        offset = -1
    return offset, chunk.total_compressed_size, chunk.total_uncompressed_size, chunk.num_values


def load_pyarrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet.

    Raises:
        MissingPackageError: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackageError("pyarrow", extra="parquet") from error
    return pyarrow, pyarrow.parquet


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


def open_parquet_table(path: str, version: Version | None, end: memoryview | None = None) -> ParquetTable:
    """Return the table of a file. Blocking.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.
        end: last bytes of the object, or all; None: they are read.

    Raises:
        OSError: the file cannot be read.
        ParquetError: it is not a Parquet file, or its footer is damaged.
        MissingPackageError: pyarrow is not installed, and the footer was not read before.
    """
    status = os.stat(path) if version is None else None
    nbytes = status.st_size if status is not None else version.nbytes if version is not None else 0

    def make() -> SampleIndex:
        footer = parse_footer(_read_footer(path, version, nbytes, end), path, nbytes)
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


def open_bytes(path: str, version: Version | None) -> ByteSource:
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


def _read_footer(path: str, version: Version | None, nbytes: int, end: memoryview | None = None) -> bytes:
    """Return the footer of a file, its length and the magic; most often with one read, or with `end` alone."""
    source = open_bytes(path, version)
    try:
        length = min(nbytes, LIKELY_NBYTES)
        tail = _fetch(source, nbytes - length, length) if end is None else end
        needed = footer_nbytes(tail, path, nbytes)
        if needed > len(tail):
            tail = _fetch(source, nbytes - needed, needed)
        return bytes(tail[len(tail) - needed :])
    finally:
        source.close()


def _fetch(source: ByteSource, offset: int, length: int) -> memoryview:
    if not length:
        return memoryview(b"")
    plan, data = source.fetch(Spans(np.zeros(1, np.int64), np.array([offset]), np.array([length])))
    start = int(plan.start[0])
    return data[start : start + length]


def features_of(text: str) -> dict[str, Any]:
    """Return the features by the names of their columns; empty if the text is none, or damaged."""
    try:
        features = json.loads(text)["info"]["features"] if text else {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def class_names(features: dict[str, Any], column: str) -> list[str]:
    """Return the names of the classes of a column; empty unless it is a ClassLabel."""
    feature = features.get(column)
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return []
    names = feature.get("names")
    return [str(name) for name in names] if isinstance(names, list) else []


def image_columns(features: dict[str, Any]) -> list[str]:
    """Return the names of the columns of images, or of lists of images."""
    return [name for name, feature in features.items() if _is_image(feature)]


def _is_image(feature: Any) -> bool:
    if isinstance(feature, list) and len(feature) == 1:
        return _is_image(feature[0])
    if not isinstance(feature, dict):
        return False
    kind = feature.get("_type")
    return kind == "Image" or (
        kind in ("Sequence", "List", "LargeList") and _is_image(feature.get("feature"))
    )


LARGEST_GROUP_NBYTES: Final = 512 << 20
"""Largest row group, by the decompressed bytes of the columns asked for, that is read at once."""
SLICE_NBYTES: Final = 128 << 20
"""Usual size of the slices of larger ones."""
_MOST_SLICES: Final = 4096
# Memory for the numbers of each value: where it begins, and its length.
_NUMBERS_NBYTES: Final = 16


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockTable:
    """Blocks of some files, in order; row groups without rows have none.

    Attributes:
        file: int64 (blocks,), number of the file of each block.
        group: int64 (blocks,), number of its row group in that file.
        first: int64 (blocks,), its first row, counted in the row group.
        first_of_file: int64 (blocks,), its first row, counted in the file.
        rows: int64 (blocks,), its number of rows.
        nbytes: int64 (blocks,), bytes that it takes in memory, according to the footer.
        starts: int64 (blocks + 1,), rows of all blocks before each one.
        sliced: bool (blocks,), whether it is a slice of a row group.
    """

    file: IntArray
    group: IntArray
    first: IntArray
    first_of_file: IntArray
    rows: IntArray
    nbytes: IntArray
    starts: IntArray
    sliced: Array

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def row_count(self) -> int:
        """Return the number of rows of all blocks."""
        return int(self.starts[-1])

    def blocks_of(self, indices: IntArray) -> IntArray:
        """Return the number of the block that has each row, int64 (n,)."""
        found: IntArray = np.searchsorted(self.starts, indices, side="right").astype(np.int64) - 1
        return found

    def group_numbers(self) -> IntArray:
        """Return a number for each block that it shares with the other slices of its row group, ascending."""
        new = np.r_[True, (self.file[1:] != self.file[:-1]) | (self.group[1:] != self.group[:-1])]
        found: IntArray = np.cumsum(new[: len(self)]) - 1
        return found


def lay_out_blocks(footers: Sequence[ParquetFooter], names: Sequence[str]) -> BlockTable:
    """Return the blocks of some files.

    Args:
        footers: of the files.
        names: the columns that are read, which determine how large a row group is.

    Raises:
        ParquetError: the footer announces a row group that cannot be read: larger than 512 GiB, or with more bytes
            than fit into 64 bits.
    """
    columns: list[list[IntArray]] = [[] for _ in range(7)]
    for number, footer in enumerate(footers):
        groups = np.flatnonzero(footer.rows)
        rows = footer.rows[groups]
        leaves = footer.leaves_of(names)
        sizes = footer.chunks[groups][:, leaves].astype(np.float64).sum(axis=1)
        nbytes = np.maximum(sizes[:, DECODED], 0) + rows * float(_NUMBERS_NBYTES * max(1, len(names)))
        large = nbytes > LARGEST_GROUP_NBYTES
        slices = np.where(large, np.ceil(nbytes / SLICE_NBYTES), 1.0)
        slices = np.minimum(slices, rows)
        if (slices > _MOST_SLICES).any():
            group = int(groups[np.flatnonzero(slices > _MOST_SLICES)[0]])
            raise ParquetError(
                f"the footer announces a row group of {int(nbytes.max())} bytes: the file is damaged, or has to be "
                "written again with smaller row groups",
                path=redact_url(footer.path),
                row_group=group,
            )
        before = np.cumsum(footer.rows) - footer.rows
        counts = slices.astype(np.int64)
        of = np.repeat(np.arange(len(groups)), counts)
        place = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = rows[of] * place // counts[of]
        stop = rows[of] * (place + 1) // counts[of]
        columns[0].append(np.full(len(of), number, np.int64))
        columns[1].append(groups[of])
        columns[2].append(first)
        columns[3].append(before[groups][of] + first)
        columns[4].append(stop - first)
        columns[5].append((nbytes[of] * ((stop - first) / rows[of])).astype(np.int64))
        columns[6].append(large[of])
    joined = [np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in columns]
    return BlockTable(
        file=joined[0],
        group=joined[1],
        first=joined[2],
        first_of_file=joined[3],
        rows=joined[4],
        nbytes=joined[5],
        starts=np.concatenate(([0], np.cumsum(joined[4]))).astype(np.int64),
        sliced=joined[6].astype(bool),
    )
