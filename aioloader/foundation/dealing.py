"""Batches of an epoch dealt out to the ranks in equal steps (pure).

Rank of this process and world size, from the option ``shard``.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def check_shard(shard: Any) -> None:
    """Raise if `shard` is not None, "auto" or a pair (index, count).

    Raises:
        TypeError: it is none of these.
        ValueError: not 0 <= index < count.
    """
    if shard is None or shard == "auto":
        return
    try:
        index, count = (int(part) for part in shard)
    except (TypeError, ValueError):
        raise TypeError(f"shard must be (index, count) or 'auto', got {shard!r}") from None
    if not 0 <= index < count:
        raise ValueError(f"shard must be (index, count) with 0 <= index < count, got {shard!r}")


def rank_and_world(shard: Any) -> tuple[int, int]:
    """Return the rank of this process and the world size; (0, 1) for None.

    ``"auto"`` reads RANK and WORLD_SIZE, as torchrun and Ray Train set them; without both the world size is 1.

    Raises:
        ValueError: only one of them is set, or RANK is not in the world.
    """
    if shard is None:
        return 0, 1
    if shard == "auto":
        return _from_environment()
    index, count = shard
    return int(index), int(count)


def _from_environment() -> tuple[int, int]:
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world is None:
        return 0, 1
    try:
        found = int(rank or ""), int(world or "")
    except ValueError:
        found = -1, 0
    if not 0 <= found[0] < found[1]:
        raise ValueError(
            "shard='auto' needs whole numbers 0 <= RANK < WORLD_SIZE in the environment, or neither of them; "
            f"found RANK={rank!r}, WORLD_SIZE={world!r}"
        )
    return found


class DealtItems(Protocol):
    """Batch that can be dealt out: its samples are counted, and a slice of it may have none."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


B = TypeVar("B", bound=DealtItems)


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
    even: str = "pad",
    position: int = 0,
) -> Iterator[Dealt[B]]:
    """Iterate over one rank's batches: in each step every rank gets the next batch of the epoch.

    Args:
        batches: of all ranks, from the start of the epoch.
        rank, world: this process among `world` processes.
        start: batches of the epoch that all ranks together have consumed before; those are left out.
        even: what becomes of a last step that has no batch for some ranks: "pad": they repeat a batch from the start of
            the epoch; "drop": it is left out; "exact": they get a batch without samples.
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
        if len(step) < world and even == "drop":
            return
        after = done + len(step)
        padded = rank >= len(step)
        fill = [begin[place % after] for place in range(after, done + world)]
        step += [batch[:0] for batch in fill] if even == "exact" else fill
        before = position + sum(map(len, step[:rank]))
        yield Dealt(step[rank], before, after, padded=len(step[rank]) if padded else 0)
        position += sum(map(len, step))
        done = after


def steps_of(batches: int, world: int, even: str) -> int:
    """Return the number of steps in which `deal` deals out a number of batches."""
    return batches // world if even == "drop" else -(-batches // world)
