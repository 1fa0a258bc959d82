"""Errors of packing."""

from __future__ import annotations

from aioloader.errors import LoaderError


class PackError(LoaderError, ValueError):
    """Error raised when an image cannot be packed; the cause is chained.

    Attributes:
        path: its file.
        reason: the cause in one line.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot pack {path}: {reason}")
        self.path = path
        self.reason = reason


class PackBusyError(LoaderError, BlockingIOError):
    """Error raised when another process is packing into the same files.

    Attributes:
        out: path of the output of both, without its extension.
        pid: the other process, or None where it is not known.
    """

    def __init__(self, out: str, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{who} is packing into {out}; wait until it ends, or choose another name")
        self.out = out
        self.pid = pid
