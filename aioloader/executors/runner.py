"""Loop that makes a chunk of samples and writes them to their rows: the same code in every executor.

Results that have no row go to a region of the slab behind the rows, the spill region.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import (
    AllocatingBatchify,
    Program,
)
from aioloader.errors import LoaderError
from aioloader.foundation.error_log import printable
from aioloader.foundation.foreign_generators import ForeignGenerators
from aioloader.foundation.protocols import defines_first, implements
from aioloader.foundation.pytree import LEAF, flatten, leaf_spec, unflatten
from aioloader.foundation.replacement import replacement_rows
from aioloader.foundation.types import (
    BASE,
    EPOCH,
    FILE,
    INDEX,
    LENGTH,
    OFFSET,
    POSITION,
    ROW,
    START,
    Array,
    ArraySpec,
    Chunk,
    ChunkResult,
    Failure,
    IntArray,
    ItemLocation,
    RowLayout,
    StageTimer,
    WorkSpan,
)
from aioloader.foundation.validation import accepts_rng
from aioloader.rng import BATCH_DOMAIN, LATER_DOMAIN, SAMPLE_DOMAIN, Rng, current_rng

if TYPE_CHECKING:
    import mmap


_ALIGN = 64


class Spill:
    """Part of the slab memory that is filled from its start.

    Args:
        memory: the slab memory, writable.
        spill: (offset, nbytes) of the region in it.
    """

    def __init__(self, memory: mmap.mmap, spill: tuple[int, int]) -> None:
        self._memory = memory
        self._start, room = spill
        self._next = self._start
        self._end = self._start + room

    @staticmethod
    def extent(nbytes: int) -> int:
        """Return the bytes that an array of `nbytes` takes, with the space to the next one."""
        return -(-nbytes // _ALIGN) * _ALIGN

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array in the region, or in new memory where it does not fit or is empty."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not nbytes or self._next + nbytes > self._end:
            return np.empty(shape, dtype)
        offset, self._next = self._next, self._next + self.extent(nbytes)
        return np.ndarray(shape, dtype, self._memory, offset)

    def write(self, data: memoryview) -> tuple[int, int] | None:
        """Write bytes to the region; return their (offset, nbytes) in the memory, or None if there is no room."""
        if not data.nbytes or self._next + data.nbytes > self._end:
            return None
        offset, self._next = self._next, self._next + self.extent(data.nbytes)
        region = np.frombuffer(self._memory, np.uint8, data.nbytes, offset)
        region[:] = np.frombuffer(data, np.uint8)  # which lets other threads run, as a copy of bytes does not
        return offset, data.nbytes

    def place_of(self, data: memoryview) -> tuple[int, int] | None:
        """Return the (offset, nbytes) of bytes that are in the region already; they are not overwritten any more.

        None for bytes elsewhere.
        """
        if self._start == self._end or not data.nbytes:
            return None
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        address: int = np.frombuffer(data, np.uint8).ctypes.data
        offset = address - base
        if not self._start <= offset <= offset + data.nbytes <= self._end:
            return None
        self._next = max(self._next, offset + self.extent(data.nbytes))
        return offset, data.nbytes


try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # not Linux: the number of waits is not known

    def usage() -> tuple[float, int]:
        """Return the CPU seconds of this thread, and 0."""
        return time.thread_time(), 0

else:

    def usage() -> tuple[float, int]:
        """Return the CPU seconds of this thread, and how often it stopped to wait: for a file, a lock, or a sleep."""
        # The seconds in `getrusage` are those of the last tick: of a chunk they would lack 2 ms.
        return time.thread_time(), getrusage(RUSAGE_THREAD).ru_nvcsw


_STRETCH = 256
_STRETCH_BYTES = 1 << 20
# Parsing items together costs as much as parsing ten one by one.
_LEAST_PARSED = 10
_ARRAYS = (np.ndarray, np.generic)
_NODES = (tuple, list, Mapping)
# The most common objects without a row. `flatten` and `leaf_spec` take 2 µs to find that out.
_TEXTS = (bytes, str)


def _replace_failed(samples: list[Any], chunk: Chunk, failures: list[Failure]) -> list[Any]:
    """Return the samples of a whole batch: those of a chunk that did not fail, and replacements of the others."""
    failed = {failure.row for failure in failures}
    valid = [row for row in chunk.index_table[ROW].tolist() if row not in failed]
    made = dict(zip(valid, samples, strict=True))
    fill = replacement_rows(chunk.rows, valid)
    return [made[fill.get(row, row)] for row in range(chunk.rows)]


def _copied(sample: Any, copies: bool = True) -> Any:
    """Return the sample with copies of its arrays: the transform that made them may reuse them for the next one.

    Args:
        sample: the sample.
        copies: False: there is no next one before the arrays are packed.

    Raises:
        TypeError: it contains a coroutine, which would never be awaited.
    """
    if type(sample) in _TEXTS:
        return sample
    structure, leaves = flatten(sample)
    for leaf in leaves:
        if isinstance(leaf, CoroutineType):
            name = leaf.__qualname__
            leaf.close()
            raise TypeError(
                f"a transform or the dataset returned a coroutine ({name}), which is not awaited here: make the "
                "transform itself an async function, or mark it by .transform(fn, concurrency=64)"
            )
    if not copies:
        return sample
    return unflatten(structure, [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def _scalar_type(spec: ArraySpec | None) -> type[np.generic] | None:
    """Return the type of numpy scalars that always fit a row; None where the type alone does not decide it."""
    plain = spec is not None and spec.shape == () and spec.dtype.isnative and spec.dtype.kind in "biufc"
    return spec.dtype.type if spec is not None and plain else None


class Rows:
    """Rows of a chunk's samples, in a slab.

    Args:
        memory: the slab region (a writable buffer).
        chunk: has the places of its batch's arrays in it, and their number of rows.
        layout: the leaves of a row; None: no sample has a row.

    Attributes:
        first: the array of a sample's first leaf, or None: stages that can write there save a copy.
        is_flat: a sample is a tuple of leaves.
    """

    __slots__ = ("_arrays", "_columns", "_layout", "_scalars", "first", "is_flat")

    def __init__(self, memory: mmap.mmap, chunk: Chunk, layout: RowLayout | None) -> None:
        self._layout = layout
        self._arrays: Sequence[Array | None] = ()
        self.is_flat = False
        if layout is not None:
            self.is_flat = layout.structure == ("tuple", None, (LEAF,) * len(layout.leaves))
            self._scalars = [_scalar_type(leaf) for leaf in layout.leaves]
            self._arrays = layout.arrays(memory, chunk.bases, chunk.rows)
            self._columns = list(zip(self._scalars, self._arrays, strict=True))
        self.first = self._arrays[0] if self._arrays else None

    def places(self, row: int, count: int) -> list[Array] | None:
        """Return the places of a sample's first leaves; None if one of them has no array."""
        arrays = self._arrays[:count]
        if len(arrays) < count:
            return None
        found = [array[row] for array in arrays if array is not None]
        return found if len(found) == count else None

    def takes(self, others: Sequence[Array]) -> bool:
        """Return whether `fill` may be called: a sample is a tuple of an array and of scalars of these arrays."""
        return self.is_flat and [array.dtype.type for array in others] == self._scalars[1:]

    def fill(self, numbers: IntArray, others: Sequence[Array], result: ChunkResult) -> None:
        """Complete rows whose first leaf is there.

        Args:
            numbers: of the rows.
            others: the other leaves, arrays of scalars.
            result: notes that the rows are written.
        """
        for array, values in zip(self._arrays[1:], others, strict=True):
            assert array is not None
            array[numbers] = values
        result.written += numbers.tolist()

    def put(self, sample: Any, row: int, out: Any | None, result: ChunkResult) -> bool:
        """Write a sample of the most common kind into its row: a tuple of `out` and scalars of the row's types.

        Returns:
            False if the sample is not of this kind; use `write` then.
        """
        if not self.is_flat or type(sample) is not tuple or out is None or len(sample) != len(self._columns):
            return False
        for leaf, (scalar, array) in zip(sample, self._columns, strict=True):
            if leaf is not out:
                if type(leaf) is not scalar or array is None:
                    return False
                array[row] = leaf
        result.written.append(row)
        return True

    def write(self, sample: Any, row: int, out: Any, result: ChunkResult) -> bool:
        """Write a sample into its row; return False if it does not fit.

        Args:
            sample: the sample.
            row: its row.
            out: a leaf that is in its row already, or a list of those; or None.
            result: notes that the row is written.
        """
        if (layout := self._layout) is None:
            return False
        leaves: Any
        written = out if type(out) is list else (out,)
        if self.is_flat and type(sample) is tuple and len(sample) == len(layout.leaves):
            leaves = (
                sample  # by far the most common kind; a part that is not a leaf has no spec and is refused
            )
        elif layout.structure is LEAF and type(sample) in _TEXTS:
            leaves = (sample,)
        else:
            structure, leaves = flatten(sample)
            if structure != layout.structure:
                return False
        for leaf, spec, scalar in zip(leaves, layout.leaves, self._scalars, strict=True):
            if type(leaf) is scalar or (leaf is not None and any(leaf is place for place in written)):
                continue  # a row fits itself
            if spec is None and type(leaf) in _TEXTS:
                continue
            if spec is not None and isinstance(leaf, _ARRAYS):
                if leaf.shape != spec.shape or leaf.dtype != spec.dtype:
                    return False
            elif leaf_spec(leaf) != spec or isinstance(leaf, _NODES) or is_dataclass(leaf):
                return False
        for number, (leaf, array) in enumerate(zip(leaves, self._arrays, strict=True)):
            if array is None:
                result.objects.setdefault(number, {})[row] = (
                    leaf.copy() if isinstance(leaf, np.ndarray) else leaf
                )
            elif not any(leaf is place for place in written):
                array[row] = leaf
        result.written.append(row)
        return True


