"""Random generators of a dataset and of its collate function: seeded for every sample in worker processes."""

from __future__ import annotations

import pickle
import zlib
from typing import TYPE_CHECKING, Any

from aioloader.executors.foreign_generators import find_generators, generator_state, seed_generator
from aioloader.rng import GLOBALS_DOMAIN, Rng

if TYPE_CHECKING:
    from collections.abc import Sequence


class OwnGenerators:
    """Generators of one dataset in a worker process.

    Their numbers follow from the state with which they were sent, and from epoch, index and position of the sample.

    Args:
        roots: the dataset and the functions, as they were sent.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self._roots = roots
        self._sent = find_generators(roots)
        self._seeds = [zlib.crc32(pickle.dumps(generator_state(each))) for each in self._sent]
        self._all = list(zip(self._sent, self._seeds, strict=True))
        self._rng = Rng(0)

    def take_new(self, seed: int) -> None:
        """Take the generators that the worker's set-up has made, which get `seed`."""
        known = {id(each) for each in self._sent}
        new = [each for each in find_generators(self._roots) if id(each) not in known]
        self._all += [(each, seed) for each in new]

    def seed(self, epoch: int, index: int, position: int) -> None:
        """Seed them for a sample."""
        for place, (generator, seed) in enumerate(self._all):
            self._rng.seek(seed, epoch, index, GLOBALS_DOMAIN, position=position)
            seed_generator(generator, int(self._rng.words(place + 1)[place]))
