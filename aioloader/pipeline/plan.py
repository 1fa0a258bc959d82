"""The stage "plan": positions become numbered batches, by pure arithmetic (docs/design.md, "Order and randomness").

An epoch's *stream* is the carry of earlier epochs (with rollover), then the epoch's own order. For W ranks and batch
size B, position p belongs to step p // (W*B), rank (p mod W*B) // B; with "exact" the ranks share an incomplete last
step in equal parts. A plan may start at any position, so resuming costs nothing and the remaining positions can be
split again.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.errors import LoaderError
from aioloader.foundation.dealing import Dealt, deal, steps_of
from aioloader.foundation.protocols import has_attribute
from aioloader.foundation.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.abc import ComputedBatchSampler, SampleSearch
    from aioloader.foundation.types import Array, IntArray, RankBatch
    from aioloader.pipeline.context import ItemSource

_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """Rule that cuts a stream of positions into batches; the same for every sampler, epoch and front end.

    Attributes:
        batch_size: samples of a batch, at least 1.
        last_batch: what becomes of an incomplete last batch: "keep" delivers it as it is, "discard" drops it,
            "rollover" leaves its samples to the next epoch, "pad" fills it up from the start of the stream.
        rank, world: this process among `world` processes.
        even: how the ranks get the same number of steps, where `world` > 1: "pad" fills up an incomplete last step from
            the start of the stream, "drop" leaves it out, "exact" deals it out as it is.
    """

    batch_size: int
    last_batch: str = "keep"
    rank: int = 0
    world: int = 1
    even: str = "pad"

    @property
    def stride(self) -> int:
        """Return the number of positions that one step of all ranks takes."""
        return self.batch_size * self.world

    @property
    def drops(self) -> bool:
        """Return True if an incomplete step is not delivered."""
        return self.last_batch in ("discard", "rollover") or (self.world > 1 and self.even == "drop")

    @property
    def pads(self) -> bool:
        """Return True if an incomplete batch is filled up from the start of the stream."""
        return not self.drops and (self.even != "exact" if self.world > 1 else self.last_batch == "pad")

    def steps(self, length: int) -> int:
        """Return how many batches each rank gets from `length` positions."""
        return length // self.stride if self.drops else -(-length // self.stride)

    def batch(self, first: int, left: int) -> tuple[int, int, int] | None:
        """Return the positions of this rank's batch in one step.

        Args:
            first: position at which the step of all ranks begins.
            left: how many positions the stream still has from `first` on; more than `stride` count as `stride`.

        Returns:
            start and stop (exclusive) of the batch's positions, and how many samples have to fill it up (see
            `padding`); None if no batch is delivered.
        """
        start = first + self.rank * self.batch_size
        stop = start + self.batch_size
        if left >= self.stride:
            return start, stop, 0
        if left <= 0 or self.drops:
            return None
        if self.pads:
            start, stop = min(start, first + left), min(stop, first + left)
            return start, stop, self.batch_size - (stop - start)
        share, more = divmod(left, self.world)  # the first ranks get one more
        start = first + self.rank * share + min(self.rank, more)
        return start, start + share + (self.rank < more), 0

    def padding(self, first: int, left: int) -> IntArray:
        """Return the positions that fill up this rank's batch, int64: behind the end, where the stream repeats.

        Args:
            first, left: as for `batch`; the stream ends at position first + left, so position p repeats p modulo it.
        """
        found = self.batch(first, left)
        padded = 0 if found is None else found[2]
        stop = first + (self.rank + 1) * self.batch_size
        return np.arange(stop - padded, stop, dtype=np.int64)


@dataclass(slots=True)  # not frozen: made for every batch, and that is four times as slow
class BatchPlan:
    """One batch to be made. Do not modify it.

    Attributes:
        number: its number among the batches of this epoch, from 0.
        position: stream position of its first sample.
        indices: int64 (n,), indices of the dataset.
        epochs: int64 (n,), the epoch whose random numbers each sample uses.
        positions: int64 (n,), place of each sample in the order of its epoch, which with epoch and index seeds its
            draws. Those of a batch sampler are counted over its batches.
        consumed: stream positions that all ranks have consumed once it is delivered.
        padded: how many of its last samples only fill it up.
        left: batches of the epoch after it; None if their number is not known. An estimate where a sampler's length is.
        samples: the samples themselves if they come from an iterable; else None.
        source_state: state of that iterable after this batch; or None.
        keys: objects (n,), what the dataset is asked for instead of `indices`; or None. See `KeyedBatch`.
    """

    number: int
    position: int
    indices: IntArray
    epochs: IntArray
    positions: IntArray
    consumed: int
    padded: int = 0
    left: int | None = None
    samples: list[Any] | None = None
    source_state: Any = None
    keys: Array | None = None


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Batch of a batch sampler whose dataset is asked for objects, of any class, and not for numbers.

    Attributes:
        indices: int64 (n,), the index that each sample has in reports, and for its draws.
        keys: objects (n,), the arguments of the dataset's ``__getitem__``; executors in other processes pickle them.
    """

    indices: IntArray
    keys: Array

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, part: slice) -> KeyedBatch:
        """Return the batch of some of the samples."""
        return KeyedBatch(self.indices[part], self.keys[part])


