"""The headers of the records of a file, or of an even sample of them.

Millions take seconds from memory or a good disk, and minutes from a bad one: they are read in turns that each run over
the whole file, so that they can stop at any time and what was seen is an even sample.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.record_heads import RecordHeads, read_heads

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import IntArray
    from aioloader.storage.remote.transport import Version

__all__ = ("evenly", "sample_heads")

_MOST_PASSES = 64
_BETWEEN_TICKS = 4096
_MOST_SAMPLED = 1 << 22  # some hundred bytes of memory each


def sample_heads(
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
        offsets: int64 (n,), where the records begin; ascending is fastest.
        version: what the object is, where `path` is a URL.
        seconds: after so long an even sample of them will do, and of more than four million in any case; None: all
            are read.
        tick: called now and then with the number of headers read so far.

    Returns:
        int64 (m,), which of the offsets were looked at, ascending; and the headers there.

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
    """0 to count - 1 in such an order that however many are taken, they lie about as far from each other."""
    bits = max(1, (count - 1).bit_length())
    turned = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in turned if number < count]


def evenly(count: int, most: int) -> IntArray:
    """Up to `most` of the numbers 0 to count - 1, evenly spread, the first and the last among them; int64."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))
