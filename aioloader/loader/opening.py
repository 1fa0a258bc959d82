"""Opening a loader in a thread: it can be left at any moment, and one that takes long is reported.

Announcing the items of the next batches to a byte source that reads ahead.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import deque
from typing import TYPE_CHECKING

from aioloader.errors import ThreadStartError
from aioloader.foundation.caller import DeferredWarnings
from aioloader.foundation.opening import Opening, current_opening
from aioloader.foundation.thread_start import start
from aioloader.foundation.threads import Threads
from aioloader.pipeline.plan import BatchPlan, base_indices
from aioloader.pipeline.watchdog import ThreadWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from aioloader.abc import ByteSource
    from aioloader.pipeline.context import PipelineContext


def announced(context: PipelineContext, plans: Iterable[BatchPlan]) -> Iterator[BatchPlan]:
    """Return an iterator over plans; the items of those that follow are announced to the byte source.

    Plans are taken ahead only for a source that reads ahead.

    Args:
        context: the shared parts.
        plans: the batches of an epoch, in order; taking them early has no effect but to compute them earlier.
    """
    source = context.source
    if source is not None and source.announced:
        return _announce(context, plans, source)
    return iter(plans)


def _announce(
    context: PipelineContext, plans: Iterable[BatchPlan], source: ByteSource
) -> Iterator[BatchPlan]:
    assert context.items.spans is not None
    waiting: deque[BatchPlan] = deque()
    ahead = 0
    for plan in plans:
        source.announce(context.items.spans(base_indices(context.items, plan.indices)[1]))
        waiting.append(plan)
        ahead += len(plan.indices)
        while ahead - len(waiting[0].indices) >= source.announced:
            ahead -= len(waiting[0].indices)
            yield waiting.popleft()
    yield from waiting


_LEAVE_S = 0.5


async def open_in_thread(open_parts: Callable[[], object], timeout: float) -> None:
    """Call the function that opens a loader, in a thread, and wait for it.

    On cancellation it returns at once. The requests of the opening are cancelled then; what else the thread waits for,
    such as a file of a network drive, may keep it longer.

    Args:
        open_parts: opens the loader; blocking.
        timeout: most seconds that it may wait for one answer of a server.

    Raises:
        ThreadStartError: the system refuses the thread.
    """
    opening = Opening(timeout)
    warnings = DeferredWarnings()

    def run() -> None:
        current_opening.set(opening)
        with warnings.kept():
            open_parts()

    threads = Threads(1, "aioloader-open")
    try:
        await threads.run_abandonable(contextvars.Context().run, run, abandoned=lambda: None)
    except BaseException as error:
        opening.cancel()
        if isinstance(error, Exception):
            warnings.issue()
        raise
    finally:
        threads.close(0)
    warnings.issue()


def open_blocking(open_parts: Callable[[], object], timeout: float) -> None:
    """Call the function that opens a loader, and wait for it, in code without an event loop.

    Ctrl-C, which is raised in the main thread, cancels the requests of the opening. For that another thread opens the
    loader; what it has opened is kept or closed.

    Args:
        open_parts: opens the loader; blocking.
        timeout: most seconds that it may wait for one answer of a server.
    """
    if threading.get_ident() != threading.main_thread().ident:
        open_parts()
        return
    opening = Opening(timeout)
    errors: list[BaseException] = []
    warnings = DeferredWarnings()

    def run() -> None:
        current_opening.set(opening)
        try:
            with warnings.kept():
                open_parts()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="aioloader-open", daemon=True)
    try:
        start(thread)
        thread.join()
    except ThreadStartError:
        open_parts()
    except BaseException:
        opening.cancel()
        if thread.is_alive():
            thread.join(_LEAVE_S)
        raise
    try:
        warnings.issue()
    finally:
        if errors:
            raise errors.pop()


@contextlib.contextmanager
def limits(timeout: float) -> Iterator[None]:
    """Return a context for opening a loader in the caller's thread, where no other limits are set."""
    if current_opening.get() is not None:
        yield
        return
    token = current_opening.set(Opening(timeout))
    try:
        yield
    finally:
        current_opening.reset(token)


def reported(name: str, after_s: float | None) -> AbstractContextManager[None]:
    """Return a context that logs a warning with the stack of this thread while it lasts long.

    Args:
        name: what is opened.
        after_s: seconds after which it is reported, and again at growing intervals; None: never.
    """
    if after_s is None:
        return contextlib.nullcontext()
    message = "no batch yet: the loader has been opening %s for %.1f s. It is at:\n%s"
    return ThreadWatch(message, name, after_s, stage="open")