class TransformChain:
    """Stages that follow one another without an async transform between them.

    Attributes:
        stages: the stages.
        names: the name of each in a `Failure`.
        in_place: whether a stage may write to a row: no foreign code follows that might keep a reference to it.
    """

    def __init__(self, stages: tuple[Any, ...]) -> None:
        self.stages = stages
        self.names = [f"transform:{stage.name}" for stage in stages]
        native = [stage.native for stage in stages]
        self.in_place = [all(native[place:]) for place in range(len(native))]

    def run(self, sample: Any, rng: Rng, out: Array | None, trace: StageTimer, done: int = 0) -> Any:
        """Return the sample after the stages from number `done` on."""
        for place in range(done, len(self.names)):
            begin = perf_counter()
            trace.stage = self.names[place]
            sample = self.stages[place].apply(sample, rng, out if self.in_place[place] else None)
            trace.transforms[place] += perf_counter() - begin
        return sample


def bulk_method(program: Program) -> Callable[..., list[bytes | None]] | None:
    """Return the decoder's method `many` if samples are the payloads themselves, which are copied many at a time.

    None if the program transforms them, or if the decoder's ``__call__`` is that of a class derived from the one that
    has `many`: `many` was not written for it.
    """
    decoder = program.decoder
    if (
        program.stages
        or program.later
        or decoder is None
        or not defines_first(type(decoder), "many", "__call__")
    ):
        return None
    return decoder.many


