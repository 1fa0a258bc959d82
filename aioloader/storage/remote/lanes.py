"""Reading of an object by several chains of requests at a time. The answers of a chain decide what it requests next."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from aioloader.storage.remote.opening import client_and_thread
from aioloader.storage.remote.transport import ObjectRange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.storage.remote.client import Client
    from aioloader.storage.remote.transport import Version

_TIMEOUT_S = 120.0


class Lane(Protocol):
    """Chain of requests."""

    @property
    def wants(self) -> Sequence[tuple[int, int]]:
        """Return offset and length of the ranges to read next, inside of the object; nothing at the end."""
        ...

    def take(self, parts: Sequence[bytes], /) -> object:
        """Take the bytes of these ranges."""
        ...


class Scan(Protocol):
    """Scan of an object by several chains of requests."""

    @property
    def reached(self) -> int:
        """Return the number of bytes of the object that are known."""
        ...

    def begin(self) -> Sequence[Lane]:
        """Return the chains to follow first."""
        ...

    def settle(self) -> Sequence[Lane]:
        """Return the chains to follow, too, now that one has ended."""
        ...


def follow(scan: Scan, url: str, version: Version, tick: Callable[[int], object] | None = None) -> None:
    """Read what a scan wants, until nothing is left. Blocking.

    Ctrl-C and errors end all requests before the call returns.

    Args:
        scan: the scan; it is called in one thread.
        url: the object.
        version: of the object; another one is an error.
        tick: called after each answer with the number of bytes of the object that are known.

    Raises:
        RemoteReadError: the object cannot be read.
        ObjectChangedError: it was replaced.
    """
    with client_and_thread() as (client, thread):
        thread.call(partial(_follow, client, scan, url, version, tick))


async def _follow(
    client: Client, scan: Scan, url: str, version: Version, tick: Callable[[int], object] | None
) -> None:
    async def run(lane: Lane) -> None:
        while wanted := lane.wants:
            ranges = [ObjectRange(url, offset, length, version) for offset, length in wanted]
            lane.take(await client.get(ranges, _TIMEOUT_S))
            if tick is not None:
                tick(scan.reached)
        for further in scan.settle():
            tasks.create_task(run(further))

    try:
        async with asyncio.TaskGroup() as tasks:
            for lane in scan.begin():
                tasks.create_task(run(lane))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
