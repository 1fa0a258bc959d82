"""First fit: batches of items within a budget, in the order of their arrival as far as the budget allows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


class FirstFit(Generic[T]):
    """Items that wait for a batch.

    A batch begins with the item that has waited longest. Then every item of the window, in order, joins it that fits
    into what is left of the budget. So no item waits for more than the batches of those before it, and with a window
    of some dozens of photographs batches are 96 to 99 % full.

    Args:
        budget: largest sum of the costs of a batch.
        lookahead: items in the window.
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
        self._waiting: list[tuple[T, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Return whether the window is full, so that a batch can be taken."""
        return len(self._waiting) >= self.lookahead

    def add(self, item: T, cost: int) -> None:
        """Add an item.

        Raises:
            ValueError: it costs more than the budget, or less than nothing.
        """
        if not 0 <= cost <= self.budget:
            raise ValueError(
                f"an item costs {cost:,}, and the budget of a batch is {self.budget:,}: raise the budget"
            )
        self._waiting.append((item, cost))

    def take(self) -> list[tuple[T, int]]:
        """Return the next batch as (item, cost) in the order of arrival; empty if nothing waits."""
        left, most = self.budget, self.max_items or len(self._waiting)
        batch: list[tuple[T, int]] = []
        rest: list[tuple[T, int]] = []
        for place, pair in enumerate(self._waiting):
            if pair[1] <= left and len(batch) < most:
                batch.append(pair)
                left -= pair[1]
            else:
                rest.append(pair)
            if len(batch) == most:
                rest += self._waiting[place + 1 :]
                break
        self._waiting = rest
        return batch


def first_fit(
    items: Iterable[tuple[T, int]], budget: int, *, lookahead: int = 64, max_items: int | None = None
) -> Iterator[list[tuple[T, int]]]:
    """Iterate over the batches of items with their costs; see `FirstFit`."""
    fit: FirstFit[T] = FirstFit(budget, lookahead=lookahead, max_items=max_items)
    for item, cost in items:
        fit.add(item, cost)
        if fit.full:
            yield fit.take()
    while len(fit):
        yield fit.take()