def _takes_payloads(chunk: Chunk) -> bool:
    """Return whether the samples of a chunk can be payloads: for a batchify function, or a row of one object."""
    if chunk.samples is not None:
        return False
    layout = chunk.layout
    return chunk.custom_collate or (layout is not None and layout.leaves == (None,) and not layout.structure)


def _keep_payloads(payloads: Sequence[bytes | None], chunk: Chunk, result: ChunkResult) -> None:
    """Add payloads that were made many at a time to a result, as the objects of their rows."""
    rows = chunk.index_table[ROW].tolist()
    made = {row: payload for row, payload in zip(rows, payloads, strict=True) if payload is not None}
    if made:
        result.objects.setdefault(0, {}).update(made)
        result.written += made


def _note_stages(result: ChunkResult, trace: StageTimer, leg: TransformChain) -> None:
    """Add to a result what the stages of its samples took and found."""
    result.decode_s = trace.decode_s
    if trace.bad_entries:
        result.bad_entries = dict(trace.bad_entries)
    trace.count_decodes(result)
    result.transform_s = sum(trace.transforms)
    for step, seconds in zip(leg.stages, trace.transforms, strict=True):
        result.transforms[step.name] = result.transforms.get(step.name, 0.0) + seconds


class BatchMaker:
    """Maker of batches by the batchify function of a program, which is called with all samples of a batch.

    Args:
        program: has the function, if there is one.
        memory: the slab region.
        rng: the draws of the samples; those of a batch are its own.
        interruptible, spills: see `Runner`.
    """

    def __init__(
        self, program: Program, memory: mmap.mmap, rng: Rng, *, interruptible: bool, spills: bool
    ) -> None:
        self._program = program
        self._memory = memory
        self._rng = rng
        self._interruptible = interruptible
        batchify = program.batchify
        self._allocates = spills and implements(batchify, AllocatingBatchify, instead_of="__call__")
        self._draws = batchify is not None and accepts_rng(
            batchify.collate if self._allocates else batchify  # type: ignore[attr-defined]
        )
        self._generators: ForeignGenerators | None = None
        if program.foreign and not program.seed_globals and batchify is not None:
            self._generators = ForeignGenerators(program.seed, False, [batchify])

    def collate(self, samples: list[Any], chunk: Chunk, result: ChunkResult) -> None:
        """Make the batch of a chunk's samples."""
        start = perf_counter()
        if self._program.replaces and len(samples) + len(result.failures) == len(chunk):  # not cancelled
            samples = _replace_failed(samples, chunk, result.failures)
        result.samples = len(samples)
        watch = self._generators
        watched = None if watch is None else watch.before(*chunk.first, 0)
        result.batch = self._batchify(samples, chunk)
        if watch is not None:
            watch.after(watched)
        result.collate_s = perf_counter() - start

    def _batchify(self, samples: list[Any], chunk: Chunk) -> Any:
        """Return the batch. An error that looks like a cancellation is wrapped, so that it cancels no task."""
        batchify: Any = self._program.batchify
        drawn = {}
        epoch, position = chunk.first
        self._rng.seek(self._program.seed, epoch, 0, BATCH_DOMAIN, position=position)
        if self._draws:
            drawn = {"rng": self._rng}
        token = current_rng.set(self._rng)
        try:
            if self._allocates:
                return batchify.collate(samples, Spill(self._memory, chunk.spill).allocate, **drawn)
            return batchify(samples, **drawn)
        except (Exception, SystemExit):
            raise
        except BaseException as error:
            if self._interruptible and isinstance(error, KeyboardInterrupt):
                raise
            raise LoaderError(f"the batchify function raised {type(error).__name__}: {error}") from error
        finally:
            current_rng.reset(token)


