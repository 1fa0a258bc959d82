"""Rules for chunks whose worker dies: which samples run again, and when a sample is reported as the cause.

A death counts as a failed attempt of the sample that the worker was making, never of its neighbours. That sample runs
again alone, after the rest of its chunk, and is a failure once `MAX_ATTEMPTS` workers have died of it. A worker that
is killed because it made no progress for the loader's ``timeout`` fails its sample at once, without a retry.
Deaths between samples count against no sample, as long as they are few. After more of them than `MAX_ATTEMPTS` between
the samples of a chunk, the cause is taken to be an unknown sample of that chunk.

Where the sample is unknown (`WorkerDeath.unseen`), every sample of the chunk runs again, each alone: a worker that dies
then died of that one. The samples of a batch with a custom batchify function are tried alone first; the results of
these trials are dropped.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import anyio
import numpy as np

from aioloader.errors import StalledError, WorkerError
from aioloader.foundation.types import ROW, Chunk, ChunkResult, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_ATTEMPTS = 3
_OUT_OF_MEMORY = (
    "; the system ends processes that way when memory runs out: use fewer workers, or make the sample smaller"
)


class WorkerDeath:
    """Death of a worker that had a chunk.

    Attributes:
        place: place in the chunk of the sample that it was working on, or None.
        exit_code: its exit status, negative for a signal; None where that is not known.
        timed_out: it was killed because it made no progress.
        stack: its stack at that moment, innermost call first, or None.
        unseen: it was working on this chunk, but the sample is not known.
        between: it was not working on a sample; this chunk was its next one, or its last one, whose answer did not
            come.
        reason: description of its end, or None.
    """

    def __init__(
        self,
        place: int | None = None,
        exit_code: int | None = None,
        timed_out: bool = False,
        *,
        stack: str | None = None,
        unseen: bool = False,
        between: bool = False,
        reason: str | None = None,
    ) -> None:
        self.place = place
        self.exit_code = exit_code
        self.timed_out = timed_out
        self.stack = stack
        self.unseen = unseen
        self.between = between
        self.reason = reason

    def error(self, timeout: float) -> Exception:
        """Return the failure of the sample that the worker died of."""
        error = self._error(timeout)
        if self.stack is not None:
            error.add_note(f"the worker was at:\n{self.stack}")
        return error

    def _error(self, timeout: float) -> Exception:
        if self.timed_out:
            return StalledError(timeout, "; the worker was ended. Raise timeout= if this is expected")
        code = self.exit_code
        if self.reason is not None:
            end = f"was lost {MAX_ATTEMPTS} times, at last: {self.reason}"
            return WorkerError(f"its worker {end}", exit_code=code)
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            advice = _OUT_OF_MEMORY if name == "SIGKILL" else ""
            end = f"died {MAX_ATTEMPTS} times, last of {name}{advice}"
        else:
            end = f"left {MAX_ATTEMPTS} times, last with status {code}"
        return WorkerError(f"its worker process {end}", exit_code=code)


class UnreadableResult:
    """Result of an attempt that cannot be unpickled.

    Attributes:
        error: the reason.
    """

    def __init__(self, cause: Exception) -> None:
        self.error = WorkerError(
            f"a worker's result cannot be read: {type(cause).__name__}: {cause}; it contains an object that can be "
            "pickled but not unpickled"
        )
        self.error.__cause__ = cause


Outcome: TypeAlias = "ChunkResult | WorkerDeath | UnreadableResult | BaseException"


class Attempt:
    """A chunk, or the rest of it, sent to a worker once.

    Attributes:
        number: identifies the attempt; in the order of submission.
        part: the samples.
        retry: the chunk's attempts.
        lane: which of a worker's outstanding chunks it is.
        ended: its outcome is known, and no worker touches its memory any more.
    """

    __slots__ = ("ended", "lane", "number", "part", "retry")

    def __init__(self, number: int, part: Chunk, retry: ChunkRetry) -> None:
        self.number = number
        self.part = part
        self.retry = retry
        self.lane = 0
        self.ended = False

    @property
    def abandoned(self) -> bool:
        """Return whether the batch was cancelled, so that no task waits for the outcome."""
        return self.retry.run.abandoned

    def end(self, outcome: Outcome) -> None:
        """Report the outcome. The worker must not touch the chunk's memory any more."""
        self.ended = True
        self.retry.handle_outcome(outcome)


