"""Blocking file calls, awaited under asyncio or trio.

Under asyncio it is aiofiles' wrapper, under trio anyio's worker threads: one call in a thread for a whole list of
ranges or one full write buffer, never one per record. Both are imported at the first call.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


def _under_trio() -> bool:
    """Return True if the calling task runs in a trio loop; guest mode counts as trio."""
    if "trio" not in sys.modules:
        return False
    import sniffio

    try:
        return bool(sniffio.current_async_library() == "trio")
    except sniffio.AsyncLibraryNotFoundError:
        return False


async def run_in_thread(call: Callable[..., _T], *args: Any) -> _T:
    """Run a blocking call in a thread and await its result.

    Cancelling stops the waiting, not the call; the calls made this way stay harmless when they finish late
    (positioned reads, and positioned writes of the same bytes).
    """
    if _under_trio():
        import anyio.to_thread

        return await anyio.to_thread.run_sync(call, *args, abandon_on_cancel=True)
    import aiofiles.os

    result: _T = await aiofiles.os.wrap(call)(*args)
    return result


async def checkpoint() -> None:
    """Let other tasks run."""
    if _under_trio():
        import anyio.lowlevel

        await anyio.lowlevel.checkpoint()
    else:
        import asyncio

        await asyncio.sleep(0)
