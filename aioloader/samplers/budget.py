"""Batches of a budget: as many items as fit into a number of tokens, pixels or bytes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import at_least
from aioloader.samplers.epoch_order import permute
from aioloader.samplers.first_fit import first_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class BudgetBatchSampler:
    """Batch sampler whose batches stay within a budget: ``AsyncDataLoader(dataset, batch_sampler=...)``.

    The items come in the order of the epoch. A batch begins with the item that has waited longest, and the first ones
    of the next `lookahead` that fit into the rest of the budget join it (first fit). The batches of an epoch depend
    on (seed, epoch) and the arguments only, so that a loader resumes in the middle. All ranks get the same number of
    batches.

    Args:
        costs: cost of each item, such as its tokens; whole numbers, at least 0, int64 (items,). See
            `aioloader.image_costs`.
        budget: largest sum of the costs of a batch.
        shuffle: a new order in each epoch; otherwise the order of the indices.
        seed: of the order.
        lookahead: items that are considered for a batch.
        max_items: most items of a batch; None: any number.
        rank, world: this process, and the number of all. Batch n belongs to rank n % world.
        drop_last: where the batches do not divide evenly, leave the last ones out; otherwise the first ones are
            repeated.

    Raises:
        ValueError: an item costs more than the budget, or an argument is out of its range.
    """

    def __init__(
        self,
        costs: Sequence[int] | np.ndarray[Any, Any],
        budget: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        lookahead: int = 64,
        max_items: int | None = None,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
    ) -> None:
        at_least("budget", budget, 1)
        at_least("lookahead", lookahead, 1)
        at_least("max_items", max_items, 1)
        at_least("world", world, 1)
        if not 0 <= rank < world:
            raise ValueError(f"rank must be 0 to {world - 1}, got {rank}")
        self._costs = np.ascontiguousarray(costs, np.int64)
        if self._costs.ndim != 1:
            raise ValueError(
                f"costs must be one number for each item, got an array of shape {self._costs.shape}"
            )
        wrong = np.flatnonzero((self._costs > budget) | (self._costs < 0))
        if len(wrong):
            index = int(wrong[0])
            raise ValueError(
                f"item {index} costs {self._costs[index]:,}, and {len(wrong) - 1:,} others are outside of the budget "
                f"of {budget:,} too: raise the budget, or leave these items out of the dataset and the costs"
            )
        self._budget = budget
        self._shuffle = shuffle
        self._seed = seed
        self._lookahead = lookahead
        self._max_items = max_items
        self._rank = rank
        self._world = world
        self._drop_last = drop_last
        self.epoch = 0
        self._planned: tuple[int, list[Any]] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. A loader does not need it."""
        self.epoch = epoch

    def epoch_batches(self, epoch: int) -> list[np.ndarray[Any, Any]]:
        """Return the batches of an epoch for this rank, each as int64 (items,)."""
        plan = self._plan(epoch)
        if not plan:
            return []
        steps = len(plan) // self._world if self._drop_last else -(-len(plan) // self._world)
        return [plan[(step * self._world + self._rank) % len(plan)] for step in range(steps)]

    def _plan(self, epoch: int) -> list[Any]:
        """Return the batches of all ranks; those of the latest epoch are kept."""
        if self._planned is None or self._planned[0] != epoch:
            count = len(self._costs)
            order = permute(self._seed, epoch, count, 0, count) if self._shuffle else np.arange(count)
            pairs = zip(order.tolist(), self._costs[order].tolist(), strict=True)
            found = first_fit(pairs, self._budget, lookahead=self._lookahead, max_items=self._max_items)
            plan = [np.fromiter((index for index, _ in batch), np.int64, len(batch)) for batch in found]
            self._planned = epoch, plan
        return self._planned[1]

    def fill(self, epoch: int = 0, batches: int | None = None) -> float:
        """Return the share of the budget that the batches of an epoch use, 0 to 1.

        Args:
            epoch: the epoch.
            batches: only this number of them; None: all.
        """
        plan = list(islice(self._plan(epoch), batches))
        used = sum(int(self._costs[batch].sum()) for batch in plan)
        return used / (self._budget * len(plan)) if plan else 0.0

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        """Iterate over the batches of the epoch that `set_epoch` set."""
        return iter(self.epoch_batches(self.epoch))

    def __len__(self) -> int:
        """Return the number of batches of the epoch that `set_epoch` set."""
        return len(self.epoch_batches(self.epoch))