def base_indices(items: ItemSource, indices: IntArray) -> tuple[IntArray, IntArray]:
    """Return the indices of items as they count from the start, and their base indices; checked.

    Raises:
        IndexError: an index is outside of the dataset.
    """
    length, limit = items.length, items.index_limit or items.length
    # `indices.min()` and `indices.max()` make two more calls each.
    lowest = np.minimum.reduce(indices) if len(indices) else 0
    if len(indices) and not -length <= lowest <= np.maximum.reduce(indices) < limit:
        bad = indices[(indices < -length) | (indices >= limit)][0]
        raise IndexError(
            f"the sampler returned index {bad}, but {items.name} has {length} items: make the sampler from this dataset"
        )
    if lowest < 0:
        indices = indices % length
    return indices, indices if items.index_map is None else items.index_map[indices]


def not_batches(name: str) -> TypeError:
    """Return the error for single indices where lists of them were expected; `name` is the class of the sampler."""
    return TypeError(
        f"batch_sampler={name} yields single indices, not lists of them: pass it as sampler= with a batch_size, or "
        "wrap it in aioloader.samplers.BatchSampler(sampler, batch_size)"
    )


def not_indices(name: str) -> TypeError:
    """Return the error for lists of indices where single ones were expected; `name` is the class of the sampler."""
    return TypeError(
        f"sampler={name} yields lists of indices, not single ones: pass it as batch_sampler=, without a batch_size"
    )


def _index(value: Any, name: str) -> int:
    try:
        if type(value) is np.bool_:  # before numpy 2 it passes for an index, with a warning
            raise TypeError
        index = operator.index(value)
    except TypeError:
        try:
            # A whole number of another type: a float, or an array of one.
            index = int(value)
            whole = not isinstance(value, (str, bytes, np.bool_)) and bool(index == value)
        except (TypeError, ValueError, OverflowError):
            if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
                raise not_indices(name) from None
            whole = False
        if not whole:
            raise TypeError(f"{name} must yield indices, whole numbers, and yielded {value!r}") from None
    if not -(1 << 63) <= index < 1 << 63:
        raise IndexError(f"{name} yielded the index {index}, which no data set has")
    return index


def announced_length(order: Iterable[Any]) -> int | None:
    """Return the length of a sampler as it announces it, or None. It need not have that many items."""
    if not isinstance(order, Sized):
        return None
    try:
        return len(order)
    except (TypeError, NotImplementedError):
        return None


class StreamedSamples(NamedTuple):
    """Samples of a stream, int64 (n,) each.

    Attributes:
        indices: of the dataset.
        epochs: the epoch that each belongs to.
        positions: place in the order of that epoch.
    """

    indices: IntArray
    epochs: IntArray
    positions: IntArray


