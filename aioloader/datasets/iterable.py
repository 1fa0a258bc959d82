"""Datasets over streams of samples: a socket, a queue, a database cursor, a generator.

Plain iterables as sources of samples: read in threads, several parts at a time, mixed in a buffer.

The order of the samples depends on the source, the number of readers and the seed only: readers take turns, sample by
sample, regardless of which is faster.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from aioloader.abc import StreamDataset
from aioloader.datasets.stage import Stage
from aioloader.errors import NotResumableError
from aioloader.foundation.concurrency import Notification, loop_notifier
from aioloader.foundation.protocols import implements
from aioloader.foundation.threads import Threads
from aioloader.foundation.validation import whole_number
from aioloader.rng import CHOICE_DOMAIN, Rng, default_rng

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence


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


class ResumableSource(Protocol):
    """Source of samples that can save and restore its position."""

    def state_dict(self) -> Any:
        """Return the position."""
        ...

    def load_state_dict(self, state: Any) -> None:
        """Restore a position."""
        ...


class IterableDataset(StreamDataset):
    """Dataset over an iterable. It has no length and no indices; a loader takes the samples in their order.

    ::

        async def messages():
            async with connect("wss://...") as socket:
                async for message in socket:
                    yield json.loads(message)

        dataset = aioloader.IterableDataset(messages).transform(parse)
        loader = aioloader.AsyncDataLoader(dataset, batch_size=64)

    The source is iterated in the event loop of the loader's caller (`aioloader.DataLoader`: in the event loop of its
    thread), at most `prefetch` batches ahead of the caller. Transforms run where those of other datasets run. An
    iterator that was created for an epoch is closed (``aclose``) at the end of the epoch, or when the caller leaves it.
    An exception of the source ends the epoch, after the batches before it were delivered.

    A plain iterable is read in threads, up to 64 samples or 5 ms ahead, so that it does not block the event loop::

        def lines(shard):
            for path in sorted(glob("*.jsonl"))[shard[0] :: shard[1]]:
                yield from open(path)

        dataset = aioloader.IterableDataset(lines, readers=4, shuffle_buffer=1000).transform(json.loads)

    A subclass may define ``__aiter__`` or ``__iter__`` instead of passing a source.

    Args:
        source: an async or a plain iterable, or a function that returns one (or awaits an async one), such as a
            generator function. The function is called for every epoch, with the epoch's number if it has a parameter
            named ``epoch``, and with (index, count) if it has one named ``shard``: the part of the samples that it has
            to return. An async object that is its own iterator (a stream, a socket) continues in the next epoch where
            the last one ended, and is never closed; a generator object cannot continue.
        readers: threads that each read one part of a plain source, whose function needs a parameter ``shard``. They
            take turns, sample by sample, until their parts end.
        shuffle_buffer: samples among which the next one is drawn, by the loader's seed and epoch; 0: in order. Such an
            epoch cannot be resumed.

    Attributes:
        stages: the stages applied to every sample, in order.

    With ``shard`` of a loader, each rank gets its part: the function's parameter has the rank's readers among those of
    all ranks. Ranks may then have different numbers of batches.

    Raises:
        TypeError: the source is not an iterable that can be read in every epoch, or lacks the parameter ``shard``.
        ValueError: `readers` is less than 1, or `shuffle_buffer` negative.
    """

    _source: AsyncIterable[Any] | Iterable[Any] | Callable[..., Any] | None = None
    stages: tuple[Stage, ...] = ()
    _readers = 1
    _buffer = 0
    _place: tuple[int, int] = (0, 1)
    _seed = 0

    def __init__(
        self,
        source: AsyncIterable[Any]
        | Iterable[Any]
        | Callable[..., AsyncIterable[Any] | Iterable[Any] | Awaitable[AsyncIterable[Any]]]
        | None = None,
        *,
        readers: int = 1,
        shuffle_buffer: int = 0,
    ) -> None:
        own = type(self).__aiter__ is not IterableDataset.__aiter__ or _is_plain(self)
        if source is None and not own:
            raise TypeError(
                f"{type(self).__name__} needs a source: an iterable or a function that returns one; or define "
                "__aiter__ or __iter__"
            )
        self._readers = whole_number("readers", readers)
        self._buffer = whole_number("shuffle_buffer", shuffle_buffer)
        if self._readers < 1 or self._buffer < 0:
            raise ValueError(
                f"readers must be at least 1, and shuffle_buffer at least 0, got {readers} and {shuffle_buffer}"
            )
        if source is not None and not hasattr(source, "__aiter__") and not callable(source):
            advice = ""
            if isinstance(source, Iterator):
                advice = ", which can be iterated once: pass the function that returns it"
            elif hasattr(source, "__getitem__") and hasattr(source, "__len__"):
                advice = ", which has items by index: pass aioloader.SimpleDataset(...) of it to the loader"
            if advice or not hasattr(source, "__iter__"):
                raise TypeError(
                    "the source must be an iterable or a function that returns one, got "
                    f"{type(source).__name__}{advice}"
                )
        self._source = source
        if self._readers > 1 and not self.takes_shard:
            raise TypeError(
                f"with readers={readers} the source is called for each of them, and needs a parameter named shard, "
                "(index, count), of which it returns its part"
            )

    def transform(self, fn: Callable[..., Any], *, concurrency: int | None = None) -> IterableDataset:
        """Return the dataset with `fn` applied to every sample; see `aioloader.Dataset.transform`.

        Raises:
            TypeError: `fn` is not callable.
            ValueError: `concurrency` is less than 1.
        """
        return self._with(Stage(fn, first=False, concurrency=concurrency))

    def transform_first(self, fn: Callable[..., Any], *, concurrency: int | None = None) -> IterableDataset:
        """Return the dataset with `fn` applied to the first element of every sample.

        See `aioloader.Dataset.transform_first`.

        Raises:
            TypeError, ValueError: for the same reasons as `transform`.
        """
        return self._with(Stage(fn, first=True, concurrency=concurrency))

    def _with(self, stage: Stage) -> IterableDataset:
        made = IterableDataset(self.source, readers=self._readers, shuffle_buffer=self._buffer)
        made.stages = (*self.stages, stage)
        return made

    @property
    def takes_shard(self) -> bool:
        """Return True if the source is a function that returns the part of the samples that it is asked for."""
        return callable(self.source) and _takes(self.source, "shard")

    def bound(self, rank: int, world: int, seed: int) -> IterableDataset:
        """Return the dataset of one rank of a loader.

        Args:
            rank, world: the loader's place among `world` processes.
            seed: of the loader.
        """
        made = copy(self)
        made._place, made._seed = (rank, world), seed
        return made

    @property
    def source(self) -> Any:
        """Return the source; the dataset itself if its class defines ``__aiter__`` or ``__iter__``."""
        return self if self._source is None else self._source

    @property
    def _has_state(self) -> bool:
        return implements(self.source, ResumableSource)

    # -- one epoch -----------------------------------------------------------------------------------------------------

    async def open(self, epoch: int, state: Any = None) -> tuple[AsyncIterator[Any], Any]:
        """Begin an epoch over the source.

        Args:
            epoch: number of the epoch.
            state: a result of `source_state`, to continue there; None: begin at the start.

        Returns:
            the iterator of the source, and the async function that closes it after use; None if the source owns it.

        Raises:
            TypeError: the function did not return an iterable.
            RuntimeError: the source is an async generator that was iterated before.
        """
        source = self.source
        found: Any = source
        if state is not None:
            self.check_resumable()
            found.load_state_dict(state)
        if _is_plain(source):
            return self._mixed(self._plain([lambda: source], epoch), None, epoch)
        if not hasattr(source, "__aiter__"):
            makers = [partial(source, **arguments) for arguments in self._arguments(source, epoch)]
            if inspect.isgeneratorfunction(source):
                return self._mixed(self._plain(makers, epoch), None, epoch)
            found = makers[0]()
            if inspect.isawaitable(found):
                found = await found
            if not hasattr(found, "__aiter__"):
                if not hasattr(found, "__iter__"):
                    raise TypeError(
                        f"the source of {type(self).__name__} returned a {type(found).__name__}, which is not iterable"
                    )
                first = found
                return self._mixed(self._plain([lambda: first, *makers[1:]], epoch), None, epoch)
            if self._readers > 1:
                raise TypeError(
                    "readers are threads for a plain source, and this one is async: leave them out"
                )
        if inspect.isasyncgen(source) and source.ag_frame is None:
            raise RuntimeError(
                "this async generator was iterated before and cannot be iterated again: pass IterableDataset the "
                "generator function itself, without calling it"
            )
        iterator = found.__aiter__()
        # An iterator that exists before and after the epoch is closed by its owner.
        mine = iterator is not source or inspect.isasyncgen(source)
        return self._mixed(iterator, getattr(iterator, "aclose", None) if mine else None, epoch)

    def _arguments(self, source: Callable[..., Any], epoch: int) -> list[dict[str, Any]]:
        """Return the arguments with which the source is called for each reader."""
        rank, world = self._place
        common = {"epoch": epoch} if _takes(source, "epoch") else {}
        if not _takes(source, "shard"):
            return [common]
        count = world * self._readers
        return [{**common, "shard": (rank * self._readers + part, count)} for part in range(self._readers)]

    def _plain(self, makers: Sequence[Callable[[], Iterable[Any]]], epoch: int) -> AsyncIterator[Any]:
        # Of a source that is saved after each sample none is read before it is asked for.
        return read_in_turn(makers, 1) if self.resumable else read_in_turn(makers)

    def _mixed(self, iterator: AsyncIterator[Any], close: Any, epoch: int) -> tuple[AsyncIterator[Any], Any]:
        """Return the samples through the buffer, if there is one, and the function that closes the iterator."""
        close = getattr(iterator, "aclose", None) if isinstance(iterator, AsyncGenerator) else close
        if not self._buffer:
            return iterator, close
        return shuffled(iterator, self._buffer, self._seed, epoch), close

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the transformed samples, for inspection. Plain transforms run in the event loop here."""
        return self._samples()

    async def _samples(self) -> AsyncIterator[Any]:
        iterator, close = await self.open(0)
        try:
            async for sample in iterator:
                made = sample
                for stage in self.stages:
                    rng = default_rng()
                    made = await stage.apply_async(made, rng) if stage.is_async else stage.apply(made, rng)
                yield made
        finally:
            if close is not None:
                await close()

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def resumable(self) -> bool:
        """Return True if the source can save and restore its position: it has `state_dict` and `load_state_dict`."""
        return self._has_state and not self._buffer

    def source_state(self) -> Any:
        """Return the position of the source; None if it cannot be saved."""
        return self.source.state_dict() if self._has_state else None

    def check_resumable(self) -> None:
        """Raise an error if an epoch over the source cannot be resumed.

        Raises:
            NotResumableError: the source has no state.
        """
        if not self.resumable:
            name = getattr(self.source, "__qualname__", None) or type(self.source).__name__
            raise NotResumableError(
                f"an epoch over {name} cannot be resumed, because it has no saved position. Pass IterableDataset an "
                "object with __aiter__ or __iter__, state_dict() and load_state_dict(state), without a shuffle_buffer"
            )


def _takes(fn: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False


def _is_plain(source: object) -> bool:
    """Return True for an object that is iterated plainly: ``__iter__`` is its own, and ``__aiter__`` is not."""
    own_async = getattr(type(source), "__aiter__", IterableDataset.__aiter__)
    return hasattr(type(source), "__iter__") and own_async is IterableDataset.__aiter__
