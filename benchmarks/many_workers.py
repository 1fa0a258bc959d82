"""Cost of the event loop for 2 to 128 workers: CPU time of the loader's own process for each image.

    python -m benchmarks.many_workers
    python -m benchmarks.many_workers --workers 128 --batch-sizes 256 --profile
    python -m benchmarks.many_workers --sleep

Only the workers are simulated, so that two cores are enough for 128 of them. The rest is an `AsyncDataLoader` over a
record file of 5 kB face crops, with its messages, sockets and slab memory. The workers write no pixels. They report
`--decode-ms` for each sample, on which the size of chunks depends.

- By default one process answers the chunks of all workers at once. So the event loop is the limit, and images/s is what
  one loop can deliver while another core does the answering.
- With `--sleep` the workers are the loader's own processes, with a decoder that sleeps. All of them together make
  `--rate` images per second; with `--rate 0` a worker sleeps as long as it reports.

A row is measured after twice as many batches as are in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import mmap
import pstats
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader
import recordio
from aioloader.executors import ProcessExecutor
from aioloader.executors.process.child import ChildProcess
from aioloader.executors.process.messages import Inbox, encode, pack_value
from aioloader.executors.sent_results import pack_result
from aioloader.foundation.types import INDEX_TABLE_ROWS, ROW, ChunkResult
from aioloader.samplers import RandomSampler
from benchmarks.figures import add_json_option, write_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import Program, SlabMemory
    from aioloader.foundation.types import Array, Chunk, IntArray, ItemLocation, StageTimer
    from aioloader.rng import Rng

WORKERS = (2, 8, 32, 64, 128)
BATCH_SIZES = (64, 256)
_SHAPE = (112, 112, 3)
_RECORDS = 4096
_NBYTES = 5000
_NAP_S = 0.002  # shorter sleeps are collected


class SleepingDecoder:
    """Decoder that sleeps and returns the row as it is.

    Args:
        decode_s: seconds that it reports for each sample.
        sleep_s: seconds that it sleeps for each sample.
    """

    stages = 0
    leaves = 1

    def __init__(self, decode_s: float, sleep_s: float) -> None:
        self._decode_s = decode_s
        self._sleep_s = sleep_s
        self._owed_s = 0.0

    def fuse(self, stages: Sequence[Any]) -> SleepingDecoder:
        """Return this decoder: see `aioloader.abc.FusableDecoder`."""
        return self

    def __call__(
        self,
        data: memoryview,
        extra: Any,
        location: ItemLocation,
        *,
        rng: Rng,
        out: Array | None,
        trace: StageTimer,
        file: int | None = None,
    ) -> tuple[Array, np.float32]:
        """Return an image and a label; see `aioloader.abc.FusedDecoder`."""
        self._owed_s += self._sleep_s
        if self._owed_s >= _NAP_S:
            begin = time.perf_counter()
            time.sleep(self._owed_s)
            self._owed_s -= time.perf_counter() - begin
        trace.decode_s += self._decode_s
        return np.zeros(_SHAPE, np.uint8) if out is None else out, np.float32(len(data))


class Faces(aioloader.RecordFileDataset):
    """Records of face crops, with another decoder."""

    def __init__(self, path: Path, decoder: SleepingDecoder) -> None:
        super().__init__(path)
        self._decoder = decoder

    @property
    def decoder(self) -> Any:
        return self._decoder


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


class CountingExecutor(ProcessExecutor):
    """Worker processes; counts batches and chunks."""

    batches = 0
    chunks = 0

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        self.batches += 1
        self.chunks += len(chunks)
        return await super().run(chunks)


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


class AnsweringExecutor(CountingExecutor):
    """Worker processes whose chunks are answered at once, by one process for all of them."""

    def __init__(self, workers: int, decode_s: float) -> None:
        super().__init__(workers)
        self._ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "benchmarks.many_workers", "--answer", str(theirs.fileno())]
        with theirs:
            self._answering = subprocess.Popen(
                [*command, "--decode-ms", str(1e3 * decode_s)], pass_fds=[theirs.fileno()]
            )

    def open(self, program: Program, memory: SlabMemory) -> None:
        super().open(program, memory)
        for handle in self._table.handles:
            handle.child = AnsweredChild(self._ours)

    def close(self) -> None:
        self._ours.close()
        self._answering.wait()
        super().close()


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


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of one number of workers and one batch size.

    Attributes:
        loop_us: CPU time of the loop's thread for an image, in microseconds.
        process_us: the same of all threads of the loader's process.
        images_per_s: images delivered per second.
        chunks: chunks of a batch.
        latency_ms: time from the plan of a batch to its delivery, the median.
        first_ms: time from the request to the delivery of the first batch of an epoch, when workers are up.
        memory_mb: most slab memory that was in use.
    """

    loop_us: float
    process_us: float
    images_per_s: float
    chunks: float
    latency_ms: float
    first_ms: float
    memory_mb: float


