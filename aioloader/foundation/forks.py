"""Forks of the process that made an object: they have the object too, but not its threads, children and locks."""

from __future__ import annotations

import os


class ForkGuard:
    """Record of the process that made an object."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Return True in another process than the one that made this: in a fork of it."""
        return os.getpid() != self._pid
