"""Spans of objects to few requests. Pure.

Spans that touch, overlap, repeat, or leave a small gap become one request; what is larger than a request may be is cut
into several, which then run side by side. The requests are in the order of file and offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import IntArray

__all__ = ("MOST_BYTES", "Piece", "plan_requests", "scatter")

MOST_BYTES = 8 << 20
"""Largest request, bytes."""


class Piece(NamedTuple):
    """One request.

    Attributes:
        file: number of the object.
        offset: where it begins, bytes.
        length: its bytes.
        items: the items that it holds bytes of.
    """

    file: int
    offset: int
    length: int
    items: list[int]


def plan_requests(
    file: IntArray, offset: IntArray, length: IntArray, *, max_gap_bytes: int, most_bytes: int = MOST_BYTES
) -> list[Piece]:
    """The requests for some items.

    Args:
        file, offset, length: int64 (n,) of each item; lengths at least 0.
        max_gap_bytes: longest stretch of unwanted bytes that is asked for along with what is wanted.
        most_bytes: largest request.
    """
    order = np.lexsort((offset, file))
    order = order[length[order] > 0]
    pieces: list[Piece] = []
    run: list[int] = []
    begin = end = number = -1
    firsts, lasts, files = offset[order].tolist(), (offset + length)[order].tolist(), file[order].tolist()
    for item, first, last, of in zip(order.tolist(), firsts, lasts, files, strict=True):
        grown = max(end, last) - begin
        if run and (of != number or first - end > max_gap_bytes or (grown > most_bytes and last > end)):
            pieces += _cut(number, begin, end, run, offset, length, most_bytes)
            run = []
        if not run:
            begin, end, number = first, last, of
        run.append(item)
        end = max(end, last)
    if run:
        pieces += _cut(number, begin, end, run, offset, length, most_bytes)
    return pieces


def _cut(
    file: int, begin: int, end: int, run: list[int], offset: IntArray, length: IntArray, most_bytes: int
) -> Iterator[Piece]:
    if end - begin <= most_bytes:
        yield Piece(file, begin, end - begin, run)
        return
    items = np.array(run, np.int64)
    count = -(-(end - begin) // most_bytes)
    size = -(-(end - begin) // count)
    for at in range(begin, end, size):
        stop = min(at + size, end)
        touched = (offset[items] < stop) & (offset[items] + length[items] > at)
        if touched.any():
            yield Piece(file, at, stop - at, items[touched].tolist())


def scatter(
    piece: Piece,
    data: memoryview,
    out: memoryview,
    offset: Sequence[int],
    length: Sequence[int],
    start: Sequence[int],
) -> None:
    """Copy what a request brought to where its items lie.

    Args:
        piece: the request.
        data: its bytes.
        out: the memory.
        offset, length: of each item of the batch in its object.
        start: place of each item in `out`.
    """
    for item in piece.items:
        at = offset[item]
        first = max(at, piece.offset)
        last = min(at + length[item], piece.offset + piece.length)
        place = start[item] + first - at
        out[place : place + last - first] = data[first - piece.offset : last - piece.offset]
