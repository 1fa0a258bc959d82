"""Which rows a batch of a record iterator has, pass after pass. Pure.

Rule: as `aioloader.mxnet.io.rounds`: with `round_batch` the last batch borrows from the next pass, which goes on behind
what was borrowed. Here each pass may have an order of its own, and all parts have passes of the same number of batches:
a part with fewer records than the longest one is filled up with the first of its pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.states import whole_number
from aioloader.samplers.permutation import permute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioloader.foundation.types import IntArray

__all__ = ("Part", "Passes", "part_of")

_BLOCK = 8192
_PASSES = 1 << 62


class Part(NamedTuple):
    """Some of the records, one after the other.

    Attributes:
        total: number of all records.
        first: number of the part's first one.
        length: how many it has.
        longest: how many the longest part has, `length` or one more.
    """

    total: int
    first: int
    length: int
    longest: int


def part_of(total: int, num_parts: int, part_index: int) -> Part:
    """One of `num_parts` parts, as even as may be: the first ones have one record more."""
    share, longer = divmod(total, num_parts)
    first = share * part_index + min(part_index, longer)
    return Part(total, first, share + (part_index < longer), share + (longer > 0))


class Passes:
    """The batches of one pass after the other: a batch sampler, whose ``iter`` is the current pass.

    Rows are the numbers of records, as they are among all records. The same number plus `part.total` stands for that
    record as a row that only fills up.

    Args:
        part: the records.
        batch_size: rows of a batch, at least 1.
        round_batch: whether the last batch is filled up with the first rows of the next pass.
        seed: of the order, 0 <= seed < 2**64; None for that of the file.

    Raises:
        MXNetError: `round_batch`, and a batch has more than twice as many rows as there are records, but not none.
    """

    def __init__(self, part: Part, batch_size: int, round_batch: bool, seed: int | None = None) -> None:
        if round_batch and part.length and 2 * part.longest < batch_size:
            raise MXNetError(
                f"number of input images must be bigger than the batch size: there are {part.length} for batches of "
                f"{batch_size}; give round_batch=False or a smaller batch_size"
            )
        self._part = part
        self._length = part.longest if part.length else 0
        self._batch_size = batch_size
        self._round_batch = round_batch
        self._seed = seed
        # Where the current pass begins: number of its order, and rows of it that an earlier pass borrowed.
        self._order = 0
        self._borrowed = 0
        self.passed_over = 0  # batches of the current pass that an earlier run had

    def advance(self) -> None:
        """The current pass is over: go on to the next one."""
        if not self._length:
            return
        self.passed_over = 0
        self._order, self._borrowed = divmod(
            self._order * self._length + self._borrowed + self._rows(self._borrowed), self._length
        )

    def rewind(self) -> None:
        """The current pass was left early: begin at the first record, in a new order."""
        self._order, self._borrowed, self.passed_over = self._order + 1, 0, 0

    def identity(self) -> dict[str, Any]:
        """What a state must share with these passes."""
        return {
            "rows": self._part.total,
            "part": [self._part.first, self._part.length, self._part.longest],
            "batch_size": self._batch_size,
            "round_batch": bool(self._round_batch),
            "order_seed": self._seed,
        }

    def place(self) -> dict[str, int]:
        """Where the current pass begins."""
        return {"order": self._order, "borrowed": self._borrowed}

    def go_to(self, place: Mapping[str, Any], passed_over: int) -> None:
        """Make the pass that begins at `place` the current one, without so many of its batches.

        Raises:
            ResumeError: there is no such place.
        """
        order = whole_number(place, "order", 0, _PASSES)
        borrowed = whole_number(place, "borrowed", 0, max(1, self._length))
        batches = -(-self._rows(borrowed) // self._batch_size)
        whole_number({"taken": passed_over}, "taken", 0, batches + 1)
        self._order, self._borrowed, self.passed_over = order, borrowed, passed_over

    def __len__(self) -> int:
        return -(-self._rows(self._borrowed) // self._batch_size) - self.passed_over

    def _rows(self, borrowed: int) -> int:
        """Rows of a pass of whose order an earlier one borrowed so many."""
        left = self._length - borrowed
        return left + (-left % self._batch_size if self._round_batch else 0)

    def pad(self, number: int) -> int:
        """How many rows at the end of batch `number` of the current pass only fill it up; counted from 0."""
        left = self._part.length - self._borrowed - number * self._batch_size
        return self._batch_size - min(max(left, 0), self._batch_size)

    def __iter__(self) -> Iterator[IntArray]:
        """The batches of the current pass, int64 (n,)."""
        early = self.passed_over * self._batch_size
        return self._batches(self._order, self._borrowed + early, self._rows(self._borrowed) - early)

    def _batches(self, order: int, first: int, rows: int) -> Iterator[IntArray]:
        size = self._batch_size
        step = max(1, _BLOCK // size) * size
        for begin in range(0, rows, step):
            block = self._take(order, first + begin, min(step, rows - begin))
            for low in range(0, len(block), size):
                yield block[low : low + size]

    def _take(self, order: int, start: int, count: int) -> IntArray:
        """Rows from `start` of an order on; what lies behind its end is borrowed from the orders after it."""
        parts = []
        total = self._part.total
        while count:
            later, place = divmod(start, self._length)
            stop = min(self._length, place + count)
            rows = self._of_order(order + later, place, stop)
            parts.append(np.where(rows < total, rows + total, rows) if later else rows)
            start += stop - place
            count -= stop - place
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _of_order(self, order: int, start: int, stop: int) -> IntArray:
        """Rows of one order, what fills the part up at its end."""
        count = self._part.length
        end = min(stop, count)
        rows = self._records(order, min(start, end), end)
        if stop <= count:
            return rows
        filling = self._records(order, 0, 1) + self._part.total
        return np.concatenate((rows, np.repeat(filling, stop - max(start, count))))

    def _records(self, order: int, start: int, stop: int) -> IntArray:
        if self._seed is None:
            return np.arange(self._part.first + start, self._part.first + stop, dtype=np.int64)
        rows = permute(self._seed, order, self._part.length, start, stop)
        rows += self._part.first
        return rows
