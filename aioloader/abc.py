"""Contracts between the parts of a loader: datasets, byte sources, samplers, transforms, slab memory and executors.

A dataset consists of two parts: spans of bytes, which the core reads, and a decoder, which runs in an executor. A
dataset without spans runs in the executor as a whole.

Each optional ability of a part is a separate Protocol. The loader tests for it with `isinstance` once, when it puts its
parts together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from aioloader.foundation.protocols import redefinable
from aioloader.foundation.types import ItemLocation, ReadPlan, Spans

if TYPE_CHECKING:
    import mmap
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterator,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractAsyncContextManager

    import numpy as np

    from aioloader.foundation.types import (
        Array,
        ArraySpec,
        Chunk,
        ChunkResult,
        IntArray,
        PartialItems,
        RankBatch,
        Slab,
        StageTimer,
        StorageStats,
        WorkerState,
    )
    from aioloader.rng import Rng

__all__ = (
    "Allocate",
    "AllocatingBatchify",
    "AwaitingExecutor",
    "Batchify",
    "BlockingExecutor",
    "BulkDecoder",
    "BulkParser",
    "ByteDataset",
    "ByteSource",
    "ComputedBatchSampler",
    "Decoder",
    "DecodingProcessor",
    "DrawingBatchify",
    "Executor",
    "FileMaps",
    "FusableDecoder",
    "FusedDecoder",
    "GatherDataset",
    "ImageSpec",
    "ItemLocation",
    "LocatedDataset",
    "MapDataset",
    "MappingExecutor",
    "NamedDataset",
    "NamedExecutor",
    "ObservableExecutor",
    "PartialDataset",
    "PartialReads",
    "PositionalSampler",
    "Program",
    "ReadAheadDataset",
    "ReadPlan",
    "RestartingExecutor",
    "RowBatchify",
    "Sampler",
    "SeededDataset",
    "ShuffledDataset",
    "SizedFilesDataset",
    "SizedProcessor",
    "SlabMemory",
    "Spans",
    "SpillingExecutor",
    "Stage",
    "StagedDataset",
    "StartingExecutor",
    "StreamDataset",
    "Transform",
    "TunedExecutor",
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


# -- datasets --------------------------------------------------------------------------------------------------------


@runtime_checkable
class MapDataset(Protocol[T_co]):
    """Object with a length and items by index: the minimum that a loader accepts as a dataset."""

    def __len__(self) -> int:
        """Return the number of items."""
        ...

    def __getitem__(self, index: int, /) -> T_co:
        """Return item `index`, 0 <= index < len(self); blocks until it is made."""
        ...


class Decoder(Protocol[T_co]):
    """The CPU part of a byte dataset: it turns bytes into a sample. Picklable; holds no file."""

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> T_co:
        """Make a sample.

        Args:
            data: the item's bytes; valid during the call only: copy the bytes that the sample keeps.
            extra: the item's row of `ByteDataset.extras`, or None.
            location: path and offset of the bytes, for errors.
        """
        ...


class FusedDecoder(Protocol[T_co]):
    """A decoder and the first stages after it in one object, which decodes only what these stages keep.

    It is made separately in each worker and used by one thread. Its results are bit for bit those of the decoder
    followed by the stages.

    Attributes:
        stages: how many of the stages it includes.
        leaves: number of arrays that an image becomes: 1, or more where there are several views of it. They are the
            first leaves of the sample.
    """

    stages: int
    leaves: int

    def __call__(
        self,
        data: memoryview,
        extra: Any,
        location: ItemLocation,
        *,
        rng: Rng,
        out: Array | list[Array] | None,
        trace: StageTimer,
        file: int | None = None,
    ) -> T_co:
        """Make a sample and transform it.

        Args:
            data, extra, location: as for `Decoder`.
            rng: the sample's random generator.
            out: where the image may be written, see `Transform.apply`; a list of such arrays if there are several
                `leaves`; None if code of the caller follows.
            trace: receives each stage before it begins, and the seconds that it took.
            file: number of the item's file in its byte source, if known.
        """
        ...


@runtime_checkable
class BulkParser(FusedDecoder[T_co], Protocol[T_co]):
    """A `FusedDecoder` that can parse many small items at a time: their headers, without decoding them."""

    def parse_many(self, data: memoryview, start: IntArray, length: IntArray) -> list[tuple[Any, ...] | None]:
        """Parse some items.

        Args:
            data: contains the items.
            start: int64 (n,), byte offset of each item, at least 0.
            length: int64 (n,), bytes of each item.

        Returns:
            for each item what `make` takes, or None for an item that the decoder itself must be called for, which may
            fail; an empty list if that is so for all items.
        """
        ...

    def make(
        self,
        parsed: tuple[Any, ...],
        path: str | None,
        *,
        rng: Rng,
        out: Array | list[Array] | None,
        trace: StageTimer,
    ) -> T_co:
        """Make the sample of an item that was parsed, and transform it.

        Args:
            parsed: of the item.
            path: file of the item, for errors.
            rng, out, trace: as for `FusedDecoder`.
        """
        ...


@runtime_checkable
class FusableDecoder(Decoder[T_co], Protocol[T_co]):
    """A decoder that can be fused with the stages that follow it."""

    def fuse(self, stages: Sequence[Stage]) -> FusedDecoder[T_co] | None:
        """Return a `FusedDecoder` for the first of these stages; None if they cannot be fused."""
        ...


@runtime_checkable
class BulkDecoder(Decoder[T_co], Protocol[T_co]):
    """A decoder that can return many payloads at a time, for small records that need no work."""

    def many(self, memory: mmap.mmap | memoryview, start: IntArray, length: IntArray) -> list[bytes | None]:
        """Return the payloads of some items.

        Args:
            memory: contains the items; slices of it are bytes (a mapping), or it is a buffer of bytes.
            start: int64 (n,), byte offset of each item.
            length: int64 (n,), bytes of each item.

        Returns:
            one payload for each item; None for an item that the decoder itself must be called for, which may fail.
        """
        ...


@runtime_checkable
class ByteDataset(MapDataset[T_co], Protocol[T_co]):
    """A dataset whose items are made from spans of files or objects."""

    @property
    def decoder(self) -> Decoder[T_co]:
        """Return the object that turns the bytes of one item into a sample, in the executor."""
        ...

    def open_source(self) -> ByteSource:
        """Return a separate byte source for one loader, which closes it."""
        ...

    def spans(self, indices: IntArray) -> Spans:
        """Return the spans of items. Fast and without I/O: called in the event loop."""
        ...

    def extras(self, indices: IntArray) -> Array | None:
        """Return numbers that belong to the items, such as labels: (n, ...), or None."""
        ...

    @redefinable
    def location(self, index: int) -> ItemLocation:
        """Return key, path and offset of one item, for errors."""
        ...


class PartialReads(Protocol):
    """Finder of the parts of items that their samples need; one for each loader."""

    async def narrow(
        self, spans: Spans, index: IntArray, epoch: IntArray, position: IntArray
    ) -> PartialItems | None:
        """Leave out what the samples do not need. One call at a time.

        A sample that cannot be made of the parts fails with `IncompleteItemError`; then the loader reads its item whole
        and makes the sample again.

        Args:
            spans: of the items.
            index, epoch, position: int64 (n,), numbers that seed the draws of each sample.

        Returns:
            None if all items are to be read whole.
        """
        ...

    def exclude(self, file: int, offset: int) -> None:
        """Read an item whole from now on, because its sample could not be made of its parts.

        Args:
            file, offset: of the item, as in `Spans`.
        """
        ...

    def close(self) -> None:
        """End threads; may be called twice."""
        ...


@runtime_checkable
class PartialDataset(Protocol):
    """A byte dataset (`ByteDataset`) that can find, before items are read, which parts of them a loader needs."""

    def partial_reads(self, stages: Sequence[Stage], seed: int) -> PartialReads | None:
        """Return the finder of these parts; None if items have to be read whole. May block: called at opening.

        Args:
            stages: the stages that follow the decoder in the executor.
            seed: of the loader.
        """
        ...


@runtime_checkable
class GatherDataset(MapDataset[T_co], Protocol[T_co]):
    """An in-memory dataset: a batch is one gather per array, with no executor and no work per sample."""

    @property
    def arrays(self) -> Sequence[Array]:
        """Return arrays of equal length; item i is the tuple of their rows i (one array: its row i)."""
        ...


@runtime_checkable
class StagedDataset(Protocol):
    """A dataset whose ``__getitem__`` applies a transform that a loader must apply to every sample of its base."""

    @property
    def own_stage(self) -> Any:
        """Return the stage, or None."""
        ...


@runtime_checkable
class SizedFilesDataset(Protocol):
    """A byte dataset that reports the sizes of its files."""

    def file_nbytes(self, index: int) -> int:
        """Return the size in bytes of the file that contains item `index`; -1 if it is unknown."""
        ...


@runtime_checkable
class StreamDataset(Protocol):
    """A dataset without indices: its samples come one after the other from an async iterable."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages applied to every sample, in order."""
        ...

    async def open(
        self, epoch: int, state: Any = None
    ) -> tuple[AsyncIterator[Any], Callable[[], Awaitable[object]] | None]:
        """Begin an epoch.

        Args:
            epoch: its number.
            state: a result of `source_state`, to resume from; None: from the start.

        Returns:
            an iterator over the samples, and the function that closes it, or None.
        """
        ...

    @property
    def resumable(self) -> bool:
        """Return True if the source can be resumed from a saved state."""
        ...

    def source_state(self) -> Any:
        """Return the current state of the source, or None."""
        ...

    def check_resumable(self) -> None:
        """Raise `NotResumableError` unless the source can be resumed."""
        ...


