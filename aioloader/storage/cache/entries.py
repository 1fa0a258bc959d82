"""Look-up of spans by offset and length, many at a time. Pure.

Most entries are in arrays sorted by offset; those added since are in a dictionary, which is merged into the arrays when
it has grown. So a million entries take 60 MB, and a batch is looked up by a binary search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray


ENTRY = np.dtype(
    [
        ("offset", "<i8"),
        ("length", "<i8"),  # -1: removed
        ("place", "<i8"),
        ("segment", "<i4"),
        ("line", "<i4"),
        ("crc", "<u4"),
        ("checked", "?"),
    ]
)
"""Offset and length of the span; place of its bytes in segment `segment`, and its line `line` in the journal; the
checksum of its bytes, and whether the bytes were checked."""

_FEW = 1024


class Entries:
    """Table of spans. Of several at one offset the longest counts, of equal ones the last. Not safe against threads.

    A span that turns out to be too short is read again with more bytes; the longer span then serves both lengths.

    Attributes:
        table: one row for each entry, dtype `ENTRY`; more rows than entries.
    """

    def __init__(self) -> None:
        self.table = np.zeros(_FEW, ENTRY)
        self._count = 0
        self._offsets = np.empty(0, np.int64)  # ascending
        self._rows = np.empty(0, np.int64)
        self._recent: dict[int, int] = {}

    def add(self, entries: Array) -> None:
        """Add entries (dtype `ENTRY`)."""
        first, count = self._count, self._count + len(entries)
        if count > len(self.table):
            grown = np.zeros(max(count, 2 * len(self.table)), ENTRY)
            grown[:first] = self.table[:first]
            self.table = grown
        self.table[first:count] = entries
        self._count = count
        if len(entries) > _FEW:
            self._merge(np.arange(first, count))
            return
        length, recent = self.table["length"], self._recent
        for row, (offset, nbytes) in enumerate(
            zip(entries["offset"].tolist(), entries["length"].tolist(), strict=True), first
        ):
            older = recent.get(offset)
            if older is None or nbytes >= length[older]:
                recent[offset] = row
        if len(recent) > _FEW + len(self._rows) // 4:
            self._merge(np.empty(0, np.int64))

    def _merge(self, more: IntArray) -> None:
        recent = np.fromiter(self._recent.values(), np.int64, len(self._recent))
        rows = np.concatenate((self._rows, recent, more))
        rows = rows[self.table["length"][rows] >= 0]
        # By offset, then by length, then by age.
        rows = rows[np.lexsort((rows, self.table["length"][rows], self.table["offset"][rows]))]
        offsets = self.table["offset"][rows]
        last = np.ones(len(rows), bool)
        last[:-1] = offsets[1:] != offsets[:-1]
        self._offsets, self._rows = offsets[last], rows[last]
        self._recent = {}

    def find(self, offset: IntArray, length: IntArray) -> IntArray:
        """Return the row in `table` of an entry that contains each span, int64 (n,); -1 where there is none."""
        held = self.table["length"]
        rows = np.full(len(offset), -1, np.int64)
        if len(self._offsets) and len(offset):
            at = np.minimum(np.searchsorted(self._offsets, offset), len(self._offsets) - 1)
            rows = np.where(self._offsets[at] == offset, self._rows[at], -1)
        if self._recent:
            get = self._recent.get
            newer = np.array([get(key, -1) for key in offset.tolist()], np.int64)
            better = (newer >= 0) & ((rows < 0) | (held[newer] >= held[rows]))
            rows = np.where(better, newer, rows)
        return np.where((rows >= 0) & (held[rows] >= length) & (length > 0), rows, -1)

    def remove(self, rows: IntArray) -> None:
        """Remove entries by their rows."""
        self.table["length"][rows] = -1

    def remove_segment(self, segment: int) -> None:
        """Remove all entries of a segment."""
        live = self.table[: self._count]
        live["length"][live["segment"] == segment] = -1
