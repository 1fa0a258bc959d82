"""What worker processes do at this moment, for reports of a stall and before a stuck one is ended."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from aioloader.executors.process.worker import CURRENT, PLACE
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import INDEX, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.executors.process.handle import WorkerHandle
    from aioloader.foundation.types import IntArray

__all__ = ("ask_stacks", "progress_token", "states_of")

_PATIENCE_S = 2.0


def progress_token(handle: WorkerHandle, control: IntArray) -> tuple[int, int]:
    """Number of the attempt that a worker works on (0: none; -1: it is still starting), and the place of its sample."""
    current, place = (int(word) for word in control[handle.slot, [CURRENT, PLACE]])
    return (current if handle.ready else -1), place


async def states_of(handles: Sequence[WorkerHandle], control: IntArray) -> list[WorkerState]:
    """What every worker does; those with work, and those that are still starting, are asked for their stacks."""
    states = [_state(handle, control) for handle in handles]
    busy = [place for place, state in enumerate(states) if state.doing != "waiting"]
    stacks = await ask_stacks([handles[place] for place in busy])
    for place, stack in zip(busy, stacks, strict=True):
        states[place] = replace(states[place], stack=stack)
    return states


def _state(handle: WorkerHandle, control: IntArray) -> WorkerState:
    if handle.process is None:
        return WorkerState(f"worker {handle.slot}", "starting")
    name = f"process {handle.process.pid}"
    seconds = time.monotonic() - handle.progress_at
    current, at = progress_token(handle, control)
    working = handle.running.get(current)
    outstanding: list[int] = []
    for attempt in handle.running.values():
        # The two words are not read in one: the place may be that of the next chunk.
        begun = attempt is working and 0 <= at < len(attempt.part)
        outstanding += attempt.part.index_table[INDEX, at if begun else 0 :].tolist()
    if working is None:
        doing = "waiting" if handle.ready else "starting"
        return WorkerState(name, doing, outstanding=tuple(outstanding), seconds=seconds)
    index = int(working.part.index_table[INDEX, at]) if 0 <= at < len(working.part) else None
    return WorkerState(name, "working", working.part.batch, index, tuple(outstanding), seconds)


async def ask_stacks(handles: Sequence[WorkerHandle]) -> list[str | None]:
    """Where some workers stand; None for one that does not tell in time."""
    found: list[str | None] = [None] * len(handles)
    if not found:
        return found

    def wait() -> None:
        for place, handle in enumerate(handles):
            found[place] = handle.told_stack()

    for handle in handles:
        handle.ask_stack()

    # A thread of its own: those of the loader may be what is stuck.
    waiting = Threads(1, "aioloader-stacks")
    try:
        with anyio.move_on_after(_PATIENCE_S):
            await waiting.run_abandonable(wait, abandoned=_nothing)
    finally:
        waiting.close(0)
    return list(found)


def _nothing() -> None:
    pass