@runtime_checkable
class ReadAheadDataset(Protocol):
    """A byte dataset with slow reads."""

    @property
    def reads_ahead(self) -> bool:
        """Return True if several batches must be read at a time, even without workers."""
        ...


@runtime_checkable
class ShuffledDataset(Protocol):
    """A dataset that proposes the order of a loader with ``shuffle=True``, because random reads of it are slow."""

    def shuffle_sampler(self, indices: IntArray | None) -> PositionalSampler | None:
        """Return the sampler; None for a full shuffle.

        Args:
            indices: int64 (n,), for a loader over a view (`take`, `shard`, `filter`, `sample`): the index in this
                dataset of each of its samples. The sampler yields places in this array. None: all samples in order.
        """
        ...


@runtime_checkable
class ContinuedBatchSampler(Protocol):
    """A batch sampler that may begin in the middle of an epoch.

    Attributes:
        first_position: number of the epoch's samples before its first batch. Random draws depend on it.
    """

    @property
    def first_position(self) -> int: ...


@runtime_checkable
class ComputedBatchSampler(Protocol):
    """A batch sampler that can compute the batches of any epoch.

    A loader passes it its seed and epoch number, and resumes without the sampler's own state. The batches of an epoch
    are dealt out to the ranks: one to each in every step.
    """

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[RankBatch]:
        """Iterate over this rank's batches of an epoch.

        Args:
            seed: 0 <= seed < 2**64.
            epoch: number of the epoch.
            start: batches of the epoch that all ranks together have consumed before; those are left out.
        """
        ...

    def count(self, seed: int, epoch: int, start: int = 0) -> int:
        """Return how many batches `batches` yields. May take as long as computing all of them."""
        ...

    def description(self) -> tuple[Any, ...]:
        """Return all that the batches of all ranks depend on, except seed and epoch; a state must agree with it."""
        ...


