"""Comparison of a record file, which may be damaged, with its index: the lost records, and the line of each record.

After a place where bytes were lost or added, records are no longer at the offsets of the index. The shift is then found
by the distances between the next records, which the index has too (`IndexAlignment`). All values that exist for each
record are in arrays, so that many millions of them fit in memory.
"""

from __future__ import annotations

import bisect
from array import array
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from recordio._framing import UNKNOWN_SIZE
from recordio._index import Index
from recordio._recovery import FOREIGN_BYTES, Gap, RecordSpan, scan_damaged
from recordio._sources import BlockingSource, in_order, local_path, open_source, read_piece
from recordio.errors import CorruptIndexError, IndexNotFoundError, PayloadTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Key: TypeAlias = "int | str"

_MOST_LISTED = 10_000
_COMPARED: Final = 8
"""This many distances in a row identify a place."""
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a record file or its index.

    Attributes:
        offset: Byte offset in the record file; -1 for a line of the index without an offset, and for an index that
            cannot be read.
        length: Bytes that belong to no valid record; 0 for a fault of the index.
        key: Key of the first record lost here, if the index names one.
        keys: Keys of all records lost here.
        message: Description of the fault.
    """

    offset: int
    length: int
    _: KW_ONLY
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


def _is_member(values: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Test for each number whether it is among others.

    Args:
        values: int64 (n,).
        ordered: int64 (m,), ascending.

    Returns:
        bool (n,).
    """
    if not len(ordered):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[place] == values
    return found


class IndexAlignment:
    """Search for the offsets of an index at which records have the same distances.

    Runs of distances are looked up by a checksum, so that each gap of many in a file of many records takes little time.

    Args:
        ordered: Offsets of the index, ascending, each once.
    """

    def __init__(self, ordered: NDArray[np.int64]) -> None:
        self._offsets: NDArray[np.int64] = np.asarray(ordered, dtype=np.int64)
        self._steps: NDArray[np.int64] = np.diff(self._offsets)
        self._sums, self._places = self._offsets[:0].view(np.uint64), np.empty(0, np.intp)
        if len(self._steps) >= _COMPARED:
            sums = self._checksums(self._steps)
            self._places = np.argsort(sums, kind="stable")
            self._sums = sums[self._places]

    @staticmethod
    def _checksums(steps: NDArray[np.int64]) -> NDArray[np.uint64]:
        count = len(steps) - _COMPARED + 1
        total = np.zeros(count, np.uint64)
        for number in range(_COMPARED):
            total = total * _FACTOR + steps[number : number + count].view(np.uint64)
        return total

    def nearest_shift(self, starts: NDArray[np.int64], last: int, shift: int) -> int:
        """Return the shift, nearest to the old one, under which the index has the next records; else the old one.

        Args:
            starts: Offsets of the next records in the file, up to `_COMPARED` + 1 of them.
            last: Offset in the index that is used; only greater ones count.
            shift: The old shift.
        """
        steps = np.diff(starts)
        if len(steps) == _COMPARED:
            wanted = self._checksums(steps)[0]
            low = int(np.searchsorted(self._sums, wanted))
            high = int(np.searchsorted(self._sums, wanted, "right"))
            places = self._places[low:high]
        else:  # the end of the file is near
            count = max(0, len(self._offsets) - len(steps))
            fits = np.ones(count, bool)
            for number, step in enumerate(steps):
                fits &= self._steps[number : number + count] == step
            places = np.flatnonzero(fits)
        places = places[int(np.searchsorted(places, np.searchsorted(self._offsets, last, "right"))) :]
        first = int(starts[0])
        expected = first - shift
        near = int(np.searchsorted(places, np.searchsorted(self._offsets, expected)))
        found = [
            first - int(self._offsets[place])
            for place in places[max(0, near - 1) : near + 1]
            if np.array_equal(self._steps[place : place + len(steps)], steps)
        ]
        return min(found, key=lambda fit: abs(fit - shift), default=shift)


