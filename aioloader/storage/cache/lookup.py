"""The items of read plans in a cache: which are there, and what is still to be read."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.storage.records import unlike

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import IntArray, ReadPlan, Spans
    from aioloader.storage.cache import Cache

__all__ = ("Lookup", "Missing", "file_key")


def file_key(name: str, version: str) -> int:
    """What stands for the offset of a whole file in a cache that holds many files under one name: 63 bits."""
    text = f"{name}\0{version}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) >> 1


@dataclass(frozen=True)
class Missing:
    """What a cache has not of a plan.

    Attributes:
        items: int64 (m,), places in the batch of what has bytes and is to be read.
        reads: int64 (k, 4), the plan's reads that hold them, and those without any bytes.
        start: int64 (n,), the plan's, -1 for what need not be read.
        groups: what they are called in the cache: (which of `items`, name, version, int64 offsets).
    """

    items: IntArray
    reads: IntArray
    start: IntArray
    groups: list[tuple[IntArray, str, str, IntArray]]


class Lookup:
    """Looks up the items of plans. Blocking; from any thread.

    Args:
        cache: where.
        name: what a set of whole files is called; "" for records.
        identify: for records: name and version of a file by its number; None if they are not known.
        keys: for whole files: `file_key` of each by its number, int64 (n,); -1 for what cannot be kept.
    """

    def __init__(
        self,
        cache: Cache,
        name: str,
        *,
        identify: Callable[[int], tuple[str, str] | None] | None = None,
        keys: Callable[[IntArray], IntArray] | None = None,
    ) -> None:
        self._cache = cache
        self._name = name
        self._identify = identify
        self._keys = keys
        self._lock = threading.Lock()
        self._hits = self._asked = 0

    @property
    def hit_rate(self) -> float | None:
        """Share of the items that were there; None if none was asked for."""
        return self._hits / self._asked if self._asked else None

    def find(self, plan: ReadPlan, out: memoryview) -> Missing | None:
        """Copy the items that are there to their places; gives the others, None if there is nothing to be read."""
        reads: IntArray = plan.reads
        if not len(reads):
            return None
        reads = reads[np.argsort(reads[:, 3], kind="stable")]
        items = np.flatnonzero((plan.start >= 0) & (plan.length > 0))
        owner = np.searchsorted(reads[:, 3], plan.start[items], side="right") - 1
        here = np.zeros(len(items), bool)
        groups = self._groups(reads[owner], plan.start[items])
        for chosen, name, version, offset in groups:
            some = items[chosen]
            here[chosen] = self._cache.read(name, version, offset, plan.length[some], out, plan.start[some])
        if self._keys is None and here.any():
            # That a record is longer than its span is for the source to find out.
            held = np.flatnonzero(here)
            here[held[unlike(out, plan.start[items[held]], plan.length[items[held]])]] = False
        with self._lock:
            self._asked += len(items)
            self._hits += int(here.sum())
        wanted = np.ones(len(reads), bool)
        wanted[owner] = False
        wanted[owner[~here]] = True
        if not wanted.any():
            return None
        start = plan.start.copy()
        start[items[here]] = -1
        left = np.cumsum(~here) - 1  # number of an item among those that are missing
        missing = [
            (left[chosen[~here[chosen]]], name, version, offset[~here[chosen]])
            for chosen, name, version, offset in groups
        ]
        return Missing(items[~here], reads[wanted], start, missing)

    def held(self, spans: Spans) -> IntArray:
        """Of records: bytes of the longest span that is there from each offset on, int64 (n,); 0 for none."""
        assert self._identify is not None
        length = np.zeros(len(spans), np.int64)
        for number in np.unique(spans.file).tolist():
            known = self._identify(number)
            if known is not None:
                chosen = np.flatnonzero(spans.file == number)
                length[chosen] = self._cache.held(*known, spans.offset[chosen])
        return length

    def _groups(self, reads: Any, start: IntArray) -> list[tuple[IntArray, str, str, IntArray]]:
        """Items that are looked up together; `reads` holds each item's."""
        if not len(start):
            return []
        file = reads[:, 0]
        if self._keys is not None:
            keys = self._keys(file)
            chosen = np.flatnonzero(keys >= 0)
            return [(chosen, self._name, "", keys[chosen])]
        assert self._identify is not None
        offset = reads[:, 1] + start - reads[:, 3]
        groups = []
        for number in np.unique(file).tolist():
            known = self._identify(number)
            if known is not None:
                chosen = np.flatnonzero(file == number)
                groups.append((chosen, *known, offset[chosen]))
        return groups

    def keep(self, plan: ReadPlan, missing: Missing, failed: Any, out: memoryview) -> None:
        """Put what was read into the cache.

        Args:
            plan, missing: as before.
            failed: places in the batch of items that were not read.
            out: the bytes.
        """
        fine = ~np.isin(missing.items, np.asarray(failed, np.int64))
        for chosen, name, version, offset in missing.groups:
            kept = fine[chosen]
            some = missing.items[chosen[kept]]
            if len(some):
                self._cache.write(name, version, offset[kept], plan.length[some], out, plan.start[some])
