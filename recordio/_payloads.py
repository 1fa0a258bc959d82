"""The payloads of many records at once, found without touching them one by one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recordio._framing import HEAD_SIZE, MAGIC, MAX_PAYLOAD

if TYPE_CHECKING:
    import numpy.typing as npt

    from recordio._framing import BytesLike

__all__ = ("payload_spans",)


def payload_spans(
    data: BytesLike, start: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> tuple[list[int], list[int]]:
    """Where the payloads of many records lie in a buffer of framed bytes; the plural of `extract`.

    Args:
        data: Framed bytes of all records.
        start: int64 (n,), place of each record in `data`, at least 0.
        length: int64 (n,), bytes that are there of each; `data` reaches at least so far.

    Returns:
        Begin and end of every payload. They are equal for an empty payload, and for a record that only
        `extract` can tell about, because it is stored in several parts, or is damaged, or no other record follows it
        in its bytes.
    """
    view = memoryview(data).cast("B")
    # A head is looked at only where it lies in the record and at a multiple of 4, as records do in files.
    fit = (length >= HEAD_SIZE) & (start & 3 == 0)
    words = np.frombuffer(view, "<u4", len(view) // 4)
    place = np.where(fit, start >> 2, 0)[:, None] + np.arange(2)
    heads = words[place] if fit.any() else np.zeros(place.shape, np.uint32)
    size = heads[:, 1].astype(np.int64)
    framed = size + HEAD_SIZE + 3 & -4
    fit &= (heads[:, 0] == MAGIC) & (size <= MAX_PAYLOAD) & (framed <= length)
    if (fit & (framed != length)).any():
        # A length that was made smaller leaves bytes behind that are no head.
        behind = np.where(fit & (framed + HEAD_SIZE <= length), start + framed >> 2, 0)
        fit &= (framed == length) | (words[behind] == MAGIC)
    begin = start + HEAD_SIZE
    return begin.tolist(), (begin + np.where(fit, size, 0)).tolist()
