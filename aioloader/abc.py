"""Contracts between the parts of a loader: datasets, byte sources, samplers, transforms, slab memory and executors.

A dataset consists of two parts: spans of bytes, which the core reads, and a decoder, which runs in an executor. A
dataset without spans runs in the executor as a whole.

What is optional is an attribute or a method with a default. An object of another class is adapted where it enters.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

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
    "Batchify",
    "ByteDataset",
    "ByteSource",
    "ComputedBatchSampler",
    "Decoder",
    "DecodingProcessor",
    "Executor",
    "FileMaps",
    "FusedDecoder",
    "GatherDataset",
    "ImageSpec",
    "ItemLocation",
    "MapDataset",
    "PartialReads",
    "PositionalSampler",
    "Program",
    "ReadPlan",
    "SampleSearch",
    "Sampler",
    "SizedProcessor",
    "SlabMemory",
    "Spans",
    "Stage",
    "StreamDataset",
    "Transform",
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


# -- datasets --------------------------------------------------------------------------------------------------------


@runtime_checkable
class MapDataset(Protocol[T_co]):
    """Object with a length and items by index: the minimum that a loader accepts as a dataset.

    A loader uses more of it where it is there: ``location(index)``, which returns the `ItemLocation` of an item for the
    error of a failed sample; the text ``display_name``, its name in errors; and ``seed_generators(epoch, index,
    position)``, which seeds random generators of the dataset in a worker before each sample.
    """

    def __len__(self) -> int:
        """Return the number of items."""
        ...

    def __getitem__(self, index: int, /) -> T_co:
        """Return item `index`, 0 <= index < len(self); blocks until it is made."""
        ...


class Decoder(Generic[T_co]):
    """The CPU part of a byte dataset: it turns bytes into a sample. Picklable; holds no file.

    Any other callable with these arguments is accepted too.
    """

    @property
    def foreign(self) -> bool:
        """Return True if code of the caller runs in it, which may draw from global random generators."""
        return False

    dct_scaling: bool = False
    """It may decode smaller images than there are, with other pixels."""

    @property
    def shareable(self) -> bool:
        """Return True if it knows no files, so that an equal decoder of another dataset can take its place."""
        return True

    def as_images(self) -> Any:
        """Return the decoder itself if it is an `aioloader.datasets.decoding.ImageDecoder`, else None."""
        return None

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> T_co:
        """Make a sample.

        Args:
            data: the item's bytes; valid during the call only: copy the bytes that the sample keeps.
            extra: the item's row of `ByteDataset.extras`, or None.
            location: path and offset of the bytes, for errors.
        """
        raise NotImplementedError

    def fuse(self, stages: Sequence[Any]) -> FusedDecoder[T_co] | None:
        """Return a `FusedDecoder` for the first of some `Stage` objects; None if they cannot be fused."""
        return None

    def many(self, memory: mmap.mmap | memoryview, start: IntArray, length: IntArray) -> list[bytes | None]:
        """Return the payloads of some items, which are the samples: small records that need no work.

        Called only if no class derived from the one that defines it overrides ``__call__``.

        Args:
            memory: contains the items; slices of it are bytes (a mapping), or it is a buffer of bytes.
            start: int64 (n,), byte offset of each item.
            length: int64 (n,), bytes of each item.

        Returns:
            one payload for each item; None for an item that the decoder itself must be called for, which may fail.
        """
        return [None] * len(start)


class FusedDecoder(Generic[T_co]):
    """A decoder and the first stages after it in one object, which decodes only what these stages keep.

    It is made separately in each worker and used by one thread. Its results are bit for bit those of the decoder
    followed by the stages.

    Attributes:
        stages: how many of the stages it includes.
        leaves: number of arrays that an image becomes: 1, or more where there are several views of it. They are the
            first leaves of the sample.
        parses_many: it can parse many items at a time: their headers, without decoding them.
    """

    stages: int
    leaves: int = 1
    parses_many: bool = False

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
        raise NotImplementedError

    def parse_many(
        self, data: memoryview, start: IntArray, length: IntArray
    ) -> tuple[list[memoryview | None], list[Array]]:
        """Parse some whole items, if it `parses_many`.

        Args:
            data: contains the items.
            start: int64 (n,), byte offset of each item, at least 0.
            length: int64 (n,), bytes of each item.

        Returns:
            for each item the first part of what `make` takes, or None for an item that the decoder itself must be
            called for, which may fail; and an array of scalars, (n,), for each of the other parts. Two empty lists if
            it must be called for all items.
        """
        return [], []

    def filler(
        self, items: list[Any], words: list[list[int]], rows: Array, rng: Rng, trace: StageTimer
    ) -> Callable[[int, int], bool] | None:
        """Return a function that makes the images of usual samples in their rows, with few calls; None without one.

        Args:
            items: the first list of a result of `parse_many`.
            words: for each item the words that `rng` will have drawn ahead; or an empty list.
            rows: rows of a batch for the image, (n, ...), writable.
            rng: random generator; at the beginning of a sample's draws when the function is called.
            trace: as for `FusedDecoder`.

        Returns:
            the function of the number of an item that is not None and of its row, which becomes the first leaf of the
            sample; the others are the other parts. It returns False for a sample that `make` must be called for, with
            the draws from their beginning.
        """
        return None

    def make(
        self,
        parsed: tuple[Any, ...],
        extra: Any,
        location: ItemLocation,
        *,
        rng: Rng,
        out: Array | list[Array] | None,
        trace: StageTimer,
        file: int | None = None,
    ) -> T_co:
        """Make the sample of an item that was parsed, and transform it.

        Args:
            parsed: of the item.
            extra, location, rng, out, trace, file: as for `FusedDecoder`.
        """
        raise NotImplementedError


class SampleSearch:
    """Search for the samples of a dataset in a thread, in the order of an epoch. From any thread.

    Attributes:
        complete: all samples were found.
    """

    complete: bool

    def wait(self, seed: int, epoch: int, count: int | None = None) -> int:
        """Wait until that many samples at the beginning of an epoch were found, or all; return their number. Blocking.

        Args:
            seed, epoch: of a shuffled order.
            count: number of samples; None: all.

        Raises:
            Exception: the next samples cannot be found.
        """
        raise NotImplementedError

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """Return the indices at positions start <= p < stop of an epoch, which were found, int64 (stop - start,)."""
        raise NotImplementedError

    def close(self) -> None:
        """End the search; may be called twice."""
        raise NotImplementedError


class ByteDataset(Generic[T_co]):
    """A dataset whose items are made from spans of files or objects.

    A class derives from it, or has `decoder`, `open_source`, `spans`, `extras` and `location`.

    Attributes:
        joined_parts: the datasets that it has one behind the other, none of them empty; None: its items are its own.
        below: the dataset whose samples it keeps; None: it makes them itself.
        files: all numbers of its files are less; more than any dataset has, and few enough to join millions.
    """

    files: int = 1 << 40
    joined_parts: Sequence[MapDataset[Any]] | None = None
    below: MapDataset[Any] | None = None

    def __len__(self) -> int:
        """Return the number of items."""
        raise NotImplementedError

    def __getitem__(self, index: int, /) -> T_co:
        """Return item `index`, 0 <= index < len(self); blocks until it is made."""
        raise NotImplementedError

    @property
    def decoder(self) -> Decoder[T_co]:
        """Return the object that turns the bytes of one item into a sample, in the executor."""
        raise NotImplementedError

    def open_source(self) -> ByteSource:
        """Return a separate byte source for one loader, which closes it."""
        raise NotImplementedError

    def spans(self, indices: IntArray) -> Spans:
        """Return the spans of items. Fast and without I/O: called in the event loop."""
        raise NotImplementedError

    def whole_spans(self, indices: IntArray) -> Spans:
        """Return the spans of items, also of those whose samples it keeps; as `spans`."""
        return self.spans(indices)

    @redefinable
    def location(self, index: int) -> ItemLocation:
        """Return key, path and offset of one item, for errors."""
        raise NotImplementedError

    def extras(self, indices: IntArray) -> Array | None:
        """Return numbers that belong to the items, such as labels: (n, ...), or None."""
        return None

    @property
    def display_name(self) -> str:
        """Return the name for errors."""
        return type(self).__name__

    @property
    def own_stage(self) -> Any:
        """Return the transform of every item that ``self[i]`` applies and a loader must, too; None without one."""
        return None

    @property
    def reads_ahead(self) -> bool:
        """Return True if reads are slow: several batches must be read at a time, even without workers."""
        return False

    def file_nbytes(self, index: int) -> int:
        """Return the size in bytes of the file that contains an item; -1 if it is unknown or there is no such file."""
        path = self.location(index).path
        return os.path.getsize(path) if path is not None and os.path.exists(path) else -1

    def partial_reads(self, stages: Sequence[Stage], seed: int) -> PartialReads | None:
        """Return the finder of the parts of items that a loader needs; None if they have to be read whole.

        May block: called at opening.

        Args:
            stages: the stages that follow the decoder in the executor.
            seed: of the loader.
        """
        return None

    def search_samples(self, timeout: float, shuffled: tuple[int, int] | None) -> SampleSearch | None:
        """Begin to find the items in a thread, if that takes long; None: all have to be found before the first.

        Until it is complete, a loader asks for spans, extras and locations of items that were found only.

        Args:
            timeout: most seconds that it may wait for one answer of a server.
            shuffled: (seed, epoch) of the first epoch, in the order of `shuffle_sampler`; None: in order.
        """
        return None

    def shuffle_sampler(self, indices: IntArray | None) -> PositionalSampler | None:
        """Return the order of a loader with ``shuffle=True``, for slow random reads; None for a full shuffle.

        Args:
            indices: int64 (n,), for a loader over a view (`take`, `shard`, `filter`, `sample`): the index in this
                dataset of each of its samples. The sampler yields places in this array. None: all samples in order.
        """
        return None

    @property
    def index_limit(self) -> int:
        """Return a number that is more than all indices that `shuffle_sampler` yields for all samples."""
        return len(self)


class PartialReads:
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
        raise NotImplementedError

    def exclude(self, file: int, offset: int) -> None:
        """Read an item whole from now on, because its sample could not be made of its parts.

        Args:
            file, offset: of the item, as in `Spans`.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End threads; may be called twice."""
        raise NotImplementedError


class GatherDataset(Generic[T_co]):
    """An in-memory dataset: a batch is one gather per array, with no executor and no work per sample."""

    def __len__(self) -> int:
        """Return the number of items."""
        raise NotImplementedError

    def __getitem__(self, index: int, /) -> T_co:
        """Return item `index`."""
        raise NotImplementedError

    @property
    def arrays(self) -> Sequence[Array]:
        """Return arrays of equal length; item i is the tuple of their rows i (one array: its row i).

        Raises:
            AttributeError: there are none.
        """
        raise AttributeError

    @property
    def display_name(self) -> str:
        """Return the name for errors."""
        return type(self).__name__

    @property
    def own_stage(self) -> Any:
        """Return the transform of every item that ``self[i]`` applies and a loader must, too; None without one."""
        return None


class StreamDataset:
    """A dataset without indices: its samples come one after the other from an async iterable.

    Attributes:
        stages: the stages applied to every sample, in order.
    """

    stages: tuple[Any, ...] = ()

    @property
    def display_name(self) -> str:
        """Return the name for errors."""
        return type(self).__name__

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
        raise NotImplementedError

    @property
    def resumable(self) -> bool:
        """Return True if the source can be resumed from a saved state."""
        raise NotImplementedError

    def source_state(self) -> Any:
        """Return the current state of the source, or None."""
        raise NotImplementedError

    def check_resumable(self) -> None:
        """Raise `NotResumableError` unless the source can be resumed."""
        raise NotImplementedError


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

    def copied(
        self, memory: SlabMemory, decoder: Decoder[bytes]
    ) -> Callable[[Spans], list[bytes] | None] | None:
        """Return a function that makes samples of copies of the files; None if they are not to be copied.

        Args:
            memory: takes the copies, as far as there is room; closing the source ends their use.
            decoder: makes payloads, by `Decoder.many`.

        Returns:
            a function that returns the payloads of items by their spans; None if a sample fails or is not in the
            copies, so that the items are to be read. It waits for no disk, and may be called from any thread.
        """
        return None


class FileMaps:
    """Memory maps of record files, which travel to the workers of an executor that `maps_files`."""

    @property
    def fds(self) -> Sequence[int]:
        """Return the descriptors, which are open under the same numbers in each worker."""
        raise NotImplementedError

    def record(self, file: int, offset: int, length: int) -> memoryview:
        """Return the bytes of one record."""
        raise NotImplementedError

    def whole(self, file: int, end: IntArray, /) -> mmap.mmap | None:
        """Return the map of a file; None if the file no longer reaches as far as `end`, int64 (n,)."""
        raise NotImplementedError


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


class Batchify(Protocol):
    """Function that makes one batch from a list of samples.

    One with a parameter ``rng`` is passed the draws of the batch, an `Rng`. They depend only on the loader's seed and
    on the epoch and position of the batch's first sample: they are the same with any executor and number of workers,
    after a resume, and in another number of ranks that get the same batches. A sample that was left out of the batch
    changes none of them.

    One with the attribute ``by_rows = True`` collates as `aioloader.batchify.Stack` does: workers write each sample
    into its row of the batch, and the function is called only for samples that do not fit.
    """

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate.

        Args:
            samples: the samples of the batch, in order.
            out: arrays of the result's structure to write into, or None.
        """
        ...


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
    a `Batchify` is.
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


