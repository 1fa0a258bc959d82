"""Base of batch samplers that compute the batches of an epoch and deal them out to ranks."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from aioloader.foundation.ranks import check_shard, rank_and_world
from aioloader.foundation.types import RankBatch
from aioloader.foundation.validation import require
from aioloader.samplers.basic import Sampler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.foundation.types import IntArray


class DealtBatchSampler(Sampler):
    """Base of samplers whose batches are computed from a seed and an epoch number, and dealt out to ranks in steps.

    A subclass defines `all_batches` and `description`. It is a `aioloader.abc.ComputedBatchSampler`.

    Args:
        seed: 0 <= seed < 2**64, used when the sampler is iterated alone.
        drop_last: leave out the last step of an epoch if it has no batch for some ranks. False: ranks without one
            repeat a batch from the start of the epoch.
        shard: (rank, world size), or "auto" for those of RANK and WORLD_SIZE in the environment; None: one process.

    Raises:
        ValueError: the seed or the shard is out of its range.
    """

    def __init__(self, *, seed: int, drop_last: bool, shard: Any) -> None:
        require(0 <= seed < 1 << 64, f"seed must be in [0, 2**64), got {seed}")
        self._seed = seed
        self._drop_last = drop_last
        check_shard(shard)
        self._rank, self._world = rank_and_world(shard)
        self._passes = 0
        self._counted: tuple[tuple[int, int], int] | None = None

    def all_batches(self, seed: int, epoch: int) -> Iterator[IntArray]:
        """Iterate over the batches of all ranks, int64 each, in order."""
        raise NotImplementedError

    def description(self) -> tuple[Any, ...]:
        """Return all that the batches of all ranks depend on, except seed and epoch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over this rank's batches of the next epoch, counted from 0 by this sampler."""
        epoch, self._passes = self._passes, self._passes + 1
        return (batch.indices.tolist() for batch in self.batches(self._seed, epoch))

    def __len__(self) -> int:
        """Return the number of this rank's batches of the next epoch; other epochs may have a few more or less."""
        return self.count(self._seed, self._passes)

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[RankBatch]:
        """Iterate over this rank's batches of an epoch; see `aioloader.abc.ComputedBatchSampler`."""
        rank, world = self._rank, self._world
        made = self.all_batches(seed, epoch)
        begin: list[IntArray] = []
        done = position = 0
        for batch in islice(made, start):
            if len(begin) < world:
                begin.append(batch)
            done += 1
            position += len(batch)
        while step := list(islice(made, world)):
            begin += step[: world - len(begin)]
            if len(step) < world and self._drop_last:
                return
            after = done + len(step)
            padded = rank >= len(step)
            step += [begin[place % after] for place in range(after, done + world)]
            before = position + sum(map(len, step[:rank]))
            yield RankBatch(step[rank], before, after, padded=len(step[rank]) if padded else 0)
            position += sum(map(len, step))
            done = after

    def count(self, seed: int, epoch: int, start: int = 0) -> int:
        """Return the number of batches of `batches`; see `aioloader.abc.ComputedBatchSampler`."""
        if self._counted is None or self._counted[0] != (seed, epoch):
            self._counted = (seed, epoch), sum(1 for _ in self.all_batches(seed, epoch))
        left = max(0, self._counted[1] - start)
        return left // self._world if self._drop_last else -(-left // self._world)
