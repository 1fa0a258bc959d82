"""The file of a trace: valid JSON after every write, so that a program may end at any moment."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_NBYTES = 64 << 20
_END = b"\n]\n"


class TraceFile:
    """A file that is a complete JSON array after every write.

    Args:
        path: path of the file; an existing file is replaced.
        limit: maximum size in bytes.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], limit: int = LIMIT_NBYTES) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o666)
        self._limit = limit
        self._end = 0  # offset of the next write: of the line end before the closing bracket
        self._put(b"[", 0)
        self._end = 1

    def append(self, events: Sequence[dict[str, Any]]) -> int:
        """Append events; return how many fit.

        Raises:
            OSError: for example, the disk is full; the file keeps its previous content.
        """
        lines: list[bytes] = []
        size = self._end + len(_END)
        for event in events:
            line = json.dumps(event, separators=(",", ":")).encode()
            size += len(line) + 2
            if size > self._limit:
                break
            lines.append(line)
        if lines:
            lead = b"\n" if self._end == 1 else b",\n"
            self._put(lead + b",\n".join(lines), self._end)
        return len(lines)

    def _put(self, data: bytes, at: int) -> None:
        try:
            self._write(data + _END, at)
        except OSError:
            try:
                os.ftruncate(self._fd, at)
                self._write(_END, at)
            except OSError:
                pass  # the first error is raised
            raise
        self._end = at + len(data)

    def _write(self, data: bytes, at: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, at)
            at += written
            view = view[written:]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
