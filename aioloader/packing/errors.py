"""Errors of packing."""

from __future__ import annotations

from aioloader.errors import LoaderError

__all__ = ("PackBusyError", "PackError")


class PackError(LoaderError, ValueError):
    """One image cannot be packed; the cause is chained.

    Attributes:
        path: its file.
        reason: the cause in one line.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot pack {path}: {reason}")
        self.path = path
        self.reason = reason


class PackBusyError(LoaderError, BlockingIOError):
    """Another process is packing into the same files.

    Attributes:
        out: what both are to write, without its ending.
        pid: the other process, or None where it is not known.
    """

    def __init__(self, out: str, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{who} is packing into {out}; wait for its end, or give another name")
        self.out = out
        self.pid = pid
