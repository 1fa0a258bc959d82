"""Rank of this process and world size, from the option ``shard``."""

from __future__ import annotations

import os
from typing import Any


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
