"""What a cache takes in, and what it gives up for it. Pure.

A span that is in the cache stays there as long as anybody uses its object: when the limit is reached, nothing more is
taken in. An epoch reads every span once, so of all spans those that were read last are the ones that are not needed for
longest; to keep those (as "least recently used" does) would let a set that is larger than the cache push itself out
before it is asked for again. To keep what is there gives as many hits as there is room for, in every order.

Room is made only at the cost of objects that nobody has open, those first that were used longest ago, a segment at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray

__all__ = ("Evictable", "fitting", "to_give_up")


@dataclass(frozen=True)
class Evictable:
    """A segment that may be given up.

    Attributes:
        name: what the caller calls it.
        used: when its object was last used (seconds).
        made: when it was made; of one object the oldest goes first.
        nbytes: what is gained.
    """

    name: str
    used: float
    made: float
    nbytes: int


def fitting(nbytes: IntArray, room: int) -> Any:
    """Which spans fit into some room, the first ones first.

    Args:
        nbytes: int64 (n,), bytes of each.
        room: bytes there are; may be negative.

    Returns:
        bool (n,).
    """
    taken = np.zeros(len(nbytes), bool)
    if room <= 0:
        return taken
    fits = np.cumsum(nbytes) <= room
    if fits.all():
        return fits
    # One that is too large does not keep smaller ones out.
    for number, size in enumerate(nbytes.tolist()):
        if size <= room:
            taken[number] = True
            room -= size
    return taken


def to_give_up(candidates: Sequence[Evictable], needed: int) -> list[str]:
    """The segments to give up so that `needed` bytes are gained, or as many as can be had."""
    chosen = []
    for each in sorted(candidates, key=lambda one: (one.used, one.made, one.name)):
        if needed <= 0:
            break
        chosen.append(each.name)
        needed -= each.nbytes
    return chosen
