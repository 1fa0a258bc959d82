"""A walked record file beside its index: what is lost, and which index line belongs to which record.

Behind a place where bytes were lost or added, records no longer lie where the index says. The shift is then
found by the distances between the next records, which the index has too (`_index_alignment`). Everything that there is
for each record stands in arrays, so that many millions of them fit in memory.
"""

from __future__ import annotations

import bisect
import math
from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from recordio._framing import UNKNOWN_SIZE
from recordio._index import Index
from recordio._index_alignment import COMPARED, IndexAlignment, is_member
from recordio._recovery import FOREIGN_BYTES, RecordSpan, scan_damaged
from recordio._sources import BlockingSource, in_order, local_path, open_source
from recordio.errors import CorruptIndexError, IndexNotFoundError, PayloadTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from recordio._recovery import Gap

__all__ = ("FileAnalysis", "Key", "Problem", "read_piece")

Key: TypeAlias = "int | str"

_MOST_TOLD_APART = 10_000


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a record file or its index.

    Attributes:
        offset: Byte offset in the record file; -1 for a line of the index that tells none, and for an index that
            cannot be read.
        length: Bytes that belong to no sound record; 0 for a fault of the index.
        key: Key of the first record lost here, if the index names one.
        keys: Keys of all records lost here.
        message: What is wrong.
    """

    offset: int
    length: int
    key: Key | None
    message: str
    keys: tuple[Key, ...] = ()

    def __str__(self) -> str:
        lost = ""
        if self.keys:
            shown = ", ".join(map(repr, self.keys[:8])) + (", ..." if len(self.keys) > 8 else "")
            lost = f" (lost: {len(self.keys)}, keys {shown})"
        place = f"byte {self.offset}, {self.length} bytes: " if self.offset >= 0 else ""
        return f"{place}{self.message}{lost}"


class _Heads:
    """Offsets of an index as `scan_damaged` asks for them."""

    def __init__(self, ordered: NDArray[np.int64]) -> None:
        self._ordered = ordered

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        place = int(np.searchsorted(self._ordered, offset))
        return place < len(self._ordered) and int(self._ordered[place]) == offset


class FileAnalysis:
    """Everything `verify` and `repair` know about a file.

    Args:
        file: The record file.
        index: Its .idx, a path or URL; there need not be one unless it is `named`.
        named: The caller has asked for this index.
        tick: Called with the bytes looked at so far.

    Attributes:
        size: Bytes in the file.
        starts, lengths: int64 (n,), byte offsets and framed lengths of the sound records, in file order.
        gaps: What lies between them.
        index: The index, or None if there is none or it cannot be read.
        index_path: The .idx that was read, or None.
        lines: int64 (n,), line of the index that is each record's, counted from 0; -1 where its key cannot be told.

    Raises:
        IndexNotFoundError: the index named does not exist.
    """

    def __init__(
        self,
        file: BlockingSource,
        index: str,
        named: bool,
        tick: Callable[[int], object] | None = None,
    ) -> None:
        self.size = file.size()
        if self.size >= UNKNOWN_SIZE:
            raise PayloadTypeError(
                f"{file.path}: its source cannot tell its size, which a check of all of it needs"
            )
        self.index: Index | None = None
        self.index_path: str | None = None
        self._index_problems: list[Problem] = []
        self._index_was_cut = False
        try:
            self.index = self._read_index(index)
            self.index_path = index if self.index is None else self.index.path
        except IndexNotFoundError:
            if named:
                raise
        except PermissionError:
            # What is not there is denied too, to who may not list, and to a signature for another object.
            if named or local_path(index) is not None:
                raise
        self._offsets = np.empty(0, np.int64) if self.index is None else np.asarray(self.index.offsets)
        self._places = np.unique(self._offsets[self._offsets >= 0])

        starts, lengths = array("q"), array("q")
        self.gaps: list[Gap] = []
        self._gap_at: list[int] = []  # number of records before each gap
        with in_order(file) as ahead:

            def read(offset: int, length: int) -> bytes:
                if tick is not None:
                    tick(offset + length)
                return read_piece(ahead, offset, length)

            for item in scan_damaged(read, self.size, heads=_Heads(self._places)):
                if isinstance(item, RecordSpan):
                    starts.append(item.offset)
                    lengths.append(item.length)
                else:
                    self.gaps.append(item)
                    self._gap_at.append(len(starts))
        self.starts: NDArray[np.int64] = np.array(starts, np.int64)
        self.lengths: NDArray[np.int64] = np.array(lengths, np.int64)
        if tick is not None:
            tick(self.size)
        self._known, self._before = self._match()
        self.lines, self._strays = self._lines()

    def _read_index(self, path: str) -> Index | None:
        try:
            index = Index.open(path, cache=False, tolerant=True)
        except CorruptIndexError as error:
            self._index_problems.append(Problem(-1, 0, error.key, str(error)))
            return None
        if not len(index) and self.size:
            self._index_problems.append(
                Problem(-1, 0, None, f"{index.path}: the index is empty, the file is not")
            )
            return None
        for line, fault in index.faults.items():
            # A line without a TAB may be a piece of a key, or of an offset.
            keys = () if fault.key is None else (index.key_at(line),)
            self._index_problems.append(Problem(-1, 0, keys[0] if keys else None, str(fault), keys))
        self._index_was_cut = not _ends_with_a_line(path)
        return index

    def _match(self) -> tuple[NDArray[np.int64], list[int]]:
        """The offset by which the index knows each record (-1: by none), and the last one before each gap."""
        shifts = IndexAlignment(self._places)
        known = np.full(len(self.starts), -1, np.int64)
        before: list[int] = []
        shift, last = 0, -1
        bounds = [0, *self._gap_at, len(self.starts)]
        for number, (low, high) in enumerate(pairwise(bounds)):
            if number:
                before.append(last)
            if low == high:
                continue
            # Where the records between two gaps begin, and where the last of them ends.
            edges = np.append(self.starts[low:high], self.starts[high - 1] + self.lengths[high - 1])
            if number and not self._agrees(edges, shift, last):
                coming = edges[: COMPARED + 1] if edges[-1] < self.size else edges[:-1][: COMPARED + 1]
                shift = shifts.nearest_shift(coming, last, shift)
                if not self._agrees(edges, shift, last):
                    continue
            expected = edges[:-1] - shift
            fits = is_member(expected, self._places) & (expected > last)
            if number or 2 * fits.sum() > self._between(expected[0], expected[-1]):
                known[low:high][fits] = expected[fits]
                last = int(expected[fits][-1]) if fits.any() else last
        return known, before

    def _between(self, first: int, last: int) -> int:
        """How many places the index names from `first` to `last`."""
        low, high = np.searchsorted(self._places, (first, last + 1)).tolist()
        return int(high - low)

    def _agrees(self, edges: NDArray[np.int64], shift: int, last: int) -> bool:
        """Whether the index knows the records of a run under a shift.

        One place in a hundred is the beginning of a record, so that a single one proves nothing. The index must have
        most of its places in the run where records begin: two of them, or the only one of a long run, or its last place
        of all where the file ends.

        Args:
            edges: where the records of the run begin, and where the last one ends.
            shift: what is taken off.
            last: offset in the index that is taken; only greater ones count.
        """
        expected = edges - shift
        low, high = np.searchsorted(self._places, (expected[0], expected[-1] + 1)).tolist()
        held = int(is_member(self._places[low:high], expected).sum())
        if expected[0] <= last or 2 * held <= high - low:
            return False
        at_the_end = bool(edges[-1] == self.size) and high == len(self._places)
        return held >= 2 or len(edges) > COMPARED or at_the_end

    def _lines(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The line of each record, and the lines that name the record of another line."""
        lines = np.full(len(self.starts), -1, np.int64)
        good = np.flatnonzero(self._offsets >= 0)
        listed = np.flatnonzero(self._known >= 0)
        strays = self._astray(good) if len(listed) < len(self.starts) else good[:0]
        own = np.setdiff1d(good, strays)
        order = own[np.argsort(self._offsets[own], kind="stable")]
        if len(listed):
            lines[listed] = order[np.searchsorted(self._offsets[order], self._known[listed])]
        return lines, strays

    def _astray(self, good: NDArray[np.int64]) -> NDArray[np.int64]:
        """Lines whose offset another line has in its place: behind that of the line before, before that of the next.

        An index may repeat offsets, so they are a fault only where that tells the lines apart, and where records
        without a line show that some are wrong.
        """
        offsets = self._offsets[good]
        if not len(offsets):
            return good
        rising = offsets[1:] > offsets[:-1]
        settled = np.append(True, rising) & np.append(rising, True)
        _, number, counts = np.unique(offsets, return_inverse=True, return_counts=True)
        number = number.reshape(-1)
        in_place = np.bincount(number, weights=settled)
        astray: NDArray[np.int64] = good[(counts[number] > 1) & (in_place[number] == 1) & ~settled]
        return astray

    def copied(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lines of the index that name a sound record, in their order, and the records' numbers."""
        listed = np.flatnonzero(self._known >= 0)
        fits = is_member(self._offsets, self._known[listed])
        fits[self._strays] = False
        lines = np.flatnonzero(fits)
        return lines, listed[np.searchsorted(self._known[listed], self._offsets[lines])]

    def unlisted(self) -> NDArray[np.int64]:
        """Byte offsets of the sound records whose key cannot be told; empty where there is no index to name them."""
        return self.starts[self.lines < 0] if self.index is not None else self.starts[:0]

    def problems(self) -> list[Problem]:
        """All faults in file order; those of the index that have no place come first."""
        faults = list(self._index_problems)
        lost: dict[int, list[Key]] = {}
        reached = self._known[self._known >= 0]
        missing = ~is_member(self._offsets, reached)
        if self.index is not None and self.index.faults:
            missing[list(self.index.faults)] = False
        ordered: list[int] = reached.tolist() if missing.any() else []
        for line in np.flatnonzero(missing).tolist():
            key, offset = self._key(line), int(self._offsets[line])
            gap = bisect.bisect_left(self._before, offset) - 1
            if gap >= 0 and offset < self._next_known(ordered, self._before[gap]):
                lost.setdefault(gap, []).append(key)
            else:
                faults.append(Problem(offset, 0, key, "the index names a record here, there is none", (key,)))
        for line in self._strays.tolist():
            key, offset = self._key(line), int(self._offsets[line])
            faults.append(Problem(offset, 0, key, "the index names the record of another key here", (key,)))
        faults += self._not_listed(self._index_was_cut or bool(faults))
        for number, found in enumerate(self.gaps):
            keys = tuple(lost.get(number, ()))
            first = keys[0] if keys else None
            reason = found.reason
            if reason == FOREIGN_BYTES:
                at = self._gap_at[number] - 1
                reason = "no record head here, it was damaged" if keys else reason + self._suspect(at)
            faults.append(Problem(found.offset, found.length, first, reason, keys))
        return sorted(faults, key=lambda fault: fault.offset)

    def _suspect(self, number: int) -> str:
        """Bytes that were put into a record make it end too early, which looks as if they stood behind it."""
        line = int(self.lines[number])
        name = f"at byte {self.starts[number]}" if line < 0 else f"{self._key(line)!r}"
        return f" (if they were put into it, record {name} is damaged: look at its content)"

    def _key(self, line: int) -> Key:
        assert self.index is not None
        return self.index.key_at(line)

    def _not_listed(self, damaged: bool) -> list[Problem]:
        """Records without a line. An index may list only some of them: a fault where it is damaged itself."""
        places = self.unlisted()
        if not damaged or not len(places):
            return []
        text = "the damaged index does not list this record"
        if len(places) > _MOST_TOLD_APART:
            return [Problem(int(places[0]), 0, None, f"{text}, and {len(places) - 1} others")]
        return [Problem(offset, 0, None, text) for offset in places.tolist()]

    @staticmethod
    def _next_known(ordered: list[int], before: float) -> float:
        place = bisect.bisect_right(ordered, before)
        return ordered[place] if place < len(ordered) else math.inf


def _ends_with_a_line(path: str) -> bool:
    source = open_source(path)
    try:
        size = source.size()
        return not size or source.read_ranges([(size - 1, 1)]) == [b"\n"]
    finally:
        source.close()


def read_piece(file: BlockingSource, offset: int, length: int) -> bytes:
    """One range of a file."""
    return file.read_ranges([(offset, length)])[0]
