"""The stage "dispatch": how many samples a chunk has, and running of chunks; `BatchTask` cuts them.

Choice of the size of chunks, from the number of batches in flight and of workers (pure).

Each chunk costs the event loop the same, however many samples it has: a message, an answer and two wake-ups. So a batch
is cut into as few chunks as keep all workers busy. That depends on how many batches share the workers:

- The workers are busy if every one has one chunk that it works on and one that waits. With twice as many batches in
  flight as workers, the default, these chunks are whole batches.
- At the start of an epoch few batches are ahead of a batch, and at its end few follow. These batches are cut into more
  chunks, the first and the last one into a chunk for every worker: the first batch arrives as early as possible, and no
  worker is left with a whole batch while the others have nothing to do. The same rule is known from loops of parallel
  programs as guided self-scheduling.
- More chunks than are dispatched in the time that they save are not made.
- A chunk takes a limited time, so that batches arrive evenly. The limit grows with the number of workers, because the
  chunks of all workers cost the one event loop.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from aioloader.foundation.types import BatchTimeline, Chunk, ChunkResult
    from aioloader.metrics import Metrics

# Chunks that a worker should have: one that it works on and one that waits.
_CHUNKS_PER_WORKER = 2
# What a chunk costs the event loop. n chunks of a batch of w seconds of work are dispatched in n * cost and made in
# w / n: the batch is there earliest with n = sqrt(w / cost).
_COST_S = 0.0002
# A chunk should be long compared with its own cost and short compared with a batch.
_TARGET_S = 0.045
# Work in a chunk for each worker: chunks of all workers then cost the event loop about a twentieth of its time.
_TARGET_PER_WORKER_S = 0.004
# Assumed until it is measured; 16 samples are then a chunk of `_TARGET_S`.
_UNKNOWN_SAMPLE_S = _TARGET_S / 16
# A batch of less work is not worth splitting: several batches are in flight anyway.
_SPLIT_S = 0.03
# Samples that stop more rarely compute all the time: a batch itself makes workers stop up to three times.
_FEW_PAUSES = 0.1


def chunk_size(samples: int, workers: int, sample_s: float, *, ahead: int, left: int | None) -> int:
    """Return the maximum number of samples of a chunk, at least 1.

    Args:
        samples: samples of the batch that are to be made.
        workers: number of workers.
        sample_s: seconds of a worker for one sample, see `average_s`; 0 if that is not known yet.
        ahead: batches of the epoch that will be delivered before this one and are in flight.
        left: batches of the epoch after this one; None if their number is not known.
    """
    target_s = _TARGET_S
    near = ahead + 1
    if left is not None:
        target_s = max(target_s, workers * _TARGET_PER_WORKER_S)
        near = min(near, left + 1)
    parts = min(workers, -(-_CHUNKS_PER_WORKER * workers // max(1, near)))
    work_s = samples * sample_s
    if work_s:
        parts = min(parts, max(1, int(math.sqrt(work_s / _COST_S))) if work_s > _SPLIT_S else 1)
    # A whole number of samples in every chunk; the chunks of a batch are of nearly equal size.
    most = max(1, int(target_s / (sample_s or _UNKNOWN_SAMPLE_S)))
    parts = max(1, parts, -(-samples // most))
    return max(1, -(-samples // parts))


def average_s(before_s: float, result: ChunkResult, samples: int) -> float:
    """Return the seconds of a worker for a sample: those of a result, averaged with `before_s` unless that is 0.

    For samples that compute these are CPU seconds: where other programs occupy the cores, chunks do not become small,
    which would cost even more. Samples that wait for something take a worker's time too; whether they do is known on
    Linux only.
    """
    seconds = result.decode_s + result.transform_s + result.collate_s
    if sys.platform == "linux" and result.cpu_s and result.pauses <= _FEW_PAUSES * samples:
        seconds = min(seconds, result.cpu_s)
    seconds /= max(1, samples)
    return 0.8 * before_s + 0.2 * seconds if before_s else seconds


Run = Callable[["Sequence[Chunk]"], "Awaitable[ChunkResult]"]
Start = Callable[["Sequence[Chunk]", Callable[["ChunkResult | BaseException"], object]], Callable[[], object]]


class Started:
    """Chunks that run in another task."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks: Sequence[Chunk] | None = chunks
        self._over = anyio.Event()
        self._result: ChunkResult | None = None
        self._error: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Return whether they are done."""
        return self._over.is_set()

    async def run(self, run: Run) -> None:
        """Run them with `run`, which releases them. Raises nothing but cancellation; `result` raises its error."""
        chunks, self._chunks = self._chunks, None
        if chunks is None:
            return  # abandoned: under trio, a task may take its first step after those that were cancelled with it
        try:
            self._result = await run(chunks)
        except Exception as error:
            self._error = error
        self._over.set()

    def abandon(self) -> None:
        """Release the chunks if they have not begun; they never will."""
        chunks, self._chunks = self._chunks, None
        for chunk in chunks or ():
            chunk.release()

    async def wait(self) -> None:
        """Wait until they are done."""
        await self._over.wait()

    async def result(self) -> ChunkResult:
        """Wait for their result.

        Raises:
            Exception: the error of `run`.
        """
        await self._over.wait()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


async def run_timed(
    chunks: Sequence[Chunk], run: Run, metrics: Metrics, timeline: BatchTimeline
) -> ChunkResult:
    """Have chunks of a batch run, and record the time that they took."""
    begin = perf_counter()
    result = await run(chunks)
    record_run(result, begin, metrics, timeline)
    return result


def record_run(result: ChunkResult, begin: float, metrics: Metrics, timeline: BatchTimeline) -> None:
    """Record the time that chunks of a batch took since `begin`, when they were passed to the executor."""
    now = perf_counter()
    metrics.work.add(result)
    if metrics.startup_s is None:
        # The first samples waited for this in addition to being read and made.
        waited = 0.0 if metrics.started is None else now - metrics.started
        metrics.startup_s = max(0.0, waited - metrics.fetch_s - result.longest_s)
    elif result.work_s:
        metrics.dispatch_s += max(0.0, now - begin - result.longest_s)
    if result.work_spans:
        timeline.work_spans += [(begin, span) for span in result.work_spans]
    if result.calls:
        timeline.calls += result.calls
