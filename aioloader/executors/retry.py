"""What becomes of chunks whose worker dies: which samples run again, and when one of them counts as the culprit.

A strike counts against the sample that was being worked on when a worker died, never against its neighbours. The
sample is run again alone, and is a failure once `STRIKES` workers have died of it. Deaths between samples count
against nobody, as long as they are few. A chunk that was the next or the last one of several workers that died so is
taken for one of which nobody can tell which sample it was.

Where nobody can tell which sample of a chunk it was (`Died.unseen`), all of them run again, each alone: a worker that
dies then died of that one. The samples of a batch that is collated as a whole are tried alone first; what comes out of
that is thrown away.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import numpy as np

from aioloader.errors import StalledError, WorkerError
from aioloader.foundation.types import ROW, ChunkResult, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioloader.foundation.types import Chunk

__all__ = ("STRIKES", "Attempt", "BatchRun", "Died", "Unreadable")

STRIKES = 3
_OUT_OF_MEMORY = (
    "; that is how the system ends what takes too much memory: use fewer workers, or make the sample smaller"
)


class Died:
    """The worker of an attempt is gone.

    Attributes:
        place: place in the chunk of the sample that it was working on, or None.
        exit_code: its exit status, negative for a signal; None where that is not known.
        timed_out: it was ended because it made no progress.
        stack: where it stood, innermost call first, or None.
        unseen: it was working on this chunk, but nobody saw on which sample.
        between: it was working on none; this chunk was the next, or the last, whose answer did not come.
        reason: what is known of its end, in words, or None.
    """

    def __init__(
        self,
        place: int | None,
        exit_code: int | None,
        timed_out: bool,
        stack: str | None = None,
        *,
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
        """The failure of the sample that it died of."""
        error = self._error(timeout)
        if self.stack is not None:
            error.add_note(f"the worker was at:\n{self.stack}")
        return error

    def _error(self, timeout: float) -> Exception:
        if self.timed_out:
            return StalledError(timeout, "; the worker was ended. Raise timeout= if this is expected")
        code = self.exit_code
        if self.reason is not None:
            return WorkerError(f"its worker was lost {STRIKES} times, at last: {self.reason}", exit_code=code)
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            advice = _OUT_OF_MEMORY if name == "SIGKILL" else ""
            return WorkerError(
                f"its worker process died {STRIKES} times, last of {name}{advice}", exit_code=code
            )
        return WorkerError(
            f"its worker process left {STRIKES} times, last with status {code}", exit_code=code
        )


class Unreadable:
    """What came back of an attempt cannot be unpickled.

    Attributes:
        error: why.
    """

    def __init__(self, trouble: Exception) -> None:
        self.error = WorkerError(
            f"a worker's result cannot be read: {type(trouble).__name__}: {trouble}; it holds something that can be "
            "pickled and not be unpickled"
        )
        self.error.__cause__ = trouble


class Attempt:
    """A chunk, or what is left of it, given to a worker once.

    Attributes:
        number: tells attempts apart; in the order of submission.
        part: the samples.
        way: of the chunk.
        lane: which of a worker's outstanding chunks it is.
    """

    __slots__ = ("lane", "number", "part", "way")

    def __init__(self, number: int, part: Chunk, way: ChunkRetry) -> None:
        self.number = number
        self.part = part
        self.way = way
        self.lane = 0

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for the outcome any more."""
        return self.way.run.abandoned

    def exclude(self, errors: Mapping[int, Exception]) -> None:
        """Some samples cannot be given to any worker: they are failures, and the others are an attempt of their own.

        Args:
            errors: why, by place; not empty.
        """
        self.way.exclude(errors)

    def end(self, outcome: ChunkResult | Died | Unreadable | BaseException) -> None:
        """The attempt is over, and its worker touches the memory no more."""
        self.way.ended(outcome)


