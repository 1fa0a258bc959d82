"""A walked record file beside its index: what is lost, and which index line belongs to which
record.

Behind a place where bytes were lost or added, records no longer lie where the index says. The shift
is then found by the distances between the next records, which the index has too.
"""

from __future__ import annotations

import bisect
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from recordio._index import Index, beside
from recordio._index_text import format_line
from recordio._walk import Found, Gap, walk
from recordio.errors import CorruptIndexError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from recordio._files import LocalFile

__all__ = ("Key", "Problem", "Survey", "read_piece")

Key: TypeAlias = "int | str"

_COMPARED = 8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a record file or its index.

    Attributes:
        offset: Byte offset in the record file; -1 if the index as a whole is unreadable.
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
        return f"byte {self.offset}, {self.length} bytes: {self.message}{lost}"


class _Shifts:
    """Finds by the distances between records where an index has them.

    Runs of distances are looked up by a checksum, so that many gaps in a file of many records take no longer each.

    Args:
        ordered: offsets of the index, ascending, each once.
    """

    def __init__(self, ordered: list[int]) -> None:
        self._offsets: NDArray[np.int64] = np.array(ordered, dtype=np.int64)
        self._steps: NDArray[np.int64] = np.diff(self._offsets)
        self._sums, self._places = self._offsets[:0].view(np.uint64), np.empty(0, np.intp)
        if len(self._steps) >= _COMPARED:
            sums = self._sums_of(self._steps)
            self._places = np.argsort(sums, kind="stable")
            self._sums = sums[self._places]

    @staticmethod
    def _sums_of(steps: NDArray[np.int64]) -> NDArray[np.uint64]:
        count = len(steps) - _COMPARED + 1
        total = np.zeros(count, np.uint64)
        for number in range(_COMPARED):
            total = total * _FACTOR + steps[number : number + count].view(np.uint64)
        return total

    def nearest(self, starts: list[int], last: int, shift: int) -> int:
        """The shift, nearest to the old one, under which the index has the coming records; the old one if none has.

        Args:
            starts: offsets of the coming records in the file, up to `_COMPARED` + 1 of them.
            last: offset in the index that is taken; only greater ones count.
            shift: the old one.
        """
        place_of: NDArray[np.int64] = np.array(starts, dtype=np.int64)
        steps = place_of[1:] - place_of[:-1]
        if len(steps) == _COMPARED:
            wanted = self._sums_of(steps)[0]
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
        expected = starts[0] - shift
        near = int(np.searchsorted(places, np.searchsorted(self._offsets, expected)))
        found = [
            starts[0] - int(self._offsets[place])
            for place in places[max(0, near - 1) : near + 1]
            if np.array_equal(self._steps[place : place + len(steps)], steps)
        ]
        return min(found, key=lambda fit: abs(fit - shift), default=shift)


class Survey:
    """Everything `verify` and `repair` know about a file.

    Args:
        file: The record file.
        index: Its .idx; None: the one beside it, if there is one.

    Attributes:
        size: Bytes in the file.
        found: Sound records in file order.
        index_path: The .idx that was read, or None.

    Raises:
        IndexNotFoundError: the index named does not exist.
    """

    def __init__(self, file: LocalFile, index: str | os.PathLike[str] | None) -> None:
        self.size = file.size()
        self.found: list[Found] = []
        self.index_path: str | None = None
        self._index: Index | None = None
        self._index_problem: Problem | None = None
        if index is not None or os.path.exists(beside(file.path)):
            self.index_path = beside(file.path) if index is None else os.fspath(index)
            try:
                self._index = Index.open(self.index_path, cache=False)
            except CorruptIndexError as error:
                self._index_problem = Problem(-1, 0, error.key, str(error))
        self._offsets: list[int] = [] if self._index is None else self._index.offsets.tolist()
        heads = set(self._offsets)
        items = list(walk(lambda offset, length: read_piece(file, offset, length), self.size, heads=heads))
        self.found = [item for item in items if isinstance(item, Found)]
        self.gaps = [item for item in items if isinstance(item, Gap)]
        self._known: dict[int, int] = {}
        self._before: list[float] = []
        self._match(items, sorted(offset for offset in heads if offset >= 0))

    def _match(self, items: Sequence[Found | Gap], ordered: list[int]) -> None:
        """Find for each record the offset by which the index knows it, and for each gap the last
        known offset before it."""
        places = set(ordered)
        shifts = _Shifts(ordered)
        starts = [item.offset for item in self.found]
        number, shift, last, after_gap = 0, 0, -1, False
        for item in items:
            if isinstance(item, Gap):
                self._before.append(last)
                after_gap = True
                continue
            if after_gap and item.offset - shift not in places:
                coming = starts[number : number + _COMPARED + 1]
                shift = shifts.nearest(coming, last, shift)
            known = item.offset - shift
            if known in places and known > last:
                self._known[item.offset] = last = known
            after_gap = False
            number += 1

    def problems(self) -> list[Problem]:
        """All faults in file order; one of the index as a whole comes first."""
        lost: dict[int, list[Key]] = {}
        faults = [] if self._index_problem is None else [self._index_problem]
        reached = set(self._known.values())
        ordered = sorted(reached)
        for line, offset in enumerate(self._offsets):
            if offset in reached:
                continue
            assert self._index is not None
            key = self._index.key_at(line)
            gap = bisect.bisect_left(self._before, offset) - 1
            if gap >= 0 and offset < self._next_known(ordered, self._before[gap]):
                lost.setdefault(gap, []).append(key)
            else:
                faults.append(Problem(offset, 0, key, "the index names a record here, there is none", (key,)))
        for number, found in enumerate(self.gaps):
            keys = tuple(lost.get(number, ()))
            first = keys[0] if keys else None
            faults.append(Problem(found.offset, found.length, first, found.reason, keys))
        return sorted(faults, key=lambda fault: fault.offset)

    @staticmethod
    def _next_known(ordered: list[int], before: float) -> float:
        place = bisect.bisect_right(ordered, before)
        return ordered[place] if place < len(ordered) else math.inf

    def index_lines(self) -> tuple[str, list[Key]]:
        """Text of an .idx for the sound records alone, and the keys invented for it."""
        new: dict[int, int] = {}
        end = 0
        for item in self.found:
            new[item.offset] = end
            end += item.length
        if self._index is None:
            return "".join(format_line(key, at) for key, at in enumerate(new.values())), []
        moved = {known: new[start] for start, known in self._known.items()}
        lines = [
            format_line(self._index.key_at(line), moved[offset])
            for line, offset in enumerate(self._offsets)
            if offset in moved
        ]
        keys = self._index.keys
        free = 0 if isinstance(keys, list) or not len(keys) else int(keys.max()) + 1
        invented: list[Key] = []
        for item in self.found:
            if item.offset not in self._known:
                number = len(invented)
                key: Key = f"recovered-{number}" if isinstance(keys, list) else free + number
                invented.append(key)
                lines.append(format_line(key, new[item.offset]))
        return "".join(lines), invented


def read_piece(file: LocalFile, offset: int, length: int) -> bytes:
    """One range of a file."""
    return file.read_ranges([(offset, length)])[0]
