"""Reader of the row groups of Parquet files. Needs pyarrow.

The bytes of the column chunks asked for are read by a byte source, all at once and nothing else of the file, and
checked (`pages`) before pyarrow decompresses them, in the calling thread. Large row groups are read in slices: pyarrow
reads a row group from its beginning, so the place that was reached is kept for the next slice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from aioloader.errors import ForkedError, ParquetError, RemoteReadError
from aioloader.formats.parquet.arrow_columns import column_bytes, missing_files
from aioloader.formats.parquet.block import NULL, Block, ColumnBytes
from aioloader.formats.parquet.footer import (
    DECODED,
    LARGEST_GROUP_NBYTES,
    OFFSET,
    STORED,
    VALUES,
    features_of,
    image_columns,
    lay_out_blocks,
    load_pyarrow,
    open_bytes,
    read_footer,
)
from aioloader.formats.parquet.pages import PageSizes, RangeFile, chunk_sizes, read_header
from aioloader.foundation.lru_cache import LRUCache
from aioloader.foundation.types import Spans
from aioloader.storage.urls import is_url, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from aioloader.abc import ByteSource
    from aioloader.formats.parquet.block import Column
    from aioloader.formats.parquet.footer import BlockTable, ParquetFooter
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.transport import Version


# Most bytes of one block in memory; values that refer to a dictionary make it larger than the footer says.
_MOST_NBYTES: Final = 2 * LARGEST_GROUP_NBYTES
# Bytes of the rows that pyarrow decodes at a time, and the most that they may be if each row has the largest value.
_BATCH_NBYTES: Final = 16 << 20
_MOST_BATCH_NBYTES: Final = 256 << 20
_MOST_BATCH_ROWS: Final = 1 << 16
_HEADER_NBYTES: Final = 4096
# Between the footer and the headers of the pages; writers differ in what they count.
_SLACK_NBYTES: Final = 1 << 20
# Old writers do not count the header of a dictionary page (PARQUET-816); pyarrow reads up to 100 bytes more.
_OLD_WRITERS: Final = ("parquet-mr version 1.0", "parquet-mr version 1.1", "parquet-mr version 1.2")
_PADDING: Final = 128
_KEPT_METADATA: Final = 64
_KEPT_CURSORS: Final = 4


class RowGroupReader:
    """Reader of the blocks of Parquet files. Used from several threads at a time.

    Args:
        footers: of the files.
        table: of the blocks.
        columns: the columns of the items.
        required: names of the columns whose value a row must have.
        source: reads the files, by exact spans; closed with the reader.
        modified: time of modification of each local file, in nanoseconds, when its footer was read; None for objects.
        checksums: check the CRC-32 of each page that has one.

    Attributes:
        source: as given.
        paths: path or URL of the file of each block.
    """

    def __init__(
        self,
        footers: Sequence[ParquetFooter],
        table: BlockTable,
        columns: Sequence[Column],
        *,
        required: frozenset[str],
        source: ByteSource,
        modified: Sequence[int | None],
        checksums: bool = False,
    ) -> None:
        load_pyarrow()  # not in a thread, where the first import of a large library is slow
        self._footers = footers
        self._table = table
        self._columns = tuple(columns)
        self._names = [column.name for column in columns]
        self._required = required
        self.source = source
        self._modified = modified
        self._checksums = checksums
        self._lock = threading.Lock()
        self._metadata: LRUCache[int, Any] = LRUCache(_KEPT_METADATA)
        self._cursors: LRUCache[tuple[int, int], _Cursor] = LRUCache(_KEPT_CURSORS)
        self._turns: dict[tuple[int, int], threading.Lock] = {}
        self.paths: Sequence[str] = _BlockPaths([footer.path for footer in footers], table.file)

    def nbytes(self, number: int) -> int:
        """Return about how many bytes a block takes in memory."""
        return int(self._table.nbytes[number])

    def close(self) -> None:
        """Close files and connections; may be called twice."""
        with self._lock:
            self._cursors.clear()
        self.source.close()

    def fault(self, number: int, row: int, reason: str) -> ParquetError:
        """Return the error for a row that cannot be a sample."""
        return ParquetError(
            reason,
            path=self._name(number),
            row_group=int(self._table.group[number]),
            row=int(self._table.first_of_file[number]) + row,
        )

    def _name(self, number: int) -> str:
        return redact_url(self._footers[int(self._table.file[number])].path)

    def read(self, number: int) -> Block:
        """Read a block.

        Raises:
            ParquetError: the row group is damaged, larger than announced, or its file was replaced.
            OSError, EOFError, RemoteReadError: it cannot be read.
        """
        table = self._table
        file, group, rows = int(table.file[number]), int(table.group[number]), int(table.rows[number])
        self._check_unchanged(file)
        if not table.sliced[number]:
            return self._block(file, [group], rows, self._whole(file, [group]))
        with self._lock:
            turn = self._turns.setdefault((file, group), threading.Lock())
        with turn:  # the slices of a row group are read one after the other
            return self._slice(file, group, int(table.first[number]), rows)

    def numbers(self, file: int) -> Array:
        """Return the numbers of the only column, for all rows of a file.

        Raises:
            ParquetError: as for `read`; or a row has no number.
        """
        (column,) = self._columns
        footer = self._footers[file]
        groups = np.flatnonzero(footer.rows).tolist()
        if not groups:
            return np.empty(0, column.dtype)
        self._check_unchanged(file)
        block = self._block(file, groups, int(footer.rows.sum()), self._whole(file, groups))
        found = block.column(0)
        if (found.length == NULL).any():
            row = int(np.flatnonzero(found.length == NULL)[0])
            raise ParquetError(
                f"the column {column.name!r} has no value in this row", path=redact_url(footer.path), row=row
            )
        numbers: Array = found.data.view(np.dtype(column.dtype))
        return numbers

    # -- decoding ------------------------------------------------------------------------------------------------------

    def _block(self, file: int, groups: Sequence[int], rows: int, batches: Iterator[Any]) -> Block:
        """Return the block of some batches of pyarrow, which must have `rows` rows."""
        parts: list[list[ColumnBytes]] = []
        faults: dict[int, str] = {}
        found = nbytes = 0
        try:
            for batch in batches:
                part, bad = self._part(batch)
                faults.update({found + row: reason for row, reason in bad.items()})
                found += batch.num_rows
                nbytes += sum(each.data.nbytes + 2 * each.begin.nbytes for each in part)
                parts.append(part)
                if nbytes > _MOST_NBYTES:
                    raise ParquetError(
                        f"the row group takes more than {_MOST_NBYTES >> 20} MiB in memory, and its footer announces "
                        f"{self._announced(file, groups) >> 20}: write the file again with smaller row groups",
                        **self._place(file, groups),
                    )
        except (ParquetError, RemoteReadError, ForkedError):
            raise
        except Exception as error:  # pyarrow's errors for damaged data are of many types
            raise ParquetError(
                f"the row group cannot be decoded: {type(error).__name__}: {error}",
                **self._place(file, groups),
            ) from error
        if found != rows:
            raise ParquetError(
                "the row group has another number of rows than its footer says",
                expected=f"{rows} rows",
                found=f"{found}",
                **self._place(file, groups),
            )
        return Block(parts, faults=faults, nbytes=nbytes)

    def _part(self, batch: Any) -> tuple[list[ColumnBytes], dict[int, str]]:
        faults: dict[int, str] = {}
        part = []
        for column in self._columns:
            array = batch.column(column.name)
            part.append(column_bytes(array, column, faults))
            if column.name in self._required:
                others = [name for name in self._names if name != column.name]
                faults.update(missing_files(array, column, others))
        return part, faults

    def _whole(self, file: int, groups: Sequence[int]) -> Iterator[Any]:
        """Return an iterator over the batches of row groups whose bytes are read at once."""
        footer = self._footers[file]
        leaves = self._leaves(file, groups)
        announced = self._announced(file, groups)
        chunks = footer.chunks_of(groups, leaves).reshape(-1, 4)
        if sum(chunks[:, STORED].tolist()) > _MOST_NBYTES or announced > _MOST_NBYTES:
            raise ParquetError(
                f"the footer announces {sum(chunks[:, STORED].tolist())} bytes that become {announced}, which are too "
                f"many to be read at once: the file is damaged, or has to be written again with smaller row groups",
                **self._place(file, groups),
            )
        metadata = self._metadata_of(file)
        padding = _PADDING if str(metadata.created_by or "").startswith(_OLD_WRITERS) else 0
        offset = chunks[:, OFFSET]
        length = np.minimum(chunks[:, STORED] + padding, footer.nbytes - offset)
        plan, data = self.source.fetch(Spans(np.full(len(offset), file, np.int64), offset, length))
        ranges = [
            (at, data[start : start + nbytes].toreadonly())
            for at, start, nbytes in zip(offset.tolist(), plan.start.tolist(), length.tolist(), strict=True)
        ]
        contents = [content for _, content in ranges]
        largest = max(
            self._checked(file, group, leaves, contents[place * len(leaves) : (place + 1) * len(leaves)])
            for place, group in enumerate(groups)
        )
        size = self._batch_rows(announced, int(footer.rows[groups].sum()), largest)
        stream = RangeFile(redact_url(footer.path), footer.nbytes, ranges)
        return self._batches(stream, metadata, groups, size)

    def _batches(self, stream: RangeFile, metadata: Any, groups: Sequence[int], size: int) -> Iterator[Any]:
        """Yield the batches of row groups."""
        pa, pq = load_pyarrow()
        # Reading in small pieces is for row groups that are not in memory already.
        buffer_nbytes = 0 if stream.complete else _BATCH_NBYTES
        file = pq.ParquetFile(
            pa.PythonFile(stream, mode="r"),
            metadata=metadata,
            pre_buffer=False,
            buffer_size=buffer_nbytes,
            page_checksum_verification=self._checksums,
        )
        yield from file.iter_batches(
            batch_size=size, row_groups=list(groups), columns=self._names, use_threads=False
        )

    def _checked(self, file: int, group: int, leaves: IntArray, chunks: Sequence[memoryview]) -> int:
        """Check the sizes that the pages announce; return the bytes of the largest value that takes few bits."""
        footer = self._footers[file]
        largest = 0
        for leaf, chunk in zip(leaves.tolist(), chunks, strict=True):
            announced, values = footer.chunks[group, leaf, [DECODED, VALUES]].tolist()
            try:
                sizes = chunk_sizes(chunk, values)
            except ValueError as error:
                raise ParquetError(
                    f"the column {footer.leaves[leaf]!r} is damaged: {error}", **self._place(file, [group])
                ) from None
            self._check_sizes(file, group, leaf, sizes, announced)
            largest = max(largest, sizes.largest_value)
        return largest

    def _check_sizes(self, file: int, group: int, leaf: int, sizes: PageSizes, announced: int) -> None:
        # A list or a number of 8 bytes for each value, at least.
        if sizes.decoded <= 2 * announced + _SLACK_NBYTES and 8 * sizes.values <= _MOST_NBYTES:
            return
        raise ParquetError(
            f"the pages of the column {self._footers[file].leaves[leaf]!r} announce other sizes than the footer: "
            f"{sizes.values} values in",
            expected=f"{announced} bytes",
            found=f"{sizes.decoded}",
            **self._place(file, [group]),
        )

    # -- slices of large row groups ------------------------------------------------------------------------------------

    def _slice(self, file: int, group: int, first: int, rows: int) -> Block:
        """Return the block of some rows of a large row group, with the cursor that read the slice before it."""
        with self._lock:
            cursor = self._cursors.pop((file, group))
        if cursor is None or cursor.row > first:
            cursor = self._new_cursor(file, group)
        block = self._block(file, [group], rows, cursor.take(first, rows))
        with self._lock:
            self._cursors.put((file, group), cursor)
        return block

    def _new_cursor(self, file: int, group: int) -> _Cursor:
        leaves = self._leaves(file, [group])
        footer = self._footers[file]

        def fetch(offset: int, length: int) -> memoryview:
            one = np.array([length], np.int64)
            plan, data = self.source.fetch(Spans(np.array([file]), np.array([offset]), one))
            return data[int(plan.start[0]) : int(plan.start[0]) + length]

        # The pages are not in memory, so only the first of each column chunk, its dictionary, is examined.
        largest = 0
        for offset, stored, _, _ in footer.chunks[group, leaves].tolist():
            try:
                header = read_header(fetch(offset, min(stored, _HEADER_NBYTES)))
            except ValueError:
                continue  # a longer header; pyarrow reports a damaged one
            largest = max(largest, header.decoded if header.dictionary or header.repeats else 0)
        size = self._batch_rows(self._announced(file, [group]), int(footer.rows[group]), largest)
        stream = RangeFile(redact_url(footer.path), footer.nbytes, (), fetch)
        return _Cursor(self._batches(stream, self._metadata_of(file), [group], size))

    @staticmethod
    def _batch_rows(announced: int, rows: int, largest: int) -> int:
        """Return how many rows pyarrow decodes at a time.

        Args:
            announced: bytes of all rows.
            rows: their number.
            largest: bytes that a value may take although it is stored in a few bits.
        """
        usual = _BATCH_NBYTES * rows // max(1, announced)
        return min(max(usual, 1), max(_MOST_BATCH_NBYTES // max(1, largest), 1), _MOST_BATCH_ROWS)

    # -- footers -------------------------------------------------------------------------------------------------------

    def _leaves(self, file: int, groups: Sequence[int]) -> IntArray:
        """Return the leaves that are read; raise ParquetError unless their column chunks are inside of the file."""
        footer = self._footers[file]
        leaves = footer.leaves_of(self._names)
        end = footer.nbytes - len(footer.raw)
        chunks = footer.chunks_of(groups, leaves)
        offset, stored = chunks[..., OFFSET], chunks[..., STORED]
        inside = (offset >= 4) & (offset <= end) & (stored >= 0) & (stored <= end - offset)
        inside &= (chunks[..., DECODED] >= 0) & (chunks[..., VALUES] >= 0)
        for place, number in np.argwhere(~inside).tolist():
            raise ParquetError(
                f"the footer is damaged: the column chunk of {footer.leaves[int(leaves[number])]!r} is outside of the "
                "file, or in another file",
                expected=f"bytes 4 to {end - 1}",
                found=f"{int(stored[place, number])} bytes from {int(offset[place, number])} on",
                **self._place(file, [groups[place]]),
            )
        return leaves

    def _announced(self, file: int, groups: Sequence[int]) -> int:
        """Return the bytes of the columns after decompression, according to the footer."""
        footer = self._footers[file]
        found: list[int] = (
            footer.chunks_of(groups, footer.leaves_of(self._names))[..., DECODED].ravel().tolist()
        )
        return sum(found)

    def _metadata_of(self, file: int) -> Any:
        """Return pyarrow's object for a footer; those of a few files are kept."""
        with self._lock:
            metadata = self._metadata.get(file)
        if metadata is None:
            metadata = self._footers[file].metadata()
            with self._lock:
                self._metadata.put(file, metadata)
        return metadata

    def _check_unchanged(self, file: int) -> None:
        footer, modified = self._footers[file], self._modified[file]
        if is_url(footer.path) or modified is None:
            return  # the byte source compares versions
        status = os.stat(footer.path)
        if (status.st_size, status.st_mtime_ns) != (footer.nbytes, modified):
            raise ParquetError(
                "the file was replaced after the dataset had read its footer: make the dataset again",
                path=footer.path,
                expected=f"{footer.nbytes} bytes",
                found=f"{status.st_size}",
            )

    def _place(self, file: int, groups: Sequence[int]) -> dict[str, Any]:
        name = redact_url(self._footers[file].path)
        return {"path": name, "row_group": groups[0] if len(groups) == 1 else None}


