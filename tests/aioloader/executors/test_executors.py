"""Tests of the executors' contract: the same chunk has the same result in all executors."""

import contextlib
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import anyio
import numpy as np
import psutil
import pytest

from aioloader.abc import Program
from aioloader.datasets.stage import Stage
from aioloader.errors import WorkerError
from aioloader.executors import InlineExecutor, ProcessExecutor, RayExecutor, ThreadExecutor
from aioloader.executors.process.child import ChildProcess
from aioloader.executors.process.handle import ProcessHandle
from aioloader.executors.shared_memory import SlabMemory
from aioloader.foundation.types import BASE, INDEX, INDEX_TABLE_ROWS, ROW, ArraySpec, Chunk, RowLayout
from tests.aioloader.cluster import local_cluster
from tests.aioloader.loader.programs import run_program
from tests.aioloader.loader.samples import Made
from tests.cases import with_cases

SIZE = 8
SQUARES = Made(1000, lambda index: (np.full(SIZE, index, np.int64), index * index))


def program(dataset=None, stages=(), batchify=None, seed_globals=True):
    return Program(
        decoder=None,
        dataset=dataset or SQUARES,
        paths=(),
        stages=tuple(Stage(fn, first=False) for fn in stages),
        batchify=batchify,
        seed=7,
        seed_globals=seed_globals,
        foreign=True,
    )


@pytest.mark.own_workers
def test_closing_while_workers_are_started_leaves_none(leftovers, monkeypatch):
    memory = SlabMemory(1 << 24)
    executor = ProcessExecutor(2)
    executor.open(program(), memory)
    start = ProcessHandle.start
    closers = []

    def closed_meanwhile(handle, *args, **options):
        closers.append(threading.Thread(target=executor.close))
        closers[-1].start()
        closers[-1].join(0.1)  # it waits for the worker that is starting
        start(handle, *args, **options)

    monkeypatch.setattr(ProcessHandle, "start", closed_meanwhile)

    async def serve():
        async with executor.serving():
            while not closers or closers[0].is_alive():
                await anyio.sleep(0.01)

    anyio.run(serve)
    for closer in closers:
        closer.join()
    assert not any(map(psutil.pid_exists, executor.pids))
    memory.close()


@pytest.mark.own_workers
async def test_closing_after_a_worker_has_ended_and_before_it_is_reaped_leaves_none(leftovers, monkeypatch):
    memory = SlabMemory(1 << 24)
    executor = ProcessExecutor(2)
    executor.open(program(), memory)
    read_messages = ProcessHandle._read_messages

    async def read_and_close(handle):
        await read_messages(handle)
        executor.close()  # as another thread may at this moment

    monkeypatch.setattr(ProcessHandle, "_read_messages", read_and_close)
    async with executor.serving():
        while executor.ready < 2:
            await anyio.sleep(0.01)
        pids = executor.pids
        os.kill(pids[0], signal.SIGKILL)
        while any(map(psutil.pid_exists, pids)):
            await anyio.sleep(0.01)
        await anyio.wait_all_tasks_blocked()
    memory.close()


LAYOUT = RowLayout(
    1,
    ("tuple", None, (None, None)),
    (ArraySpec((SIZE,), np.dtype(np.int64)), ArraySpec((), np.dtype(np.int64))),
    tuple,
)


class Bench:
    """Executor with its memory, and chunks for it."""

    def __init__(self, executor, program, limit=1 << 24) -> None:
        self.executor = executor
        self.memory = SlabMemory(limit)
        self.release = 0
        executor.open(program, self.memory)

    def chunk(self, indices, *, layout=LAYOUT, custom_collate=False, spill=0) -> Chunk:
        n = len(indices)
        offsets, total = layout.offsets(n) if layout else ([], 0)
        self.slab = self.memory.allocate(total + spill + 64)
        index_table = np.zeros((INDEX_TABLE_ROWS, n), np.int64)
        index_table[ROW] = np.arange(n)
        index_table[INDEX] = index_table[BASE] = indices
        bases = tuple(self.slab.offset + offset for offset in offsets)
        return Chunk(
            batch=0,
            index_table=index_table,
            rows=n,
            layout=layout,
            bases=bases,
            custom_collate=custom_collate,
            spill=(self.slab.offset + total, spill),
            release=self._release,
        )

    def _release(self) -> None:
        self.release += 1

    def rows(self, chunk, leaf):
        spec = chunk.layout.leaves[leaf]
        return self.memory.array(chunk.bases[leaf], (chunk.rows, *spec.shape), spec.dtype)

    def close(self) -> None:
        self.executor.close()
        self.memory.close()


