"""Cost of the event loop for 2 to 128 workers: CPU time of the loader's own process for each image.

    python -m benchmarks.many_workers --workers 128 --batch-sizes 256

Only the workers are simulated, so that two cores are enough for 128 of them: one process answers the chunks of all
workers at once. So the event loop is the limit, and images/s is what one loop can deliver while another core does the
answering. The rest is an `AsyncDataLoader` over a record file of 5 kB face crops, with its messages, sockets and slab
memory. The workers write no pixels. They report `--decode-ms` for each sample, on which the size of chunks depends.

A row is measured after twice as many batches as are in flight. Its calls are those of all functions in the loop's
thread, also of C, and its turns those of the event loop: fewer than one for a batch where many answers wait for it.
uvloop is a loop in C: its turns are not counted.
"""

from __future__ import annotations

import asyncio
import cProfile
import functools
import mmap
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader
from aioloader.executors import ProcessExecutor
from aioloader.executors.process.child import ChildProcess
from aioloader.executors.process.messages import Inbox, encode, pack_value
from aioloader.executors.transport import pack_result
from aioloader.foundation.types import INDEX_TABLE_ROWS, ROW, ChunkResult
from aioloader.samplers import RandomSampler
from benchmarks.data import write_rec
from benchmarks.measurement import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.abc import Program, SlabMemory
    from aioloader.foundation.types import Chunk, IntArray
    from benchmarks.figures import Row

_SHAPE = (112, 112, 3)
_RECORDS = 4096
_NBYTES = 5000


class EndlessSampler:
    """Random order of many more positions than there are records."""

    def __init__(self, samples: int = 10**9) -> None:
        self._order = RandomSampler(samples)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Any:
        raise TypeError("read it by `indices`")

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """Return the indices at some positions; see `aioloader.abc.PositionalSampler`."""
        return self._order.indices(seed, epoch, start, stop) % _RECORDS


class AnsweredChild(ChildProcess):
    """A worker whose chunks are answered by `answer_all`; its own process only sleeps.

    Args:
        answering: socket to the process that answers, which receives the worker's socket.
    """

    def __init__(self, answering: socket.socket) -> None:
        super().__init__()
        self._answering = answering

    def start(
        self,
        slot: int,
        memory: SlabMemory,
        fds: Sequence[int] = (),
        inherited: Sequence[object] | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(["sleep", "infinity"], start_new_session=True)
            socket.send_fds(self._answering, [b"."], [theirs.fileno()])
        ours.setblocking(False)
        self.sock = ours


class AnsweringExecutor(ProcessExecutor):
    """Worker processes whose chunks are answered at once, by one process for all of them; counts batches and chunks."""

    batches = 0
    chunks = 0

    def __init__(self, workers: int, decode_ms: float) -> None:
        super().__init__(workers)
        self._ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "benchmarks.many_workers", "--answer", str(theirs.fileno())]
        with theirs:
            self._answering = subprocess.Popen(
                [*command, "--decode-ms", str(decode_ms)], pass_fds=[theirs.fileno()]
            )

    def open(self, program: Program, memory: SlabMemory) -> None:
        super().open(program, memory)
        for handle in self._table.handles:
            handle.child = AnsweredChild(self._ours)

    def start(
        self, chunks: Sequence[Chunk], done: Callable[[ChunkResult | BaseException], object]
    ) -> Callable[[], object]:
        self.batches += 1
        self.chunks += len(chunks)
        return super().start(chunks, done)

    def close(self) -> None:
        self._ours.close()
        self._answering.wait()
        super().close()