class _Cursor:
    """Place in a row group that is read in slices, one after the other. Used by one thread at a time.

    Args:
        batches: the batches of the row group, from its first row on.

    Attributes:
        row: the next row.
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._rest: Any = None
        self.row = 0

    def take(self, first: int, rows: int) -> Iterator[Any]:
        """Yield batches of rows from `first` on, which is not behind the cursor; fewer if the row group ends."""
        stop = first + rows
        while self.row < stop:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                return
            self._rest = None
            begin, end = self.row, self.row + batch.num_rows
            if end > stop:
                self._rest = batch.slice(stop - begin)
                batch = batch.slice(0, stop - begin)
                end = stop
            self.row = end
            if end > first:
                yield batch.slice(max(0, first - begin))


class _BlockPaths(Sequence[str]):
    """Path of the file of each block.

    Args:
        paths: of the files.
        files: int64 (blocks,), number of the file of each block.
    """

    def __init__(self, paths: Sequence[str], files: IntArray) -> None:
        self._paths = paths
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[str]: ...
    def __getitem__(self, number: int | slice) -> str | Sequence[str]:
        if isinstance(number, slice):
            return [self._paths[file] for file in self._files[number].tolist()]
        return self._paths[int(self._files[number])]


def check_parquet(
    path: str, version: Version | None, image: str, tick: Callable[[int], object] | None
) -> Generator[ParquetError, None, int]:
    """Read a file, and yield each fault; see `aioloader.datasets.shard_dataset.ShardDataset.check_shard`.

    All columns are decompressed and decoded by pyarrow, which compares the checksums of pages that have one. A fault is
    a damaged footer, a row group that cannot be read, or a row without its image.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.
        image: name of the column of images; besides it, those with the feature Image of `datasets` are images.
        tick: called after each row group with the number of bytes so far.

    Raises:
        OSError: the file cannot be read.
        MissingPackageError: pyarrow is not installed.
    """
    try:
        footer = read_footer(path, version)
        names = [column.name for column in footer.columns]
        columns = [column for column in footer.columns if names.count(column.name) == 1]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield ParquetError(f"there are {names.count(name)} columns {name!r}", path=redact_url(path))
        table = lay_out_blocks([footer], [column.name for column in columns])
    except ParquetError as error:
        yield error
        return 0
    required = frozenset({image, *image_columns(features_of(footer.features))})
    reader = RowGroupReader(
        [footer],
        table,
        columns,
        required=required,
        source=open_bytes(path, version),
        modified=[None],
        checksums=True,
    )
    valid = reached = 0
    try:
        for number in range(len(table)):
            try:
                block = reader.read(number)
            except (ParquetError, EOFError) as error:
                yield _fault(error, path, int(table.group[number]))
            else:
                valid += block.rows - len(block.faults)
                for row, reason in sorted(block.faults.items()):
                    yield reader.fault(number, row, reason)
            if not table.first[number]:
                reached += int(footer.chunks[int(table.group[number]), :, STORED].sum())
            if tick is not None:
                tick(min(reached, footer.nbytes))
    finally:
        reader.close()
    return valid


def _fault(error: ParquetError | EOFError, path: str, group: int) -> ParquetError:
    if isinstance(error, ParquetError):
        return error
    return ParquetError(f"the row group cannot be read: {error}", path=redact_url(path), row_group=group)