def _joined(parts: Sequence[StreamedSamples]) -> StreamedSamples:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.empty(0, np.int64)
        return StreamedSamples(none, none, none)
    return StreamedSamples(*map(np.concatenate, zip(*parts, strict=True)))


class PositionalStream:
    """Stream of one epoch that is computed where it is read.

    Attributes:
        length: number of its positions.
        computed: its batches can be taken long before they are made.

    Args:
        sampler: a `PositionalSampler`.
        seed: the loader's seed.
        epoch: the epoch.
        carry: (first epoch, position in it) where the carried samples begin: the rest of that epoch and all epochs
            between; or None.
    """

    computed = True

    def __init__(self, sampler: Any, seed: int, epoch: int, carry: tuple[int, int] | None = None) -> None:
        self._sampler = sampler
        self._seed = seed
        self._epoch = epoch
        self._n = len(sampler)
        self._first, self._skip = carry if carry is not None else (epoch, 0)
        self.length = (epoch - self._first + 1) * self._n - self._skip
        self._block: tuple[int, int, int, IntArray] = (0, 0, 0, np.empty(0, np.int64))
        self._same = np.empty(0, np.int64)

    def _epoch_indices(self, epoch: int, low: int, high: int) -> IntArray:
        # Longer calls cost less per position, so a block is kept for the next batches.
        if high - low >= _BLOCK:
            indices: IntArray = self._sampler.indices(self._seed, epoch, low, high)
            return indices
        block_epoch, begin, end, block = self._block
        if block_epoch != epoch or low < begin or high > end:
            begin, end = low, min(self._n, low + _BLOCK)
            block = self._sampler.indices(self._seed, epoch, begin, end)
            self._block = (epoch, begin, end, block)
        return block[low - begin : high - begin]

    def take(self, start: int, stop: int) -> StreamedSamples:
        """Return the samples at stream positions start <= p < stop; fewer at the end of the stream."""
        stop = min(stop, self.length)
        if self._first == self._epoch and not self._skip and start < stop:  # nothing was carried over
            if len(self._same) < stop - start:
                self._same = np.full(stop - start, self._epoch, dtype=np.int64)
            indices = self._epoch_indices(self._epoch, start, stop)
            return StreamedSamples(
                indices, self._same[: stop - start], np.arange(start, stop, dtype=np.int64)
            )
        parts = []
        while start < stop:
            ahead, low = divmod(start + self._skip, self._n)
            high = min(self._n, low + stop - start)
            epoch = self._first + ahead
            parts.append(
                StreamedSamples(
                    self._epoch_indices(epoch, low, high),
                    np.full(high - low, epoch, dtype=np.int64),
                    np.arange(low, high, dtype=np.int64),
                )
            )
            start += high - low
        return _joined(parts)

    def available(self, start: int, stop: int) -> int:
        """Return how many of the positions start <= p < stop are in the stream."""
        return max(0, min(stop, self.length) - start)

    def carry(self, start: int) -> tuple[int, int] | None:
        """Return (epoch, position in it) where the rest begins; see `Plan.carry`."""
        if start >= self.length:
            return None
        ahead, low = divmod(start + self._skip, self._n)
        return self._first + ahead, low


class FoundStream:
    """Stream of one epoch whose samples are still being found. Its methods block.

    Attributes:
        length: None, because it is not known.
        computed: as of `PositionalStream`.

    Args:
        search: finds the samples.
        seed: the loader's seed.
        epoch: the epoch.
    """

    length = None
    computed = False

    def __init__(self, search: SampleSearch, seed: int, epoch: int) -> None:
        self.search = search
        self._seed = seed
        self._epoch = epoch

    def take(self, start: int, stop: int) -> StreamedSamples:
        """Return the samples; see `PositionalStream.take`."""
        stop = start + self.available(start, stop)
        indices = self.search.indices(self._seed, self._epoch, start, stop)
        return StreamedSamples(indices, np.full(len(indices), self._epoch, np.int64), np.arange(start, stop))

    def available(self, start: int, stop: int) -> int:
        """Return how many of the positions start <= p < stop are in the stream, once they are found."""
        return max(0, min(stop, self.search.wait(self._seed, self._epoch, stop)) - start)

    def carry(self, start: int) -> tuple[int, int] | None:
        """Return (epoch, position in it) where the rest begins; see `Plan.carry`."""
        found = self.search.wait(self._seed, self._epoch)
        return (self._epoch, start) if start < found else None


