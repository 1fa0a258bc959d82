"""What is done to every sample of a loader, and the loop that does it: the same code in every executor."""

from __future__ import annotations

import os
import random
import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader._stand_ins import stand_ins
from aioloader._tree import LEAF, flatten, unflatten
from aioloader._types import (
    BASE,
    EPOCH,
    FILE,
    INDEX,
    LENGTH,
    OFFSET,
    ROW,
    START,
    Array,
    ArraySpec,
    Chunk,
    ChunkResult,
    Facts,
    Failure,
    IntArray,
    RowLayout,
    Trace,
    WorkSpan,
)
from aioloader.errors import LoaderError
from aioloader.executors.usage import usage
from aioloader.rng import GLOBALS_DOMAIN, LATER_DOMAIN, SAMPLE_DOMAIN, Rng

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ("ForeignRandomnessWarning", "Program", "Runner", "leaf_spec")


# Streams whose first words are drawn together.
_AHEAD = 16
_STRETCH = 256
_STRETCH_BYTES = 1 << 20


class ForeignRandomnessWarning(UserWarning):
    """A transform draws from a global generator of Python or numpy where that is not reproducible.

    It is told by the generators' state, which changes while samples are made. Where other threads run, one of them
    may have changed it; the text then says so.
    """


@dataclass(frozen=True)
class Program:
    """The part of a loader that runs in its executor; picklable, sent to a worker once.

    Attributes:
        decoder: bytes to sample, or None: then `dataset` is indexed.
        dataset: a foreign dataset, or None.
        paths: files of the byte source where they are few, for errors.
        replaces: in a batch that `batchify` collates, another sample takes the place of one that failed.
        maps: files of which records are looked up in a map (``record``, ``whole``), or None.
        stages: what is done to a sample, in order (`aioloader.datasets.resolve.Stage`), up to the first async one.
        later: the same after each async transform, or several in a row.
        batchify: collates a whole batch in the executor, or None: samples are written to rows.
        seed: the loader's seed.
        seed_globals: set the global generators of Python, numpy and torch (on the CPU) before each sample.
        foreign: whether code that is not ours runs; only such code can draw from the global generators.
        traced: results say when and where they were made.
    """

    decoder: Any
    dataset: Any
    paths: tuple[str, ...]
    stages: tuple[Any, ...]
    batchify: Callable[[list[Any]], Any] | None
    seed: int
    seed_globals: bool
    foreign: bool
    maps: Any = None
    replaces: bool = False
    traced: bool = False
    later: tuple[tuple[Any, ...], ...] = ()

    @property
    def copies_only(self) -> bool:
        """Whether samples are the payloads themselves, found and copied many at a time."""
        return not self.stages and not self.later and self.batchify is None and _many_fits(self.decoder)


def leaf_spec(value: Any) -> ArraySpec | None:
    """The row that a leaf needs; None if it has none (strings, objects)."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject else ArraySpec(value.shape, value.dtype)
    if isinstance(value, np.character):
        return None  # text, as str and bytes are
    if isinstance(value, np.generic):
        return None if value.dtype.hasobject else ArraySpec((), value.dtype)
    if isinstance(value, (bool, int, float, complex)):
        dtype = np.asarray(value).dtype
        return None if dtype.hasobject else ArraySpec((), dtype)
    if hasattr(value, "__array__"):
        return leaf_spec(np.asarray(value))
    return None


def _scalar_type(spec: ArraySpec | None) -> type[np.generic] | None:
    """The numpy scalars that fit a row as they are; None where it takes more than their type to tell."""
    plain = spec is not None and spec.shape == () and spec.dtype.isnative and spec.dtype.kind in "biufc"
    return spec.dtype.type if spec is not None and plain else None


def _filled(samples: list[Any], chunk: Chunk, failures: list[Failure]) -> list[Any]:
    """The samples of a whole batch, those of a chunk that did not fail, with others in the places of all that did."""
    failed = {failure.row for failure in failures}
    sound = [row for row in chunk.numbers[ROW].tolist() if row not in failed]
    made = dict(zip(sound, samples, strict=True))
    fill = stand_ins(chunk.rows, sound)
    return [made[fill.get(row, row)] for row in range(chunk.rows)]


_ARRAYS = (np.ndarray, np.generic)
_NODES = (tuple, list, Mapping)


def _many_fits(decoder: Any) -> bool:
    """Whether a decoder's `many` was written for its ``__call__``, and not for that of a class it comes from."""
    order = type(decoder).__mro__
    first = [
        next((n for n, cls in enumerate(order) if name in vars(cls)), None) for name in ("many", "__call__")
    ]
    return first[0] is not None and first[1] is not None and first[0] <= first[1]


