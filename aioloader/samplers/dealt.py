"""Batch samplers that compute the batches of an epoch and deal them out to ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aioloader.foundation.dealing import check_shard, deal, rank_and_world, steps_of
from aioloader.foundation.types import RankBatch
from aioloader.foundation.validation import require
from aioloader.samplers.basic import Sampler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.abc import ComputedBatchSampler
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
        self._even = "drop" if drop_last else "pad"
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

    @property
    def shard(self) -> tuple[int, int]:
        """Return the rank of this process and the world size."""
        return self._rank, self._world

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[RankBatch]:
        """Iterate over this rank's batches of an epoch; see `aioloader.abc.ComputedBatchSampler`."""
        made = self.all_batches(seed, epoch)
        dealt = deal(made, self._rank, self._world, start=start, even=self._even)
        return (RankBatch(*batch) for batch in dealt)

    def count(self, seed: int, epoch: int, start: int = 0) -> int:
        """Return the number of batches of `batches`; see `aioloader.abc.ComputedBatchSampler`."""
        if self._counted is None or self._counted[0] != (seed, epoch):
            self._counted = (seed, epoch), sum(1 for _ in self.all_batches(seed, epoch))
        return steps_of(max(0, self._counted[1] - start), self._world, self._even)


class RankBatchSampler:
    """Batches of a computed batch sampler, dealt out to the ranks of a loader; a `aioloader.abc.ComputedBatchSampler`.

    Args:
        sampler: computes the batches of all ranks.
        rank, world: this process among `world` processes.
        even: see `deal`.
    """

    def __init__(self, sampler: ComputedBatchSampler, rank: int, world: int, even: str) -> None:
        self._sampler = sampler
        self._rank = rank
        self._world = world
        self._even = even

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[RankBatch]:
        """Iterate over this rank's batches of an epoch.

        Raises:
            ValueError: the sampler deals its batches out itself.
        """
        whole = whole_epoch(self._sampler, seed, epoch)
        dealt = deal(whole, self._rank, self._world, start=start, even=self._even)
        return (RankBatch(*batch) for batch in dealt)

    def count(self, seed: int, epoch: int, start: int = 0) -> int:
        """Return how many batches `batches` yields."""
        left = max(0, self._sampler.count(seed, epoch) - start)
        return steps_of(left, self._world, self._even)

    def description(self) -> tuple[Any, ...]:
        """Return all that the batches of all ranks depend on, except seed and epoch."""
        return self._sampler.description()


def shard_of(batch_sampler: Any) -> tuple[int, int]:
    """Return the rank and the world size to which a batch sampler deals out its batches; (0, 1) if to no ranks."""
    return batch_sampler.shard if isinstance(batch_sampler, DealtBatchSampler) else (0, 1)


def whole_epoch(sampler: ComputedBatchSampler, seed: int, epoch: int) -> Iterator[IntArray]:
    """Iterate over the batches of all ranks, int64 each, in order.

    Raises:
        ValueError: the sampler computes those of one rank only.
    """
    if shard_of(sampler)[1] > 1:
        yield from cast("DealtBatchSampler", sampler).all_batches(seed, epoch)
        return
    for number, batch in enumerate(sampler.batches(seed, epoch), 1):
        if batch.consumed != number or batch.padded:
            raise dealt_twice(type(sampler).__name__)
        yield batch.indices


def dealt_twice(name: str) -> ValueError:
    """Return the error for a batch sampler of one rank in a loader that deals out batches itself."""
    return ValueError(
        f"the batch sampler {name} has a shard, and so has the loader: its batches would be dealt out twice; "
        "pass the shard to one of them"
    )


def dealt_unevenly(name: str) -> ValueError:
    """Return the error for a batch sampler that repeats or drops batches in a loader that delivers each sample once."""
    return ValueError(
        f"the batch sampler {name} has a shard and repeats or drops batches itself, and even='exact' delivers every "
        "batch once: pass the shard to the loader"
    )


def dealt_by_sampler(name: str, world: int) -> ValueError:
    """Return the error for a sampler of one rank's indices in a loader that deals out an epoch itself."""
    return ValueError(
        f"the sampler {name} yields the indices of one of {world} ranks (num_replicas={world}), and the loader has a "
        "shard: each rank would get a part of its part; leave out shard=, or pass a sampler of the whole epoch"
    )
