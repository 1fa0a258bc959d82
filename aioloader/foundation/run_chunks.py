"""Concurrent execution of the chunks of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioloader.foundation.concurrency import deferred
from aioloader.foundation.types import Chunk, ChunkResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


async def run_each(chunks: Sequence[Chunk], run: Callable[[Chunk], Awaitable[ChunkResult]]) -> ChunkResult:
    """Run chunks concurrently; return their merged result.

    Args:
        chunks: at least one; each is released at the end, also one that never began.
        run: runs a chunk and releases it.

    Raises:
        Exception: the first one that `run` raised, once all are done.

    Cancellation cancels all chunks.
    """
    if len(chunks) == 1:
        return await run(chunks[0])
    result = ChunkResult()
    errors: list[Exception] = []
    waiting = {id(chunk): chunk for chunk in chunks}

    async def one(chunk: Chunk) -> None:
        del waiting[id(chunk)]
        try:
            result.merge(await run(chunk))
        except Exception as error:
            errors.append(error)

    try:
        async with anyio.create_task_group() as tasks:
            for chunk in chunks:
                tasks.start_soon(deferred(one), chunk)
    finally:
        for chunk in waiting.values():  # those whose task never began
            chunk.release()
    if errors:
        raise errors[0]
    return result
