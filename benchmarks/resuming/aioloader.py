"""aioloader: the state of any rank, for any number of ranks and any batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader
from benchmarks.resuming import EPOCHS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = ("exact", "pad")


def with_draw(number: int, rng: aioloader.Rng) -> tuple[int, float]:
    """Return a sample and a random number."""
    return number, rng.random()


class Rank:
    """One rank; see `benchmarks.resuming`."""

    def __init__(self, variant: str, rank: int, world: int, batch: int, states: list[Any] | None) -> None:
        dataset = aioloader.ArrayDataset(np.arange(SAMPLES)).transform(with_draw)
        self._loader = aioloader.DataLoader(
            dataset,
            batch,
            shuffle=True,
            seed=7,
            shard=(rank, world),
            even=variant,
            num_workers=1,
            executor="thread",
        )
        if states is not None:
            self._loader.load_state_dict(states[0])

    def __iter__(self) -> Iterator[tuple[int, list[int], list[float]]]:
        epoch = -1
        while epoch < EPOCHS - 1:
            batches = iter(self._loader)
            epoch = batches.epoch
            for ids, draws in batches:
                yield epoch, ids.tolist(), draws.tolist()

    def state(self) -> Any:
        """Return the state."""
        return self._loader.state_dict()
