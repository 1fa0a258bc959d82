"""Batches of an epoch dealt out to the ranks in equal steps (pure)."""

from __future__ import annotations

from collections.abc import Sized
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

B = TypeVar("B", bound=Sized)


class Dealt(NamedTuple, Generic[B]):
    """One batch of one rank; its fields are those of `aioloader.foundation.types.RankBatch`, of any class."""

    batch: B
    position: int
    consumed: int
    padded: int = 0


def deal(
    batches: Iterable[B],
    rank: int,
    world: int,
    *,
    start: int = 0,
    drop: bool = False,
    position: int = 0,
) -> Iterator[Dealt[B]]:
    """Iterate over one rank's batches: in each step every rank gets the next batch of the epoch.

    Args:
        batches: of all ranks, from the start of the epoch.
        rank, world: this process among `world` processes.
        start: batches of the epoch that all ranks together have consumed before; those are left out.
        drop: leave out a last step that has no batch for some ranks. False: ranks without one repeat a batch from the
            start of the epoch.
        position: number of the epoch's samples before the first batch.
    """
    made = iter(batches)
    begin: list[B] = []
    done = 0
    for batch in islice(made, start):
        if len(begin) < world:
            begin.append(batch)
        done += 1
        position += len(batch)
    while step := list(islice(made, world)):
        begin += step[: world - len(begin)]
        if len(step) < world and drop:
            return
        after = done + len(step)
        padded = rank >= len(step)
        step += [begin[place % after] for place in range(after, done + world)]
        before = position + sum(map(len, step[:rank]))
        yield Dealt(step[rank], before, after, padded=len(step[rank]) if padded else 0)
        position += sum(map(len, step))
        done = after


def steps_of(batches: int, world: int, drop: bool) -> int:
    """Return the number of steps in which `deal` deals out a number of batches."""
    return batches // world if drop else -(-batches // world)
