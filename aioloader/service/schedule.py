"""Order in which the images of a service are read and made: priorities, then fair shares of the requests.

Pure; never waits.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

BURST = 8
"""Images of one request that are next in line together. The following ones wait for one round of the other requests."""


class Schedule(Generic[T]):
    """Queue of images that are waiting.

    Higher priorities come first. Among equal priorities an image has a round: that of the image which was taken last
    when its request arrived, and one more for each `BURST` images of its request before it. Rounds are taken in
    order, and the images of one round in the order of their requests. So an earlier request comes first, and a
    request of thousands of images delays a small one behind it by one round only (start-time fair queueing).

    Images that wait for the same thing are in one lane. A lane in which none fits holds no other.
    """

    def __init__(self) -> None:
        self._lanes: dict[Hashable, list[tuple[int, int, int, int, T]]] = {}
        self._count = itertools.count()
        self._rounds: dict[int, int] = {}
        # Entries of a lane whose image is not in it are skipped: it was removed, or came earlier.
        self._waiting: set[T] = set()

    def __len__(self) -> int:
        """Return the number of images that wait."""
        return len(self._waiting)

    def __contains__(self, item: T) -> bool:
        """Return whether an image waits."""
        return item in self._waiting

    def first_round(self, priority: int) -> int:
        """Return the round in which a request that arrives now begins."""
        return self._rounds.get(priority, 0)

    def push(
        self, item: T, *, priority: int, first_round: int, request: int, place: int, lane: Hashable = None
    ) -> None:
        """Add an image, or move one that waits to the front; it never moves back.

        Args:
            item: the image.
            priority: larger is earlier.
            first_round: the round in which its request began.
            request: number of its request, in the order of their arrival.
            place: its place in the request, from 0.
            lane: what it waits for; the same each time.
        """
        order = (-priority, first_round + place // BURST, request, next(self._count), item)
        heapq.heappush(self._lanes.setdefault(lane, []), order)
        self._waiting.add(item)

    def discard(self, item: T) -> None:
        """Remove an image; nothing happens if it does not wait."""
        self._waiting.discard(item)

    def pop(self, fits: Callable[[T], bool] | None = None) -> T | None:
        """Return the next image, and remove it; None if there is none.

        Args:
            fits: says whether an image may be next; of each lane only the first is asked. None: all may.
        """
        best: list[tuple[int, int, int, int, T]] | None = None
        for lane, heap in list(self._lanes.items()):
            while heap and heap[0][-1] not in self._waiting:
                heapq.heappop(heap)
            if not heap:
                del self._lanes[lane]
            elif (best is None or heap[0] < best[0]) and (fits is None or fits(heap[0][-1])):
                best = heap
        if best is None:
            if not self._waiting:
                self._rounds.clear()
            return None
        negative, number, _, _, item = heapq.heappop(best)
        # A lane that was held is behind the others.
        self._rounds[-negative] = max(number, self._rounds.get(-negative, 0))
        self._waiting.remove(item)
        return item