class ListedRecords:
    """Records that an index names.

    Args:
        path: The .idx, a path or URL; it need not exist unless it is `named`.
        named: The caller asked for this index.
        nbytes: Size of the record file.

    Attributes:
        index: The index, or None if there is none or it cannot be read.
        path: The .idx that was read, or None.
        problems: Faults of the index without an offset.
        was_cut: Its last line has no end.
        offsets: int64 (lines,), the offset in each line; negative if it cannot be read.
        repeated: Lines that repeat one before them.
        places: int64, the different offsets, ascending.

    Raises:
        IndexNotFoundError: The index named does not exist.
    """

    def __init__(self, path: str, named: bool, nbytes: int) -> None:
        self.index: Index | None = None
        self.path: str | None = None
        self.problems: list[Problem] = []
        self.was_cut = False
        try:
            self.index = self._read(path, nbytes)
            self.path = path if self.index is None else self.index.path
        except IndexNotFoundError:
            if named:
                raise
        except PermissionError:
            # An object that does not exist is denied too, to a user who may not list, and to a signature for another
            # object.
            if named or local_path(path) is not None:
                raise
        self.offsets = np.empty(0, np.int64) if self.index is None else np.asarray(self.index.offsets)
        self.repeated = self.offsets[:0] if self.index is None else self.index.repeated()
        self.places = np.unique(self.offsets[self.offsets >= 0])

    def _read(self, path: str, nbytes: int) -> Index | None:
        try:
            index = Index.open(path, cache=False, tolerant=True)
        except CorruptIndexError as error:
            self.problems.append(Problem(-1, 0, key=error.key, message=str(error)))
            return None
        if not len(index) and nbytes:
            message = f"{index.path}: the index is empty, the file is not"
            self.problems.append(Problem(-1, 0, key=None, message=message))
            return None
        for line, fault in index.faults.items():
            # A line without a TAB may be a piece of a key, or of an offset.
            keys = () if fault.key is None else (index.key_at(line),)
            self.problems.append(Problem(-1, 0, key=keys[0] if keys else None, message=str(fault), keys=keys))
        self.was_cut = not _ends_with_newline(path)
        return index


