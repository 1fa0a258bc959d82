"""Planner that merges spans of objects into few requests. Pure.

Spans that touch, overlap, repeat, or leave a small gap become one request; a request larger than the limit is split
into several, which run concurrently. The requests are in the order of file and offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray


MOST_BYTES = 8 << 20
"""Largest request, bytes."""


class Piece(NamedTuple):
    """Planned request.

    Attributes:
        file: number of the object.
        offset: where it begins, bytes.
        length: its bytes.
        items: the items of which it contains bytes.
    """

    file: int
    offset: int
    length: int
    items: list[int]


def plan_requests(
    file: IntArray, offset: IntArray, length: IntArray, *, max_gap_bytes: int, most_bytes: int = MOST_BYTES
) -> list[Piece]:
    """Plan the requests for some items.

    Args:
        file, offset, length: int64 (n,) of each item; lengths at least 0.
        max_gap_bytes: longest range between two items that is requested along with them.
        most_bytes: largest request.
    """
    order = np.lexsort((offset, file))
    order = order[length[order] > 0]
    run: list[int] = []
    begin = end = number = -1
    firsts, lasts, files = offset[order].tolist(), (offset + length)[order].tolist(), file[order].tolist()
    merged: list[Piece] = []
    for item, first, last, of in zip(order.tolist(), firsts, lasts, files, strict=True):
        grown = max(end, last) - begin
        if run and (of != number or first - end > max_gap_bytes or (grown > most_bytes and last > end)):
            merged.append(Piece(number, begin, end - begin, run))
            run = []
        if not run:
            begin, end, number = first, last, of
        run.append(item)
        end = max(end, last)
    if run:
        merged.append(Piece(number, begin, end - begin, run))
    pieces: list[Piece] = []
    for piece in merged:
        if piece.length <= most_bytes:
            pieces.append(piece)
            continue
        items = np.array(piece.items, np.int64)
        count = -(-piece.length // most_bytes)
        size = -(-piece.length // count)
        end = piece.offset + piece.length
        for at in range(piece.offset, end, size):
            stop = min(at + size, end)
            touched = (offset[items] < stop) & (offset[items] + length[items] > at)
            if touched.any():
                pieces.append(Piece(piece.file, at, stop - at, items[touched].tolist()))
    return pieces


def scatter(
    piece: Piece,
    data: memoryview,
    out: memoryview,
    *,
    offset: Sequence[int],
    length: Sequence[int],
    start: Sequence[int],
) -> None:
    """Copy the bytes of a request to the places of its items.

    Args:
        piece: the request.
        data: its bytes.
        out: memory of the batch.
        offset, length: of each item of the batch in its object.
        start: place of each item in `out`.
    """
    for item in piece.items:
        at = offset[item]
        first = max(at, piece.offset)
        last = min(at + length[item], piece.offset + piece.length)
        place = start[item] + first - at
        out[place : place + last - first] = data[first - piece.offset : last - piece.offset]
