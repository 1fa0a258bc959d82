"""The contracts: what a dataset, a byte source, a sampler, a transform, a batchify function and an executor are.

A dataset says two things: where the bytes of an item come from (read by the core, in the event loop's care), and
what is done to them (run in an executor). A dataset without a byte part runs whole in the executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from aioloader.executors.program import Program
    from aioloader.foundation.types import (
        Array,
        ArraySpec,
        Chunk,
        ChunkResult,
        IntArray,
        ItemLocation,
        ReadPlan,
        Spans,
        StageTimer,
    )
    from aioloader.rng import Rng

__all__ = (
    "Batchify",
    "BlockingByteSource",
    "BulkDecoder",
    "ByteDataset",
    "ByteSource",
    "Decoder",
    "Executor",
    "FusedDecoder",
    "GatherDataset",
    "MapDataset",
    "PositionalSampler",
    "Sampler",
    "Transform",
)

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class MapDataset(Protocol[T_co]):
    """Anything with a length and items: the least that a dataset has to be."""

    def __len__(self) -> int:
        """Number of items."""
        ...

    def __getitem__(self, index: int, /) -> T_co:
        """Item `index`, 0 <= index < len(self); made at once, blocking."""
        ...


class Decoder(Protocol[T_co]):
    """The CPU part of a byte dataset: bytes in, sample out. Picklable; holds no file."""

    def __call__(self, data: memoryview, extra: Any, facts: ItemLocation) -> T_co:
        """Make a sample.

        Args:
            data: the item's bytes; valid during the call only, copy what is kept.
            extra: the item's row of `ByteDataset.extras`, or None.
            facts: path and offset of the bytes, for errors.
        """
        ...


class FusedDecoder(Protocol[T_co]):
    """A decoder and the first stages after it, in one: it need not make what the stages throw away.

    A decoder offers it by a method ``fuse(stages)``, which gives one, or None; it is made anew in every worker and
    used by one thread. The results are those of the decoder and the stages, one after the other, bit for bit.

    Attributes:
        stages: how many of the stages are done by it.
    """

    stages: int

    def __call__(
        self,
        data: memoryview,
        extra: Any,
        facts: ItemLocation,
        rng: Rng,
        out: Array | None,
        trace: StageTimer,
    ) -> T_co:
        """Make a sample and transform it.

        Args:
            data, extra, facts: as for `Decoder`.
            rng: the sample's draws.
            out: where the image may be written, see `Transform.apply`; None if foreign code follows.
            trace: told the stage before it begins, and the seconds that each took.
        """
        ...


class BulkDecoder(Protocol):
    """A decoder of payloads that need no work: many at a time, for small records.

    A decoder offers it by a method of this form besides its call.
    """

    def many(self, memory: Any, start: IntArray, length: IntArray) -> list[bytes | None]:
        """The payloads of some items.

        Args:
            memory: where the items lie; slices of it are bytes (a mapping), or it is a buffer of bytes.
            start: int64 (n,), place of each item.
            length: int64 (n,), bytes of each item.

        Returns:
            each payload; None for one that the decoder itself is to be called for, and that may be an error.
        """
        ...


@runtime_checkable
class ByteDataset(MapDataset[T_co], Protocol[T_co]):
    """A dataset whose items are made from spans of files or objects."""

    @property
    def decoder(self) -> Decoder[T_co]:
        """What turns the bytes of one item into a sample, in the executor."""
        ...

    def open_source(self) -> ByteSource:
        """A byte source of its own for one loader, which closes it."""
        ...

    def spans(self, indices: IntArray) -> Spans:
        """Where the bytes of items lie. Cheap and without I/O: called in the event loop."""
        ...

    def extras(self, indices: IntArray) -> Array | None:
        """Numbers that travel with the items, such as labels: (n, ...), or None."""
        ...

    def facts(self, index: int) -> ItemLocation:
        """Key, path and offset of one item, for errors."""
        ...


@runtime_checkable
class GatherDataset(MapDataset[T_co], Protocol[T_co]):
    """An in-memory dataset: a batch is one gather per array, with no executor and no per-sample work."""

    @property
    def arrays(self) -> Sequence[Array]:
        """Arrays of one length; item i is the tuple of their rows i (the row itself for one array)."""
        ...


class ByteSource(Protocol):
    """Where bytes come from; plural, so that a batch costs few awaits.

    One over a network may tell and be told more: ``timeout``, seconds that one call may take, which the loader sets;
    ``samples_ahead``, samples that should be on their way at a time, which the loader's default of `prefetch` follows;
    ``stats()``, its `aioloader.metrics.StorageStats`.
    """

    async def plan(self, spans: Spans) -> ReadPlan:
        """Find sizes and lay the items out in memory, merging neighbours.

        On cancellation nothing is left behind. An item that cannot be planned goes into `ReadPlan.failures`.
        """
        ...

    async def read(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        """Read every planned span into `out`, which has at least `plan.nbytes` bytes.

        Returns:
            (place in the batch, error) of every item that could not be read. One that is longer than its span has
            a `SpanTooShortError`, and is planned and read again with the length that it names.

        On cancellation it returns only when nothing writes into `out` any more.
        """
        ...

    def close(self) -> None:
        """Close files and threads; may be called twice."""
        ...


@runtime_checkable
class BlockingByteSource(Protocol):
    """A byte source that can also be used without an event loop."""

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        """As `ByteSource.plan`."""
        ...

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        """As `ByteSource.read`."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """Which indices, in what order; a new pass at each `iter`."""

    def __iter__(self) -> Iterator[int]:
        """The indices of one epoch."""
        ...

    def __len__(self) -> int:
        """How many indices an epoch has."""
        ...


@runtime_checkable
class PositionalSampler(Sampler, Protocol):
    """A sampler whose order is computed, not stored: any position of any epoch in constant memory."""

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """The indices at positions start <= p < stop of an epoch, int64."""
        ...


@runtime_checkable
class Transform(Protocol):
    """What is done to one sample, or to its first element.

    Any callable will do. One that has a parameter named ``rng`` is given the sample's draws through it.
    """

    def __call__(self, x: Any, /, *, rng: Rng | None = None) -> Any:
        """The transformed sample; a new object or `x` itself, never `x` altered."""
        ...

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        """The same on the hot path.

        Args:
            x: the sample; may be altered only where it is `out` itself.
            rng: the sample's draws.
            out: where the result may be written if it has exactly that shape and dtype; may be `x` itself.

        Returns:
            the result; `out` itself if it was used.
        """
        ...

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        """Shape and dtype of the result for an input of `spec`; None where they cannot be told."""
        ...


class Batchify(Protocol):
    """Makes one batch from a list of samples."""

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate.

        Args:
            samples: the samples of the batch, in order.
            out: arrays of the result's structure to write into, or None.
        """
        ...