class FileAnalysis:
    """Valid records of a file, the gaps between them, and their lines in the index.

    Args:
        file: The record file.
        index: Its .idx, a path or URL; it need not exist unless it is `named`.
        named: The caller asked for this index.
        tick: Called with the bytes read so far.

    Attributes:
        size: Bytes in the file.
        starts, lengths: int64 (n,), byte offsets and framed lengths of the valid records, in file order.
        gaps: Bytes between them.
        lines: int64 (n,), line of each record in the index, counted from 0; -1 if its key is unknown.

    Raises:
        IndexNotFoundError: The index named does not exist.
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
                f"{file.path}: its source does not report its size, which a check of the whole file needs"
            )
        self._listed = ListedRecords(index, named, self.size)
        starts, lengths = array("q"), array("q")
        self.gaps: list[Gap] = []
        self._gap_at: list[int] = []  # number of records before each gap
        with in_order(file) as ahead:

            def read(offset: int, length: int) -> bytes:
                if tick is not None:
                    tick(offset + length)
                return read_piece(ahead, offset, length)

            def listed(offset: int) -> bool:
                return bool(_is_member(np.array([offset]), self._listed.places)[0])

            for item in scan_damaged(read, self.size, listed=listed):
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
        self.lines, self._misplaced = self._match_lines()

    @property
    def index(self) -> Index | None:
        """Return the index, or None if there is none or it cannot be read."""
        return self._listed.index

    @property
    def index_path(self) -> str | None:
        """Return the .idx that was read, or None."""
        return self._listed.path

    def _match(self) -> tuple[NDArray[np.int64], list[int]]:
        """Return the offset of each record in the index (-1: not listed), and the last such offset before each gap."""
        alignment = IndexAlignment(self._listed.places)
        known = np.full(len(self.starts), -1, np.int64)
        before: list[int] = []
        shift, last = 0, -1
        bounds = [0, *self._gap_at, len(self.starts)]
        for number, (low, high) in enumerate(pairwise(bounds)):
            if number:
                before.append(last)
            if low == high:
                continue
            starts = self.starts[low:high]
            end = starts[-1] + self.lengths[high - 1]
            # Another record began where the last one of these ends, except at the end of the file.
            edges = np.append(starts, end) if end < self.size else starts
            if number and not self._agrees(edges, shift, last):
                shift = alignment.nearest_shift(edges[: _COMPARED + 1], last, shift)
                if not self._agrees(edges, shift, last):
                    continue
            expected = starts - shift
            fits = _is_member(expected, self._listed.places) & (expected > last)
            first, behind = np.searchsorted(self._listed.places, (expected[0], expected[-1] + 1))
            if number or 2 * fits.sum() > behind - first:
                known[low:high][fits] = expected[fits]
                last = int(expected[fits][-1]) if fits.any() else last
        return known, before

    def _agrees(self, edges: NDArray[np.int64], shift: int, last: int) -> bool:
        """Return True if the index lists the records of a run under a shift.

        One place in a hundred is the beginning of a record, so that a single one proves nothing. The index must have
        most of its places in the run where records begin: two of them, or the only one of a long run, or its last place
        of all where the file ends.

        Args:
            edges: Offsets at which the records of the run begin, and at which the one behind them began. At the end of
                the file the last one is that of the file's last record.
            shift: Number to subtract.
            last: Offset in the index that is used; only greater ones count.
        """
        expected = edges - shift
        low, high = np.searchsorted(self._listed.places, (expected[0], expected[-1] + 1)).tolist()
        held = int(_is_member(self._listed.places[low:high], expected).sum())
        if expected[0] <= last or 2 * held <= high - low:
            return False
        at_the_end = bool(edges[-1] == self.starts[-1]) and high == len(self._listed.places)
        return held >= 2 or len(edges) > _COMPARED or at_the_end

    def _match_lines(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the line of each record, and the lines that name the record of another line."""
        lines = np.full(len(self.starts), -1, np.int64)
        good = np.flatnonzero(self._listed.offsets >= 0)
        listed = np.flatnonzero(self._known >= 0)
        misplaced = self._misplaced_lines(good) if len(listed) < len(self.starts) else good[:0]
        own = np.setdiff1d(good, misplaced)
        order = own[np.argsort(self._listed.offsets[own], kind="stable")]
        if len(listed):
            lines[listed] = order[np.searchsorted(self._listed.offsets[order], self._known[listed])]
        return lines, misplaced

    def _misplaced_lines(self, good: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lines whose offset belongs to another line, between the offsets of whose neighbours it is.

        An index may repeat offsets, so they are a fault only if this distinguishes the lines, and if records without a
        line show that some are wrong.
        """
        offsets = self._listed.offsets[good]
        if not len(offsets):
            return good
        rising = offsets[1:] > offsets[:-1]
        in_order = np.append(True, rising) & np.append(rising, True)
        _, number, counts = np.unique(offsets, return_inverse=True, return_counts=True)
        number = number.reshape(-1)
        in_place = np.bincount(number, weights=in_order)
        misplaced: NDArray[np.int64] = good[(counts[number] > 1) & (in_place[number] == 1) & ~in_order]
        return misplaced

    def copied(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lines of the index that name a valid record, in their order, and the records' numbers."""
        listed = np.flatnonzero(self._known >= 0)
        fits = _is_member(self._listed.offsets, self._known[listed])
        fits[self._misplaced] = False
        fits[self._listed.repeated] = False
        lines = np.flatnonzero(fits)
        return lines, listed[np.searchsorted(self._known[listed], self._listed.offsets[lines])]

    def unlisted(self) -> NDArray[np.int64]:
        """Return the byte offsets of the valid records whose key is unknown; empty if there is no index."""
        return self.starts[self.lines < 0] if self.index is not None else self.starts[:0]

    def problems(self) -> list[Problem]:
        """Return all faults in file order; those of the index without an offset come first."""
        faults = list(self._listed.problems)
        lost: dict[int, list[Key]] = {}
        reached = self._known[self._known >= 0]
        missing = ~_is_member(self._listed.offsets, reached)
        if self.index is not None and self.index.faults:
            missing[list(self.index.faults)] = False
        ordered: list[int] = reached.tolist() if missing.any() else []
        for line in np.flatnonzero(missing).tolist():
            key, offset = self._key(line), int(self._listed.offsets[line])
            gap = bisect.bisect_left(self._before, offset) - 1
            # The record was lost in the gap if no record that follows the gap has this offset or a lower one.
            if gap >= 0 and bisect.bisect(ordered, self._before[gap]) == bisect.bisect(ordered, offset):
                lost.setdefault(gap, []).append(key)
            else:
                message = "the index names a record here, there is none"
                faults.append(Problem(offset, 0, key=key, message=message, keys=(key,)))
        for line in self._misplaced.tolist():
            key, offset = self._key(line), int(self._listed.offsets[line])
            message = "the index names the record of another key here"
            faults.append(Problem(offset, 0, key=key, message=message, keys=(key,)))
        faults += self._not_listed(self._listed.was_cut or bool(faults))
        for line in self._listed.repeated.tolist():
            key, offset = self._key(line), int(self._listed.offsets[line])
            message = (
                f"line {line + 1} of the index repeats a line before it, so the record is read more than once"
            )
            faults.append(Problem(offset, 0, key=key, message=message))
        for number, found in enumerate(self.gaps):
            keys = tuple(lost.get(number, ()))
            reason = found.reason
            if reason == FOREIGN_BYTES:
                at = self._gap_at[number] - 1
                reason = "no record head here, it was damaged" if keys else reason + self._suspect(at)
            first = keys[0] if keys else None
            faults.append(Problem(found.offset, found.length, key=first, message=reason, keys=keys))
        return sorted(faults, key=lambda fault: fault.offset)

    def _suspect(self, number: int) -> str:
        """Return a warning about a record: bytes inserted into it make it end too early, as if they followed it."""
        line = int(self.lines[number])
        name = f"at byte {self.starts[number]}" if line < 0 else f"{self._key(line)!r}"
        return f" (if they were inserted into it, record {name} is damaged: check its content)"

    def _key(self, line: int) -> Key:
        assert self.index is not None
        return self.index.key_at(line)

    def _not_listed(self, damaged: bool) -> list[Problem]:
        """Return a fault for each record without a line, if the index is damaged: a valid one may list only some."""
        places = self.unlisted()
        if not damaged or not len(places):
            return []
        text = "the damaged index does not list this record"
        if len(places) > _MOST_LISTED:
            return [Problem(int(places[0]), 0, key=None, message=f"{text}, and {len(places) - 1} others")]
        return [Problem(offset, 0, key=None, message=text) for offset in places.tolist()]


def _ends_with_newline(path: str) -> bool:
    with closing(open_source(path)) as source:
        size = source.size()
        return not size or read_piece(source, size - 1, 1) == b"\n"
