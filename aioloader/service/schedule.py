"""Order in which the images of a service are read and made: priorities, then fair shares of the requests.

Room for what waits in this order, shared out by what it waits for, so that a server that never answers holds no others.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

import anyio

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


class Turn:
    """Something that waits for room.

    Args:
        source: kind of its source.
        server: its server, or "".
        size: of the room that it needs.

    Attributes:
        event: set when it need not wait any more.
        has_room: it got its room.
    """

    __slots__ = ("event", "has_room", "server", "size", "source")

    def __init__(self, source: str, server: str, size: int = 1) -> None:
        self.source = source
        self.server = server
        self.size = size
        self.event = anyio.Event()
        self.has_room = False


class Room:
    """Room that is shared out among kinds of sources, and among the servers of each.

    Those who wait for some get it in turn, higher priorities first; only those whose source or server has its share are
    passed. The room is taken as a whole, so whoever has it waits for no more.

    Args:
        most: size of the room.
        limits: most of it for each kind of source, and for each of its servers.

    Attributes:
        taken: how much of it is taken.
    """

    def __init__(self, most: int, limits: Mapping[str, tuple[int, int]]) -> None:
        self._most = most
        self._limits = limits
        self._shares: Counter[str | tuple[str, str]] = Counter()
        self._turns: Schedule[Turn] = Schedule()
        self.taken = 0

    def share(self, source: str) -> int:
        """Return the most room for a source, or for each of its servers, whichever was taken first."""
        most, of_server = self._limits[source]
        return most if self._shares[source] >= most else of_server

    def free(self, source: str, server: str = "", size: int = 1) -> bool:
        """Return whether there is room. Whoever waits cannot take it."""
        most, of_server = self._limits[source]
        return (
            self.taken + size <= self._most
            and self._shares[source] + size <= most
            and (not server or self._shares[source, server] + size <= of_server)
        )

    def take(self, source: str, server: str = "", size: int = 1) -> None:
        """Take room."""
        self.taken += size
        for share in (source, (source, server)) if server else (source,):
            self._shares[share] += size
            if not self._shares[share]:
                del self._shares[share]

    def leave(self, source: str, server: str = "", size: int = 1) -> None:
        """Give room back, to those who wait."""
        self.take(source, server, -size)
        self._let_in()

    def wait(self, turn: Turn, priority: int = 0) -> None:
        """Let something wait; call `give_up` if it does not wait any more, or has no need of its room."""
        lane = turn.source, turn.server
        self._turns.push(turn, priority=priority, first_round=0, request=0, place=0, lane=lane)
        self._let_in()

    def give_up(self, turn: Turn) -> None:
        """Take back `wait`, and the room if it was given."""
        self._turns.discard(turn)
        if turn.has_room:
            turn.has_room = False
            self.take(turn.source, turn.server, -turn.size)
        self._let_in()

    def _let_in(self) -> None:
        while self._turns:
            turn = self._turns.pop(lambda turn: self.free(turn.source, turn.server, turn.size))
            if turn is None:
                return
            self.take(turn.source, turn.server, turn.size)
            turn.has_room = True
            turn.event.set()

    def close(self) -> None:
        """Wake all who wait: nobody gets room any more."""
        while (turn := self._turns.pop()) is not None:
            turn.event.set()
