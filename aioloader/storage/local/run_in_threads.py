"""One function on several parts of a piece of work at the same time, each part in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioloader.errors import single

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from aioloader.foundation.threads import Threads

__all__ = ("run_in_threads",)

T = TypeVar("T")


async def run_in_threads(threads: Threads, fn: Callable[..., T], parts: Sequence[tuple[Any, ...]]) -> list[T]:
    """Call `fn(*part)` for every part.

    Args:
        threads: where; as many at a time as it has.
        fn: blocking.
        parts: its arguments.

    Returns:
        the results, in the order of the parts. On cancellation what runs is waited for.

    Raises:
        Exception: of a call that failed.
    """
    import anyio  # blocking use does not need it

    results: dict[int, T] = {}

    async def one(number: int, part: tuple[Any, ...]) -> None:
        results[number] = await threads.run(fn, *part)

    try:
        async with anyio.create_task_group() as tasks:
            for number, part in enumerate(parts):
                tasks.start_soon(one, number, part)
    except BaseExceptionGroup as group:
        raise single(group) from None
    return [results[number] for number in range(len(parts))]