def write_faces(path: Path) -> None:
    """Write a record file of random bytes."""
    data = np.random.default_rng(0).bytes(_NBYTES)
    with recordio.RecordWriter(path, index=True) as writer:
        for key in range(_RECORDS):
            writer.write(recordio.pack(recordio.IRHeader(0, float(key), key, 0), data), key)


async def cost(path: Path, workers: int, batch_size: int, options: argparse.Namespace) -> Cost:
    """Return the cost of one row."""
    decode_s = options.decode_ms / 1e3
    decoder = SleepingDecoder(decode_s, workers / options.rate if options.rate else decode_s)
    executor = CountingExecutor(workers) if options.sleep else AnsweringExecutor(workers, decode_s)
    loader = aioloader.AsyncDataLoader[Any](
        Faces(path, decoder),
        batch_size,
        sampler=EndlessSampler(),
        executor=executor,
        prefetch=options.prefetch,
    )
    profile = cProfile.Profile(time.thread_time) if options.profile else None
    async with loader:
        async for _ in loader:
            while executor.ready < workers:  # noqa: ASYNC110  # workers report no event when they are ready
                await asyncio.sleep(0.05)
            break
        first = []
        for _ in range(3):
            begin = time.perf_counter()
            async for _ in loader:
                first.append(time.perf_counter() - begin)
                break
        batches = aiter(loader)
        ahead = 2 * workers if options.prefetch is None else options.prefetch
        for _ in range(2 * ahead):
            await anext(batches)
        rounds: list[list[float]] = []
        executor.batches = executor.chunks = 0
        count = max(ahead, -(-options.images // batch_size))
        with profile or nullcontext():
            for _ in range(options.rounds):
                before = time.thread_time(), time.process_time(), time.perf_counter()
                for _ in range(count):
                    await anext(batches)
                after = time.thread_time(), time.process_time(), time.perf_counter()
                rounds.append([now - then for now, then in zip(after, before, strict=True)])
        images = count * batch_size
        stats = loader.stats()
        chunks = executor.chunks / max(1, executor.batches)
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    loop_s, process_s, wall_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Cost(
        loop_us=loop_s / images * 1e6,
        process_us=process_s / images * 1e6,
        images_per_s=images / wall_s,
        chunks=chunks,
        latency_ms=ahead * batch_size / (images / wall_s) * 1e3,
        first_ms=statistics.median(first) * 1e3,
        memory_mb=stats.memory_peak_bytes / 1e6,
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=BATCH_SIZES)
    parser.add_argument("--decode-ms", type=float, default=0.4, help="what a worker reports; default: 0.4")
    parser.add_argument("--sleep", action="store_true", help="worker processes that sleep")
    parser.add_argument("--rate", type=float, default=20_000, help="with --sleep, images/s; default: 20,000")
    parser.add_argument("--images", type=int, default=20_000, help="of a round, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefetch", type=int, default=None)
    parser.add_argument(
        "--profile", action="store_true", help="print where the loop's thread spends its time"
    )
    parser.add_argument("--answer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="one short row: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.answer is not None:
        answer_all(options.answer, options.decode_ms / 1e3)
        return
    if options.smoke:
        options.workers, options.batch_sizes, options.images, options.rounds = [2], [64], 640, 1
    columns = ("workers", "batch", "loop, us/image", "process, us/image", "images/s", "chunks/batch")
    print(f"| {' | '.join((*columns, 'latency, ms', 'first batch, ms', 'slabs, MB'))} |")
    print("| --- " * (len(columns) + 3) + "|")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "faces.rec")
        write_faces(path)
        rows = []
        for workers in options.workers:
            for batch_size in options.batch_sizes:
                row = asyncio.run(cost(path, workers, batch_size, options))
                print(
                    f"| {workers} | {batch_size} | {row.loop_us:.1f} | {row.process_us:.1f} "
                    f"| {row.images_per_s:,.0f} | {row.chunks:.1f} | {row.latency_ms:,.0f} "
                    f"| {row.first_ms:,.0f} | {row.memory_mb:,.0f} |",
                    flush=True,
                )
                rows.append(
                    {
                        "workers": workers,
                        "batch size": batch_size,
                        "CPU time for an image, µs": row.loop_us,
                        "images/s": row.images_per_s,
                        "chunks of a batch": row.chunks,
                        "slab memory, MB": row.memory_mb,
                    }
                )
        write_figures(options.json, rows)


if __name__ == "__main__":
    main()
