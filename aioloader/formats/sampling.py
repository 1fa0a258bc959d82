"""Reading of samples of a data set: the headers of records, or whole items of a remote dataset.

Millions of headers take seconds from memory or a fast disk, and minutes from a slow one. They are read in passes over
the whole file, so that reading can stop after any pass with an even sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.abc import ByteSource
    from aioloader.datasets.files import FileDataset
    from aioloader.foundation.types import IntArray, Spans

_MOST_PARTS = 4096


def in_passes(count: int, size: int) -> Iterator[IntArray]:
    """Yield the numbers 0 to count - 1 in parts; any first few parts are about evenly spaced numbers.

    Args:
        count: of the numbers.
        size: of a part, int64 (n,), approximately; of many numbers the parts are larger.
    """
    passes = min(_MOST_PARTS, max(1, count // size))
    for first in _spread(passes):
        yield np.arange(first, count, passes, dtype=np.int64)


def fetch_each(dataset: FileDataset, numbers: IntArray) -> list[memoryview | BaseException]:
    """Read items of a local or remote dataset without a cache; one that fails does not affect the others.

    Args:
        dataset: the dataset.
        numbers: int64 (n,), numbers of the items; all their bytes are held in memory.

    Returns:
        for each item its bytes, or the error.

    Raises:
        RemoteReadError: no item can be read.
    """
    source = dataset.open_source()
    found: list[memoryview | BaseException] = []
    try:
        if dataset.reads_ahead and not source.announced:  # not one of row groups, which reads them as a whole
            return _fetch_at_once(source, dataset.spans(numbers))
        for number in numbers:
            try:
                plan, data = source.fetch(dataset.spans(np.array([number])))
            except (OSError, ValueError, EOFError) as error:
                found.append(error)
                continue
            start = int(plan.start[0])
            found.append(data[start : start + int(plan.length[0])].toreadonly())
    finally:
        source.close()
    return found


def _spread(count: int) -> list[int]:
    """Return 0 to count - 1 in bit-reversed order: any first few of them are about evenly spaced."""
    bits = max(1, (count - 1).bit_length())
    turned = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in turned if number < count]


def evenly(count: int, most: int) -> IntArray:
    """Return up to `most` evenly spaced numbers of 0 to count - 1, with the first and the last; int64."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def fetch(dataset: FileDataset, numbers: IntArray) -> list[memoryview | BaseException]:
    """Read items concurrently; one that fails does not affect the others.

    Args:
        dataset: a dataset over URLs, without a cache.
        numbers: int64 (n,), numbers of the items; all their bytes are held in memory.

    Returns:
        for each item its bytes (of a record, with the framing), or the error.

    Raises:
        RemoteReadError: no item can be read.
    """
    source = dataset.open_source()
    try:
        return _fetch_at_once(source, dataset.spans(numbers))
    finally:
        source.close()


def _fetch_at_once(source: ByteSource, spans: Spans) -> list[memoryview | BaseException]:
    """Read spans concurrently; return the bytes of each, or the error."""
    plan = source.plan_blocking(spans)
    data = memoryview(bytearray(plan.nbytes))
    failed: dict[int, BaseException] = dict(plan.failures) | dict(source.read_blocking(plan, data))
    return [
        failed[place] if place in failed else data[start : start + length].toreadonly()
        for place, (start, length) in enumerate(zip(plan.start.tolist(), plan.length.tolist(), strict=True))
    ]
