"""RecordWriter: payloads into a .rec file, and on request, keys and offsets into an .idx."""

from __future__ import annotations

import os
import warnings
from typing import NoReturn

from recordio._files import AppendFile
from recordio._framing import BytesLike, framed_pieces
from recordio._index import index_path_for
from recordio._index_text import format_line
from recordio.errors import RecordKeyError, WriterPicklingError


class WriterFiles:
    """Record file and .idx (if there is one) of a blocking or async record writer.

    Args:
        path: The record file.
        index, append: As for `RecordWriter`.
        index_at_once: False creates the .idx at the first flush, so that adding a record does not access the disk.

    Attributes:
        records: The record file.
        index: The .idx; None if there is none so far.
        count: Number of records, with those that an index listed before.
    """

    def __init__(
        self,
        path: str,
        index: str | os.PathLike[str] | bool | None,
        *,
        append: bool = False,
        index_at_once: bool = True,
    ) -> None:
        self.records = AppendFile(path, append=append)
        self.index: AppendFile | None = None
        self.count = 0
        self._default = index_path_for(path)
        self._forbidden = index is False
        self._index_at_once = index_at_once
        index_path: str | None = None
        if index is True or (index is None and os.path.exists(self._default)):
            index_path = self._default
        elif index is not None and not isinstance(index, bool):
            index_path = os.fspath(index)
        if append and os.path.getsize(path):
            if index_path is None or not os.path.exists(index_path):
                index_path, self._forbidden = None, True
            else:
                self.count = _count_lines(index_path)
        if index_path is not None:
            self.index = AppendFile(index_path, at_once=index_at_once, append=append)

    def add(self, payload: BytesLike, key: int | str | None, head: bytes = b"") -> int:
        """Add a record, and its line, to the buffers; return its byte offset. The first key begins an .idx.

        Args:
            payload, key: as for `RecordWriter.write`.
            head: bytes before the payload, a multiple of 4.
        """
        self.records.check()
        pieces = framed_pieces(payload, head)
        offset = self.records.tell()
        if key is not None and self.index is None and self._forbidden:
            raise RecordKeyError("a key was passed to a writer with index=False", key=key)
        if key is not None or self.index is not None:
            line = format_line(self.count if key is None else key, offset).encode()
            if self.index is None:
                self.index = AppendFile(self._default, at_once=self._index_at_once)
            self.index.hold(line)
        self.count += 1
        self.records.hold(*pieces)
        return offset

    def opened(self) -> list[AppendFile]:
        """Return the files, in the order in which they have to be written."""
        return [self.records] if self.index is None else [self.records, self.index]


def refuse_pickling(writer: object) -> NoReturn:
    """Raise, because a copy of a writer would truncate the file.

    Raises:
        WriterPicklingError: always.
    """
    raise WriterPicklingError(
        f"{type(writer).__name__} cannot be pickled: the copy would truncate the file; "
        "send the path and open a writer of another file there"
    )


def _count_lines(path: str) -> int:
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


class RecordWriter:
    """Writer of a record file; an old one of that name is truncated, unless `append` is set.

    Args:
        path: The .rec file to write.
        index: Where keys and offsets are written.
            A path: to that .idx, one line for every record.
            True: to the .idx next to the file, one line for every record.
            None: to the .idx next to the file, but only if there is one already (it described the old file and must
                not outlive it), or from the first `write` with a key on.
            False: nowhere; passing a key is an error.
        append: Continue at the end of the existing file, and of its .idx. Both have to be complete; if the file has
            no .idx yet, none is begun, because it would not have all records.

    A record written without a key is listed under its running number (0, 1, 2, ...). Records and index are buffered:
    they are complete after `close`, which a `with` block calls.
    """

    _opened = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        index: str | os.PathLike[str] | bool | None = None,
        *,
        append: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self._files = WriterFiles(self.path, index, append=append)
        self._opened = True

    def __len__(self) -> int:
        """Return the number of records written so far, and of those that an index listed before."""
        return self._files.count

    def tell(self) -> int:
        """Return the byte offset at which the next record will begin."""
        return self._files.records.tell()

    def write(self, payload: BytesLike, key: int | str | None = None) -> int:
        """Append one record.

        Args:
            payload: Up to 2**29 - 1 bytes; any object with a buffer.
            key: Name in the .idx; an integer, or text without TAB and line breaks.

        Returns:
            Byte offset of the record in the file.

        Raises:
            PayloadTypeError: `payload` is not bytes-like (encode text first).
            RecordTooLargeError: `payload` has 2**29 bytes or more.
            ClosedError: The writer is closed.
            WrongProcessError: This process was forked after the writer was opened.
        """
        return self.write_with_head(b"", payload, key)

    def write_with_head(self, head: bytes, body: BytesLike, key: int | str | None = None) -> int:
        """Append one record of two parts, as `write` of both; a long body is not copied.

        Args:
            head: The first part, its length a multiple of 4, such as ``pack(header, b"")``.
            body: The second part; any object with a buffer.
            key: As for `write`.

        Returns:
            Byte offset of the record in the file.

        Raises:
            RecordIOError: As `write`.
        """
        offset = self._files.add(body, key, head)
        if self._files.records.is_full:
            self.flush()
        return offset

    def flush(self) -> None:
        """Write everything so far to the operating system, records before index."""
        for file in self._files.opened():
            file.flush()

    def close(self) -> None:
        """Flush and close both files. Idempotent."""
        try:
            self._files.records.close()
        finally:
            if self._files.index is not None:
                self._files.index.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    def __del__(self) -> None:
        if self._opened and self._files.records.needs_close:
            warnings.warn(
                f"{self.path}: the writer was never closed",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            self.close()
