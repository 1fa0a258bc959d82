"""LRU cache of rendered images, with a size limit in bytes. Only the thread of the event loop uses it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable


class Cache:
    """Cache that evicts the least recently used values first.

    Args:
        most_nbytes: limit of the total size of the values.
    """

    def __init__(self, most_nbytes: int) -> None:
        self.most_nbytes = most_nbytes
        self.nbytes = 0
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable) -> Any:
        """Return the value of a key, or None."""
        held = self._held.get(key)
        if held is None:
            return None
        self._held.move_to_end(key)
        return held[0]

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Store a value, unless it alone exceeds the limit."""
        if key in self._held:
            self.nbytes -= self._held.pop(key)[1]
        if nbytes > self.most_nbytes:
            return
        self._held[key] = (value, nbytes)
        self.nbytes += nbytes
        while self.nbytes > self.most_nbytes:
            _, (_, dropped) = self._held.popitem(last=False)
            self.nbytes -= dropped
