"""aioloader: the state of any rank, for any number of ranks and any batch size."""

from __future__ import annotations

from typing import Any

import numpy as np

import aioloader
from benchmarks import resuming

VARIANTS = ("exact", "pad")


def with_draw(number: int, rng: aioloader.Rng) -> tuple[int, float]:
    """Return a sample and a random number."""
    return number, rng.random()


class Rank(resuming.Rank):
    """Rank with a loader for all epochs."""

    shared = True

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.loader = aioloader.DataLoader(
            aioloader.ArrayDataset(np.arange(resuming.SAMPLES)).transform(with_draw),
            self.batch,
            shuffle=True,
            seed=7,
            shard=(self.rank, self.world),
            even=self.variant,
            num_workers=1,
            executor="thread",
        )
