"""First fit: batches of items within a budget, in the order of their arrival as far as the budget allows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


class FirstFit(Generic[T]):
    """Items that wait for a batch, and the batch that is being filled.

    An item that fits into what is left of the budget joins the batch. One that does not waits for a later batch. When
    `lookahead` items wait, or the budget is used up, the batch is complete. The next one begins with the item that has
    waited longest, and then takes those of the waiting ones that fit, in order. So no item is overtaken by more than
    the items of the batches in between, and with a window of some dozens of photographs batches are 97 to 99 % full.

    Args:
        budget: largest sum of the costs of a batch.
        lookahead: most items that wait while a batch is filled.
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
        self._batch: list[tuple[T, int]] = []
        self._left = budget
        self._waiting: list[tuple[T, int]] = []

    def __len__(self) -> int:
        return len(self._batch) + len(self._waiting)

    @property
    def full(self) -> bool:
        """Return whether the batch is complete, so that it can be taken before further items are added."""
        return (
            len(self._waiting) >= self.lookahead
            or (self._left == 0 and bool(self._batch))
            or (self.max_items is not None and len(self._batch) >= self.max_items)
        )

    def add(self, item: T, cost: int) -> None:
        """Add an item.

        Raises:
            ValueError: it costs more than the budget, or less than nothing.
        """
        if not 0 <= cost <= self.budget:
            raise ValueError(
                f"an item costs {cost:,}, and the budget of a batch is {self.budget:,}: raise the budget"
            )
        if not self._join((item, cost)):
            self._waiting.append((item, cost))

    def _join(self, pair: tuple[T, int]) -> bool:
        """Add an item to the batch if it fits; return False otherwise."""
        if pair[1] > self._left or (self.max_items is not None and len(self._batch) >= self.max_items):
            return False
        self._batch.append(pair)
        self._left -= pair[1]
        return True

    def take(self) -> list[tuple[T, int]]:
        """Return the batch as (item, cost) in the order of arrival, and begin the next one; empty if nothing waits."""
        batch, self._batch, self._left = self._batch, [], self.budget
        self._waiting = [pair for pair in self._waiting if not self._join(pair)]
        return batch


def first_fit(
    items: Iterable[tuple[T, int]], budget: int, *, lookahead: int = 64, max_items: int | None = None
) -> Iterator[list[tuple[T, int]]]:
    """Iterate over the batches of items with their costs; see `FirstFit`."""
    fit: FirstFit[T] = FirstFit(budget, lookahead=lookahead, max_items=max_items)
    for item, cost in items:
        fit.add(item, cost)
        while fit.full:
            yield fit.take()
    while len(fit):
        yield fit.take()
