"""Whose cancellation it is: the epoch's, or that of something that a caller's own async code has awaited."""

from __future__ import annotations

import asyncio
import math

import anyio

__all__ = ("is_ours",)


def is_ours(error: BaseException, *, shielded: bool = False) -> bool:
    """Whether an exception says that the epoch ends, or the program, and not that the caller's code has failed.

    Async code may have awaited something that was cancelled, which looks the same to it. Called where it was raised.

    Args:
        error: what the caller's code raised.
        shielded: this task is ended by its cancel scope only, and goes on otherwise: asyncio's own cancellation comes
            from the caller's code, or reaches the tasks around this one too.
    """
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return True
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup((cancelled, KeyboardInterrupt, GeneratorExit)) is not None
    if not isinstance(error, cancelled):
        return False
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # trio: nobody else raises its Cancelled
    if task is None or not task.cancelling():
        return False
    if shielded:
        task.uncancel()
    return not shielded
