"""Contenders of `benchmarks.resume_proof`: a file each.

Its requirements are those of the contender with its name in `benchmarks.contenders`, or those of the NAME.txt here. A
file defines ``VARIANTS``, a tuple of names, ``prepare(folder)`` if it needs a set of files, and a class ``Rank``. Draws
are random numbers by the means that the loader's guide names, else by torch's generator.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SAMPLES = 1003
"""A prime, so that nothing divides it."""
EPOCHS = 2
SHARDS = 60
"""Files of a set that is read file by file; each number of ranks divides it."""


class Rank:
    """One rank of a contender, at the place that earlier ranks saved. `batches` and `position` are the contender's.

    Args:
        variant: one of ``VARIANTS``.
        rank: its number.
        world: number of ranks.
        batch: samples of its batches.
        states: of all ranks of the earlier world, or None.
        folder: with the set that ``prepare`` wrote.
        number: of the world, another one each time.
    """

    # The state of one rank is for all; else a rank has its own, or takes another's if there is none.
    shared = False
    # Of a contender with one loader for all epochs, which has `state_dict` and `load_state_dict`.
    loader: Any = None

    def __init__(
        self,
        variant: str,
        rank: int,
        world: int,
        batch: int,
        states: list[Any] | None,
        folder: str,
        number: int,
    ) -> None:
        self.variant, self.rank, self.world, self.batch = variant, rank, world, batch
        self.folder, self.number = folder, number
        # As torchrun does.
        for name, value in (("RANK", rank), ("WORLD_SIZE", world)):
            os.environ[name] = os.environ[f"LOCAL_{name}"] = str(value)
        self.epoch, self.saved = (0, None) if states is None else self.chosen(states)

    def chosen(self, states: list[Any]) -> Any:
        """Return the epoch and the position for this rank."""
        return states[0 if self.shared else self.rank % len(states)]

    def batches(self, saved: Any) -> Iterable[tuple[Any, Any]]:
        """Open the loader in `epoch`, at a saved position or None, and return the (ids, draws) of its batches."""
        if saved is not None:
            self.loader.load_state_dict(saved)
        batches: Iterable[tuple[Any, Any]] = self.loader
        return batches

    def position(self) -> Any:
        """Return the position behind the latest batch: a JSON value."""
        return self.loader.state_dict()

    def __iter__(self) -> Iterator[tuple[int, list[int], list[float]]]:
        """Yield the (epoch, ids, draws) of each batch, to the end of the last epoch."""
        for epoch in range(self.epoch, EPOCHS):
            self.epoch, saved, self.saved = epoch, self.saved, None
            for ids, draws in self.batches(saved):
                yield epoch, [int(each) for each in ids], [float(each) for each in draws]

    def state(self) -> Any:
        """Return what a checkpoint holds."""
        return self.epoch, self.position()
