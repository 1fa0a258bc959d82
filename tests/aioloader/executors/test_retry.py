"""Tests of workers' deaths at an unknown sample: the samples that run again, and the sample that is blamed."""

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.errors import StalledError, WorkerError, single
from aioloader.executors.retry import MAX_ATTEMPTS, WorkerDeath
from aioloader.executors.worker_table import WorkerHandle, WorkerTable
from aioloader.foundation.types import INDEX_TABLE_ROWS, ROW, Chunk, ChunkResult


class Pool(WorkerHandle):
    """Worker alone in its table, replaced as often as it dies, blamed on samples that are unknown to the table.

    Args:
        deadly: rows that kill a worker at every attempt.
        losses: number of first attempts that are lost without any sample's fault.
        batch_is_deadly: collating kills a worker too.
    """

    def __init__(self, deadly=(), losses=0, timed_out=False, batch_is_deadly=False):
        super().__init__(0)
        self.table = WorkerTable(timeout=5.0)
        self.table.handles, self.table.count = [self], 1
        self.state = "up"
        self.ready = True
        self.table.assign()
        self.deadly = set(deadly)
        self.losses = losses
        self.timed_out = timed_out
        self.batch_is_deadly = batch_is_deadly
        self.attempts = []
        self.release = 0

    def chunk(self, rows, custom_collate=False):
        index_table = np.zeros((INDEX_TABLE_ROWS, len(rows)), np.int64)
        index_table[ROW] = rows
        return Chunk(
            batch=0,
            index_table=index_table,
            rows=len(rows),
            custom_collate=custom_collate,
            release=self._release,
        )

    def _release(self):
        self.release += 1

    def send(self, attempt):
        self.running[attempt.number] = attempt
        self.attempts.append(attempt.part.index_table[ROW].tolist())

    def run_to_end(self, chunk):
        async def work():
            while self.running:
                (attempt,) = self.running.values()
                self.table.answer(self, attempt.number, self.outcome(attempt.part))
                assert len(self.attempts) < 500

        async def main():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                return await self.table.run([chunk])

        try:
            return anyio.run(main)
        except* (StalledError, WorkerError) as errors:
            raise single(errors) from None

    def outcome(self, part):
        rows = part.index_table[ROW].tolist()
        dies = self.deadly.intersection(rows) or (part.custom_collate and self.batch_is_deadly)
        if self.losses:
            self.losses -= 1
            dies = True
        if dies:
            return WorkerDeath("unknown", timed_out=self.timed_out, reason="the node is gone")
        if part.custom_collate:
            return ChunkResult(batch=rows, samples=len(rows))
        return ChunkResult(values={row: row for row in rows})


@given(
    st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))),
    st.integers(0, 2),
    st.booleans(),
)
def test_exactly_the_deadly_samples_are_failures(case, losses, custom_collate):
    n, deadly = case
    pool = Pool(deadly, losses)
    result = pool.run_to_end(pool.chunk(range(n), custom_collate))
    assert sorted(failure.row for failure in result.failures) == sorted(deadly)
    sound = [row for row in range(n) if row not in deadly]
    assert (result.batch or []) == sound if custom_collate else sorted(result.values) == sound
    assert result.values == {} or not custom_collate  # results of a trial are discarded
    assert pool.release == 1


def test_a_sample_is_blamed_for_deaths_alone_only():
    pool = Pool(deadly={2})
    result = pool.run_to_end(pool.chunk(range(4)))
    assert pool.attempts[0] == [0, 1, 2, 3]
    assert pool.attempts.count([2]) == MAX_ATTEMPTS
    assert all(pool.attempts.count([row]) == 1 for row in (0, 1, 3))
    (failure,) = result.failures
    assert isinstance(failure.error, WorkerError)
    assert "lost 3 times, at last: the node is gone" in str(failure.error)


def test_who_takes_too_long_alone_is_a_failure_at_once():
    pool = Pool(deadly={1}, timed_out=True)
    (failure,) = pool.run_to_end(pool.chunk(range(3))).failures
    assert failure.row == 1
    assert isinstance(failure.error, StalledError)
    assert pool.attempts.count([1]) == 1


def test_a_timeout_ends_a_pass_that_the_first_failure_ends():
    pool = Pool(deadly={1}, timed_out=True)
    pool.table.raises = True
    with pytest.raises(StalledError):
        pool.run_to_end(pool.chunk(range(3)))
    assert pool.attempts == [[0, 1, 2]]
    assert pool.release == 1


def test_a_batch_that_kills_its_workers_as_a_whole_is_given_up():
    pool = Pool(batch_is_deadly=True)
    with pytest.raises(WorkerError, match="the node is gone"):
        pool.run_to_end(pool.chunk(range(3), custom_collate=True))
    assert pool.attempts.count([0, 1, 2]) == MAX_ATTEMPTS
    assert pool.release == 1


@given(st.integers(0, 5), st.sampled_from([0, MAX_ATTEMPTS]))
def test_deaths_between_chunks_count_once_they_are_no_chance(row, by_chance):
    """One sample of a chunk kills its worker after it was made: the sample is unknown."""
    pool = Pool({row})
    first = [WorkerDeath("between", exit_code=0)] * by_chance

    def outcome(part):
        if first:
            return first.pop()
        if row in part.index_table[ROW]:
            return WorkerDeath("between", exit_code=0)
        return ChunkResult(values={each: each for each in part.index_table[ROW].tolist()})

    pool.outcome = outcome
    result = pool.run_to_end(pool.chunk(range(6)))
    assert [failure.row for failure in result.failures] == [row]
    assert sorted(result.values) == [each for each in range(6) if each != row]
    assert pool.attempts[: MAX_ATTEMPTS + 1] == [list(range(6))] * (MAX_ATTEMPTS + 1)


def test_a_few_deaths_between_chunks_are_nobodys():
    pool = Pool()
    deaths = [WorkerDeath("between", exit_code=-9)] * MAX_ATTEMPTS
    plain = pool.outcome
    pool.outcome = lambda part: deaths.pop() if deaths else plain(part)
    assert pool.run_to_end(pool.chunk(range(6))).failures == []
    assert pool.attempts == [list(range(6))] * (MAX_ATTEMPTS + 1)


def test_the_failure_has_the_stage_that_the_worker_had_entered_last():
    pool = Pool({2})
    pool.outcome = lambda part: (
        WorkerDeath(at=part.index_table[ROW].tolist().index(2), stage="transform:Blur", exit_code=-9)
        if 2 in part.index_table[ROW]
        else ChunkResult()
    )
    (failure,) = pool.run_to_end(pool.chunk(range(4))).failures
    assert (failure.row, failure.stage) == (2, "transform:Blur")
    assert pool.attempts == [[0, 1, 2, 3], [0, 1, 3], [2], [2]]
