"""Rules of admission and eviction of a cache. Pure.

A span in the cache stays there as long as any process has its object open: when the limit is reached, nothing more is
added. An epoch reads every span once, so the spans that were read last are those that will not be needed for the
longest time. A cache that kept them ("least recently used") would evict every span of a set larger than the cache
before it is needed again. Keeping the spans that are there yields as many hits as fit, in every order.

Only objects that no process has open are evicted, the least recently used first, one segment at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, IntArray


@dataclass(frozen=True)
class Evictable:
    """Segment that may be evicted.

    Attributes:
        name: chosen by the caller.
        used: when its object was last used (seconds).
        made: when it was made; of one object the oldest is evicted first.
        nbytes: bytes that are freed.
    """

    name: str
    used: float
    made: float
    nbytes: int


def admit(nbytes: IntArray, free: int) -> Array:
    """Choose the spans that fit into the free space, the first ones first.

    Args:
        nbytes: int64 (n,), bytes of each.
        free: bytes; may be negative.

    Returns:
        bool (n,).
    """
    admitted = np.zeros(len(nbytes), bool)
    if free <= 0:
        return admitted
    fits = np.cumsum(nbytes) <= free
    if fits.all():
        return fits
    # A span that is too large does not prevent smaller ones.
    for number, size in enumerate(nbytes.tolist()):
        if size <= free:
            admitted[number] = True
            free -= size
    return admitted


def choose_evicted(segments: Sequence[Evictable], needed: int) -> list[str]:
    """Choose segments to evict so that `needed` bytes are freed; all of them if they have fewer bytes."""
    chosen = []
    for each in sorted(segments, key=lambda one: (one.used, one.made, one.name)):
        if needed <= 0:
            break
        chosen.append(each.name)
        needed -= each.nbytes
    return chosen