class CountedSelector(selectors.DefaultSelector):
    """Selector that counts the turns of its event loop."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


def answer_all(number: int, decode_s: float) -> None:
    """Answer the chunks of all workers, whose sockets arrive through the socket with this number, until it closes."""
    waiting = selectors.DefaultSelector()
    control = socket.socket(fileno=number)
    waiting.register(control, selectors.EVENT_READ)
    nowhere = mmap.mmap(-1, mmap.PAGESIZE)
    inboxes: dict[Any, Inbox] = {}
    while True:
        for key, _ in waiting.select():
            if key.fileobj is control:
                data, (*fds,), _, _ = socket.recv_fds(control, 1, 1)
                if not data:
                    return
                for fd in fds:
                    worker = socket.socket(fileno=fd)
                    worker.sendall(encode(("ready",)))
                    inboxes[worker] = Inbox()
                    waiting.register(worker, selectors.EVENT_READ)
                continue
            sock: Any = key.fileobj
            data = sock.recv(1 << 18)
            if not data:
                waiting.unregister(sock)
                sock.close()
                continue
            for kind, *rest in inboxes[sock].feed(data):
                if kind == "run":
                    sock.sendall(_answer(rest, nowhere, decode_s))


def _answer(request: list[Any], nowhere: mmap.mmap, decode_s: float) -> bytes:
    number, _, layout, table, *_ = request
    rows = np.frombuffer(table, np.int64).reshape(INDEX_TABLE_ROWS, -1)[ROW].tolist()
    result = ChunkResult()
    if layout < 0:
        result.values = {row: (np.zeros(_SHAPE, np.uint8), np.float32(row)) for row in rows}
    else:
        result.written = rows
    result.decode_s = result.work_s = result.longest_s = decode_s * len(rows)
    answer = pack_result(result, lambda value: pack_value(value, nowhere, (0, 0)))
    return encode(("done", number, *answer, None))


async def cost(
    path: Path, workers: int, batch_size: int, options: dict[str, Any], selector: CountedSelector
) -> Row:
    """Return the figures of one number of workers and one batch size; `selector` is that of the running loop."""
    executor = AnsweringExecutor(workers, options["decode_ms"])
    loader = aioloader.AsyncDataLoader[Any](
        aioloader.RecordFileDataset(path), batch_size, sampler=EndlessSampler(), executor=executor
    )
    async with loader:
        async for _ in loader:
            while executor.ready < workers:  # noqa: ASYNC110  # workers report no event when they are ready
                await asyncio.sleep(0.05)
            break
        batches = aiter(loader)
        for _ in range(4 * workers):
            await anext(batches)
        executor.batches = executor.chunks = 0
        count = max(8 * workers, -(-options["images"] // batch_size))
        times = []
        turns = selector.turns
        for _ in range(options["rounds"]):
            cpu, wall = time.thread_time(), time.perf_counter()
            for _ in range(count):
                await anext(batches)
            times.append((time.thread_time() - cpu, time.perf_counter() - wall))
        turns = selector.turns - turns
        with cProfile.Profile() as profile:
            for _ in range(count):
                await anext(batches)
        calls = sum(entry.callcount for entry in profile.getstats())
        peak = loader.stats().memory_peak_bytes
    loop_s, wall_s = (median(column) for column in zip(*times, strict=True))
    return {
        "workers": workers,
        "batch size": batch_size,
        "CPU time for an image, µs": 1e6 * loop_s / (count * batch_size),
        "CPU time for a batch, ms": 1e3 * loop_s / count,
        "calls for a batch": calls / count,
        "turns for a batch": turns / (options["rounds"] * count),
        "images/s": count * batch_size / wall_s,
        "chunks of a batch": executor.chunks / max(1, executor.batches),
        "slab memory, MB": peak / 1e6,
    }


def _loop(selector: CountedSelector, in_c: bool) -> asyncio.AbstractEventLoop:
    if not in_c:
        return asyncio.SelectorEventLoop(selector)
    import uvloop

    return uvloop.new_event_loop()


def measure(
    workers: Sequence[int] = (2, 16, 64, 128),
    batch_sizes: Sequence[int] = (64, 128, 256),
    decode_ms: float = 0.4,
    images: int = 20_000,
    rounds: int = 3,
    uvloop: bool = False,
    answer: int | None = None,
) -> Iterator[Row]:
    """Measure each number of workers and batch size.

    Args:
        workers: their numbers.
        batch_sizes: of the loader.
        decode_ms: what a worker reports for a sample.
        images: of a round, at least.
        rounds: of each row.
        uvloop: run the event loop of uvloop.
        answer: only answer the workers whose sockets arrive through this file descriptor.
    """
    if answer is not None:
        answer_all(answer, decode_ms / 1e3)
        return
    options = {"decode_ms": decode_ms, "images": images, "rounds": rounds}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "faces.rec")
        write_rec(path, [np.random.default_rng(0).bytes(_NBYTES)], _RECORDS)
        for number in workers:
            for batch_size in batch_sizes:
                selector = CountedSelector()
                loop = functools.partial(_loop, selector, uvloop)
                with asyncio.Runner(loop_factory=loop) as runner:
                    yield runner.run(cost(path, number, batch_size, options, selector))


if __name__ == "__main__":
    run(measure, workers=[2], batch_sizes=[64], images=640, rounds=1)
