"""Reading of samples of a data set: the headers of records, or whole items of a remote dataset.

Millions of headers take seconds from memory or a fast disk, and minutes from a slow one. They are read in passes over
the whole file, so that reading can stop after any pass with an even sample.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.record_heads import RecordHeads, read_heads

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.datasets.files import FileDataset
    from aioloader.foundation.types import IntArray
    from aioloader.storage.remote.transport import Version

_MOST_PASSES = 64
_BETWEEN_TICKS = 4096
_MOST_SAMPLED = 1 << 22  # some hundred bytes of memory each


def sample_headers(
    path: str,
    offsets: IntArray,
    *,
    version: Version | None = None,
    seconds: float | None = None,
    tick: Callable[[int], Any] | None = None,
) -> tuple[IntArray, RecordHeads]:
    """Read the headers of records.

    Args:
        path: the record file, or its URL.
        offsets: int64 (n,), offsets of the records; ascending order is fastest.
        version: version of the object, if `path` is a URL.
        seconds: after this time an even sample is enough; at most about four million headers are read; None: read all.
        tick: called regularly with the number of headers read so far.

    Returns:
        int64 (m,), indices of the offsets whose headers were read, ascending; and the headers.

    Raises:
        OSError: the file cannot be read.
    """
    count = len(offsets)
    begun = monotonic()
    passes = 1 if seconds is None else min(_MOST_PASSES, max(1, count // _BETWEEN_TICKS))
    most = count if seconds is None else min(count, _MOST_SAMPLED)
    looked = [np.empty(0, np.int64)]
    parts = [read_heads(path, offsets[:0], version=version)]
    done = 0
    for first in _spread(passes):
        numbers = np.arange(first, count, passes, dtype=np.int64)
        late = seconds is not None and monotonic() - begun > seconds
        if done and (late or done + len(numbers) > most):
            break
        for low in range(0, len(numbers), _BETWEEN_TICKS):
            part = numbers[low : low + _BETWEEN_TICKS]
            looked.append(part)
            parts.append(read_heads(path, offsets[part], version=version))
            done += len(part)
            if tick is not None:
                tick(done)
    seen = np.concatenate(looked)
    order = np.argsort(seen, kind="stable")
    return seen[order], RecordHeads.joined(parts, order)


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