def _own(sample: Any) -> Any:
    """The sample with arrays of its own: what made it may write to them again for the next one.

    Raises:
        TypeError: there is a coroutine in it, which nobody would await.
    """
    structure, leaves = flatten(sample)
    for leaf in leaves:
        if isinstance(leaf, CoroutineType):
            name = leaf.__qualname__
            leaf.close()
            raise TypeError(
                f"a transform or the dataset gave a coroutine ({name}), which is not awaited here: make the transform "
                "an async function itself, or say so by .transform(fn, concurrency=64)"
            )
    return unflatten(structure, [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


class _Leg:
    """Stages that follow one another without an async transform between them.

    Attributes:
        stages: the stages.
        names: what each is called in a `Failure`.
        in_place: whether a row may be handed to it: no foreign code comes after it that might keep what it is given.
    """

    def __init__(self, stages: tuple[Any, ...]) -> None:
        self.stages = stages
        self.names = [f"transform:{stage.name}" for stage in stages]
        native = [stage.native for stage in stages]
        self.in_place = [all(native[place:]) for place in range(len(native))]

    def run(self, sample: Any, rng: Rng, out: Array | None, trace: Trace, done: int = 0) -> Any:
        """The sample after the stages from number `done` on."""
        for place in range(done, len(self.names)):
            begin = perf_counter()
            trace.stage = self.names[place]
            sample = self.stages[place].apply(sample, rng, out if self.in_place[place] else None)
            trace.transforms[place] += perf_counter() - begin
        return sample


class Runner:
    """Runs chunks. One per worker or thread; keeps what is costly to make anew.

    Args:
        program: what to run.
        memory: the slab region (a writable buffer).
        interruptible: Ctrl-C reaches this thread; elsewhere a KeyboardInterrupt is the sample's own.
    """

    def __init__(self, program: Program, memory: Any, interruptible: bool = False) -> None:
        self._interruptible = interruptible
        self.program = program
        self.memory = memory
        self._bytes = memoryview(memory).toreadonly()
        self._rng = Rng(program.seed)
        self._globals_rng = Rng(program.seed)
        self._legs = [_Leg(stages) for stages in (program.stages, *program.later)]
        # A decoder may make its sample and the first stages in one; it decodes less and copies less then.
        fuse = getattr(program.decoder, "fuse", None)
        self._fused = None if fuse is None else fuse(program.stages)
        # Samples that are the payloads themselves are made many at a time.
        self._many = program.decoder.many if program.copies_only else None
        self._draws = False  # the last sample did
        self._plain: Any = None
        self._scalars: list[Any] = []
        self._changed_before = False
        self._watch_globals = 16 if program.foreign and not program.seed_globals else 0

    def run(self, chunk: Chunk, **options: Any) -> ChunkResult:
        """Run a chunk to its end; see `steps`."""
        steps = self.steps(chunk, **options)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: ChunkResult = stop.value
                return result

    def steps(
        self,
        chunk: Chunk,
        called_off: Callable[[], bool] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Generator[None, None, ChunkResult]:
        """Run a chunk; yields after every sample, returns a `ChunkResult`.

        Args:
            chunk: the samples.
            called_off: asked before every sample whether to stop.
            progress: told the place in the chunk of every sample before it is worked on.
        """
        result = ChunkResult()
        started = perf_counter()
        used = usage()
        layout = None if chunk.whole else chunk.layout
        if layout is not None:
            self._plain = ("tuple", None, (LEAF,) * len(layout.leaves))
            self._scalars = [_scalar_type(leaf) for leaf in layout.leaves]
        arrays = self._row_arrays(chunk, layout)
        samples: list[Any] = []
        columns = chunk.numbers.T.tolist()
        leg = self._legs[chunk.segment]
        trace = Trace([0.0] * len(leg.stages))
        made = yield from self._bulk(chunk, result, trace, called_off, progress)
        words: list[list[int]] = []
        words_end = 0
        for place, column in enumerate(columns):
            if made[place]:
                continue
            if called_off is not None and called_off():
                break
            if self._draws and place >= words_end and not chunk.segment:
                few = columns[place : place + _AHEAD]
                words = self._rng.ahead(self.program.seed, [(each[EPOCH], each[INDEX]) for each in few])
                words_end = place + len(few)
            if progress is not None:
                progress(place)
            row = column[ROW]
            extra = None if chunk.extras is None else chunk.extras[place]
            out = arrays[0][row] if arrays and arrays[0] is not None else None
            trace.stage = "decode"
            try:
                drawn = words[place - words_end] if place < words_end else None
                if chunk.samples is None:
                    sample = self._sample(column, extra, out, trace, drawn)
                else:
                    sample = self._go_on(chunk, place, column, out, trace)
                trace.stage = "collate"
                if chunk.whole:
                    samples.append(_own(sample))
                elif not self._write(sample, row, layout, arrays, out, result):
                    result.values[row] = _own(sample)
            except BaseException as error:
                if self._interruptible and isinstance(error, KeyboardInterrupt):
                    raise
                result.failures.append(Failure(row, trace.stage, error))
            yield
        result.decode_s = trace.decode_s
        result.transform_s = sum(trace.transforms)
        for step, seconds in zip(leg.stages, trace.transforms, strict=True):
            result.transforms[step.name] = result.transforms.get(step.name, 0.0) + seconds
        if chunk.whole and samples:
            start = perf_counter()
            if self.program.replaces and len(samples) + len(result.failures) == len(chunk):  # not called off
                samples = _filled(samples, chunk, result.failures)
            result.samples = len(samples)
            result.batch = self._batchify(samples)
            result.collate_s = perf_counter() - start
        self._account(result, started, used, len(chunk))
        return result

    def _account(self, result: ChunkResult, started: float, used: tuple[float, int], samples: int) -> None:
        """Enter what the chunk took of its worker."""
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
            result.spans.append(WorkSpan(*place, started, ended, samples, tuple(parts)))

    def _batchify(self, samples: list[Any]) -> Any:
        """The batch. What it raises ends no task: one that looks like a cancellation would be taken for one."""
        assert self.program.batchify is not None
        try:
            return self.program.batchify(samples)
        except (Exception, SystemExit):
            raise
        except BaseException as error:
            if self._interruptible and isinstance(error, KeyboardInterrupt):
                raise
            raise LoaderError(f"the batchify function raised {type(error).__name__}: {error}") from error

    def _bulk(
        self,
        chunk: Chunk,
        result: ChunkResult,
        trace: Trace,
        called_off: Callable[[], bool] | None,
        progress: Callable[[int], None] | None,
    ) -> Generator[None, None, list[bool]]:
        """Make payloads that are samples, a stretch at a time; gives which samples are made."""
        made = [False] * len(chunk)
        layout = chunk.layout
        if (
            self._many is None
            or chunk.whole
            or chunk.samples is not None
            or layout is None
            or layout.leaves != (None,)
            or layout.structure
        ):
            return made
        memory, start, length = self._found(chunk)
        if memory is None:
            return made
        rows = chunk.numbers[ROW].tolist()
        objects = result.objects.setdefault(0, {})
        begin = perf_counter()
        low = 0
        while low < len(made):
            # Nobody waits longer for a stretch than for a sample of ordinary size.
            high = low + max(1, int(np.searchsorted(np.cumsum(length[low : low + _STRETCH]), _STRETCH_BYTES)))
            if called_off is not None and called_off():
                break
            if progress is not None:
                progress(low)
            payloads = self._many(memory, start[low:high], length[low:high])
            for place, payload in enumerate(payloads, low):
                if payload is not None:
                    made[place] = True
                    objects[rows[place]] = payload
            low = high
            trace.decode_s += perf_counter() - begin
            yield
            begin = perf_counter()
        result.written += objects
        return made

    def _found(self, chunk: Chunk) -> tuple[Any, IntArray, IntArray]:
        """The memory that holds all items of a chunk, and their places in it; None where there is not one."""
        start, length = chunk.numbers[START], chunk.numbers[LENGTH]
        mapped = start < 0
        if not mapped.any():
            return self.memory, start, length
        files, offset = chunk.numbers[FILE], chunk.numbers[OFFSET]
        memory = None
        if mapped.all() and (files == files[0]).all():
            with suppress(OSError):  # each sample will say so
                memory = self.program.maps.whole(int(files[0]), offset + length)
        return memory, offset, length

    def _sample(
        self, column: list[int], extra: Any, out: Array | None, trace: Trace, words: list[int] | None
    ) -> Any:
        program, leg = self.program, self._legs[0]
        rng = self._rng
        rng.seek(program.seed, column[EPOCH], column[INDEX])
        if words is not None:
            rng.resume(words)
        if program.seed_globals and program.foreign:
            self._seed_globals(column[EPOCH], column[INDEX])
        watched = self._globals_state() if self._watch_globals else None
        done = 0
        begin = perf_counter()
        if program.decoder is None:
            sample = program.dataset[column[BASE]]
            trace.decode_s += perf_counter() - begin
        else:
            start, length = column[START], column[LENGTH]
            if start >= 0:
                data = self._bytes[start : start + length]
            else:
                trace.stage = "read"
                data = program.maps.record(column[FILE], column[OFFSET], length)
                trace.stage = "decode"
            path = program.paths[column[FILE]] if column[FILE] < len(program.paths) else None
            facts = Facts(None, path, column[OFFSET])
            if self._fused is None:
                sample = program.decoder(data, extra, facts)
                trace.decode_s += perf_counter() - begin
            else:
                done = self._fused.stages
                row = out if done == len(leg.names) or leg.in_place[done] else None
                sample = self._fused(data, extra, facts, rng, row, trace)
        sample = leg.run(sample, rng, out, trace, done)
        if watched is not None:
            self._watch(watched)
        self._draws = rng.drew
        return sample

    def _go_on(self, chunk: Chunk, place: int, column: list[int], out: Array | None, trace: Trace) -> Any:
        """A sample that was begun elsewhere."""
        assert chunk.samples is not None
        program, segment = self.program, chunk.segment
        epoch, index = column[EPOCH], column[INDEX]
        self._rng.seek(program.seed, epoch, index, LATER_DOMAIN + segment if segment else SAMPLE_DOMAIN)
        if program.seed_globals and program.foreign:
            self._seed_globals(epoch, index, segment)
        watched = self._globals_state() if self._watch_globals else None
        sample = self._legs[segment].run(chunk.samples[place], self._rng, out, trace)
        if watched is not None:
            self._watch(watched)
        return sample

    def _row_arrays(self, chunk: Chunk, layout: RowLayout | None) -> list[Array | None]:
        if layout is None:
            return []
        return [
            None
            if leaf is None
            else np.ndarray(
                (chunk.rows, *[extent or 0 for extent in leaf.shape]), leaf.dtype, self.memory, base
            )
            for leaf, base in zip(layout.leaves, chunk.bases, strict=True)
        ]

    def _write(
        self,
        sample: Any,
        row: int,
        layout: RowLayout | None,
        arrays: list[Array | None],
        out: Array | None,
        result: ChunkResult,
    ) -> bool:
        """Write a sample into its row; False if it does not fit."""
        if layout is None:
            return False
        leaves: Any
        if type(sample) is tuple and len(sample) == len(layout.leaves) and layout.structure == self._plain:
            leaves = sample  # by far the most common kind; a part that is no leaf has no spec and is refused
        else:
            structure, leaves = flatten(sample)
            if structure != layout.structure:
                return False
        for leaf, spec, scalar in zip(leaves, layout.leaves, self._scalars, strict=True):
            if type(leaf) is scalar or (leaf is out and out is not None):
                continue  # a row fits itself
            if spec is not None and isinstance(leaf, _ARRAYS):
                if leaf.shape != spec.shape or leaf.dtype != spec.dtype:
                    return False
            elif leaf_spec(leaf) != spec or isinstance(leaf, _NODES) or is_dataclass(leaf):
                return False
        for number, (leaf, array) in enumerate(zip(leaves, arrays, strict=True)):
            if array is None:
                result.objects.setdefault(number, {})[row] = (
                    leaf.copy() if isinstance(leaf, np.ndarray) else leaf
                )
            elif leaf is not out:
                array[row] = leaf
        result.written.append(row)
        return True

    def _seed_globals(self, epoch: int, index: int, segment: int = 0) -> None:
        # A stream of its own: the draws of `rng` must not depend on whether this is done.
        self._globals_rng.seek(self.program.seed, epoch, index, GLOBALS_DOMAIN)
        word = int(self._globals_rng.words(segment + 1)[segment])
        random.seed(word)
        np.random.seed(word & 0xFFFFFFFF)
        torch = sys.modules.get("torch")  # only code that has imported it can draw from its generator
        if torch is not None and hasattr(torch, "default_generator"):
            torch.default_generator.manual_seed(word)

    @staticmethod
    def _globals_state() -> tuple[Any, Any]:
        state: Any = np.random.get_state(legacy=False)
        return hash(random.getstate()), (state["state"]["pos"], int(state["state"]["key"][0]))

    def _watch(self, before: tuple[Any, Any]) -> None:
        # Another thread may have drawn meanwhile, which a sample cannot tell from its own draws. What draws for its
        # samples does it again and again, so one change alone is no sign of it.
        self._watch_globals -= 1
        changed = self._globals_state() != before
        if changed and self._changed_before:
            self._watch_globals = 0
            _warn_of_globals()
        self._changed_before = changed


_warned = threading.Lock()


def _warn_of_globals() -> None:
    if _warned.acquire(blocking=False):
        alone = threading.active_count() == 1
        warnings.warn(
            ("a" if alone else "it seems that a")
            + " transform or dataset draws from a global generator of Python or numpy; in this executor its numbers "
            "depend on the order of work. Use executor='process', or take a parameter named rng"
            + (
                ""
                if alone
                else ". If another thread of this program draws from it, and no transform, all is well"
            ),
            ForeignRandomnessWarning,
            stacklevel=2,
        )