class IteratedStream:
    """Stream of one epoch of a sampler that can only be iterated.

    Attributes:
        length: number of its positions; None if that is not known. May be an estimate, see `announced_length`.
        computed: as of `PositionalStream`.

    Args:
        sampler: iterable over the indices of one epoch.
        epoch: the epoch.
        carry: [index, epoch, position in it] of each sample carried over, or None.
        whole: read all of it at once, because padding reads positions again.
    """

    computed = False

    def __init__(
        self, sampler: Iterable[int], epoch: int, carry: list[list[int]] | None = None, whole: bool = False
    ) -> None:
        self._epoch = epoch
        self._source = iter(sampler)
        self._name = type(sampler).__name__
        self._kept: list[list[int]] = list(carry or ())
        self._start = 0
        self._places = count()  # positions in the epoch's own order
        self._whole = whole
        announced = announced_length(sampler)
        self.length = None if announced is None else announced + len(self._kept)
        if whole:
            self._kept += [[_index(index, self._name), epoch, next(self._places)] for index in self._source]
            self.length = len(self._kept)

    def take(self, start: int, stop: int) -> StreamedSamples:
        """Return the samples; see `PositionalStream.take`.

        `start` never decreases, unless the whole stream is kept.
        """
        if not self._whole:
            if start > self._start + len(self._kept):  # a resumed epoch: consumed indices are not kept
                passed = start - self._start - len(self._kept)
                next(islice(self._source, passed - 1, passed), None)
                self._places = count(next(self._places) + passed)
                self._kept.clear()
                self._start = start
            while self._start + len(self._kept) < stop:
                try:
                    index = next(self._source)
                except StopIteration:
                    break
                self._kept.append([_index(index, self._name), self._epoch, next(self._places)])
            del self._kept[: start - self._start]
            self._start = max(start, self._start)
        chosen = self._kept[start - self._start : stop - self._start]
        return StreamedSamples(*np.asarray(chosen, dtype=np.int64).reshape(-1, 3).T)

    def available(self, start: int, stop: int) -> int:
        """Return how many positions are left; reads up to `stop`. See `PositionalStream.available`."""
        if not self._whole:
            return len(self.take(start, stop)[0])
        return max(0, min(stop, len(self._kept)) - start)

    def carry(self, start: int) -> list[list[int]] | None:
        """Return [index, epoch, position in it] of each sample left; see `Plan.carry`."""
        return self._kept[start - self._start :] or None


