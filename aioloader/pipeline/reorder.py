"""The stage "reorder": results arrive in any order and leave in the order of their numbers, or as they come (pure)."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ReorderError(RuntimeError):
    """Error raised when a number arrives twice, or is outside of the window: a bug of the pipeline.

    Attributes:
        number: the number.
        expected: the next number to leave.
    """

    def __init__(self, number: int, expected: int, reason: str) -> None:
        super().__init__(f"batch {number} {reason}; next to be delivered is {expected}")
        self.number = number
        self.expected = expected


class Reorder(Generic[T]):
    """Buffer of the results that arrived early.

    Args:
        window: how far a number may be ahead of the next one to leave, if they leave in order.
        in_order: they do; otherwise they leave in the order in which they arrived.

    Attributes:
        next: the lowest number that has not left.
        latest: the number that left last.
    """

    def __init__(self, window: int, *, in_order: bool = True) -> None:
        self._window = window
        self._in_order = in_order
        self._held: dict[int, T] = {}
        self._left: set[int] = set()  # numbers above `next` that have left
        self.next = 0
        self.latest = -1

    def push(self, number: int, item: T) -> None:
        """Add a result. A skipped number needs one too, or the window waits for it forever."""
        if number < self.next or number in self._held or number in self._left:
            raise ReorderError(number, self.next, "came twice")
        if self._in_order and number >= self.next + self._window:
            raise ReorderError(number, self.next, "lies outside of the window")
        self._held[number] = item

    def pop(self) -> T | None:
        """Remove and return the next result, or return None if it has not arrived yet."""
        number = self.next if self._in_order else next(iter(self._held), self.next)
        item = self._held.pop(number, None)
        if item is not None:
            self.latest = number
            self._left.add(number)
            while self.next in self._left:
                self._left.remove(self.next)
                self.next += 1
        return item

    @property
    def ready(self) -> bool:
        """Return True if a result can leave."""
        return self.next in self._held or (not self._in_order and bool(self._held))

    def first_missing(self) -> int:
        """Return the first number from `next` on that has not arrived."""
        number = self.next
        while number in self._held or number in self._left:
            number += 1
        return number

    def drop_from(self, number: int) -> None:
        """Drop the results of `number` and above."""
        for late in [held for held in self._held if held >= number]:
            del self._held[late]

    def clear(self) -> None:
        """Drop all results."""
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)
