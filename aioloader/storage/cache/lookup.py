"""Look-up of the items of read plans in a cache."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.types import SpanKind
from aioloader.storage.cache.base import Cache, PlacedSpans
from aioloader.storage.records import wrong_length

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import IntArray, ReadPlan, Spans


def file_key(name: str, version: str) -> int:
    """Return a number of 63 bits that replaces the offset in a cache of many whole files under one name."""
    text = f"{name}\0{version}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) >> 1


@dataclass(frozen=True)
class Missing:
    """Items of a plan that are not in the cache.

    Attributes:
        items: int64 (m,), places in the batch of the items that have bytes and must be read.
        reads: int64 (k, 4), the plan's reads that contain them, and those without any bytes.
        start: int64 (n,), the plan's, -1 for items that need not be read.
        groups: (numbers within `items`, name in the cache, version, int64 offsets) of items with one name.
    """

    items: IntArray
    reads: IntArray
    start: IntArray
    groups: list[tuple[IntArray, str, str, IntArray]]


class Lookup:
    """Look-up of items. Blocking; used from any thread.

    Args:
        cache: of the bytes.
        name: of a set of whole files; "" for spans of files.
        identify: for spans: returns name and version of a file by its number; None if they are not known.
        kind: of the spans.
        keys: for whole files: returns the `file_key` of each by its number, int64 (n,); -1 for files that cannot be
            cached.
    """

    def __init__(
        self,
        cache: Cache,
        name: str,
        *,
        identify: Callable[[int], tuple[str, str] | None],
        kind: SpanKind,
        keys: Callable[[IntArray], IntArray] | None = None,
    ) -> None:
        self._cache = cache
        self._name = name
        self._identify = identify
        self._kind = kind
        self._keys = keys
        self._lock = threading.Lock()
        self._hits = self._lookups = 0

    @property
    def hit_rate(self) -> float | None:
        """Return the share of the items that were in the cache; None before the first look-up."""
        return self._hits / self._lookups if self._lookups else None

    def find(self, plan: ReadPlan, out: memoryview) -> Missing | None:
        """Copy the items that are in the cache to their places; return the others, None if nothing must be read."""
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
            spans = PlacedSpans(offset, plan.length[some], plan.start[some])
            here[chosen] = self._cache.read(name, version, spans, out)
        if self._kind is SpanKind.RECORD and here.any():
            # If a record is longer than its span, the source has to find that out.
            held = np.flatnonzero(here)
            here[held[wrong_length(out, plan.start[items[held]], plan.length[items[held]])]] = False
        with self._lock:
            self._lookups += len(items)
            self._hits += int(here.sum())
        needed = np.ones(len(reads), bool)
        needed[owner] = False
        needed[owner[~here]] = True
        if not needed.any():
            return None
        start = plan.start.copy()
        start[items[here]] = -1
        left = np.cumsum(~here) - 1  # number of an item among those that are missing
        missing = [
            (left[chosen[~here[chosen]]], name, version, offset[~here[chosen]])
            for chosen, name, version, offset in groups
        ]
        return Missing(items[~here], reads[needed], start, missing)

    def held(self, spans: Spans) -> IntArray:
        """Return the bytes of the longest record span in the cache at each offset, int64 (n,); 0 for none."""
        length = np.zeros(len(spans), np.int64)
        for chosen, name, version in self._by_file(spans.file):
            length[chosen] = self._cache.held(name, version, spans.offset[chosen])
        return length

    def _by_file(self, file: IntArray) -> list[tuple[IntArray, str, str]]:
        """Return groups of items of one file: numbers of the items, name and version of the file."""
        known = ((number, self._identify(number)) for number in np.unique(file).tolist())
        return [
            (np.flatnonzero(file == number), *identity) for number, identity in known if identity is not None
        ]

    def _groups(self, reads: IntArray, start: IntArray) -> list[tuple[IntArray, str, str, IntArray]]:
        """Return groups of items that are looked up together, see `Missing`; `reads` are those of each item."""
        if not len(start):
            return []
        if self._keys is not None:
            keys = self._keys(reads[:, 0])
            chosen = np.flatnonzero(keys >= 0)
            return [(chosen, self._name, "", keys[chosen])]
        offset = reads[:, 1] + start - reads[:, 3]
        return [
            (chosen, name, version, offset[chosen]) for chosen, name, version in self._by_file(reads[:, 0])
        ]

    def keep(self, plan: ReadPlan, missing: Missing, failed: Sequence[int], out: memoryview) -> None:
        """Write the items that were read to the cache.

        Args:
            plan, missing: of `find`.
            failed: places in the batch of items that could not be read.
            out: the bytes.
        """
        fine = ~np.isin(missing.items, np.asarray(failed, np.int64))
        for chosen, name, version, offset in missing.groups:
            kept = fine[chosen]
            some = missing.items[chosen[kept]]
            if len(some):
                spans = PlacedSpans(offset[kept], plan.length[some], plan.start[some])
                self._cache.write(name, version, spans, out)