class ChunkRetry:
    """One chunk, from its first attempt to its last."""

    def __init__(self, run: BatchRun, chunk: Chunk) -> None:
        self.run = run
        self.chunk = chunk
        self.attempt: Attempt | None = None
        self._parts = [chunk]
        self._strikes: dict[int, int] = {}
        self._deaths_as_a_whole = 0
        self._deaths_between = 0

    def go_on(self) -> None:
        """Make the next attempt, or be done."""
        self._parts = [part for part in self._parts if len(part)]
        if self._parts:
            self.run.submit(self._parts.pop(0), self)
        else:
            self.finish()

    def finish(self, error: BaseException | None = None) -> None:
        self.attempt = None
        self.chunk.release()
        self.run.finished(error)

    def exclude(self, errors: Mapping[int, Exception]) -> None:
        assert self.attempt is not None
        part = self.attempt.part
        failures = [
            Failure(int(part.index_table[ROW, place]), "transform", error) for place, error in errors.items()
        ]
        self._parts.insert(0, part.part([place not in errors for place in range(len(part))]))
        self.ended(ChunkResult(failures=failures))

    def ended(self, outcome: ChunkResult | Died | Unreadable | BaseException) -> None:
        assert self.attempt is not None
        part = self.attempt.part
        if self.run.abandoned:
            self.attempt = None
            self.chunk.release()
        elif isinstance(outcome, ChunkResult):
            if part.custom_collate or not self.chunk.custom_collate:  # else it was only tried
                self.run.result.merge(outcome)
            self.go_on()
        elif isinstance(outcome, Died):
            error = self._died(part, outcome)
            if error is None:
                self.go_on()
            else:
                self.finish(error)
        elif isinstance(outcome, Unreadable):
            if part.custom_collate:
                self.finish(outcome.error)  # what the batchify function made of all samples
            elif len(part) == 1:
                self.ended(
                    ChunkResult(failures=[Failure(int(part.index_table[ROW, 0]), "transform", outcome.error)])
                )
            else:  # nobody can tell which sample it was
                self._parts[:0] = _singles(part)
                self.go_on()
        else:
            self.finish(outcome)

    def _died(self, part: Chunk, death: Died) -> BaseException | None:
        """Say what runs again; gives the error of the chunk if it is given up."""
        place = death.place
        self._deaths_between += death.between
        unseen = death.unseen or (death.between and self._deaths_between > STRIKES)
        if place is None and unseen and len(part) == 1:
            place = 0
        if place is None:
            if not unseen:
                self._parts.insert(0, part)
                return None
            return self._each_alone(part, death)
        row = int(part.index_table[ROW, place])
        self._strikes[row] = self._strikes.get(row, 0) + 1
        rest = part.part(np.arange(len(part)) != place)
        if self._strikes[row] >= STRIKES or death.timed_out:
            self.run.result.failures.append(Failure(row, "transform", death.error(self.run.timeout)))
            self._parts = [each.part(each.index_table[ROW] != row) for each in [rest, *self._parts]]
        elif part.custom_collate:
            self._parts.insert(0, part)  # a batch is collated as a whole
        else:
            self._parts[:0] = [rest, part.part([place])]
        return None

    def _each_alone(self, part: Chunk, death: Died) -> BaseException | None:
        alone = _singles(part)
        if part.custom_collate:
            self._deaths_as_a_whole += 1
            if self._deaths_as_a_whole >= STRIKES:
                return death.error(self.run.timeout)  # no sample alone is to blame
            alone = [replace(each, layout=None, custom_collate=False) for each in alone]
            alone.append(part)
        self._parts[:0] = alone
        return None


def _singles(part: Chunk) -> list[Chunk]:
    return [part.part([place]) for place in range(len(part))]


class BatchRun:
    """The chunks of one batch under way.

    Args:
        submit: makes an attempt of some samples and sets it as the way's: (samples, way).
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
        self._ways: list[ChunkRetry] = []

    def start(self, chunks: list[Chunk]) -> None:
        """Submit the chunks."""
        self._ways = [ChunkRetry(self, chunk) for chunk in chunks]
        self._open = len(chunks)
        for way in self._ways:
            way.go_on()

    def finished(self, error: BaseException | None) -> None:
        """A chunk is done."""
        self._error = self._error or error
        self._open -= 1
        if not self._open:
            self._done.set()

    async def wait(self) -> ChunkResult:
        """The merged result; raises what a chunk raised, once all are done."""
        await self._done.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None
        return self.result

    def abandon(self) -> list[Attempt]:
        """Nobody waits any more; gives the attempts that are still out."""
        self.abandoned = True
        return [way.attempt for way in self._ways if way.attempt is not None]
