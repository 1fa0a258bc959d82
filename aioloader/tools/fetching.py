"""The bytes of some items of a dataset that is far away: all asked for at once, and none lost for another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioloader.datasets.files import FileDataset
    from aioloader.foundation.types import IntArray

__all__ = ("fetch",)


def fetch(dataset: FileDataset, numbers: IntArray) -> list[memoryview | BaseException]:
    """Read items.

    Args:
        dataset: over URLs, without a cache.
        numbers: int64 (n,), which items; their bytes together are held in memory.

    Returns:
        of each its bytes (framed, of a record), or why it cannot be had.

    Raises:
        RemoteReadError: none can be had.
    """
    source: Any = dataset.open_source()
    try:
        plan = source.blocking(source.plan, dataset.spans(numbers))
        data = memoryview(bytearray(plan.nbytes))
        failed: dict[int, BaseException] = dict(plan.failures) | dict(
            source.blocking(source.read, plan, data)
        )
    finally:
        source.close()
    return [
        failed[place] if place in failed else data[start : start + length].toreadonly()
        for place, (start, length) in enumerate(zip(plan.start.tolist(), plan.length.tolist(), strict=True))
    ]
