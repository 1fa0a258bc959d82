"""AsyncRecordWriter: the blocking writer's bytes, written to disk in threads."""

from __future__ import annotations

import os
from typing import NoReturn

from recordio._async_backend import run_in_thread
from recordio._files import AppendFile
from recordio._framing import BytesLike, framed_pieces
from recordio._writer import IndexWriter, refuse_pickling
from recordio.errors import ClosedError


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
        self._records: AppendFile | None = None
        self._index: IndexWriter | None = None

    async def __aenter__(self) -> AsyncRecordWriter:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Create the file, unless that was done; `async with` calls this."""
        if self._records is None:
            records = await run_in_thread(AppendFile, self.path)
            self._index = await run_in_thread(
                lambda: IndexWriter(self.path, self._index_choice, at_once=False)
            )
            self._records = records

    def __len__(self) -> int:
        """Return the number of records written so far."""
        return 0 if self._index is None else self._index.count

    async def write(self, payload: BytesLike, key: int | str | None = None) -> int:
        """Append one record; arguments, result and errors as `RecordWriter.write`."""
        if self._records is None or self._index is None:
            raise ClosedError(f"{self.path}: the writer is not open; use `async with`")
        self._records.check()
        pieces = framed_pieces(payload)
        # Nothing is awaited before the bookkeeping is done, so calls cannot interleave.
        offset = self._records.tell()
        self._index.add(key, offset)
        self._records.hold(*pieces)
        if self._records.is_full:
            await self.flush()
        return offset

    async def flush(self) -> None:
        """Write everything so far to the operating system, records before index."""
        for file in self._files():
            await run_in_thread(file.flush)

    async def aclose(self) -> None:
        """Flush and close. Idempotent. If it is cancelled, the thread that writes completes it."""
        for file in self._files():
            await run_in_thread(file.close)

    def _files(self) -> list[AppendFile]:
        files = (self._records, None if self._index is None else self._index.file)
        return [file for file in files if file is not None]

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)