@runtime_checkable
class LocatedDataset(Protocol):
    """A dataset with its own ``__getitem__`` that knows where its items are, for errors."""

    def location(self, index: int) -> ItemLocation:
        """Return key, path and offset of one item, each None where there is none. Called only for a failed sample."""
        ...


@runtime_checkable
class NamedDataset(Protocol):
    """A dataset that wraps another one and is named after it in errors."""

    @property
    def display_name(self) -> str:
        """Return the name for errors."""
        ...


@runtime_checkable
class SeededDataset(Protocol):
    """A dataset with separate random generators, which a worker seeds for every sample."""

    def seed_generators(self, epoch: int, index: int, position: int) -> None:
        """Seed them for a sample, before it is made.

        Args:
            epoch: number of the epoch.
            index, position: of the sample.
        """
        ...


class Stage(Protocol):
    """One transform of a loader's chain and how it takes its samples. Picklable if its function is."""

    @property
    def name(self) -> str:
        """Return the transform's name, for errors and statistics."""
        ...

    @property
    def native(self) -> bool:
        """Return True if it consists of this package's transforms only: it keeps no input and draws from ``rng``."""
        ...

    @property
    def is_async(self) -> bool:
        """Return True if the transform is awaited in the event loop."""
        ...

    @property
    def concurrency(self) -> int:
        """Return the maximum number of concurrent calls of an async transform; 0 for any other."""
        ...

    @property
    def takes_rng(self) -> bool:
        """Return True if the transform receives the sample's random generator."""
        ...

    def apply(self, sample: Any, rng: Rng, out: Array | None = None) -> Any:
        """Return the transformed sample; see `Transform.apply` for `out`."""
        ...

    async def apply_async(self, sample: Any, rng: Rng) -> Any:
        """Return the sample that an async transform makes."""
        ...


