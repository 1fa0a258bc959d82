"""Tasks that live longer than the call that starts them: the supervisors of epochs and of image services.

Such a task opens a task group and closes it, inside itself, so that no group is open across a caller's code.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import anyio.lowlevel

from aioloader.foundation.concurrency import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# asyncio keeps only weak references to tasks.
_tasks: set[asyncio.Task[None]] = set()


def spawn(supervise: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Start a supervisor in the running event loop, asyncio's or trio's.

    Args:
        supervise: the supervisor, which raises nothing.
        name: name of the task.
    """
    token: Any = anyio.lowlevel.current_token().native_token
    if isinstance(token, asyncio.AbstractEventLoop):
        # A loop that ends at once never runs it, and a deferred coroutine then does not warn.
        task = token.create_task(deferred(supervise)(), name=name)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        return
    import trio

    # As under asyncio, it runs with the caller's context variables.
    trio.lowlevel.spawn_system_task(supervise, name=name, context=contextvars.copy_context())