class Executor(Protocol):
    """Where the CPU work runs. Lives as long as its loader; serves several epochs at once.

    An executor with an attribute ``maps_files`` that is True may be given a program with `maps`: it sees to it that the
    descriptors in them are open under the same numbers where chunks run. Chunks then name records by file and offset.

    For reports of a stall it may tell more: ``activity()``, a value that is another whenever a sample was begun;
    ``await workers_now()``, a list of `WorkerState`; ``queued``, chunks that wait for a worker.
    """

    @property
    def workers(self) -> int:
        """How many chunks it works on at a time (at least 1)."""
        ...

    def open(self, program: Program, memory: Any) -> None:
        """Take the loader's program and slab memory; called once, before anything else."""
        ...

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Serve one epoch: a context inside which `run` makes progress. Entered and left by the epoch's supervisor."""
        ...

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """Run the chunks of one batch, side by side as far as there are workers; gives their merged result.

        `Chunk.release` of each is called once nobody touches its memory any more. On cancellation the chunks are
        called off, and it returns at once.

        Raises:
            WorkerError: workers cannot be started.
            Exception: the program's batchify function raised it.
        """
        ...

    def close(self) -> None:
        """End all workers and wait for them, within a second; may be called twice, from any thread."""
        ...


class BatchStream(Protocol[T_co]):
    """One epoch being delivered."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...

    async def __anext__(self) -> T_co: ...
