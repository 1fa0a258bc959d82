"""Rules for chunks whose first attempt fails: which samples run again, and which sample is reported as the cause.

A death counts as a failed attempt of the sample that the worker was making, never of its neighbours. That sample runs
again alone, after the rest of its chunk; a batch with a custom batchify function runs again as a whole. The sample is a
failure once `MAX_ATTEMPTS` workers have died of it: after the second death on one sample it runs a third time. A
worker that is killed because it made no progress for the loader's ``timeout`` fails its sample without a retry, or the
batch if it was in a custom batchify function. Where that ends the epoch, no other sample of the chunk is made.
Deaths between samples count against no sample, as long as they are few. After more of them than `MAX_ATTEMPTS` between
the samples of a chunk, the cause is taken to be an unknown sample of that chunk.

Where the sample is unknown, every sample of the chunk runs again, each alone: a worker that dies then died of that one.
The samples of a batch with a custom batchify function are tried alone first; the results of these trials are dropped.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from aioloader.errors import StalledError, WorkerError
from aioloader.executors.transport import pickling_errors
from aioloader.foundation.types import ROW, Chunk, ChunkResult, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

# The third death of a sample fails it; the fourth between samples is blamed on an unknown sample of the chunk.
MAX_ATTEMPTS = 3
_OUT_OF_MEMORY = (
    "; the system ends processes that way when memory runs out: use fewer workers, or make the sample smaller"
)


@dataclass(frozen=True, slots=True)
class WorkerDeath:
    """Death of a worker that had a chunk.

    Attributes:
        at: the place in the chunk of the sample that the worker was making, or one of:
            - "unknown": it was making a sample of the chunk, but which one is not known
            - "between": it was making no sample; this chunk was its next one, or its last one, not answered yet
            - "queued": it was busy with another chunk
        stage: the stage of a sample that the worker had entered last; "transform" where that is not known.
        exit_code: its exit status, negative for a signal; None where that is not known.
        timed_out: it was killed because it made no progress.
        stack: its stack at that moment, innermost call first, or None.
        reason: description of its end, or None.
    """

    at: int | Literal["unknown", "between", "queued"] = "queued"
    stage: str = "transform"
    exit_code: int | None = None
    timed_out: bool = False
    stack: str | None = None
    reason: str | None = None

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


class UnsendableSamples:
    """Samples of a chunk that cannot be pickled, so that no worker can run them.

    Args:
        samples: of the chunk.
        error: raised when they were pickled together.

    Attributes:
        error: as above.
        errors: the reason for each that cannot be pickled alone, by place; empty if all can.
    """

    def __init__(self, samples: Sequence[Any], error: Exception) -> None:
        self.error = error
        self.errors: dict[int, WorkerError] = {}
        for place, cause in pickling_errors(dict(enumerate(samples))).items():
            self.errors[place] = WorkerError(
                f"the value of an async transform or an iterable dataset cannot be sent to a worker process: {cause}; "
                "return arrays and plain values, or use executor='thread'"
            )
            self.errors[place].__cause__ = cause


Outcome: TypeAlias = "ChunkResult | WorkerDeath | UnreadableResult | UnsendableSamples | BaseException"


class ChunkRetry:
    """Samples of one chunk that run again. Made when its first attempt fails.

    Args:
        chunk: the whole chunk.
        timeout: seconds, for messages.
        raises: the first failed sample ends the batch.
    """

    def __init__(self, chunk: Chunk, timeout: float, *, raises: bool = False) -> None:
        self._chunk = chunk
        self._timeout = timeout
        self._raises = raises
        self._parts: list[Chunk] = []
        self._deaths: Counter[int] = Counter()
        self._deaths_of_batch = 0
        self._deaths_between = 0

    def next_part(self) -> Chunk | None:
        """Return the samples of the next attempt; None if the chunk is done."""
        self._parts = [part for part in self._parts if len(part)]
        return self._parts.pop(0) if self._parts else None

    def handle_outcome(self, part: Chunk, outcome: Outcome, result: ChunkResult) -> BaseException | None:
        """Choose what runs after an attempt; return the error of the chunk if it is given up.

        Args:
            part: the samples of the attempt.
            outcome: of the attempt.
            result: of the batch, to which the attempt's results and failures are added.
        """
        made = ChunkResult()
        rows = part.index_table[ROW].tolist()
        if isinstance(outcome, ChunkResult):
            made = outcome
        elif isinstance(outcome, WorkerDeath):
            return self._handle_death(part, outcome, result)
        elif isinstance(outcome, UnsendableSamples):
            if not outcome.errors:
                return outcome.error
            made.failures = [
                Failure(rows[place], "transform", error) for place, error in outcome.errors.items()
            ]
            self._parts.insert(0, part.part([place not in outcome.errors for place in range(len(part))]))
        elif not isinstance(outcome, UnreadableResult):
            return outcome
        elif part.custom_collate:
            return outcome.error  # the batchify function returned it
        elif len(part) == 1:
            made.failures = [Failure(rows[0], "transform", outcome.error)]
        else:  # the sample is not known
            self._parts[:0] = _singles(part)
        if part.custom_collate or not self._chunk.custom_collate:  # else it was only a trial
            result.merge(made)
        return None

    def _handle_death(self, part: Chunk, death: WorkerDeath, result: ChunkResult) -> BaseException | None:
        at = death.at
        if at == "between":
            self._deaths_between += 1
            at = "unknown" if self._deaths_between > MAX_ATTEMPTS else "queued"
        if death.timed_out and ((at == "unknown" and self._raises) or _collating(part, death)):
            return death.error(self._timeout)
        if at == "unknown" and len(part) == 1:
            at = 0
        if at == "unknown":
            return self._retry_singly(part, death)
        if not isinstance(at, int):
            self._parts.insert(0, part)
            return None
        row = int(part.index_table[ROW, at])
        self._deaths[row] += 1
        rest = part.part(np.arange(len(part)) != at)
        if self._deaths[row] >= MAX_ATTEMPTS or death.timed_out:
            result.failures.append(Failure(row, death.stage, death.error(self._timeout)))
            if death.timed_out and self._raises:
                self._parts = []
                return None
            self._parts = [each.part(each.index_table[ROW] != row) for each in [rest, *self._parts]]
        elif part.custom_collate:
            self._parts.insert(0, part)  # a batch is collated as a whole
        else:
            self._parts[:0] = [rest, part.part([at])]
        return None

    def _retry_singly(self, part: Chunk, death: WorkerDeath) -> BaseException | None:
        """Run every sample alone next; return the error of the chunk if it is given up."""
        singles = _singles(part)
        if part.custom_collate:
            self._deaths_of_batch += 1
            if self._deaths_of_batch >= MAX_ATTEMPTS:
                return death.error(self._timeout)  # no sample alone causes it
            singles = [replace(each, layout=None, custom_collate=False) for each in singles]
            singles.append(part)
        self._parts[:0] = singles
        return None


def _collating(part: Chunk, death: WorkerDeath) -> bool:
    """Return whether a worker was in the custom batchify function."""
    return part.custom_collate and death.stage == "collate" and isinstance(death.at, int)


def _singles(part: Chunk) -> list[Chunk]:
    return [part.part([place]) for place in range(len(part))]
