"""Executors whose workers several epochs share: one epoch at a time tends the workers, the others stand by."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from aioloader._late import late
from aioloader._signal import Signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ("LedExecutor",)

_DRAIN_S = 0.25


class LedExecutor:
    """Base of executors that tend workers from within an epoch. A subclass sets `_drained` when a chunk called off is
    over."""

    def __init__(self) -> None:
        self._drained = Signal()
        self._leader: anyio.Lock | None = None
        self._users = 0

    def _begin(self) -> None:
        """The first epoch begins, perhaps in another event loop than the last one."""
        self._leader = anyio.Lock()
        self._drained = Signal()

    async def _lead(self) -> None:
        """Tend the workers until cancelled."""
        raise NotImplementedError(f"{type(self).__name__} defines no _lead()")

    @property
    def _draining(self) -> bool:
        """Whether chunks that were called off are not over yet."""
        raise NotImplementedError(f"{type(self).__name__} defines no _draining")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """See `aioloader.abc.Executor.serving`.

        Several epochs may serve at once: one of them leads, the others stand by.
        """
        if self._users == 0:
            self._begin()
        self._users += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(late(self._take_turns))
                yield
                tasks.cancel_scope.cancel()
        finally:
            # Chunks called off are over within one sample: wait for them a moment, so that their memory is
            # free for the next epoch. Those that take longer are collected when the workers are next served.
            with anyio.move_on_after(_DRAIN_S, shield=True):
                async with anyio.create_task_group() as tasks:
                    if self._draining:
                        tasks.start_soon(late(self._take_turns))
                    while self._draining:
                        await self._drained.wait()
                    tasks.cancel_scope.cancel()
            self._users -= 1

    async def _take_turns(self) -> None:
        assert self._leader is not None
        async with self._leader:
            await self._lead()
