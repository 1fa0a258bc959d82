"""First fit within a window: batches of items within a budget, nearly in the order of their arrival. Pure."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from aioloader.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

# A key is the cost above the number of an item, counted backwards: of equal costs the oldest has the largest key.
_NUMBER_BITS = 48
_LAST = (1 << _NUMBER_BITS) - 1
# A window that is too small for the budget grows by this factor at most: items may cost nothing.
_MOST_WINDOWS = 64


class FirstFit(Generic[T]):
    """Items that wait for a batch.

    A batch begins with the item that has waited longest, and takes the next ones in order, until one does not fit into
    what is left of the budget. From then on it takes, of all items in the window, the one that fills the rest best: the
    most expensive that fits, of equal ones the oldest. So no item waits for more batches than there are items before
    it, and batches have nearly the order of arrival.

    Args:
        budget: largest sum of the costs of a batch.
        lookahead: items in the window. While they would fill less than two batches it is larger, up to 64 times.
        max_items: most items of a batch; None: any number.

    Raises:
        ValueError: a number is less than 1.
    """

    def __init__(self, budget: int, *, lookahead: int = 64, max_items: int | None = None) -> None:
        for name, number in (("budget", budget), ("lookahead", lookahead), ("max_items", max_items)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        self.budget = budget
        self.lookahead = lookahead
        self.max_items = max_items
        self._added = 0
        self._total = 0
        self._waiting: dict[int, T] = {}
        self._arrivals: deque[int] = (
            deque()
        )  # keys in the order of arrival; those that were taken stay until first
        self._keys: list[int] = []  # the same, sorted

    def __len__(self) -> int:
        """Return the number of items that wait."""
        return len(self._keys)

    @property
    def full(self) -> bool:
        """Return whether the window is full, so that a batch can be taken."""
        waiting = len(self._keys)
        if waiting < self.lookahead:
            return False
        return (
            self._total >= 2 * self.budget
            or waiting >= _MOST_WINDOWS * self.lookahead
            or (self.max_items is not None and waiting >= self.lookahead + self.max_items)
        )

    def add(self, item: T, cost: int) -> None:
        """Add an item.

        Raises:
            BudgetError: it costs more than the budget, or less than nothing.
        """
        if not 0 <= cost <= self.budget:
            raise BudgetError(cost, self.budget)
        key = cost << _NUMBER_BITS | (_LAST - self._added)
        self._added += 1
        self._total += cost
        self._waiting[key] = item
        self._arrivals.append(key)
        insort(self._keys, key)

    def take(self) -> list[tuple[T, int]]:
        """Return the next batch as (item, cost) in the order of arrival; empty if nothing waits."""
        left, most = self.budget, self.max_items or len(self._keys)
        keys, waiting, arrivals = self._keys, self._waiting, self._arrivals
        batch: list[tuple[T, int]] = []
        while arrivals and len(batch) < most:
            key = arrivals[0]
            if key in waiting:
                cost = key >> _NUMBER_BITS
                if cost > left:
                    break
                left -= cost
                batch.append((waiting.pop(key), cost))
                del keys[bisect_right(keys, key) - 1]
            arrivals.popleft()
        chosen: list[int] = []
        while len(batch) + len(chosen) < most and (place := bisect_right(keys, left << _NUMBER_BITS | _LAST)):
            key = keys.pop(place - 1)
            left -= key >> _NUMBER_BITS
            chosen.append(key)
        # All of these arrived later than those that were taken in order.
        chosen.sort(key=_arrival)
        batch += [(waiting.pop(key), key >> _NUMBER_BITS) for key in chosen]
        self._total -= self.budget - left
        return batch


def _arrival(key: int) -> int:
    return _LAST - (key & _LAST)


def first_fit(
    items: Iterable[tuple[T, int]], budget: int, *, lookahead: int = 64, max_items: int | None = None
) -> Iterator[list[tuple[T, int]]]:
    """Iterate over the batches of items with their costs; see `FirstFit`.

    Raises:
        BudgetError: an item costs more than the budget, or less than nothing.
    """
    fit: FirstFit[T] = FirstFit(budget, lookahead=lookahead, max_items=max_items)
    for item, cost in items:
        fit.add(item, cost)
        if fit.full:
            yield fit.take()
    while len(fit):
        yield fit.take()
