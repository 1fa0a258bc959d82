"""Plain iterables as sources of samples: read in threads, several parts at a time, mixed in a buffer.

The order of the samples depends on the source, the number of readers and the seed only: readers take turns, sample by
sample, regardless of which is faster.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio

from aioloader.foundation.concurrency import Notification, loop_notifier
from aioloader.foundation.threads import Threads
from aioloader.rng import CHOICE_DOMAIN, Rng

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

# Samples that a reader reads with one hop to its thread, and the time that it may take for all but the first. What was
# read by then is taken, also while the source blocks.
_READ_AHEAD = 64
_READ_S = 0.005


class _Reader:
    """Reader of one part of a source, in a thread.

    Args:
        make: returns the iterable.
        at_once: most samples of a hop to the thread.
        threads: has a thread for each reader.

    Attributes:
        samples: those that were read and not taken.
        ended: no more will come.
        error: that of the source, which comes after its samples; or None.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], at_once: int, threads: Threads) -> None:
        self._make = make
        self._at_once = at_once
        self._threads = threads
        self._iterator: Iterator[Any] | None = None
        self._notify = loop_notifier()
        self._hop_ended = Notification()
        self._arrived = Notification()
        self._lock = threading.Lock()
        self._reading = False
        self._awaited = False  # the loop waits for the next sample
        self._abandoned = False
        self.samples: deque[Any] = deque()
        self.ended = False
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Have more samples read, unless there are some or the thread reads already."""
        if not (self.samples or self.ended or self._reading):
            self._reading = True
            self._threads.start(self._read)

    async def wait(self) -> None:
        """Wait until there is a sample, or the end."""
        while not (self.samples or self.ended):
            self.begin()
            if self._reading:
                with anyio.move_on_after(_READ_S):
                    await self._hop_ended.wait()
            self._awaited = (
                True  # before the look at what there is, as the thread adds before it looks at this
            )
            if not (self.samples or self.ended) and self._reading:
                await self._arrived.wait()
            self._awaited = False

    def _read(self) -> None:
        """Read some samples. Blocking."""
        begin = time.monotonic()
        try:
            if self._iterator is None:
                self._iterator = iter(self._make())
            for _ in range(self._at_once):
                self.samples.append(next(self._iterator))
                if self._awaited:
                    self._notify(self._arrived.set)
                if self._abandoned or time.monotonic() - begin > _READ_S:
                    break
        except StopIteration:
            self.ended = True
        except BaseException as error:
            self.error = error
            self.ended = True
        with self._lock:
            self._reading = False
            abandoned = self._abandoned
        if abandoned:
            self._close()
        else:
            self._notify(self._end_hop)

    def _end_hop(self) -> None:
        self._hop_ended.set()
        self._arrived.set()

    def _close(self) -> None:
        """Close a generator, whose ``finally`` runs."""
        if inspect.isgenerator(self._iterator):
            self._iterator.close()

    async def aclose(self) -> None:
        """Close a generator, in a thread; if the source blocks, when it has returned."""
        with self._lock:
            self._abandoned = True
            reading = self._reading
        if not reading:
            with anyio.move_on_after(_READ_S, shield=True):
                await self._threads.run_abandonable(self._close, abandoned=self._close)


async def read_in_turn(
    makers: Sequence[Callable[[], Iterable[Any]]], at_once: int = _READ_AHEAD
) -> AsyncIterator[Any]:
    """Iterate over the samples of several plain iterables, one of each in turn; each is read in a separate thread.

    Args:
        makers: functions that return the iterables; they run in the threads too.
        at_once: most samples that are read of an iterable before they are asked for.
    """
    threads = Threads(len(makers), "aioloader-source")
    readers = [_Reader(make, at_once, threads) for make in makers]
    try:
        turn = list(readers)
        while turn:
            for reader in turn:
                reader.begin()
            for reader in list(turn):
                await reader.wait()
                if reader.samples:
                    yield reader.samples.popleft()
                elif reader.error is not None:
                    error, reader.error = reader.error, None
                    try:
                        raise error
                    finally:
                        del error  # breaks the cycle error -> traceback -> frame -> error
                else:
                    turn.remove(reader)
    finally:
        for reader in readers:
            await reader.aclose()
        threads.close(0)


async def shuffled(samples: AsyncIterator[Any], size: int, seed: int, epoch: int) -> AsyncIterator[Any]:
    """Iterate over samples in the order in which they are drawn from a buffer that the next ones fill up.

    Args:
        samples: in order.
        size: samples in the buffer, at least 1.
        seed, epoch: the draws depend on them.
    """
    rng = Rng(seed, epoch, 0, CHOICE_DOMAIN)
    held: list[Any] = []
    async for sample in samples:
        if len(held) < size:
            held.append(sample)
            continue
        place = rng.integers(size)
        yield held[place]
        held[place] = sample
    rng.shuffle(held)
    for sample in held:
        yield sample
