"""AsyncRecordWriter: the blocking writer's bytes, written to disk in threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from recordio._async_backend import run_in_thread
from recordio._files import AppendFile
from recordio._framing import framed_pieces
from recordio._index_text import format_line
from recordio._writer import IndexPolicy, refuse_pickling
from recordio.errors import ClosedError

if TYPE_CHECKING:
    from recordio._framing import BytesLike

__all__ = ("AsyncRecordWriter",)

_WRITE_BYTES = 1 << 20


class AsyncRecordWriter:
    """Writer of a new record file that does not block the event loop.

    Args:
        path: The .rec file to write; an old one is truncated when the writer is entered.
        index: As for `RecordWriter`.

    Use it in `async with`. Many tasks may write; records are in the order of the calls. A call that is cancelled while
    it waits for the disk has written its record: it is in the buffer, and the next call repeats the flush, at the same
    place.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        index: str | os.PathLike[str] | bool | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._index_choice = index
        self._policy: IndexPolicy | None = None
        self._records: AppendFile | None = None
        self._lines: AppendFile | None = None
        self._count = 0

    async def __aenter__(self) -> AsyncRecordWriter:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Create the file, unless that was done; `async with` calls this."""
        if self._records is None:
            self._policy = await run_in_thread(IndexPolicy, self.path, self._index_choice)
            records = await run_in_thread(AppendFile, self.path)
            if self._policy.path is not None:
                self._lines = AppendFile(self._policy.path, at_once=False)
            self._records = records

    def __len__(self) -> int:
        """Return the number of records written so far."""
        return self._count

    async def write(self, payload: BytesLike, key: int | str | None = None) -> int:
        """Append one record; arguments, result and errors as `RecordWriter.write`."""
        if self._records is None or self._policy is None:
            raise ClosedError(f"{self.path}: the writer is not open; use `async with`")
        self._records.check()
        pieces = framed_pieces(payload)
        index_path = self._policy.path_for(key)
        if index_path is not None and self._lines is None:
            self._lines = AppendFile(index_path, at_once=False)
        # Nothing is awaited before the bookkeeping is done, so calls cannot interleave.
        offset = self._records.tell()
        line = format_line(self._count if key is None else key, offset) if index_path else ""
        self._records.hold(*pieces)
        if self._lines is not None:
            self._lines.hold(line.encode())
        self._count += 1
        if self._records.pending >= _WRITE_BYTES:
            await self.flush()
        return offset

    async def flush(self) -> None:
        """Write everything so far to the operating system, records before index."""
        for file in (self._records, self._lines):
            if file is not None:
                await run_in_thread(file.flush)

    async def aclose(self) -> None:
        """Flush and close. Idempotent. If it is cancelled, the thread that writes completes it."""
        for file in (self._records, self._lines):
            if file is not None:
                await run_in_thread(file.close)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)
