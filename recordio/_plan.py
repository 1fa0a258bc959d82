"""Plan of reads: the spans of a file to fetch so that every requested record is covered.

Pure arithmetic on offsets and lengths; the blocking and the async readers use the same plan. Two requested ranges are
merged to one read if the gap between them is at most `max_gap_bytes`: reading a small gap is cheaper than another
system call or request. A merged read stops growing at `max_span_bytes`, which bounds memory; a single range larger than
that is still one span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Spans to read, and the place of each requested range in them.

    Attributes:
        spans: `(offset, length)` in bytes, ascending by offset.
        span_of: int64 array; entry i is the number of the span that covers request i.
        start_of: int64 array; entry i is the byte at which request i begins inside its span.
    """

    spans: list[tuple[int, int]]
    span_of: NDArray[np.int64]
    start_of: NDArray[np.int64]


def plan_reads(
    offsets: ArrayLike,
    lengths: ArrayLike,
    *,
    max_gap_bytes: int = 16 * 1024,
    max_span_bytes: int = 16 * 1024 * 1024,
) -> ReadPlan:
    """Merge ranges into spans.

    Args:
        offsets: Byte offsets of the requested ranges, any order, repeats allowed.
        lengths: Their lengths in bytes.
        max_gap_bytes: Largest number of bytes that were not requested to read between two ranges.
        max_span_bytes: Size at which a merged span stops growing.

    Raises:
        ValueError: The two arrays differ in length, or contain a negative number.
    """
    begin = np.asarray(offsets, dtype=np.int64)
    size = np.asarray(lengths, dtype=np.int64)
    if begin.shape != size.shape or begin.ndim != 1:
        raise ValueError(f"offsets {begin.shape} and lengths {size.shape} must match, in 1-D")
    if begin.size == 0:
        return ReadPlan([], begin, begin)
    if begin.min() < 0 or size.min() < 0:
        raise ValueError("offsets and lengths must not be negative")
    order = np.argsort(begin, kind="stable")
    span_of = np.empty(begin.size, dtype=np.int64)
    start_of = np.empty(begin.size, dtype=np.int64)
    spans: list[tuple[int, int]] = []
    span_begin = span_end = -1
    starts, sizes = begin.tolist(), size.tolist()
    for request in order.tolist():
        first, last = starts[request], starts[request] + sizes[request]
        grown = max(span_end, last)
        if (
            not spans
            or first - span_end > max_gap_bytes
            or (grown - span_begin > max_span_bytes and last > span_end)
        ):
            spans.append((first, last - first))
            span_begin, span_end = first, last
        elif last > span_end:
            span_end = last
            spans[-1] = (span_begin, span_end - span_begin)
        span_of[request] = len(spans) - 1
        start_of[request] = first - span_begin
    return ReadPlan(spans, span_of, start_of)