EXECUTORS = {
    "inline": InlineExecutor,
    "thread": lambda: ThreadExecutor(2),
    "process": lambda: ProcessExecutor(2),
    "fork": lambda: ProcessExecutor(2, inherited=()),
    "ray": lambda: RayExecutor(2),
}
RAY = pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.filterwarnings("ignore")])  # Ray's own warnings


@pytest.fixture(scope="module")
def ray_cluster():
    with local_cluster():
        yield


@pytest.fixture(params=["inline", "thread", "process", "fork", RAY])
def bench(request):
    benches = []
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")

    def make(*args, **kwargs):
        made = Bench(EXECUTORS[request.param](), program(*args, **kwargs))
        benches.append(made)
        return made

    yield make
    for made in benches:
        made.close()


async def run(bench, *chunks):
    results = [None] * len(chunks)

    async def one(place, chunk):
        results[place] = await bench.executor.run([chunk])

    async with bench.executor.serving(), anyio.create_task_group() as tasks:
        for place, chunk in enumerate(chunks):
            tasks.start_soon(one, place, chunk)
    return results


async def result_of(executor, indices, **options):
    """Return the result of one chunk in an executor."""
    b = Bench(executor, program(**options))
    (result,) = await run(b, b.chunk(indices))
    b.close()
    return result


async def test_writes_every_sample_into_its_row(bench):
    b = bench()
    chunk = b.chunk([3, 1, 4])
    (result,) = await run(b, chunk)
    assert sorted(result.written) == [0, 1, 2]
    assert not result.values
    assert not result.failures
    assert b.rows(chunk, 0)[:, 0].tolist() == [3, 1, 4]
    assert b.rows(chunk, 1).tolist() == [9, 1, 16]
    assert b.release == 1


async def test_many_chunks_at_a_time_all_come_back(bench):
    b = bench()
    chunks = [b.chunk(list(range(start, start + 5))) for start in range(0, 100, 5)]
    results = await run(b, *chunks)
    assert [len(result.written) for result in results] == [5] * 20
    assert b.release == 20


async def test_a_sample_that_does_not_fit_comes_by_value(bench):
    def odd(array, square):
        return (array[:4] if square == 16 else array), square

    b = bench(stages=[odd])
    (result,) = await run(b, b.chunk([3, 4, 5]))
    assert sorted(result.written) == [0, 2]
    assert result.values[1][0].tolist() == [4, 4, 4, 4]
    assert result.values[1][1] == 16


async def test_without_a_layout_every_sample_comes_by_value(bench):
    b = bench()
    (result,) = await run(b, b.chunk([2, 3], layout=None))
    assert [value[1] for _, value in sorted(result.values.items())] == [4, 9]


async def test_large_values_go_through_the_spill_region_and_survive_it(bench):
    b = bench(dataset=[np.full(1000, i) for i in range(4)])
    chunk = b.chunk([1, 2], layout=None, spill=1 << 15)
    (result,) = await run(b, chunk)
    b.memory.view(b.slab)[:] = bytes(b.slab.nbytes)
    assert result.values[0].tolist() == [1] * 1000
    assert result.values[1].tolist() == [2] * 1000


async def test_a_failing_sample_fails_alone_with_its_own_type(bench):
    def fail(array, square):
        if square == 9:
            raise LookupError("three is not welcome")
        return array, square

    b = bench(stages=[fail])
    (result,) = await run(b, b.chunk([2, 3, 4]))
    assert sorted(result.written) == [0, 2]
    (failure,) = result.failures
    assert failure.row == 1
    assert failure.stage == "transform:fail"
    assert type(failure.error) is LookupError
    assert str(failure.error) == "three is not welcome"


