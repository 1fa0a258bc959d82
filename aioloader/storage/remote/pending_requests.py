"""Ranges of objects that are wanted, and what is known of each on its way."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioloader.errors import RemoteReadError
    from aioloader.storage.remote.transport import Answer, Version

__all__ = ("Call", "PendingRequest", "Wanted")


class Wanted(NamedTuple):
    """A range of an object.

    Attributes:
        url: the object.
        offset: first byte.
        length: bytes, at least one; the object has them.
        version: which state of the object they have to be from; None for any.
    """

    url: str
    offset: int
    length: int
    version: Version | None = None


class PendingRequest:
    """A range on its way."""

    __slots__ = (
        "attempts",
        "begun",
        "doubled",
        "hedge",
        "number",
        "overdue",
        "settled",
        "since",
        "task",
        "wanted",
    )

    def __init__(self, number: int, wanted: Wanted) -> None:
        self.number = number
        self.wanted = wanted
        self.since = monotonic()
        self.attempts = 0
        self.begun: float | None = None  # when the request in flight was sent
        self.overdue = False  # it was given up
        self.doubled = False
        self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.hedge: asyncio.Task[None] | None = None


class Call:
    """One call of `Client.fetch`."""

    def __init__(
        self, task: asyncio.Task[object], take: Callable[[int, Answer], None], timeout_s: float
    ) -> None:
        self.task = task
        self.take = take
        self.timeout_s = timeout_s
        self.deadline = monotonic() + timeout_s
        self.flights: set[PendingRequest] = set()
        self.failures: dict[int, RemoteReadError] = {}
        self.timer: asyncio.TimerHandle | None = None
