"""Grain: a map dataset of which each rank takes every n-th element, or its experimental elastic iterator.

Ranks of a slice save a state each; any state of the elastic iterator is for all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grain

from benchmarks.resuming import EPOCHS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

VARIANTS = ("ElasticIterator", "slices")


class WithDraw(grain.transforms.RandomMap):  # type: ignore[misc]  # grain is not installed where types are checked
    """Map of a sample to itself and a random number."""

    def random_map(self, element: int, rng: np.random.Generator) -> tuple[int, float]:
        return element, rng.random()


class Rank:
    """One rank; see `benchmarks.resuming`."""

    def __init__(self, variant: str, rank: int, world: int, batch: int, states: list[Any] | None) -> None:
        self._variant, self._rank, self._world, self._batch = variant, rank, world, batch
        self._epoch, self._state = 0, None
        if states is not None:
            self._epoch, self._state = states[0 if variant == "ElasticIterator" else rank % len(states)]

    def __iter__(self) -> Iterator[tuple[int, list[int], list[float]]]:
        for epoch in range(self._epoch, EPOCHS):
            self._epoch = epoch
            self._iterator = self._opened()
            if self._state is not None:
                self._iterator.set_state(self._state)
                self._state = None
            for ids, draws in self._iterator:
                yield epoch, ids.tolist(), draws.tolist()

    def _opened(self) -> Any:
        dataset = grain.MapDataset.range(SAMPLES).seed(7 + self._epoch).shuffle().random_map(WithDraw())
        if self._variant == "ElasticIterator":
            shard = grain.sharding.ShardOptions(self._rank, self._world)
            return grain.experimental.ElasticIterator(dataset, self._batch * self._world, shard)
        return iter(dataset[self._rank :: self._world].batch(self._batch).to_iter_dataset())

    def state(self) -> Any:
        """Return the state."""
        return self._epoch, self._iterator.get_state()
