"""Which items each batch of a pass of `ImageIter` has. Pure.

Rule (MXNet's): where the items end inside a batch, "pad" fills it up from the start of the same order and says how many
rows that are, "discard" drops it, "roll_over" keeps its items for the first batch of the next pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    T = TypeVar("T")

__all__ = ("HANDLES", "Turns", "part_of")

HANDLES = ("pad", "discard", "roll_over")


def part_of(items: list[T], index: int, count: int, drop_remainder: bool) -> list[T]:
    """One of `count` contiguous parts.

    Args:
        items: all of them.
        index: of the part.
        count: of parts.
        drop_remainder: what does not divide is in no part; False: the first parts are longer by one.
    """
    share, longer = divmod(len(items), count)
    if drop_remainder:
        longer = 0
    start = share * index + min(index, longer)
    return items[start : start + share + (index < longer)]


class Turns:
    """The batches of what is left of a pass.

    Args:
        order: the items of the whole pass.
        start: place in `order` of the next item.
        kept: items of the pass before, which come first.
        batch_size: items of a batch, at least 1.
        last_batch: "pad", "discard" or "roll_over".
    """

    def __init__(
        self, order: Sequence[int], start: int, kept: Sequence[int], batch_size: int, last_batch: str
    ) -> None:
        self._order = order
        self._start = start
        self._kept = list(kept)
        self._size = batch_size
        self._whole, rest = divmod(max(0, len(self._kept) + len(order) - start), batch_size)
        self._rest = rest
        self._pads = bool(rest) and last_batch == "pad"
        self._rolls = last_batch == "roll_over"

    def __len__(self) -> int:
        """Number of batches."""
        return self._whole + self._pads

    def __iter__(self) -> Iterator[list[int]]:
        """The items of batch after batch."""
        return map(self.items, range(len(self)))

    def items(self, number: int) -> list[int]:
        """The items of batch `number`, counted from 0."""
        first = number * self._size - len(self._kept)
        found = [self._item(place) for place in range(first, self.reached(number))]
        missing = self._size - len(found)
        return found + [self._order[place % len(self._order)] for place in range(missing)]

    def _item(self, place: int) -> int:
        return self._kept[place] if place < 0 else self._order[place + self._start]

    def reached(self, number: int) -> int:
        """How many items of `order` after `start` the batches up to `number` take, those that fill up not counted."""
        return min((number + 1) * self._size - len(self._kept), len(self._order) - self._start)

    def pad(self, number: int) -> int:
        """How many items at the end of batch `number` only fill it up."""
        return self._size - self._rest if number == self._whole else 0

    def kept_in(self, number: int) -> int:
        """How many items of batch `number` were kept from the pass before."""
        return max(0, min(self._size, len(self._kept) - number * self._size))

    def behind(self, number: int, place: int) -> tuple[int, list[int]]:
        """What a pass goes on with behind the item at `place` of batch `number`: its `start` and `kept`."""
        item = number * self._size - len(self._kept) + place + 1
        if item < 0:
            return self._start, self._kept[item:]
        return min(self._start + item, len(self._order)), []

    def left(self) -> list[int]:
        """The items that are kept for the next pass: those that fill no batch, with "roll_over"."""
        if not (self._rolls and self._rest):
            return []
        end = len(self._order) - self._start
        return [self._item(place) for place in range(end - self._rest, end)]
