"""aioloader: the state of any rank, for any number of ranks and any batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader
from benchmarks import resuming

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIANTS = ("exact", "pad")


def with_draw(number: int, rng: aioloader.Rng) -> tuple[int, float]:
    """Return a sample and a random number."""
    return number, rng.random()


class Rank(resuming.Rank):
    """Rank with a loader for all epochs."""

    shared = True

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._loader = aioloader.DataLoader(
            aioloader.ArrayDataset(np.arange(resuming.SAMPLES)).transform(with_draw),
            self.batch,
            shuffle=True,
            seed=7,
            shard=(self.rank, self.world),
            even=self.variant,
            num_workers=1,
            executor="thread",
        )

    def batches(self, saved: Any) -> Iterable[tuple[Any, Any]]:
        if saved is not None:
            self._loader.load_state_dict(saved)
        return self._loader

    def position(self) -> Any:
        return self._loader.state_dict()