# -- byte sources ----------------------------------------------------------------------------------------------------


class ByteSource:
    """Reader of the bytes of items: what a new storage backend derives from. `ByteDataset.open_source` returns it.

    The loader awaits `plan`, allocates the memory that the plan asks for, and awaits `read`, each once for a whole
    batch, so that a batch costs few awaits. Both run in the loader's event loop: one `plan` at a time, while the `read`
    of several batches may run. Calls that block belong in threads. For a client with async methods this is enough::

        class ClientSource(ByteSource):
            def __init__(self, client, keys):
                self._client, self._keys = client, keys

            async def plan(self, spans):
                length = spans.length.copy()
                whole = np.flatnonzero(length == WHOLE_FILE)
                sizes = (self._client.size(self._keys[file]) for file in spans.file[whole])
                length[whole] = await asyncio.gather(*sizes)
                end = np.cumsum(length)
                reads = np.stack((spans.file, spans.offset, length, end - length), axis=1)
                return ReadPlan(int(length.sum()), end - length, length, reads.tolist())

            async def read(self, plan, out):
                async def read_item(file, offset, nbytes, start):
                    data = await self._client.get(self._keys[file], offset, nbytes)
                    out[start : start + nbytes] = data

                done = await asyncio.gather(*(read_item(*item) for item in plan.reads), return_exceptions=True)
                return [(place, error) for place, error in enumerate(done) if isinstance(error, Exception)]

            def close(self):
                self._client.close()

    `WHOLE_FILE`, `Spans` and `ReadPlan` are in `aioloader.foundation.types`. All attributes and methods below `close`
    have defaults. An object of another class that has `plan`, `read` and `close` is accepted too.

    A URL scheme that the package obstore supports needs no new source: see `aioloader.storage.urls`. For any other
    storage write a dataset with the methods of `ByteDataset` whose `open_source` returns your source.

    Attributes:
        paths: paths or URLs of the files, which errors name, in the order of the file numbers in `Spans`; may be empty.
        samples_ahead: how many samples must be in flight at a time to hide the latency; the loader's default of
            `prefetch` follows it. 0: reads take little time.
        announced: how many samples behind the batch that is planned next are passed to `announce`; 0: none.
        reads_parts: the source can leave out a stretch of each span (`Spans.gaps`), so that only those parts of images
            are read that crops need. In memory each item takes its bytes, rounded up to a multiple of 64 at most.
        fetches: `plan_blocking`, `read_blocking` and `fetch` are there: for ``dataset[i]``, and for records that are
            read together for torch's loader.
        blocks: an epoch without workers may call them in place of `plan` and `read`, and needs no event loop.
        maps: memory maps in which workers look records up; None: everything is read.
    """

    paths: Sequence[str] = ()
    samples_ahead: int = 0
    announced: int = 0
    reads_parts: bool = False
    fetches: bool = False
    blocks: bool = False
    maps: FileMaps | None = None

    async def plan(self, spans: Spans) -> ReadPlan:
        """Find the sizes of whole files, and give each item a place in memory.

        Items may share memory, so a source can read neighbours at once. An item that cannot be planned is listed in
        `ReadPlan.failures`. The loader may drop a plan without reading it, and may cancel the call: no file, lock or
        buffer may stay open that only `read` releases.
        """
        raise NotImplementedError

    async def read(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        """Read every planned span into `out`, which has at least `plan.nbytes` bytes.

        Returns:
            (place in the batch, error) of every item that could not be read. The error of an item that is longer than
            its span is a `SpanTooShortError`; the core plans and reads it again with the length in that error.

        Raises:
            Exception: the whole batch could not be read.

        On cancellation it returns only when nothing writes into `out` any more: another batch will use that memory.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close files and threads; may be called twice."""
        raise NotImplementedError

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        """Do the same as `plan` and block."""
        raise NotImplementedError

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        """Do the same as `read` and block."""
        raise NotImplementedError

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        """Plan and read at once, blocking; return the plan and the memory that it refers to.

        Raises:
            Exception: the error of the first item that could not be read.
        """
        plan = self.plan_blocking(spans)
        data = memoryview(bytearray(plan.nbytes))
        for _, error in plan.failures or self.read_blocking(plan, data):
            raise error
        return plan, data

    def set_timeout(self, seconds: float) -> None:
        """Set the time that one call may take, of a source with long latencies; the loader calls it first."""

    def announce(self, spans: Spans) -> None:
        """Begin to read; returns at once, and never raises because something cannot be read. Called in the event loop.

        Args:
            spans: of the items of one batch. The loader may leave an epoch, so that some are never planned.
        """

    def stats(self) -> StorageStats | None:
        """Return the counters so far, for ``loader.stats()``; None if nothing is counted."""
        return None

    def identity(self, number: int) -> tuple[str, str] | None:
        """Return name and version of the object with a file number, for a cache; None if it cannot be cached."""
        return None

    def ranges(self) -> ByteSource | None:
        """Return a separate source of any ranges of the same files, for headers of items; None if there is none."""
        return None

    def mapped(self) -> ByteSource | None:
        """Return a source with `maps` of the same files that closes this one; None if they are not to be mapped."""
        return None


class FileMaps(Protocol):
    """Memory maps of record files, which travel to the workers of a `MappingExecutor`."""

    @property
    def fds(self) -> Sequence[int]:
        """Return the descriptors, which are open under the same numbers in each worker."""
        ...

    def record(self, file: int, offset: int, length: int) -> memoryview:
        """Return the bytes of one record."""
        ...

    def whole(self, file: int, end: IntArray, /) -> mmap.mmap | None:
        """Return the map of a file; None if the file no longer reaches as far as `end`, int64 (n,)."""
        ...


# -- samplers, transforms, batchify ----------------------------------------------------------------------------------


@runtime_checkable
class Sampler(Protocol):
    """Iterable over the indices of an epoch; each `iter` starts a new epoch."""

    def __iter__(self) -> Iterator[int]:
        """Iterate over the indices of one epoch."""
        ...

    def __len__(self) -> int:
        """Return the number of indices of an epoch."""
        ...


@runtime_checkable
class PositionalSampler(Sampler, Protocol):
    """A sampler whose order is computed, not stored: any position of any epoch in constant memory."""

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """Return the indices at positions start <= p < stop of an epoch, int64."""
        ...


@runtime_checkable
class Transform(Protocol):
    """Function of one sample, or of its first element.

    Any callable is accepted. One that has a parameter named ``rng`` receives the sample's random generator.
    """

    def __call__(self, x: Any, /, *, rng: Rng | None = None) -> Any:
        """Return the transformed sample; a new object or `x` itself, never `x` modified."""
        ...

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        """Return the transformed sample; the variant for the hot path.

        Args:
            x: the sample; may be modified only where it is `out` itself.
            rng: the sample's random generator.
            out: where the result may be written if it has exactly that shape and dtype; may be `x` itself.

        Returns:
            the result; `out` itself if it was used.
        """
        ...

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        """Return shape and dtype of the result for an input of `spec`; None where they are not known."""
        ...


class ImageSpec(Protocol):
    """Sizes of a processor's result for one image."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array of pixel values."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the array of pixel values."""
        ...

    @property
    def nbytes(self) -> int:
        """Return the bytes of the array of pixel values."""
        ...

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens that the image takes in a language model."""
        ...

    @property
    def grid_thw(self) -> tuple[int, int, int]:
        """Return the number of patches in time, from top to bottom, and from left to right."""
        ...


@runtime_checkable
class SizedProcessor(Protocol):
    """A transform of images whose result's sizes follow from the image's extents, which its header contains."""

    def spec(self, height: int, width: int) -> ImageSpec:
        """Return the sizes of the result for an image, without making it.

        Args:
            height, width: extents of the image in pixels.

        Raises:
            ValueError: the transform refuses images of this size.
        """
        ...


@runtime_checkable
class DecodingProcessor(Protocol):
    """A transform of images that needs some of them decoded in another way than by `aioloader.transforms.decode_image`.

    Attributes:
        exif: "apply" or "ignore": what is to be done with EXIF orientations.
    """

    exif: str

    def decode(self, data: Any) -> Array | None:
        """Decode an image.

        Args:
            data: the encoded image, bytes-like.

        Returns:
            uint8 (height, width, 3); None where `decode_image` returns the same pixels.

        Raises:
            DecodeError: the data is not an image, or is damaged.
        """
        ...


@runtime_checkable
class StartingExecutor(Protocol):
    """An executor whose workers take time to start."""

    @property
    def ready(self) -> int:
        """Return the number of workers that can take chunks."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """Return the reason why no worker can be started, or None."""
        ...


@runtime_checkable
class SpillingExecutor(Protocol):
    """An executor whose results without rows go through the spill regions of their chunks."""

    @property
    def spills(self) -> bool:
        """Return whether they do now."""
        ...


class Batchify(Protocol):
    """Function that makes one batch from a list of samples."""

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate.

        Args:
            samples: the samples of the batch, in order.
            out: arrays of the result's structure to write into, or None.
        """
        ...


class DrawingBatchify(Protocol):
    """Batchify function that draws random numbers: a loader passes ``rng`` to any that has a parameter of this name.

    The draws depend only on the loader's seed and on the epoch and position of the batch's first sample: they are the
    same with any executor and number of workers, after a resume, and in another number of ranks that get the same
    batches. A sample that was left out of the batch changes none of them.
    """

    def __call__(self, samples: Sequence[Any], /, *, rng: Rng) -> Any:
        """Collate.

        Args:
            samples: the samples of the batch, in order.
            rng: the batch's draws.
        """
        ...


@runtime_checkable
class RowBatchify(Batchify, Protocol):
    """A batchify function that collates as `aioloader.batchify.Stack` does.

    Workers write each sample into its row of the batch; the function is called only for samples that do not fit.
    """

    by_rows: bool


class Allocate(Protocol):
    """Function that returns memory for an array of a batch."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> Array:
        """Return a C-contiguous writable array with any contents."""
        ...


@runtime_checkable
class AllocatingBatchify(Batchify, Protocol):
    """A batchify function that asks for the memory of its arrays.

    In a worker process that is memory of the batch, so the arrays are not copied again. A class that overrides only
    ``__call__`` is called by that. If `collate` has a parameter ``rng``, it is passed the draws of the batch, as
    `DrawingBatchify` is.
    """

    def collate(self, samples: Sequence[Any], allocate: Allocate) -> Any:
        """Collate.

        Args:
            samples: the samples of the batch, in order.
            allocate: returns the memory of arrays; all arrays that it returned and that are not part of the result are
                lost.

        Returns:
            the batch, the same as that of ``self(samples)``.
        """
        ...


# -- slab memory -----------------------------------------------------------------------------------------------------


class SlabMemory(Protocol):
    """Memory for the bytes and the arrays of batches, shared with the workers; the loader owns it.

    Attributes:
        memory: the mapping that all offsets refer to.
        fd: its file descriptor, for other processes.
        limit: maximum number of bytes of all slabs together.
        leased: bytes of the slabs that the caller's batches hold.
        forked: bytes that were leased when this process was forked; they are not used again.
    """

    memory: mmap.mmap
    fd: int
    limit: int
    leased: int
    forked: int

    def allocate(self, nbytes: int, *, lasting: bool = False, spare: int = 0) -> Slab | None:
        """Return a slab of at least `nbytes` bytes, or None if there is no room now.

        Args:
            nbytes: bytes needed.
            lasting: the slab may be leased.
            spare: those of them that are perhaps not needed, which `shrink` will give back; they do not count as used
                in the maximum that `usage` returns.
        """
        ...

    def free(self, slab: Slab) -> None:
        """Free a slab that nothing uses any more."""
        ...

    def shrink(self, slab: Slab, nbytes: int) -> None:
        """Free the end of a slab that has no lease, so that `nbytes` bytes and what a page adds to them are left."""
        ...

    def free_later(self, slabs: Sequence[Slab]) -> None:
        """Free slabs at the next `allocate`, `usage` or `close`. From any thread, also in the garbage collector."""
        ...

    def view(self, slab: Slab) -> memoryview:
        """Return the slab's bytes, writable."""
        ...

    def array(self, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return an array at a byte offset of the memory, without a lease."""
        ...

    def lease(self, slab: Slab, arrays: Sequence[Array]) -> None:
        """Lease a slab to the caller, with one lease for each of `arrays`, which `array` made.

        A lease ends with the last view of its array; the slab is freed when all have ended.
        """
        ...

    def lend(self, slab: Slab, parts: Sequence[tuple[int, tuple[int, ...], np.dtype[Any]]]) -> list[Array]:
        """Return arrays that share one lease of a slab, which ends with the last view of any of them.

        It costs one weak reference for all arrays, where `lease` needs one for each.

        Args:
            slab: contains them.
            parts: byte offset in the slab, shape and dtype of each.
        """
        ...

    def usage(self) -> tuple[int, int, int]:
        """Return the bytes in use now, their maximum so far, and the limit. From any thread."""
        ...

    def close(self) -> None:
        """Release the memory; it stays mapped while an array over it lives."""
        ...


# -- executors -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Program:
    """The part of a loader that runs in its executor; picklable, sent to each worker once.

    Attributes:
        decoder: turns bytes into a sample, or None: samples are the items of `dataset`.
        dataset: a dataset without a byte part, or None.
        paths: files of the byte source if there are few, for errors.
        stages: the transforms up to the first async one, in order.
        later: the transforms after each async transform, or after several in a row.
        batchify: collates a whole batch in the executor, or None: samples are written to rows.
        seed: the loader's seed.
        seed_globals: seed the global generators of Python, numpy and torch (on the CPU) before each sample.
        foreign: code of the caller runs; only such code can draw from the global generators.
        maps: maps of the files whose records are looked up, or None.
        replaces: in a batch that `batchify` collates, another sample replaces one that failed.
        raises: the first failed sample ends its batch, so that after one that timed out no other need be made.
        lists: `batchify` is `AsList`, which costs next to nothing and belongs to the library.
        traced: results report when and where they were made.
    """

    decoder: Decoder[Any] | None
    dataset: MapDataset[Any] | None
    paths: tuple[str, ...]
    stages: tuple[Stage, ...]
    batchify: Callable[[list[Any]], Any] | None
    seed: int
    seed_globals: bool
    foreign: bool
    maps: FileMaps | None = None
    replaces: bool = False
    raises: bool = False
    lists: bool = False
    traced: bool = False
    later: tuple[tuple[Stage, ...], ...] = ()


@runtime_checkable
class Executor(Protocol):
    """Runner of the CPU work. Lives as long as its loader; serves several epochs at once."""

    @property
    def workers(self) -> int:
        """Return how many chunks it works on at a time (at least 1)."""
        ...

    def open(self, program: Program, memory: SlabMemory) -> None:
        """Take the loader's program and slab memory; called once, before anything else."""
        ...

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Return a context inside which `run` makes progress. The epoch's supervisor task enters and exits it."""
        ...

    def run(self, chunks: Sequence[Chunk]) -> Coroutine[Any, Any, ChunkResult]:
        """Run the chunks of one batch, in parallel as far as there are workers; return their merged result.

        `Chunk.release` of each is called once nothing uses its memory any more. On cancellation the chunks are
        cancelled, and it returns at once.

        Raises:
            WorkerError: workers cannot be started.
            Exception: the program's batchify function raised it.
        """
        ...

    def close(self) -> None:
        """End all workers and wait for them, within a second; may be called twice, from any thread."""
        ...


@runtime_checkable
class BlockingExecutor(Executor, Protocol):
    """An executor that also works without an event loop."""

    def run_blocking(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """Do the same as `Executor.run` and block."""
        ...


@runtime_checkable
class NamedExecutor(Executor, Protocol):
    """An executor with a name for statistics; the name of any other is that of its class."""

    @property
    def kind(self) -> str:
        """Return the name, such as "process"."""
        ...


@runtime_checkable
class MappingExecutor(Executor, Protocol):
    """An executor that may receive a program with `maps`.

    It makes sure that the descriptors in them are open under the same numbers where chunks run. Chunks then identify
    records by file and offset.
    """

    @property
    def maps_files(self) -> bool:
        """Return True if it does so."""
        ...


@runtime_checkable
class ObservableExecutor(Executor, Protocol):
    """An executor that describes its workers, for reports of a stall."""

    @property
    def queued(self) -> int:
        """Return the number of chunks that wait for a worker."""
        ...

    def activity(self) -> object:
        """Return a value that changes whenever a sample begins."""
        ...

    async def workers_now(self) -> list[WorkerState]:
        """Return what each worker does."""
        ...


@runtime_checkable
class RestartingExecutor(Executor, Protocol):
    """An executor that replaces workers that died."""

    @property
    def restarts(self) -> int:
        """Return how many workers were replaced."""
        ...


@runtime_checkable
class TunedExecutor(Executor, Protocol):
    """An executor that chooses its number of workers by measurement."""

    @property
    def most(self) -> int:
        """Return the largest number of workers that it may still choose."""
        ...

    @property
    def tuning(self) -> str:
        """Return what was chosen and why, in one sentence."""
        ...


@runtime_checkable
class AwaitingExecutor(Executor, Protocol):
    """An executor that also awaits async transforms."""

    @property
    def concurrency(self) -> Mapping[str, int]:
        """Return the maximum number of concurrent calls of each async transform, by name."""
        ...
