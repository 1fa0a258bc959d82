"""MXRecordIO and MXIndexedRecordIO: MXNet's two classes, with their names and behaviour.

Kept: flags, attributes, `None` at the end, `b""` for an empty record, keys not converted on reading, the refusal to
read in a forked child (`read_idx` and `seek` open again there instead). Fixed: reads are positional, so threads and
forks cannot mix records; reaching the end does not break `read_idx`; pickling leaves the original open; writers refuse
to be pickled instead of truncating their file; damage is a named error with its offset instead of a silent end
(docs/format.md, "Damage").
"""

from __future__ import annotations

import os
import threading
import warnings
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar, cast

from recordio._files import AppendFile, LocalFile
from recordio._framing import BytesLike, serialize
from recordio._index import Index, index_not_found, misplaced_error, read_text
from recordio._index_text import NO_OFFSET, format_line, integer_key, key_fields
from recordio._parser import RecordParser, Sentinel
from recordio._sansio import RecordStream
from recordio._sources import BlockingSource, drive, is_stream, local_path, open_source, target_name
from recordio._writer import refuse_pickling
from recordio.errors import (
    ClosedError,
    CorruptIndexError,
    DuplicateKeyWarning,
    InvalidFlagError,
    ModeError,
    RecordFileNotFoundError,
    RecordKeyError,
    WrongProcessError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T", bound="MXRecordIO")
_FIRST_BLOCK = 1 << 16


class MXRecordIO:
    """Reader or writer of records one after the other.

    Args:
        uri: Path, `file://` URL, or (for reading) a URL of a registered scheme.
        flag: "r" to read, "w" to write a new file.
        tolerant: Read records whose parts have wrong flags, or are cut off between two parts, as MXNet does: joined
            to the parts that follow, or omitted without an error. By default both are errors.

    Attributes:
        uri: The argument, as str.
        flag, tolerant: The arguments.
        pid: Process that opened the file; None while closed.
        is_open: True while the file is open.
        writable: True if the flag is "w".
        handle: The open source, or the file written to; None while closed. An implementation detail.

    Raises:
        InvalidFlagError: The flag is neither "r" nor "w".
        RecordFileNotFoundError: There is no such file to read, or no folder to write in.
    """

    is_open = False
    _reads_streams = True

    def __init__(self, uri: str | os.PathLike[str], flag: str, *, tolerant: bool = False) -> None:
        self.uri = os.fspath(uri)
        self.flag = flag
        self.tolerant = tolerant
        self.handle: BlockingSource | AppendFile | None = None
        self.pid: int | None = None
        self.writable = False
        self.open()

    def open(self) -> None:
        """Open the file, or open it again; a writer truncates it."""
        if self.flag not in ("r", "w"):
            raise InvalidFlagError(f"Invalid flag {self.flag}")
        if self.is_open:
            self.close()
        self.writable = self.flag == "w"
        if self.writable:
            path = local_path(self.uri)
            try:
                self.handle = AppendFile(self.uri if path is None else path)
            except FileNotFoundError as error:
                raise RecordFileNotFoundError(
                    "cannot create the file, its folder does not exist", path=self.uri
                ) from error
        else:
            self.handle = open_source(self.uri, streams=self._reads_streams)
            if isinstance(self.handle, LocalFile):
                self.handle.size()
            self._lock = threading.Lock()
            self._start_at(0)
        self.pid = os.getpid()
        self.is_open = True

    def _start_at(self, offset: int) -> None:
        self._offset = offset
        self._stream: RecordStream | None = None

    def close(self) -> None:
        """Close the file; a writer is complete after this. Idempotent."""
        if not self.is_open:
            return
        self.is_open = False
        self.pid = None
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.close()

    def reset(self) -> None:
        """Go back to the first record. A writer truncates its file."""
        self.close()
        self.open()

    def write(self, buf: BytesLike | str) -> None:
        """Append a record.

        Args:
            buf: Bytes-like, below 2**29 bytes. Text is stored as UTF-8.

        Raises:
            ModeError: The file was opened for reading.
            ClosedError: It is closed.
            WrongProcessError: It was opened in another process.
            RecordTooLargeError: `buf` has 2**29 bytes or more.
        """
        self._sink().append(serialize(buf.encode() if isinstance(buf, str) else buf))

    def read(self) -> bytes | None:
        """Return the next payload; None at the end. An empty record is `b""`, so test `is None`.

        Raises:
            ModeError: The file was opened for writing.
            ClosedError: It is closed.
            WrongProcessError: It was opened in another process; call `reset` in this one first.
            CorruptRecordError: The file is damaged here.
        """
        self._check_readable()
        self._check_pid()
        with self._lock:
            source = self._source()
            if self._stream is None:
                self._stream = self._stream_at(self._offset, source)
            taken = self._stream.parser.next_record()
            record = drive(source, self._stream.next_record()) if isinstance(taken, Sentinel) else taken
            # Small blocks after a seek at first: the next call may be another seek.
            self._stream.double_block()
            return record

    def _stream_at(self, offset: int, source: BlockingSource) -> RecordStream:
        size = source.size()
        parser = RecordParser(path=target_name(self.uri), offset=offset, size=size, tolerant=self.tolerant)
        # Of a pipe no more is awaited than the next record needs: its writer may wait for the reader.
        return RecordStream(parser, offset, size, block_bytes=0 if is_stream(source) else _FIRST_BLOCK)

    def _source(self) -> BlockingSource:
        return cast("BlockingSource", self.handle)

    def _sink(self) -> AppendFile:
        """Return the file to write to, after a check that it may be written."""
        if not self.writable:
            raise ModeError(f"{self.uri} was opened for reading, it cannot be written")
        self._check_pid()
        return cast("AppendFile", self.handle)

    def _check_readable(self) -> None:
        if self.writable:
            raise ModeError(f"{self.uri} was opened for writing, it cannot be read")

    def _check_pid(self) -> None:
        if not self.is_open:
            raise ClosedError(
                f"Forbidden operation in multiple processes or after close(): {self.uri} is "
                "closed; call reset() to open it again"
            )
        if self.pid != os.getpid():
            raise WrongProcessError(
                f"Forbidden operation in multiple processes: {self.uri} was opened by process "
                f"{self.pid}; call reset() in this one first"
            )

    def __iter__(self) -> Iterator[bytes]:
        """Yield the records from here to the end."""
        while (record := self.read()) is not None:
            yield record

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.is_open:
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.writable:
            refuse_pickling(self)
        return {"uri": self.uri, "flag": self.flag, "tolerant": self.tolerant, "is_open": self.is_open}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.uri, self.flag, self.tolerant = state["uri"], state["flag"], state["tolerant"]
        self.handle, self.pid, self.is_open, self.writable = None, None, False, False
        if state["is_open"]:
            self.open()


class MXIndexedRecordIO(MXRecordIO):
    """Reader of records by key, or writer of records together with an .idx file.

    Args:
        idx_path: The .idx file.
        uri: The .rec file.
        flag: "r" or "w".
        key_type: Function that converts the text of a key to the key: `int`, `str`, or any other.
        tolerant: See `MXRecordIO`.

    Attributes:
        idx: dict, key to byte offset; a key that occurs twice has its last offset.
        keys: list of keys in line order, repeats included.
        fidx: The .idx file while writing, else None.

    Raises:
        CorruptIndexError: A line of the index is malformed; also a ValueError.
        IndexNotFoundError: There is no such index to read.
    """

    fidx: AppendFile | None = None

    _reads_streams = False

    def __init__(
        self,
        idx_path: str | os.PathLike[str],
        uri: str | os.PathLike[str],
        flag: str,
        key_type: Callable[[Any], Any] = int,
        *,
        tolerant: bool = False,
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        super().__init__(uri, flag, tolerant=tolerant)

    def open(self) -> None:
        """Open both files; a reader loads the whole index."""
        super().open()
        self.idx, self.keys, self.fidx = {}, [], None
        path = local_path(self.idx_path) or self.idx_path
        try:
            if self.writable:
                self.fidx = AppendFile(path)
            else:
                self._load(path)
        except BaseException:
            super().close()
            raise

    def _load(self, path: str) -> None:
        if self.key_type is int:
            index = Index.open(path)
            if isinstance(index.keys, list):
                line = next(n for n, key in enumerate(index.keys) if integer_key(key.encode()) is None)
                raise CorruptIndexError(
                    "the key is not an integer of 64 bits; pass key_type=str to read text keys",
                    path=path,
                    line=line + 1,
                    key=index.keys[line],
                )
            self.keys, offsets = index.keys.tolist(), index.offsets.tolist()
        else:
            self.keys, offsets = self._convert(path)
        self.idx = dict(zip(self.keys, offsets, strict=True))
        if len(self.idx) < len(self.keys):
            warnings.warn(
                f"{path}: {len(self.keys) - len(self.idx)} lines repeat a key; read_idx finds the last",
                DuplicateKeyWarning,
                stacklevel=4,
            )

    def _convert(self, path: str) -> tuple[list[Any], list[int]]:
        try:
            with closing(open_source(path)) as source:
                text = read_text(source)
        except FileNotFoundError as error:
            raise index_not_found(path) from error
        index = Index.parse(text, path=path)
        return [self.key_type(key) for key in key_fields(text)], index.offsets.tolist()

    def close(self) -> None:
        """Close both files. Idempotent."""
        super().close()
        fidx, self.fidx = self.fidx, None
        if fidx is not None:
            fidx.close()

    def write_idx(self, idx: Any, buf: BytesLike | str) -> None:
        """Append a record and its index line.

        Args:
            idx: Key; `key_type` is applied to it before anything is written.
            buf: As for `write`.
        """
        offset = self.tell()
        key = self.key_type(idx)
        line = format_line(key if isinstance(key, int | str) else str(key), offset)
        self.write(buf)
        assert self.fidx is not None
        self.fidx.append(line.encode())
        self.idx[key] = offset
        self.keys.append(key)

    def read_idx(self, idx: Any) -> bytes | None:
        """Return the payload of a record by key. Open the files again if they are closed, or after a fork.

        Raises:
            RecordKeyError: No record has this key. Keys are not converted: '3' is not 3.
            CorruptIndexError: The offset is outside of the file, or is that of no record.
            CorruptRecordError: There is no valid record at that offset.
            ModeError: The file was opened for writing.
        """
        offset = self._offset_of(idx)
        source = self._source()
        stream = self._stream_at(offset, source)
        record = drive(source, stream.next_record())
        with self._lock:
            # As after seek and read: a following read() continues behind this record.
            self._start_at(stream.parser.offset)
        return record

    def seek(self, idx: Any) -> None:
        """Make the record with this key the next to be read. Takes a key, not a byte offset."""
        offset = self._offset_of(idx)
        with self._lock:
            self._start_at(offset)

    def tell(self) -> int:
        """Return the byte offset at which the next record will be written.

        Raises:
            ModeError: The file was opened for reading.
        """
        return self._sink().tell()

    def _offset_of(self, key: Any) -> int:
        """Return the offset of a key; open the files again if they are closed, or after a fork."""
        self._check_readable()
        if self.pid != os.getpid():
            self.reset()
        try:
            offset = self.idx[key]
        except KeyError:
            raise RecordKeyError(
                f"no record has the key {key!r} (keys are {getattr(self.key_type, '__name__', self.key_type)})",
                key=key,
                path=self.idx_path,
            ) from None
        size = self._source().size()
        if offset == NO_OFFSET or not 0 <= offset < size or offset & 3:
            # The last line of a key counts; callers may also add to `idx`.
            line = max((n for n, each in enumerate(self.keys) if each == key), default=None)
            raise misplaced_error(offset, size, path=self.idx_path, line=line, key=key)
        return offset

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"idx_path": self.idx_path, "key_type": self.key_type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.idx_path = state["idx_path"]
        self.key_type = state["key_type"]
        self.idx, self.keys, self.fidx = {}, [], None
        super().__setstate__(state)