class SlabMemory:
    """Memory for the bytes and the arrays of batches, shared with the workers; the loader owns it.

    Attributes:
        memory: the mapping that all offsets refer to.
        fd: its file descriptor, for other processes; -1 if the executor does not share it.
        limit: maximum number of bytes of all slabs together.
        leased: bytes of the slabs that the caller's batches hold.
        forked: bytes that were leased when this process was forked; they are not used again.
        reclaim: called by `allocate` where there is no room: it frees a slab that its owner can do without.
    """

    memory: mmap.mmap
    fd: int
    limit: int
    leased: int
    forked: int
    reclaim: Callable[[], object] | None = None

    def allocate(self, nbytes: int, *, lasting: bool = False, spare: int = 0) -> Slab | None:
        """Return a slab of at least `nbytes` bytes, or None if there is no room now.

        Args:
            nbytes: bytes needed.
            lasting: the slab may be leased.
            spare: those of them that are perhaps not needed, which `shrink` will give back; they do not count as used
                in the maximum that `usage` returns.
        """
        raise NotImplementedError

    def free(self, slab: Slab) -> None:
        """Free a slab that nothing uses any more."""
        raise NotImplementedError

    def shrink(self, slab: Slab, nbytes: int) -> None:
        """Free the end of a slab that has no lease, so that `nbytes` bytes and what a page adds to them are left."""
        raise NotImplementedError

    def free_later(self, slabs: Sequence[Slab]) -> None:
        """Free slabs at the next `allocate`, `usage` or `close`. From any thread, also in the garbage collector."""
        raise NotImplementedError

    def free_pending(self) -> None:
        """Free the slabs whose leases have ended, and those passed to `free_later`. From any thread."""
        raise NotImplementedError

    def view(self, slab: Slab) -> memoryview:
        """Return the slab's bytes, writable."""
        raise NotImplementedError

    def array(self, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return an array at a byte offset of the memory, without a lease."""
        raise NotImplementedError

    def lease(self, slab: Slab, arrays: Sequence[Array]) -> None:
        """Lease a slab to the caller, with one lease for each of `arrays`, which `array` made.

        A lease ends with the last view of its array; the slab is freed when all have ended.
        """
        raise NotImplementedError

    def lend(self, slab: Slab, parts: Sequence[tuple[int, tuple[int, ...], np.dtype[Any]]]) -> list[Array]:
        """Return arrays that share one lease of a slab, which ends with the last view of any of them.

        It costs one weak reference for all arrays, where `lease` needs one for each.

        Args:
            slab: contains them.
            parts: byte offset in the slab, shape and dtype of each.
        """
        raise NotImplementedError

    def usage(self) -> tuple[int, int, int]:
        """Return the bytes in use now, their maximum so far, and the limit. From any thread."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the memory; it stays mapped while an array over it lives."""
        raise NotImplementedError


# -- executors -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Program:
    """The part of a loader that runs in its executor; picklable, sent to each worker once.

    Attributes:
        decoder: turns bytes into a sample, or None: samples are the items of `dataset`.
        dataset: a dataset without a byte part, or None.
        seeds: ``dataset.seed_generators`` is called before each sample.
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

    decoder: Decoder[Any] | None = None
    dataset: MapDataset[Any] | None = None
    paths: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    batchify: Callable[[list[Any]], Any] | None = None
    seed: int = 0
    seed_globals: bool = False
    foreign: bool = False
    maps: FileMaps | None = None
    replaces: bool = False
    raises: bool = False
    lists: bool = False
    traced: bool = False
    later: tuple[tuple[Stage, ...], ...] = ()
    seeds: bool = False


class Executor:
    """Runner of the CPU work. Lives as long as its loader; serves several epochs at once.

    All attributes and methods below `close` have defaults. An object of another class that has `workers`, `open`,
    `serving`, `run` and `close` is accepted too, with what it has of the others.
    """

    @property
    def workers(self) -> int:
        """Return how many chunks it works on at a time (at least 1)."""
        raise NotImplementedError

    def open(self, program: Program, memory: SlabMemory) -> None:
        """Take the loader's program and slab memory; called once, before anything else but `prepare`."""
        raise NotImplementedError

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Return a context inside which `run` makes progress. The epoch's supervisor task enters and exits it."""
        raise NotImplementedError

    def run(self, chunks: Sequence[Chunk]) -> Coroutine[Any, Any, ChunkResult]:
        """Run the chunks of one batch, in parallel as far as there are workers; return their merged result.

        `Chunk.release` of each is called once nothing uses its memory any more. On cancellation the chunks are
        cancelled, and it returns at once.

        Raises:
            WorkerError: workers cannot be started.
            Exception: the program's batchify function raised it.
        """
        raise NotImplementedError

    def start(
        self, chunks: Sequence[Chunk], done: Callable[[ChunkResult | BaseException], object]
    ) -> Callable[[], object]:
        """Begin to run the chunks of one batch, as `run` does, without a task that waits for them.

        Called in place of `run` if no subclass of the class that defines it overrides `run` alone.

        Args:
            chunks: the chunks.
            done: called once with the result, or with what `run` would raise, in the event loop's thread; perhaps
                before this returns. It raises nothing.

        Returns:
            a function that cancels the chunks; `done` is not called then. To be called in the event loop's thread.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End all workers and wait for them, within a second; may be called twice, from any thread."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Begin to start workers, without waiting for them, because opening the dataset takes long."""

    @property
    def kind(self) -> str:
        """Return the name for statistics, such as "process"."""
        return type(self).__name__

    @property
    def spills(self) -> bool:
        """Return True if results without rows go through the spill regions of their chunks now."""
        return False

    @property
    def maps_files(self) -> bool:
        """Return True if it may receive a program with `maps`.

        It makes sure that the descriptors in them are open under the same numbers where chunks run. Chunks then
        identify records by file and offset.
        """
        return False

    @property
    def shares_memory(self) -> bool:
        """Return False if no other process uses the slab memory, which then has no file descriptor."""
        return True

    @property
    def ready(self) -> int:
        """Return the number of workers that can take chunks, where they take time to start."""
        return self.workers

    @property
    def failure(self) -> BaseException | None:
        """Return the reason why no worker can be started, or None."""
        return None

    @property
    def restarts(self) -> int:
        """Return how many workers died and were replaced."""
        return 0

    @property
    def most(self) -> int:
        """Return the largest number of workers that it may still choose."""
        return self.workers

    @property
    def tuning(self) -> str:
        """Return the number of workers that it chose by measurement and why, in one sentence; "" if it is given."""
        return ""

    @property
    def concurrency(self) -> Mapping[str, int]:
        """Return the maximum number of concurrent calls of each async transform that it awaits, by name."""
        return {}

    @property
    def queued(self) -> int:
        """Return the number of chunks that wait for a worker."""
        return 0

    def activity(self) -> object:
        """Return a value that changes whenever a sample begins; None if that is not known."""
        return None

    async def workers_now(self) -> list[WorkerState]:
        """Return what each worker does, for reports of a stall; empty if that is not known."""
        return []

    def run_blocking(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """Do the same as `run` without an event loop, and block; called only where there are no workers."""
        raise NotImplementedError
