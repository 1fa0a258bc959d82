"""Concurrent reading of some items of a remote dataset; an item that fails does not affect the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.datasets.files import FileDataset
    from aioloader.foundation.types import IntArray


def fetch(dataset: FileDataset, numbers: IntArray) -> list[memoryview | BaseException]:
    """Read items.

    Args:
        dataset: a dataset over URLs, without a cache.
        numbers: int64 (n,), numbers of the items; all their bytes are held in memory.

    Returns:
        for each item its bytes (of a record, with the framing), or the error.

    Raises:
        RemoteReadError: no item can be read.
    """
    from aioloader.storage.remote.source import RemoteByteSource

    source = dataset.open_source()
    assert isinstance(source, RemoteByteSource)
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
