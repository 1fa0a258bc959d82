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

from recordio._index import Index, beside
from recordio._index_text import format_line
from recordio._walk import Found, Gap, walk
from recordio.errors import CorruptIndexError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recordio._files import LocalFile

__all__ = ("Key", "Problem", "Survey", "read_piece")

Key: TypeAlias = "int | str"

_COMPARED = 8


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
        places = {offset: place for place, offset in enumerate(ordered)}
        starts = [item.offset for item in self.found]
        number, shift, last, after_gap = 0, 0, -1, False
        for item in items:
            if isinstance(item, Gap):
                self._before.append(last)
                after_gap = True
                continue
            if after_gap and item.offset - shift not in places:
                coming = starts[number : number + _COMPARED + 1]
                shift = self._new_shift(coming, ordered[bisect.bisect_right(ordered, last) :], shift)
            known = item.offset - shift
            if known in places and known > last:
                self._known[item.offset] = last = known
            after_gap = False
            number += 1

    @staticmethod
    def _new_shift(starts: list[int], ordered: list[int], shift: int) -> int:
        """The shift, nearest to the old one, under which the index has the coming records."""
        shape = [start - starts[0] for start in starts]
        fitting = [
            starts[0] - first
            for place, first in enumerate(ordered)
            if [offset - first for offset in ordered[place : place + len(shape)]] == shape
        ]
        return min(fitting, key=lambda fit: abs(fit - shift), default=shift)

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