class ChunkRetry:
    """All attempts of one chunk."""

    def __init__(self, run: BatchRun, chunk: Chunk) -> None:
        self.run = run
        self.chunk = chunk
        self.attempt: Attempt | None = None
        self._parts = [chunk]
        self._deaths: dict[int, int] = {}
        self._deaths_of_batch = 0
        self._deaths_between = 0

    def start_next(self) -> None:
        """Submit the next part of the chunk, or finish."""
        self._parts = [part for part in self._parts if len(part)]
        if self._parts:
            self.run.submit(self._parts.pop(0), self)
        else:
            self.finish()

    def finish(self, error: BaseException | None = None) -> None:
        """Release the chunk's memory and report that it is done, with its error if it failed."""
        self.attempt = None
        self.chunk.release()
        self.run.chunk_done(error)

    def exclude(self, errors: Mapping[int, Exception]) -> None:
        """Fail samples that cannot be sent to any worker; the others become a separate attempt.

        Args:
            errors: the reason for each, by place; not empty.
        """
        assert self.attempt is not None
        part = self.attempt.part
        failures = [
            Failure(int(part.index_table[ROW, place]), "transform", error) for place, error in errors.items()
        ]
        self._parts.insert(0, part.part([place not in errors for place in range(len(part))]))
        self.attempt.end(ChunkResult(failures=failures))

    def handle_outcome(self, outcome: Outcome) -> None:
        """Take the outcome of the current attempt, and retry or finish."""
        assert self.attempt is not None
        part = self.attempt.part
        if self.run.abandoned:
            self.attempt = None
            self.chunk.release()
        elif isinstance(outcome, ChunkResult):
            if part.custom_collate or not self.chunk.custom_collate:  # else it was only a trial
                self.run.result.merge(outcome)
            self.start_next()
        elif isinstance(outcome, WorkerDeath):
            error = self._handle_death(part, outcome)
            if error is None:
                self.start_next()
            else:
                self.finish(error)
        elif isinstance(outcome, UnreadableResult):
            if part.custom_collate:
                self.finish(outcome.error)  # the batchify function returned it
            elif len(part) == 1:
                failure = Failure(int(part.index_table[ROW, 0]), "transform", outcome.error)
                self.handle_outcome(ChunkResult(failures=[failure]))
            else:  # the sample is not known
                self._parts[:0] = _singles(part)
                self.start_next()
        else:
            self.finish(outcome)

    def _handle_death(self, part: Chunk, death: WorkerDeath) -> BaseException | None:
        """Choose the parts that run next; return the error of the chunk if it is given up."""
        place = death.place
        self._deaths_between += death.between
        unseen = death.unseen or (death.between and self._deaths_between > MAX_ATTEMPTS)
        if place is None and unseen and len(part) == 1:
            place = 0
        if place is None:
            if unseen:
                return self._retry_singly(part, death)
            self._parts.insert(0, part)
            return None
        row = int(part.index_table[ROW, place])
        self._deaths[row] = self._deaths.get(row, 0) + 1
        rest = part.part(np.arange(len(part)) != place)
        if self._deaths[row] >= MAX_ATTEMPTS or death.timed_out:
            self.run.result.failures.append(Failure(row, "transform", death.error(self.run.timeout)))
            self._parts = [each.part(each.index_table[ROW] != row) for each in [rest, *self._parts]]
        elif part.custom_collate:
            self._parts.insert(0, part)  # a batch is collated as a whole
        else:
            self._parts[:0] = [rest, part.part([place])]
        return None

    def _retry_singly(self, part: Chunk, death: WorkerDeath) -> BaseException | None:
        """Run every sample alone next; return the error of the chunk if it is given up."""
        singles = _singles(part)
        if part.custom_collate:
            self._deaths_of_batch += 1
            if self._deaths_of_batch >= MAX_ATTEMPTS:
                return death.error(self.run.timeout)  # no sample alone causes it
            singles = [replace(each, layout=None, custom_collate=False) for each in singles]
            singles.append(part)
        self._parts[:0] = singles
        return None


def _singles(part: Chunk) -> list[Chunk]:
    return [part.part([place]) for place in range(len(part))]


class BatchRun:
    """The chunks of one batch that are in flight.

    Args:
        submit: makes an attempt of some samples and sets it as the chunk's: (samples, retry).
        timeout: seconds, for messages.
    """

    def __init__(self, submit: Callable[[Chunk, ChunkRetry], None], timeout: float) -> None:
        self.submit = submit
        self.timeout = timeout
        self.result = ChunkResult()
        self.abandoned = False
        self._error: BaseException | None = None
        self._open = 0
        self._done = anyio.Event()
        self._retries: list[ChunkRetry] = []

    def start(self, chunks: list[Chunk]) -> None:
        """Submit the chunks."""
        self._retries = [ChunkRetry(self, chunk) for chunk in chunks]
        self._open = len(chunks)
        for retry in self._retries:
            retry.start_next()

    def chunk_done(self, error: BaseException | None) -> None:
        """Count a chunk as done."""
        self._error = self._error or error
        self._open -= 1
        if not self._open:
            self._done.set()

    async def wait(self) -> ChunkResult:
        """Wait until all chunks are done; return the merged result, or raise the error of a chunk."""
        await self._done.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None
        return self.result

    def abandon(self) -> list[Attempt]:
        """Give the batch up; return the attempts that have not ended."""
        self.abandoned = True
        return [retry.attempt for retry in self._retries if retry.attempt is not None]
