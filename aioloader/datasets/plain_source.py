"""Plain iterables as sources of samples: read in threads, several parts at a time, mixed in a buffer.

The order of the samples depends on the source, the number of readers and the seed only: readers take turns, sample by
sample, regardless of which is faster.
"""

from __future__ import annotations

import inspect
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio

from aioloader.errors import single
from aioloader.foundation.threads import Threads
from aioloader.rng import CHOICE_DOMAIN, Rng

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

# Samples that a reader reads with one hop to its thread, and the time that it may take for all but the first.
_READ_AHEAD = 64
_READ_S = 0.005


class _Reader:
    """Iterator over one part of a source, and its samples that were read and not taken."""

    def __init__(self, make: Callable[[], Iterable[Any]], at_once: int) -> None:
        self._make = make
        self._at_once = at_once
        self._iterator: Iterator[Any] | None = None
        self.samples: deque[Any] = deque()
        self.ended = False
        self.error: Exception | None = None
        self.reading = False  # or reading was cancelled, and its thread goes on

    def read(self) -> None:
        """Read some samples. Blocking."""
        begin = time.monotonic()
        try:
            if self._iterator is None:
                self._iterator = iter(self._make())
            for _ in range(self._at_once):
                self.samples.append(next(self._iterator))
                if time.monotonic() - begin > _READ_S:
                    return
        except StopIteration:
            self.ended = True
        except Exception as error:
            self.ended = True
            self.error = error

    def close(self) -> None:
        """Close a generator, whose ``finally`` runs."""
        if inspect.isgenerator(self._iterator):
            self._iterator.close()


async def read_in_turn(
    makers: Sequence[Callable[[], Iterable[Any]]], at_once: int = _READ_AHEAD
) -> AsyncIterator[Any]:
    """Iterate over the samples of several plain iterables, one of each in turn; each is read in a separate thread.

    Args:
        makers: functions that return the iterables; they run in the threads too.
        at_once: most samples that are read of an iterable before they are asked for.
    """
    readers = [_Reader(make, at_once) for make in makers]
    threads = Threads(len(readers), "aioloader-source")
    try:
        turn = list(readers)
        while turn:
            waiting = [reader for reader in turn if not reader.samples and not reader.ended]
            if waiting:
                await _read_all(threads, waiting)
            for reader in list(turn):
                if reader.samples:
                    yield reader.samples.popleft()
                elif reader.ended:
                    if reader.error is not None:
                        raise reader.error
                    turn.remove(reader)
                else:
                    await _read_all(threads, [reader])
                    if reader.samples:
                        yield reader.samples.popleft()
    finally:
        for reader in (each for each in readers if not each.reading):
            with anyio.move_on_after(_READ_S, shield=True):
                await threads.run_abandonable(reader.close, abandoned=reader.close)
        threads.close(0)


async def _read_all(threads: Threads, readers: Sequence[_Reader]) -> None:
    async def read(reader: _Reader) -> None:
        reader.reading = True
        await threads.run_abandonable(reader.read, abandoned=reader.close)
        reader.reading = False

    if len(readers) == 1:
        await read(readers[0])
        return
    try:
        async with anyio.create_task_group() as tasks:
            for reader in readers:
                tasks.start_soon(read, reader)
    except BaseExceptionGroup as group:
        raise single(group) from None


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