class PlannedBatches:
    """The batches of an epoch that are still to be delivered; they are taken one after the other.

    Args:
        batches: in order.

    Attributes:
        batches: iterator over those that nobody has taken.
        waits: `next` waits for the samples of an async iterable, and there is no `batches`.
    """

    waits: bool = False

    def __init__(self, batches: Iterator[BatchPlan]) -> None:
        self.batches = batches

    @contextmanager
    def open(self) -> Iterator[None]:
        """Return a context; `next` is called inside it, by one task."""
        try:
            yield
        finally:
            self.batches = iter(())  # one of the caller's ends now

    async def next(self) -> BatchPlan | None:
        """Return the next batch; None at the end.

        No exception of a sampler ends the task, except Ctrl-C, which is not the sampler's.
        """
        try:
            return next(self.batches, None)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise LoaderError(f"the sampler raised {type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        """Close what the batches come from."""


class FoundBatches(PlannedBatches):
    """The batches of a stream whose samples are still being found: a thread waits for them.

    Args:
        batches: in order.
        search: finds the samples.
    """

    waits = True

    def __init__(self, batches: Iterator[BatchPlan], search: SampleSearch) -> None:
        super().__init__(batches)
        self._search = search
        self._threads = Threads(1, "aioloader-plan")

    async def next(self) -> BatchPlan | None:
        if self._search.complete:
            return await super().next()
        return await self._threads.run_abandonable(next, self.batches, None)

    async def aclose(self) -> None:
        self._threads.close(0)


class Plan:
    """Base of the batches of one epoch for one rank.

    Attributes:
        computed: batches can be taken long before they are made: nobody notices when they are computed.
        skips: it starts in the middle of the epoch, so finding the first batch may take seconds: see `skip`.
        left_over: samples that rollover carries into the next epoch, where only the plan has them.
    """

    computed: bool = False
    skips: bool = False
    left_over: Sequence[Any] = ()

    def __iter__(self) -> Iterator[BatchPlan]:
        """Iterate over the batches in order."""
        raise NotImplementedError

    def planned(self, remember: Callable[[BatchPlan], bool]) -> PlannedBatches:
        """Return the batches to be taken.

        Args:
            remember: called with each batch; False: it was delivered before.
        """
        return PlannedBatches(filter(remember, self))

    def skip(self) -> None:
        """Find the first batch. From any thread; blocking."""

    def carry(self) -> Any:
        """Return what rollover passes to the next epoch, after the last batch; None: nothing."""
        return None


class EpochPlan(Plan):
    """Batches of a stream.

    Args:
        stream: the stream.
        schedule: how it is cut into batches.
        start: stream position at which the first step begins; earlier positions were consumed.
    """

    def __init__(
        self,
        stream: PositionalStream | IteratedStream | FoundStream,
        schedule: BatchSchedule,
        start: int = 0,
    ) -> None:
        self._stream = stream
        self._schedule = schedule
        self._start = start
        self.rest = start
        self.computed = stream.computed

    def __iter__(self) -> Iterator[BatchPlan]:
        """Iterate over the batches in order. Afterwards nothing from position `rest` on was delivered."""
        schedule, stream = self._schedule, self._stream
        stride = schedule.stride
        # All steps but the last are this one, moved.
        whole = schedule.batch(0, stride)
        assert whole is not None
        low, high, _ = whole
        first = self._start
        for number in count():
            # Only the very end of a step shows if the step is complete, even if this rank's part of it is.
            left = stream.available(first, first + stride)
            position, padded = first + low, 0
            if left == stride:
                taken = stream.take(position, first + high)
            else:
                batch = schedule.batch(first, left)
                if batch is None:
                    return
                start, stop, padded = batch
                taken = stream.take(start, stop)
                position = position if padded else start
            if padded:
                fill = schedule.padding(first, left)
                repeated = [stream.take(p, p + 1) for p in (fill % (first + left)).tolist()]
                # The copies draw other random numbers.
                taken = _joined([taken, _joined(repeated)._replace(positions=fill)])
            self.rest = first = first + left
            length = stream.length
            after = None if length is None else schedule.steps(max(0, length - first))
            yield BatchPlan(number, position, *taken, consumed=first, padded=padded, left=after)

    def planned(self, remember: Callable[[BatchPlan], bool]) -> PlannedBatches:
        if isinstance(self._stream, FoundStream):
            return FoundBatches(filter(remember, self), self._stream.search)
        return super().planned(remember)

    def carry(self) -> Any:
        return self._stream.carry(self.rest) if self._schedule.last_batch == "rollover" else None


class ComputedListPlan(Plan):
    """Batches of a `ComputedBatchSampler`. `consumed` counts the batches of all ranks. Iterated once.

    Args:
        sampler: computes the batches.
        seed: of the loader.
        epoch: the epoch.
        start: number of batches of all ranks to skip.
    """

    computed = True

    def __init__(self, sampler: ComputedBatchSampler, seed: int, epoch: int, start: int = 0) -> None:
        self._batches = sampler.batches(seed, epoch, start)
        self._epoch = epoch
        self._position = start
        self._found: list[RankBatch | None] = []
        self._finding = threading.Lock()  # a cancelled call may leave its thread behind
        self.skips = start > 0

    def skip(self) -> None:
        with self._finding:
            if not self._found:
                self._found.append(next(self._batches, None))

    def __iter__(self) -> Iterator[BatchPlan]:
        self.skip()
        numbers = count()
        batch = self._found[0]
        while batch is not None:
            epochs = np.full(len(batch.indices), self._epoch, dtype=np.int64)
            yield BatchPlan(
                next(numbers),
                self._position,
                batch.indices,
                epochs,
                np.arange(batch.position, batch.position + len(batch.indices), dtype=np.int64),
                batch.consumed,
                padded=batch.padded,
            )
            self._position = batch.consumed
            batch = next(self._batches, None)


class ListPlan(Plan):
    """Batches of a batch sampler, which keeps its own carry. `consumed` counts those of all ranks. Iterated once.

    The constructor calls the sampler's ``__iter__``; its batches are read later, where they are made.

    Args:
        batches: lists of indices, or `KeyedBatch`es; int64 arrays are used as they are. A batch sampler that begins
            in the middle of an epoch has ``first_position``: the samples before its first batch, for the draws.
        epoch: the epoch.
        start: number of batches of all ranks to skip.
        rank, world: this process among `world` processes, to which the batches are dealt out.
        even: see `deal`.
    """

    def __init__(
        self,
        batches: Iterable[Iterable[int] | KeyedBatch],
        epoch: int,
        start: int = 0,
        *,
        rank: int = 0,
        world: int = 1,
        even: str = "pad",
    ) -> None:
        self._batches = iter(batches)
        self._name = type(batches).__name__
        self._length = announced_length(batches)
        self._epoch = epoch
        self._start = start
        self._rank = rank
        self._world = world
        self._even = even
        sampler: Any = batches
        first: object = sampler.first_position if has_attribute(sampler, "first_position") else 0
        self._first = first if isinstance(first, int) else 0
        self._same = np.empty(0, np.int64)

    def __iter__(self) -> Iterator[BatchPlan]:
        place = self._start
        for number, (batch, position, consumed, padded) in enumerate(self._dealt()):
            indices, keys = (batch.indices, batch.keys) if isinstance(batch, KeyedBatch) else (batch, None)
            if len(self._same) < len(indices):
                self._same = np.full(len(indices), self._epoch, dtype=np.int64)
            left = None
            if self._length is not None:
                left = steps_of(max(0, self._length - consumed), self._world, self._even)
            yield BatchPlan(
                number,
                place,
                indices,
                self._same[: len(indices)],
                np.arange(position, position + len(indices), dtype=np.int64),
                consumed,
                padded=padded,
                left=left,
                keys=keys,
            )
            place = consumed

    def _dealt(self) -> Iterator[Dealt[IntArray | KeyedBatch]]:
        """Iterate over this rank's batches."""
        if self._world > 1:
            yield from deal(
                map(self._checked, self._batches),
                self._rank,
                self._world,
                start=self._start,
                even=self._even,
                position=self._first,
            )
            return
        position = self._first
        for batch in islice(self._batches, self._start):
            position += len(batch) if isinstance(batch, Sized) else sum(1 for _ in batch)
        for consumed, batch in enumerate(self._batches, self._start + 1):
            checked = self._checked(batch)
            yield Dealt(checked, position, consumed)
            position += len(checked)

    def _checked(self, batch: Iterable[int] | KeyedBatch) -> IntArray | KeyedBatch:
        """Return the indices of a batch, int64 (n,), or the batch itself if it has keys."""
        if isinstance(batch, KeyedBatch) or (
            type(batch) is np.ndarray and batch.dtype == np.int64 and batch.ndim == 1
        ):
            return batch
        try:
            each = iter(batch)
        except TypeError:  # also an array or a tensor of one number, which looks like an iterable
            raise not_batches(self._name) from None
        return np.asarray([_index(index, self._name) for index in each], dtype=np.int64)
