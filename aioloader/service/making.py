"""Images made by an executor: their bytes are copied into slab memory, chunks are sent to the workers, which decode.

Before that the size of a result is computed from the image's header, or estimated from the results before it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import numpy as np

from aioloader.datasets.decoding import ImageDecoder
from aioloader.datasets.stage import Stage
from aioloader.errors import ImageError, ImageServiceError, ImageTooLargeError, ServiceMemoryError
from aioloader.foundation.lru_cache import LRUCache
from aioloader.foundation.pytree import flatten, leaf_spec
from aioloader.foundation.types import (
    INDEX,
    INDEX_TABLE_ROWS,
    LENGTH,
    ROW,
    START,
    ArraySpec,
    Chunk,
    ChunkResult,
    Slab,
)
from aioloader.pipeline.collate import copied, row_layout, row_samples
from aioloader.pipeline.dispatch import average_s
from aioloader.pipeline.memory import PATIENCE_S, BatchMemory, may_lease, wait_for_room
from aioloader.service.jobs import ResultSize
from aioloader.service.probe import HeaderReader
from aioloader.transforms.decode import checked_header
from aioloader.transforms.formats import count_frames
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from aioloader.abc import DecodingProcessor, Executor, SlabMemory
    from aioloader.foundation.threads import Threads
    from aioloader.foundation.types import Array, ItemLocation, RowLayout
    from aioloader.service.jobs import ChunkInWork, Job
    from aioloader.service.options import ServiceOptions


# As for an image of float32 in RGB.
_PER_PIXEL = 12


class ResultSizes:
    """Sizes of the results so far, of a processor that does not announce them.

    The result may grow with the image (decoded, normalised) or not (resized, cropped), and a tiny image that is
    enlarged has very many bytes for each of its pixels. So two figures are kept, the largest ratio to the pixels and
    the largest size, and the smaller estimate is taken. It is too small only for a result that is larger than all
    before it.
    """

    def __init__(self) -> None:
        self._per_pixel = float(_PER_PIXEL)
        self._largest = 0

    def expect(self, pixels: int) -> int:
        """Return the bytes to reserve for the result of an image.

        Args:
            pixels: height times width of the image.
        """
        return int(min(pixels * self._per_pixel, max(self._largest, pixels * _PER_PIXEL)))

    def learn(self, pixels: int, nbytes: int) -> None:
        """Take note of a result.

        Args:
            pixels: height times width of its image; at least 1.
            nbytes: bytes of its arrays.
        """
        self._per_pixel = max(self._per_pixel, nbytes / pixels)
        self._largest = max(self._largest, nbytes)


@dataclass(frozen=True)
class ReferenceDecoder(ImageDecoder):
    """Decoder of encoded images without anything around them.

    Attributes:
        own: decodes images that it decodes otherwise than `decode_image`, or None.
    """

    own: DecodingProcessor | None = None

    def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, Any]:
        if self.own is not None:
            checked_header(data, self.max_pixels)
            pixels = self.own.decode(data)
            if pixels is not None:
                return encode_raw(pixels), None
        return data, None


def processor_stages(processor: Callable[..., Any] | None) -> tuple[Stage, ...]:
    """Return the stages of a processor: none, or one that takes the image.

    Raises:
        TypeError: it is not callable, or is an async function.
    """
    if processor is None:
        return ()
    if not callable(processor):
        raise TypeError(
            f"processor must be a transform or a function of an image, got a {type(processor).__name__}"
        )
    stage = Stage(processor, first=True)
    if stage.is_async:
        raise TypeError(
            f"the processor {stage.name} is async, but it runs in a worker: await it with the image that get() returns"
        )
    return (stage,)


SMALL_BYTES = 1 << 17
"""Images of at most this many bytes are ordinary arrays, and are made several at a time."""

# Time that the images of one chunk take together: a worker is busy for as long as several messages take.
_CHUNK_S = 0.004
_MOST_IN_CHUNK = 64
# Copying this many bytes blocks a loop for some 0.1 ms; a hop to a thread takes as long.
_COPIED_HERE = 1 << 20
_ROOM = 4096
# Shapes whose layout is kept, here and in the workers.
_MOST_LAYOUTS = 4096
_POLL_S = 0.01


class Outcome(NamedTuple):
    """Result of one image.

    Attributes:
        value: the image, or None.
        nbytes: bytes of slab memory that it holds.
        error: the reason why it was not made, or None.
    """

    value: Any
    nbytes: int
    error: BaseException | None


class ImageMaker:
    """Maker of images.

    Args:
        executor: runs the program of `ReferenceDecoder` and the processor; open. An attribute, too.
        memory: slab memory.
        options: of the service.
        exif: "apply" or "ignore".
        cache: its images are dropped where there is no memory left.
        threads: large copies run there.

    Attributes:
        in_work: chunks that are being made.
        memory_wait_s: seconds that chunks waited for memory.
        copies: images that were copied because callers hold half of the memory already.
    """

    def __init__(
        self,
        executor: Executor,
        memory: SlabMemory,
        options: ServiceOptions,
        *,
        exif: str,
        cache: LRUCache[Hashable, tuple[Any]],
        threads: Threads,
    ) -> None:
        self.executor = executor
        self._memory = memory
        self._headers = HeaderReader(options.processor, exif, options.max_pixels)
        self._max_frames = options.max_frames
        self._cache = cache
        self._threads = threads
        announced = self._headers.sized is not None or options.processor is None
        self._sizes = (
            None if announced else ResultSizes()
        )  # of a processor that does not announce its results
        self._small_s = 0.0  # seconds of a small image
        self._template: tuple[Any, tuple[Any, ...]] | None = None
        self._layouts: LRUCache[tuple[int, ...], RowLayout] = LRUCache(_MOST_LAYOUTS)
        self._without_room = 0  # chunks in work that wait for memory
        self.in_work = 0
        self.memory_wait_s = 0.0
        self.copies = 0

    # -- planning ----------------------------------------------------------------------------------------------------

    def expect(self, job: Job, *, quick: bool = False) -> None:
        """Find out from the header how many bytes an image will take.

        Args:
            job: the image.
            quick: take a few ms at most.

        Raises:
            LongHeaderError: it would take longer, with `quick`.
            ImageError: it is not an image, its header is damaged, or the processor refuses its size.
            ImageTooLargeError: it has too many pixels.
        """
        assert job.image is not None
        name, kind, payload = job.reference.name, job.reference.kind, job.image.payload
        frames = 0
        try:
            info = self._headers.info(payload, name=name, kind=kind, quick=quick)
            if self._max_frames is not None:
                frames = count_frames(payload, info.format, self._max_frames, quick=quick)
        except ImageServiceError:
            raise
        except ValueError as error:
            raise ImageError(name, "decode", f"{type(error).__name__}: {error}") from error
        if self._max_frames is not None and frames > self._max_frames:
            found = frames if info.format == "png" else None
            raise ImageTooLargeError(name, "frames", self._max_frames, found, kind=kind)
        if info.nbytes is not None:
            job.size = ResultSize(info.nbytes + _ROOM, info.shape)
        elif self._sizes is not None:
            pixels = info.size[0] * info.size[1]
            job.size = ResultSize(self._sizes.expect(pixels) + _ROOM, pixels=pixels)

    def room_in_chunk(self, first: Job, waiting: int) -> int:
        """Return how many images may be in the chunk of an image that is next.

        Args:
            first: the image.
            waiting: images that wait behind it.
        """
        if not self.fits(first) or not self._small_s:
            return 1
        fair = 1 + waiting // max(1, self.executor.workers)
        return max(1, min(int(_CHUNK_S / self._small_s), fair, _MOST_IN_CHUNK))

    def fits(self, job: Job) -> bool:
        """Return whether an image can be in a chunk with others."""
        assert job.image is not None
        return job.size.nbytes <= SMALL_BYTES + _ROOM and job.image.nbytes <= SMALL_BYTES

    # -- making ------------------------------------------------------------------------------------------------------

    async def make(self, chunk: ChunkInWork) -> list[Outcome]:
        """Make the images of a chunk.

        Raises:
            ServiceMemoryError: they do not fit into the memory.
            WorkerError: no worker can be started.

        On cancellation the workers let go of the images, and their memory is freed when no worker can write to it.
        """
        jobs = chunk.jobs
        arrays = BatchMemory(self._memory, len(jobs), self._layout(jobs))
        self.in_work += 1
        try:
            payloads = [_payload(job) for job in jobs]
            given = await self._allocate(sum(_aligned(len(data)) for data in payloads), arrays)
            offsets, rows = ([], 0) if arrays.layout is None else arrays.layout.offsets(arrays.rows)
            room = _ROOM if rows else sum(job.size.nbytes for job in jobs)
            # A result of unknown size that does not fit in the slab comes by value.
            least = rows + room if self._sizes is None else _ROOM
            made = await self._allocate(rows + room, arrays, lasting=True, least=least)
            arrays.place(made, offsets, rows, made.nbytes)
            table = await self._fill(jobs, payloads, given)
            keeps = len(jobs) == 1 and not self.fits(jobs[0])
            arrays.enter()
            sent = Chunk(
                batch=jobs[0].order[2],
                index_table=table,
                rows=arrays.rows,
                layout=arrays.layout,
                bases=arrays.bases,
                spill=arrays.spill,
                release=arrays.leave,
                keeps_spill=keeps,
                patience=chunk.patience,
            )
            del payloads
            chunk.give()
            result = await self.executor.run([sent])
            chunk.work_spans = result.work_spans
            self._learn(result, jobs)
            if keeps and (result.written or result.roots):
                return [await self._lease(result, arrays)]
            if result.written:
                samples, _ = row_samples(self._memory, result, arrays, result.written, copy=True)
                result.values.update(zip(result.written, samples, strict=True))
            return [_outcome(job, row, result) for row, job in enumerate(jobs)]
        finally:
            self.in_work -= 1
            arrays.leave()

    async def _allocate(
        self, nbytes: int, arrays: BatchMemory, *, lasting: bool = False, least: int | None = None
    ) -> Slab:
        """Take a slab, and wait for it if there is no room.

        Args:
            nbytes: of the slab.
            arrays: gets the slab.
            lasting: callers will hold it.
            least: bytes that do where waiting for more would not help; None: `nbytes`.

        Raises:
            ServiceMemoryError: it does not fit, and waiting would not help.
        """
        memory = self._memory
        least = nbytes if least is None else least
        nbytes = max(least, min(nbytes, memory.limit // 2))  # callers may hold the other half
        needed = least + sum(slab.nbytes for slab in arrays.owned)  # encoded and made
        if needed > memory.limit:
            raise ServiceMemoryError(needed, memory.limit, memory.leased)
        slab = memory.allocate(nbytes, lasting=lasting)
        if slab is None:
            began = perf_counter()
            self._without_room += 1
            try:
                slab = await self._wait_for_room(nbytes, least, needed, lasting)
            finally:
                self._without_room -= 1
                self.memory_wait_s += perf_counter() - began
        arrays.owned.append(slab)
        return slab

    async def _wait_for_room(self, nbytes: int, least: int, needed: int, lasting: bool) -> Slab:
        memory = self._memory
        slab: Slab | None = None

        def take() -> bool:
            nonlocal slab
            slab = memory.allocate(nbytes, lasting=lasting)
            while slab is None and self._cache.drop_oldest():
                slab = memory.allocate(nbytes, lasting=lasting)
            return slab is not None

        def give_way(alone_s: float) -> bool:
            nonlocal nbytes
            if alone_s > PATIENCE_S and nbytes == least:
                raise ServiceMemoryError(needed, memory.limit, memory.leased)
            asks_less, nbytes = nbytes > least, least
            return asks_less

        await wait_for_room(
            take,
            others=lambda: self._without_room < self.in_work,
            give_way=give_way,
            pause=functools.partial(anyio.sleep, _POLL_S),
        )
        assert slab is not None
        return slab

    async def _fill(self, jobs: Sequence[Job], payloads: Sequence[memoryview], slab: Slab) -> Array:
        """Copy the bytes into the slab; return the index table of the chunk."""
        table = np.zeros((INDEX_TABLE_ROWS, len(jobs)), np.int64)
        out, place = self._memory.view(slab), 0
        for row, (job, data) in enumerate(zip(jobs, payloads, strict=True)):
            table[ROW, row] = row
            table[INDEX, row] = job.draw
            table[START, row] = slab.offset + place
            table[LENGTH, row] = len(data)
            if len(data) > _COPIED_HERE:
                await self._threads.run(_copy, out[place : place + len(data)], data)
            else:
                out[place : place + len(data)] = data
            place += _aligned(len(data))
        return table

    def _learn(self, result: ChunkResult, jobs: Sequence[Job]) -> None:
        if result.failures:
            return
        if self._template is None and jobs[0].size.shape is not None and 0 in result.values:
            self._learn_template(result.values[0], jobs[0].size.shape)
        if self.fits(jobs[0]):
            self._small_s = average_s(self._small_s, result, len(jobs))
        if self._sizes is not None and len(jobs) == 1 and result.spill_nbytes:
            self._sizes.learn(jobs[0].size.pixels, result.spill_nbytes)

    def _layout(self, jobs: Sequence[Job]) -> RowLayout | None:
        """Return the row of images of one shape that is known, so that workers write into the slab; else None."""
        shape = jobs[0].size.shape
        if self._template is None or shape is None or any(job.size.shape != shape for job in jobs):
            return None
        layout = self._layouts.get(shape)
        if layout is None:
            structure, (first, *others) = self._template
            layout = row_layout(structure, (ArraySpec(shape, first), *others))
            self._layouts.put(shape, layout)
        return layout

    def _learn_template(self, sample: Any, shape: tuple[int, ...]) -> None:
        """Take the structure of the results from the first one, if its first array has the announced shape."""
        structure, leaves = flatten(sample)
        if isinstance(leaves[0], np.ndarray) and leaves[0].shape == shape:
            self._template = structure, (leaves[0].dtype, *map(leaf_spec, leaves[1:]))

    async def _lease(self, result: ChunkResult, arrays: BatchMemory) -> Outcome:
        """Return the image of a chunk of one, over its slab; or a copy where callers hold much memory already."""
        memory, slab, layout = self._memory, arrays.slab, arrays.layout
        assert slab is not None
        if layout is not None and result.written:
            (sample,), roots = row_samples(memory, result, arrays, (0,))
            used = layout.offsets(1)[1]
        else:
            sample, roots, result.roots = result.values[0], result.roots, []
            used = sum(_aligned(root.nbytes) for root in roots)
        while not may_lease(memory, used) and self._cache.drop_oldest():
            memory.free_pending()
        if result.tainted or not may_lease(memory, used):
            self.copies += 1
            return Outcome(await self._threads.run(copied, sample[0]), used, None)
        memory.shrink(slab, used)
        arrays.lease(roots)
        return Outcome(sample[0], used, None)


def _payload(job: Job) -> memoryview:
    assert job.image is not None
    return memoryview(job.image.payload)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _copy(out: memoryview, data: memoryview) -> None:
    out[:] = data


def _outcome(job: Job, row: int, result: ChunkResult) -> Outcome:
    """Return what became of one image of a chunk."""
    failed = next((failure for failure in result.failures if failure.row == row), None)
    if failed is not None:
        cause = failed.error
        error = ImageError(job.reference.name, failed.stage, f"{type(cause).__name__}: {cause}")
        error.__cause__ = cause
        return Outcome(None, 0, error)
    return Outcome(result.values[row][0], 0, None)