@pytest.mark.parametrize("error", [SystemExit, MemoryError])
async def test_system_exit_and_memory_error_are_the_samples_own(bench, error):
    def fail(array, square):
        if square == 9:
            raise error
        return array, square

    b = bench(stages=[fail])
    (result,) = await run(b, b.chunk([2, 3, 4]))
    assert type(result.failures[0].error) is error
    assert sorted(result.written) == [0, 2]


async def test_a_whole_batch_is_collated_in_the_executor(bench):
    b = bench(batchify=lambda samples: {"sum": sum(square for _, square in samples), "pid": os.getpid()})
    (result,) = await run(b, b.chunk([1, 2, 3], custom_collate=True))
    assert result.batch["sum"] == 14
    assert result.samples == 3
    elsewhere = isinstance(b.executor, (ProcessExecutor, RayExecutor))
    assert (result.batch["pid"] != os.getpid()) == elsewhere


async def test_an_error_of_batchify_arrives_as_itself(bench):
    def batchify(samples):
        raise ZeroDivisionError("no")

    b = bench(batchify=batchify)
    errors = []

    async def one():
        try:
            await b.executor.run([b.chunk([1], custom_collate=True)])
        except ZeroDivisionError as error:
            errors.append(error)

    async with b.executor.serving(), anyio.create_task_group() as tasks:
        tasks.start_soon(one)
    assert str(errors[0]) == "no"
    assert b.release == 1


@pytest.mark.parametrize("kind", ["thread", "process", RAY])
async def test_cancelling_a_chunk_settles_it_once_nobody_touches_it(kind, request):
    if kind == "ray":
        request.getfixturevalue("ray_cluster")

    def slow(array, square):
        time.sleep(0.01)
        return array, square

    b = Bench(EXECUTORS[kind](), program(stages=[slow]))
    async with b.executor.serving():
        with anyio.fail_after(60):
            await b.executor.run([b.chunk([1])])  # workers have started
        with anyio.move_on_after(0.05) as scope:
            await b.executor.run([b.chunk(list(range(500)))])
        assert scope.cancelled_caught
        with anyio.fail_after(60):
            while b.release < 2:
                await anyio.sleep(0.005)
    b.close()
    assert b.release == 2


