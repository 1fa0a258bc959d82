"""Values by key, of which those used least recently are dropped. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """Values by key, up to a number of them or of bytes; the one used least recently is dropped first.

    It has no lock: threads that share it need one.

    Args:
        limit: largest sum of the sizes of the values. A value that is larger alone is not kept.

    Attributes:
        limit: as given.
        size: sum of the sizes now.
        hits, misses: number of lookups that found a value, and that did not.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.hits = 0
        self.misses = 0
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: K) -> bool:
        return key in self._held

    def get(self, key: K) -> V | None:
        """Return the value of a key, which becomes the one used last, or None."""
        held = self._held.get(key)
        if held is None:
            self.misses += 1
            return None
        self.hits += 1
        self._held.move_to_end(key)
        return held[0]

    def put(self, key: K, value: V, size: int = 1) -> list[V]:
        """Keep a value in place of that of its key.

        Args:
            key: of the value.
            value: the value.
            size: counts towards the limit.

        Returns:
            the values that were dropped for it.
        """
        self.pop(key)
        if size > self.limit:
            return []
        self._held[key] = value, size
        self.size += size
        return self.shrink(self.limit)

    def pop(self, key: K) -> V | None:
        """Drop the value of a key, and return it, or None."""
        value, size = self._held.pop(key, (None, 0))
        self.size -= size
        return value

    def shrink(self, limit: int) -> list[V]:
        """Drop values until the sizes of the others sum up to at most `limit`, and return what was dropped."""
        dropped = []
        while self._held and self.size > limit:
            value, size = self._held.popitem(last=False)[1]
            self.size -= size
            dropped.append(value)
        return dropped

    def drop_oldest(self) -> bool:
        """Drop the value used least recently; return False if there is none."""
        return bool(self.shrink(self.size - 1))

    def clear(self) -> None:
        """Drop all values."""
        self._held.clear()
        self.size = 0
