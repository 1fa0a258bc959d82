"""Grain: its experimental elastic iterator, or a map dataset of which each rank takes every n-th element.

Any state of the elastic iterator is for all ranks
(https://google-grain.readthedocs.io/en/latest/grain.experimental.html). Ranks of slices save a state each, as "Dataset
basics" shows (https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grain

from benchmarks import resuming

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

VARIANTS = ("ElasticIterator", "slices")


class WithDraw(grain.transforms.RandomMap):  # type: ignore[misc]  # grain is not installed where types are checked
    """Map of a sample to itself and a random number."""

    def random_map(self, element: int, rng: np.random.Generator) -> tuple[int, float]:
        return element, rng.random()


class Rank(resuming.Rank):
    """Rank with an iterator for each epoch."""

    def __init__(self, **arguments: Any) -> None:
        self.shared = arguments["variant"] == "ElasticIterator"
        super().__init__(**arguments)

    def batches(self, saved: Any) -> Iterable[tuple[Any, Any]]:
        dataset = (
            grain.MapDataset.range(resuming.SAMPLES).seed(7 + self.epoch).shuffle().random_map(WithDraw())
        )
        if self.shared:
            shard = grain.sharding.ShardOptions(self.rank, self.world)
            self._iterator = grain.experimental.ElasticIterator(dataset, self.batch * self.world, shard)
        else:
            self._iterator = iter(dataset[self.rank :: self.world].batch(self.batch).to_iter_dataset())
        if saved is not None:
            self._iterator.set_state(saved)
        return self._iterator

    def position(self) -> Any:
        return self._iterator.get_state()