@pytest.mark.own_workers
class TestProcesses:
    async def test_a_killed_worker_is_replaced_and_its_samples_run_again(self, tmp_path):
        def killed_once(array, square):
            """Be killed from outside at a sample of three chunks, when it is made for the first time."""
            if square in (0, 25**2, 49**2):
                with contextlib.suppress(FileExistsError):
                    (tmp_path / str(square)).mkdir()
                    os.kill(os.getpid(), signal.SIGKILL)
            return array, square

        b = Bench(ProcessExecutor(2), program(stages=[killed_once]))
        results = await run(b, *(b.chunk(list(range(start, start + 10))) for start in range(0, 60, 10)))
        assert [sorted(result.written) for result in results] == [list(range(10))] * 6
        assert not any(result.failures for result in results)
        assert b.executor.restarts == 3
        b.close()

    async def test_a_sample_that_kills_its_worker_is_named_and_the_others_are_made(self):
        def fatal(array, square):
            if square == 25:
                os.kill(os.getpid(), signal.SIGSEGV)
            return array, square

        result = await result_of(ProcessExecutor(2), list(range(10)), stages=[fatal])
        assert sorted(result.written) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        (failure,) = result.failures
        assert failure.row == 5
        assert isinstance(failure.error, WorkerError)

    async def test_the_stack_of_a_hung_worker_stays_while_its_end_takes_long(self, monkeypatch, only_hung):
        def hang(array, square):
            only_hung.hang()

        kill, killed = ChildProcess.kill, anyio.Event()

        def kill_late(child):
            if child.stack and not killed.is_set():
                os.kill(child.process.pid, signal.SIGSTOP)
                killed.set()
            else:
                kill(child)

        monkeypatch.setattr(ChildProcess, "kill", kill_late)
        b = Bench(ProcessExecutor(1, timeout=0.4), program(stages=[hang]))
        async with anyio.create_task_group() as tasks:
            results = []

            async def make():
                results.extend(await run(b, b.chunk([0])))

            tasks.start_soon(make)
            await killed.wait()
            (handle,) = b.executor._table.handles
            await handle.end_if_stuck(time.monotonic() + 60)
            kill(handle.child)
        error = results[0].failures[0].error
        assert isinstance(error, TimeoutError)
        assert pickle.loads(pickle.dumps(error)).timeout > 0
        (note,) = error.__notes__
        assert "in hang" in note
        b.close()

    async def test_what_cannot_be_pickled_is_refused_with_advice(self):
        b = Bench(ProcessExecutor(1), program(dataset=[threading.Lock()]))
        with pytest.raises(BaseExceptionGroup) as caught:
            await run(b, b.chunk([0]))
        assert caught.group_contains(WorkerError, match="executor='thread'")
        b.close()

    async def test_exceptions_that_are_hard_to_send_arrive(self):
        class Coded(Exception):
            def __init__(self, code, message):
                super().__init__(message)
                self.code = code

        def fail(array, square):
            error = LookupError("strange")
            error.lock = threading.Lock()
            raise error if square else Coded(7, "seven")

        result = await result_of(ProcessExecutor(1), [0, 1], stages=[fail])
        coded, locked = (failure.error for failure in result.failures)
        assert type(coded) is Coded
        assert (coded.code, str(coded)) == (7, "seven")
        assert "LookupError: strange" in str(locked)  # in words

    @with_cases("executor", [ThreadExecutor, ProcessExecutor])
    async def test_a_keyboard_interrupt_of_a_sample_is_its_own(self, executor):
        def fail(array, square):
            raise KeyboardInterrupt

        result = await result_of(executor(1), [0], stages=[fail], seed_globals=False)
        assert type(result.failures[0].error) is KeyboardInterrupt

    def test_two_loops_one_after_the_other_use_the_same_workers(self):
        b = Bench(ProcessExecutor(2), program())
        anyio.run(run, b, b.chunk([1]))
        pids = b.executor.pids
        anyio.run(run, b, b.chunk([1]), backend="trio")
        assert b.executor.pids == pids
        b.close()


async def test_a_stuck_thread_fails_its_sample_only_and_keeps_its_memory(only_hung):
    release = threading.Event()

    def stuck(array, square):
        if square == 4:
            only_hung.threads += 1
            release.wait()
        return array, square

    b = Bench(ThreadExecutor(1, timeout=0.3), program(stages=[stuck], seed_globals=False))
    (result,) = await run(b, b.chunk([1, 2, 3]))
    assert sorted(result.written) == [0, 2]
    assert isinstance(result.failures[0].error, TimeoutError)
    assert result.tainted
    assert b.release == 0
    release.set()
    b.close()
    assert b.release == 1


@pytest.mark.slow
def test_workers_start_while_other_threads_fork():
    """A long-lived fork inherits open descriptors; workers must not wait for its end."""
    code = """
    import os, signal, threading, warnings
    warnings.simplefilter("ignore")
    from aioloader import DataLoader
    from tests.aioloader.loader.samples import Numbers

    children, over = [], threading.Event()

    def fork():
        while not over.is_set() and len(children) < 400:
            pid = os.fork()
            if not pid:
                signal.alarm(20)  # even if the parent dies
                signal.pause()
            children.append(pid)
            over.wait(0.003)

    threading.Thread(target=fork).start()
    try:
        for _ in range(4):
            with DataLoader(Numbers(8), 4, num_workers=2) as loader:
                print(len(list(loader)), flush=True)
    finally:
        over.set()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = run_program(code, env=environment, timeout=280)
    assert done.stdout.split() == ["2"] * 4, done.stderr
