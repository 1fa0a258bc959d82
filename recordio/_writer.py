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


class IndexWriter:
    """Writer of the index lines of the blocking and the async record writer, if there is an .idx to write.

    Args:
        rec_path: The record file, which exists already.
        index, append: As for `RecordWriter`.
        at_once: False creates the .idx at the first flush, so that adding a line does not access the disk.

    Attributes:
        file: The .idx; None if there is none so far.
        count: Number of records, with those that an index listed before.
    """

    def __init__(
        self,
        rec_path: str,
        index: str | os.PathLike[str] | bool | None,
        *,
        append: bool = False,
        at_once: bool = True,
    ) -> None:
        self._default = index_path_for(rec_path)
        self._forbidden = index is False
        self._at_once = at_once
        self.file: AppendFile | None = None
        self.count = 0
        path: str | None = None
        if index is True or (index is None and os.path.exists(self._default)):
            path = self._default
        elif index is not None and not isinstance(index, bool):
            path = os.fspath(index)
        if append and os.path.getsize(rec_path):
            if path is None or not os.path.exists(path):
                path, self._forbidden = None, True
            else:
                self.count = _count_lines(path)
        if path is not None:
            self.file = AppendFile(path, at_once=at_once, append=append)

    def add(self, key: int | str | None, offset: int) -> None:
        """Add the line of a record to the buffer; begin an .idx if this is the first record with a key."""
        if key is not None and self.file is None and self._forbidden:
            raise RecordKeyError("a key was passed to a writer with index=False", key=key)
        if key is not None or self.file is not None:
            line = format_line(self.count if key is None else key, offset).encode()
            if self.file is None:
                self.file = AppendFile(self._default, at_once=self._at_once)
            self.file.hold(line)
        self.count += 1


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
        self._records = AppendFile(self.path, append=append)
        self._index = IndexWriter(self.path, index, append=append)
        self._opened = True

    def __len__(self) -> int:
        """Return the number of records written so far, and of those that an index listed before."""
        return self._index.count

    def tell(self) -> int:
        """Return the byte offset at which the next record will begin."""
        return self._records.tell()

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
        self._records.check()
        pieces = framed_pieces(payload)
        offset = self._records.tell()
        self._index.add(key, offset)
        self._records.hold(*pieces)
        if self._records.is_full:
            self.flush()
        return offset

    def flush(self) -> None:
        """Write everything so far to the operating system, records before index."""
        self._records.flush()
        if self._index.file is not None:
            self._index.file.flush()

    def close(self) -> None:
        """Flush and close both files. Idempotent."""
        try:
            self._records.close()
        finally:
            if self._index.file is not None:
                self._index.file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    def __del__(self) -> None:
        if self._opened and self._records.needs_close:
            warnings.warn(
                f"{self.path}: the writer was never closed",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            self.close()