class Runner:
    """Runner of chunks, one per worker or thread; it keeps objects that are costly to make again.

    Args:
        program: what to run.
        memory: the slab region (a writable buffer).
        interruptible: Ctrl-C reaches this thread; elsewhere a KeyboardInterrupt comes from the sample.
        spills: results without rows are sent through the chunk's spill region, so a batch may be made there, and a
            single sample need not be copied before it is packed.
    """

    def __init__(
        self, program: Program, memory: mmap.mmap, interruptible: bool = False, *, spills: bool = False
    ) -> None:
        self._interruptible = interruptible
        self._spills = spills
        self.program = program
        self.memory = memory
        self._bytes = memoryview(memory).toreadonly()
        self._rng = Rng(program.seed)
        self._legs = [TransformChain(stages) for stages in (program.stages, *program.later)]
        # A decoder may do its work and that of the first stages in one; it decodes less and copies less then.
        decoder = program.decoder
        self._fused = None if decoder is None else decoder.fuse(program.stages)
        leg, done = self._legs[0], 0 if self._fused is None else self._fused.stages
        # The stages that are fused may write to a row.
        self._fused_in_row = done == len(leg.names) or leg.in_place[done]
        # More than 1: arrays of an image that are written to several rows.
        self._leaves = 1 if self._fused is None else self._fused.leaves
        # Samples that are the payloads themselves are made many at a time.
        self._many = bulk_method(program)
        self._draws = False  # the last sample drew random numbers
        self._seeded: Any = program.dataset if program.seeds else None
        self._batches = BatchMaker(program, memory, self._rng, interruptible=interruptible, spills=spills)
        self._generators: ForeignGenerators | None = None
        if program.foreign:
            stages = [stage for leg in self._legs for stage in leg.stages if not stage.native]
            roots = [] if program.seeds else [program.dataset, decoder, *stages, program.batchify]
            self._generators = ForeignGenerators(program.seed, program.seed_globals, roots)

    def run(self, chunk: Chunk, trace: StageTimer | None = None) -> ChunkResult:
        """Run a chunk to its end; see `steps`."""
        steps = self.steps(chunk, trace)
        try:
            while True:
                next(steps)
        except StopIteration as stop:
            result: ChunkResult = stop.value
            return result

    def steps(self, chunk: Chunk, trace: StageTimer | None = None) -> Generator[None, None, ChunkResult]:
        """Run a chunk; yield after every sample, return a `ChunkResult`.

        Args:
            chunk: the samples.
            trace: a new timer, which notes each sample that begins and its stages, and may cancel the chunk.
        """
        result = ChunkResult()
        started = perf_counter()
        used = usage()
        layout = None if chunk.custom_collate else chunk.layout
        rows = Rows(self.memory, chunk, layout)
        leg, rng, seed = self._legs[chunk.segment], self._rng, self.program.seed
        trace = trace or StageTimer()
        trace.transforms = [0.0] * len(leg.stages)
        payloads = yield from self._bulk(chunk, trace)
        bulk = None not in payloads
        samples: list[Any] = payloads if bulk and chunk.custom_collate else []
        columns = [] if bulk else chunk.index_table.T.tolist()
        if not chunk.custom_collate:
            _keep_payloads(payloads, chunk, result)
        parsed, others = self._parsed(chunk, trace)
        words: list[list[int]] = []
        if self._draws and columns and not chunk.segment:
            words = rng.ahead(seed, chunk.index_table[[EPOCH, INDEX, POSITION]].T)
        fill = self._filler(parsed, words, rows, others, trace) if parsed else None
        filled: list[int] = []
        for place, column in enumerate(columns):
            if payloads[place] is not None:
                if chunk.custom_collate:
                    samples.append(payloads[place])
                continue
            if not trace.begin(place):
                break
            row, done, drawn = column[ROW], False, words[place] if words else ()
            item = parsed[place] if parsed else None
            try:
                if fill is not None and item is not None:
                    rng.seek(seed, column[EPOCH], column[INDEX], position=column[POSITION], words=drawn)
                    done = fill(place, row)
                if done:
                    filled.append(place)
                else:
                    whole = None if item is None else (item, *(other[place] for other in others))
                    sample, out = self._make(chunk, place, column, rows, drawn, whole, trace)
                    if not rows.put(sample, row, out, result):
                        trace.stage = "collate"
                        if chunk.custom_collate:
                            samples.append(_copied(sample))
                        elif not rows.write(sample, row, out, result):
                            result.values[row] = _copied(sample, len(columns) > 1 or not self._spills)
            except BaseException as error:
                if self._interruptible and issubclass(type(error), KeyboardInterrupt):
                    raise
                result.failures.append(Failure(row, trace.stage, printable(error)))
            yield
        if filled:
            rows.fill(chunk.index_table[ROW, filled], [other[filled] for other in others], result)
        if columns and chunk.samples is None:
            self._draws = rng.drew
        _note_stages(result, trace, leg)
        # With incomplete items the whole batch is made again: the batchify function never gets a part of it.
        if chunk.custom_collate and samples and not (result.failures and result.incomplete):
            trace.stage = "collate"
            self._collate(samples, chunk, result)
        self._account(result, started, used, len(chunk))
        return result

    def _account(self, result: ChunkResult, started: float, used: tuple[float, int], samples: int) -> None:
        """Record the time that the chunk took its worker."""
        ended = perf_counter()
        cpu_s, pauses = usage()
        result.work_s = result.longest_s = ended - started
        result.cpu_s = cpu_s - used[0]
        result.pauses = pauses - used[1]
        if self.program.traced:
            parts = [("decode", result.decode_s)]
            parts += [(f"transform:{name}", seconds) for name, seconds in result.transforms.items()]
            if self.program.batchify is not None:
                parts.append(("collate", result.collate_s))
            thread = threading.current_thread().name
            place = os.getpid(), threading.get_native_id(), thread
            result.work_spans.append(WorkSpan(*place, started, ended, samples, tuple(parts)))

    def _bulk(self, chunk: Chunk, trace: StageTimer) -> Generator[None, None, list[bytes | None]]:
        """Make payloads that are samples, many at a time; return the sample of each place, None if it is not made."""
        if self._many is None or not _takes_payloads(chunk):
            return [None] * len(chunk)
        memory, start, length = self._found(chunk)
        if memory is None:
            return [None] * len(chunk)
        payloads: list[bytes | None] = []
        begin = perf_counter()
        while (low := len(payloads)) < len(chunk):
            # A stretch takes no longer than a sample of ordinary size.
            high = low + max(1, int(np.searchsorted(np.cumsum(length[low : low + _STRETCH]), _STRETCH_BYTES)))
            if not trace.begin(low):
                return payloads + [None] * (len(chunk) - low)
            payloads += self._many(memory, start[low:high], length[low:high])
            trace.decode_s += perf_counter() - begin
            yield
            begin = perf_counter()
        return payloads

    def _parsed(self, chunk: Chunk, trace: StageTimer) -> tuple[list[Any], list[Array]]:
        """Parse the items of a chunk together; return empty lists if there are few, or it is not possible."""
        if (
            self._fused is None
            or not self._fused.parses_many
            or chunk.samples is not None
            or chunk.extras is not None  # of some items only parts were read
            or len(chunk) < _LEAST_PARSED
        ):
            return [], []
        begin = perf_counter()
        memory, start, length = self._found(chunk)
        parsed: tuple[list[Any], list[Array]] = [], []
        if memory is not None:
            view = self._bytes if memory is self.memory else memoryview(memory)
            parsed = self._fused.parse_many(view, start, length)
        trace.decode_s += perf_counter() - begin
        return parsed

    def _filler(
        self,
        items: list[Any],
        words: list[list[int]],
        rows: Rows,
        others: Sequence[Array],
        trace: StageTimer,
    ) -> Callable[[int, int], bool] | None:
        """Return the function that makes usual samples in their rows; None if other code runs for each sample."""
        fused = self._fused
        if fused is None or fused.stages != len(self._legs[0].names) or self._generators is not None:
            return None
        if rows.first is None or not rows.takes(others):
            return None
        return fused.filler(items, words, rows.first, self._rng, trace)

    def _make(
        self,
        chunk: Chunk,
        place: int,
        column: list[int],
        rows: Rows,
        words: Sequence[int],
        parsed: tuple[Any, ...] | None,
        trace: StageTimer,
    ) -> tuple[Any, Any]:
        """Make a sample; return it, and the row, or rows, that its image may be in."""
        row = column[ROW]
        if self._leaves > 1 and chunk.samples is None:
            out: Any = rows.places(row, self._leaves)
        else:
            out = None if rows.first is None else rows.first[row]
        if chunk.samples is not None:
            return self._continue(chunk, place, column, out, trace), out
        extra = None if chunk.extras is None else chunk.extras[place]
        return self._sample(column, extra, out, trace, words, parsed), out

    def _found(self, chunk: Chunk) -> tuple[Any, IntArray, IntArray]:
        """Return the memory that contains all items of a chunk, or None, and their places in it."""
        start, length = chunk.index_table[START], chunk.index_table[LENGTH]
        mapped = start < 0
        if not mapped.any():
            return self.memory, start, length
        files, offset = chunk.index_table[FILE], chunk.index_table[OFFSET]
        memory = None
        if mapped.all() and (files == files[0]).all():
            maps = self.program.maps
            assert maps is not None
            with suppress(OSError):  # each sample will fail with it
                memory = maps.whole(int(files[0]), offset + length)
        return memory, offset, length

    def _collate(self, samples: list[Any], chunk: Chunk, result: ChunkResult) -> None:
        if self._many is not None and self._generators is not None:
            # What the batchify function draws follows the last sample, however that was made.
            self._generators.seed(*chunk.index_table[[EPOCH, INDEX, POSITION], -1].tolist())
        self._batches.collate(samples, chunk, result)

    def _sample(
        self,
        column: list[int],
        extra: Any,
        out: Any,
        trace: StageTimer,
        words: Sequence[int],
        parsed: tuple[Any, ...] | None,
    ) -> Any:
        program, leg = self.program, self._legs[0]
        rng = self._rng
        epoch, index, position = column[EPOCH], column[INDEX], column[POSITION]
        rng.seek(program.seed, epoch, index, position=position, words=words)
        generators = self._generators
        watched = None if generators is None else generators.before(epoch, index, position)
        done = 0 if self._fused is None else self._fused.stages
        if program.decoder is None:
            assert program.dataset is not None
            begin = perf_counter()
            if self._seeded is not None:
                self._seeded.seed_generators(epoch, index, position)
            token = current_rng.set(rng)
            try:
                sample = program.dataset[column[BASE] if extra is None else extra]
            finally:
                current_rng.reset(token)
            trace.decode_s += perf_counter() - begin
        else:
            path = program.paths[column[FILE]] if column[FILE] < len(program.paths) else None
            location = ItemLocation(None, path, column[OFFSET])
            fused: dict[str, Any] = {
                "rng": rng,
                "out": out if self._fused_in_row else None,
                "trace": trace,
                "file": column[FILE],
            }
            if parsed is not None:
                assert self._fused is not None
                sample = self._fused.make(parsed, extra, location, **fused)
            elif self._fused is not None:
                sample = self._fused(self._data(column, trace), extra, location, **fused)
            else:
                begin = perf_counter()
                sample = program.decoder(self._data(column, trace), extra, location)
                trace.decode_s += perf_counter() - begin
        if done < len(leg.names):
            sample = leg.run(sample, rng, out if self._leaves == 1 else None, trace, done)
        if generators is not None:
            generators.after(watched)
        return sample

    def _data(self, column: list[int], trace: StageTimer) -> memoryview:
        """Return the bytes of an item."""
        start, length = column[START], column[LENGTH]
        if start >= 0:
            return self._bytes[start : start + length]
        trace.stage = "fetch"
        assert self.program.maps is not None
        data = self.program.maps.record(column[FILE], column[OFFSET], length)
        trace.stage = "decode"
        return data

    def _continue(
        self, chunk: Chunk, place: int, column: list[int], out: Array | None, trace: StageTimer
    ) -> Any:
        """Return a sample after the stages of a later segment, or of one that did not begin with bytes."""
        assert chunk.samples is not None
        program, segment = self.program, chunk.segment
        epoch, index, position = column[EPOCH], column[INDEX], column[POSITION]
        domain = LATER_DOMAIN + segment if segment else SAMPLE_DOMAIN
        self._rng.seek(program.seed, epoch, index, domain, position=position)
        generators = self._generators
        watched = None if generators is None else generators.before(epoch, index, position, segment)
        sample = self._legs[segment].run(chunk.samples[place], self._rng, out, trace)
        if generators is not None:
            generators.after(watched)
        return sample
