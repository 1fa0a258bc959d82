"""Sampler of batches whose items together cost no more than a budget, such as a number of tokens or pixels.

First fit within a window: batches of items within a budget, nearly in the order of their arrival. Pure.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from aioloader.errors import BudgetError
from aioloader.foundation.validation import require
from aioloader.samplers.basic import check_count
from aioloader.samplers.dealt import DealtBatchSampler
from aioloader.samplers.epoch_order import permute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from aioloader.foundation.types import IntArray


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


_BLOCK = 1 << 14


class BudgetBatchSampler(DealtBatchSampler):
    """Batches of indices whose costs add up to at most a budget; every index once.

    Pass it to a loader as ``batch_sampler``. In a loader the loader's seed and epoch number determine the batches, so
    that a run can be repeated and resumed; iterated alone, the sampler counts its iterations as epochs.

    Rule: the indices come in random order, and first fit within a window makes batches of them
    (`aioloader.samplers.budget`): a batch begins with the index that has waited longest, takes those that follow,
    and fills the rest with the best of the window. So most of a batch is random.

    With `shard` the batches are dealt out: of each step of all ranks a rank gets one batch, so all ranks have the same
    number of steps. A state that was saved with one number of ranks can be loaded with another.

    Memory: 8 bytes for each index. Batches are computed as they are needed; a loader that resumes computes all batches
    before its position first, and `len` all of the epoch: a second or two for a million indices.

    Args:
        costs: (n,), whole numbers: the cost of each index; see `aioloader.image_costs`.
        budget: largest sum of the costs of a batch.
        lookahead: indices of which the rest of a batch is chosen; more fill better and change the order more. It grows
            where they would not fill two batches.
        shuffle: a new random order in each epoch; False: in order.
        seed: 0 <= seed < 2**64, used when the sampler is iterated alone.
        drop_last: leave out the last batch of an epoch, which may be far from full, and the last step if it has no
            batch for some ranks. False: ranks without one repeat a batch from the start of the epoch.
        max_items: most indices of a batch; None: any number.
        shard: (rank, world size), or "auto" for those of RANK and WORLD_SIZE in the environment; None: one process.

    Raises:
        BudgetError: an item alone costs more than the budget, or less than nothing.
        TypeError, ValueError: another argument is not allowed.
    """

    def __init__(
        self,
        costs: npt.ArrayLike,
        budget: int,
        *,
        lookahead: int = 64,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        max_items: int | None = None,
        shard: Any = None,
    ) -> None:
        super().__init__(seed=seed, drop_last=drop_last, shard=shard)
        table = np.array(costs)
        if table.size and table.dtype.kind not in "iu":
            raise TypeError(f"costs must be whole numbers, got dtype {table.dtype}")
        require(table.ndim == 1, f"costs must have one axis, got shape {table.shape}")
        self._budget = check_count("budget", budget, 1)
        self._lookahead = check_count("lookahead", lookahead, 1)
        self._max_items = None if max_items is None else check_count("max_items", max_items, 1)
        wrong = np.flatnonzero((table < 0) | (table > self._budget))
        if len(wrong):
            raise BudgetError(int(table[wrong[0]]), self._budget, item=int(wrong[0]))
        self._costs: IntArray = table.astype(np.int64)
        self._shuffle = shuffle

    def description(self) -> tuple[Any, ...]:
        """Return all that the batches of all ranks depend on, except seed and epoch."""
        digest = hashlib.sha256(self._costs.astype("<i8").tobytes()).hexdigest()
        return (
            *("budget", self._budget, self._lookahead, self._shuffle, self._drop_last, self._max_items),
            digest,
        )

    def all_batches(self, seed: int, epoch: int) -> Iterator[IntArray]:
        """Iterate over the batches of all ranks; see `DealtBatchSampler`."""
        items = self._items(seed, epoch)
        last: IntArray | None = None
        for batch in first_fit(items, self._budget, lookahead=self._lookahead, max_items=self._max_items):
            if last is not None:
                yield last
            last = np.array([index for index, _ in batch], np.int64)
        if last is not None and not self._drop_last:
            yield last

    def _items(self, seed: int, epoch: int) -> Iterator[tuple[int, int]]:
        """Yield the indices with their costs, in the order of the epoch."""
        count = len(self._costs)
        for start in range(0, count, _BLOCK):
            stop = min(start + _BLOCK, count)
            if self._shuffle:
                indices = permute(seed, epoch, count, start, stop)
            else:
                indices = np.arange(start, stop, dtype=np.int64)
            yield from zip(indices.tolist(), self._costs[indices].tolist(), strict=True)
