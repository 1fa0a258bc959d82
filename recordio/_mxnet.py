"""MXRecordIO and MXIndexedRecordIO: MXNet's two classes, names and behaviour kept.

Kept: flags, attributes, `None` at the end, `b""` for an empty record, keys not converted on
reading, the refusal to read in a forked child (`read_idx` and `seek` open again there instead).
Mended: reads are positional, so threads and forks cannot mix records; reaching the end does not
spoil `read_idx`; pickling leaves the original open; writers refuse to be pickled instead of
truncating their file; damage is a named error with its offset instead of a silent end
(docs/format.md, "Damage").
"""

from __future__ import annotations

import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from recordio._files import LocalFile
from recordio._index import Index
from recordio._index_text import NO_OFFSET, check_index_size, format_line, integer_key, key_fields
from recordio._parser import RecordParser
from recordio._reader import drive
from recordio._sansio import BLOCK_BYTES, next_record
from recordio._serializer import serialize
from recordio._sink import AppendFile
from recordio._sources import local_path, open_source, target_name
from recordio._writer import refuse_pickling
from recordio.errors import (
    ClosedError,
    CorruptIndexError,
    DuplicateKeyWarning,
    IndexNotFoundError,
    InvalidFlagError,
    ModeError,
    RecordFileNotFoundError,
    RecordKeyError,
    WrongProcessError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recordio._framing import BytesLike
    from recordio._sources import BlockingSource

__all__ = ("MXIndexedRecordIO", "MXRecordIO")

_FIRST_BLOCK = 1 << 16


class MXRecordIO:
    """Reads or writes records one after the other.

    Args:
        uri: Path, `file://` URL, or (for reading) a URL of a registered scheme.
        flag: "r" to read, "w" to write a new file.
        tolerant: Read records whose parts have wrong flags, or are cut off between two parts, as MXNet
            does: joined to what follows, or left out without a word. By default both are errors.

    Attributes:
        uri: As given, as str.
        flag, tolerant: As given.
        pid: Process that opened the file; None while closed.
        is_open: Whether the file is open.
        writable: Whether the flag is "w".
        handle: The open source or sink; None while closed. An implementation detail.

    Raises:
        InvalidFlagError: the flag is something else.
        RecordFileNotFoundError: there is no such file to read, or no folder to write in.
    """

    def __init__(self, uri: str | os.PathLike[str], flag: str, *, tolerant: bool = False) -> None:
        self.uri = os.fspath(uri)
        self.flag = flag
        self.tolerant = tolerant
        self.handle: Any = None
        self.pid: int | None = None
        self.is_open = False
        self.writable = False
        self.open()

    def open(self) -> None:
        """Open the file, again if need be; a writer truncates it."""
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
            self.handle = open_source(self.uri)
            if isinstance(self.handle, LocalFile):
                self.handle.size()
            self._lock = threading.Lock()
            self._start_at(0)
        self.pid = os.getpid()
        self.is_open = True

    def _start_at(self, offset: int) -> None:
        self._offset = offset
        self._reached = offset
        self._size = -1
        self._block = _FIRST_BLOCK
        self._parser: RecordParser | None = None

    def close(self) -> None:
        """Close the file; a writer is complete after this. Idempotent."""
        if not self.is_open:
            return
        self.is_open = False
        self.pid = None
        handle, self.handle = self.handle, None
        if hasattr(handle, "close"):
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
            ModeError: opened for reading.
            ClosedError: closed.
            WrongProcessError: opened in another process.
            RecordTooLargeError: 2**29 bytes or more.
        """
        self._check_writable()
        self.handle.append(serialize(buf.encode() if isinstance(buf, str) else buf))

    def read(self) -> bytes | None:
        """Return the next payload; None at the end. An empty record is `b""`, so test `is None`.

        Raises:
            ModeError: opened for writing.
            ClosedError: closed.
            WrongProcessError: opened in another process; call `reset` there first.
            CorruptRecordError: the file is damaged here.
        """
        if self.writable:
            raise ModeError(f"{self.uri} was opened for writing, it cannot be read")
        self._check_pid()
        with self._lock:
            source: BlockingSource = self.handle
            if self._parser is None:
                self._size = source.size()
                self._parser = self._parser_at(self._offset, self._size)
            parser = self._parser
            # After a seek small at first: the next call may well be another seek.
            steps = next_record(parser, self._reached, self._size, block_bytes=self._block)
            self._block = min(self._block * 2, BLOCK_BYTES)
            try:
                wanted = next(steps)
                while True:
                    blocks = source.read_ranges(wanted)
                    self._reached = wanted[-1][0] + len(blocks[-1])
                    wanted = steps.send(blocks)
            except StopIteration as stop:
                return cast("bytes | None", stop.value)

    def _parser_at(self, offset: int, size: int) -> RecordParser:
        return RecordParser(path=target_name(self.uri), offset=offset, size=size, tolerant=self.tolerant)

    def _check_writable(self) -> None:
        if not self.writable:
            raise ModeError(f"{self.uri} was opened for reading, it cannot be written")
        self._check_pid()

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

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
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
    """Reads records by key, or writes them together with an .idx file.

    Args:
        idx_path: The .idx file.
        uri: The .rec file.
        flag: "r" or "w".
        key_type: Turns the text of a key into the key: `int`, `str`, or any function.
        tolerant: See `MXRecordIO`.

    Attributes:
        idx: dict, key to byte offset; a key that stands twice has its last offset.
        keys: list of keys in line order, repeats included.
        fidx: The open index sink while writing, else None.

    Raises:
        CorruptIndexError: a line of the index is malformed; also a ValueError.
        IndexNotFoundError: there is no such index to read.
    """

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
        self.fidx: AppendFile | None = None
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
            with open(path, "rb") as file:
                check_index_size(os.fstat(file.fileno()).st_size, path=path)
                text = file.read()
        except FileNotFoundError as error:
            raise IndexNotFoundError("no such index file", path=path) from error
        index = Index.parse(text, path=path)
        return [self.key_type(key) for key in key_fields(text)], index.offsets.tolist()

    def close(self) -> None:
        """Close both files. Idempotent."""
        super().close()
        fidx, self.fidx = getattr(self, "fidx", None), None
        if fidx is not None:
            fidx.close()

    def write_idx(self, idx: Any, buf: BytesLike | str) -> None:
        """Append a record and its index line.

        Args:
            idx: Key; `key_type` is applied to it before anything is written.
            buf: As for `write`.
        """
        self._check_writable()
        key = self.key_type(idx)
        offset = self.tell()
        line = format_line(key if isinstance(key, int | str) else str(key), offset)
        self.write(buf)
        assert self.fidx is not None
        self.fidx.append(line.encode())
        self.idx[key] = offset
        self.keys.append(key)

    def read_idx(self, idx: Any) -> bytes | None:
        """The payload of a record by key. Opens the files again if closed, or after a fork.

        Raises:
            RecordKeyError: no record has this key. Keys are not converted: '3' is not 3.
            CorruptRecordError: no sound record lies at that offset.
            ModeError: opened for writing.
        """
        self._reopen()
        offset = self._offset_of(idx)
        source: BlockingSource = self.handle
        size = source.size()
        parser = self._parser_at(offset, size)
        record = drive(source, next_record(parser, offset, size, block_bytes=_FIRST_BLOCK))
        with self._lock:
            # As after seek and read: a following read() goes on behind this record.
            self._start_at(parser.offset)
        return record

    def seek(self, idx: Any) -> None:
        """Make the record with this key the next to be read. Takes a key, not a byte offset."""
        self._reopen()
        offset = self._offset_of(idx)
        with self._lock:
            self._start_at(offset)

    def tell(self) -> int:
        """Byte offset at which the next record will be written.

        Raises:
            ModeError: opened for reading.
        """
        self._check_writable()
        return int(self.handle.tell())

    def _reopen(self) -> None:
        if self.writable:
            raise ModeError(f"{self.uri} was opened for writing, it cannot be read")
        if self.pid != os.getpid():
            self.reset()

    def _offset_of(self, key: Any) -> int:
        try:
            offset = self.idx[key]
        except KeyError:
            raise RecordKeyError(
                f"no record has the key {key!r} (keys are {_type_name(self.key_type)})",
                key=key,
                path=self.idx_path,
            ) from None
        size = self.handle.size()
        if offset == NO_OFFSET or not 0 <= offset < size or offset & 3:
            Index.of(np.array([offset], dtype=np.int64), path=self.idx_path).spans(size)
        return offset

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"idx_path": self.idx_path, "key_type": self.key_type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.idx_path = state["idx_path"]
        self.key_type = state["key_type"]
        self.idx, self.keys, self.fidx = {}, [], None
        super().__setstate__(state)


def _type_name(key_type: Callable[[Any], Any]) -> str:
    return getattr(key_type, "__name__", repr(key_type))
