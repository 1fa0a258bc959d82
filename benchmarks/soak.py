"""Soak test with faults: workers are killed, reads are slow or fail, samples raise, epochs are left and resumed.

    python -m benchmarks.soak --minutes 10

Every batch is compared with the plan: the same epoch of a loader without workers or faults, less the samples that fail
on purpose. No other sample may fail, and the loader must not hang. After each round, when its loader is closed, memory,
descriptors, threads and child processes are counted; the report has their slopes. The exit code is 1 after any error.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import hashlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import numpy as np

import aioloader
from aioloader import transforms
from aioloader.executors import ProcessExecutor
from aioloader.foundation.host_limits import available_cores
from aioloader.tools.bench import process_tree
from aioloader.transforms.antialias import axis_filter
from benchmarks.data import load_jpegs, write_rec
from benchmarks.measurement import run

if TYPE_CHECKING:
    from aioloader.foundation.types import ReadPlan, Spans
    from benchmarks.figures import Row

_STUCK_S = 60.0
_MEMORY, _WRONG = "memory (MiB)", "wrong batches and other faults"
_SLOW_SHARE, _SLOWEST_S = 0.2, 0.05
# Of this number of samples one cannot be read, and one raises.
_UNREADABLE, _RAISING = 97, 101
# Slower growth is that of an allocator that has not yet reached its steady state.
_FLAT_MIB_PER_MINUTE = 0.1


class FaultySource:
    """Byte source with some slow reads and some records that cannot be read at all.

    Args:
        source: the underlying byte source.
        bad: offsets of the records that cannot be read, int64.
    """

    def __init__(self, source: Any, bad: Any) -> None:
        self._source = source
        self._bad = bad
        self._draw = random.Random(0)

    async def plan(self, spans: Spans) -> ReadPlan:
        plan: ReadPlan = await self._source.plan(spans)
        return plan

    async def read(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        if self._draw.random() < _SLOW_SHARE:
            await anyio.sleep(self._draw.random() * _SLOWEST_S)
        failures: list[tuple[int, BaseException]] = await self._source.read(plan, out)
        if not len(plan.reads):
            return failures
        reads = plan.reads[np.argsort(plan.reads[:, 3])]
        of = np.searchsorted(reads[:, 3], plan.start, side="right") - 1
        offset = reads[of, 1] + plan.start - reads[of, 3]
        bad = np.flatnonzero(np.isin(offset, self._bad) & (plan.start >= 0))
        failures += [(item, OSError(errno.EIO, os.strerror(errno.EIO))) for item in bad.tolist()]
        return failures

    def close(self) -> None:
        self._source.close()


class FaultyRecords(aioloader.ImageRecordDataset):
    """`ImageRecordDataset` that reads through a `FaultySource`, if `bad` is set.

    Attributes:
        bad: offsets of the records that cannot be read, or None.
    """

    bad: Any = None

    def open_source(self) -> Any:
        source = super().open_source()
        return source if self.bad is None else FaultySource(source, self.bad)


def refuse_some(image: Any, label: Any) -> Any:
    """Raise an error for some samples."""
    if int(label) % _RAISING == 5:
        raise ValueError(f"sample {int(label)} fails on purpose")
    return image, label


class Usage(NamedTuple):
    """Resources of the process when no loader was open."""

    seconds: float
    memory_nbytes: int
    descriptors: int
    threads: int
    children: int


class Options(NamedTuple):
    """Options of a run; see `measure`."""

    minutes: float
    workers: int
    batch_size: int
    kill_s: float
    round_s: float
    seed: int


class Soak:
    """Soak run.

    Args:
        rec: the records; the label of each is its number.
        options: of the command line.
    """

    def __init__(self, rec: Path, options: Options) -> None:
        self._rec = rec
        self._options = options
        self._draw = random.Random(options.seed)
        self._begin = self._last = time.monotonic()
        self._state: Any = None
        self._reference_thread = ThreadPoolExecutor(1, "reference")
        offsets = aioloader.RecordFileDataset(rec).table.index.offsets
        numbers = np.arange(len(offsets))
        self._unreadable = offsets[numbers % _UNREADABLE == 3]
        self._bad = numbers[(numbers % _UNREADABLE == 3) | (numbers % _RAISING == 5)]
        self.batches = self.samples = self.failed = self.kills = self.rounds = self.resumed = 0
        self.restarts = 0
        self.wrong: list[str] = []
        self.usage: list[Usage] = []

    def _dataset(self, faulty: bool) -> Any:
        dataset = FaultyRecords(self._rec)
        if faulty:
            dataset.bad = self._unreadable
        chain = transforms.Compose([transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip()])
        images = dataset.transform_first(chain)
        return images.transform(refuse_some) if faulty else images

    async def run(self) -> None:
        """Run rounds until the time is up, or an error occurs."""
        until = self._begin + 60.0 * self._options.minutes
        while time.monotonic() < until and not self.wrong:
            round_s = min(self._options.round_s, until - time.monotonic())
            await self._round(time.monotonic() + round_s * (0.5 + self._draw.random()))
            self.rounds += 1
            self._look()
        self._reference_thread.shutdown()

    async def _round(self, until: float) -> None:
        """Run one loader: some epochs, the last of which is left in the middle."""
        options = self._options
        executor = ProcessExecutor(options.workers, timeout=30.0)
        common: dict[str, Any] = {"shuffle": True, "seed": options.seed}
        loader = aioloader.AsyncDataLoader[Any](
            self._dataset(True), options.batch_size, executor=executor, on_error="skip", **common
        )
        reference = aioloader.DataLoader[Any](
            self._dataset(False), options.batch_size, num_workers=0, **common
        )
        if self._state is not None:
            loader.load_state_dict(self._state)
            reference.load_state_dict(self._state)
            self.resumed += 1
        self._last = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._kill_now_and_then, executor)
            tasks.start_soon(self._watch, tasks.cancel_scope)
            async with loader:
                while time.monotonic() < until and not self.wrong:
                    await self._epoch(loader, reference, until)
                    self._state = loader.state_dict()
                self.restarts += loader.stats().restarts
                self._check_errors(loader.errors)
            tasks.cancel_scope.cancel()
        await self._in_thread(reference.close)

    async def _epoch(self, loader: Any, reference: Any, until: float) -> None:
        expected = iter(reference)
        async for images, labels in loader:
            self._last = time.monotonic()
            wanted = await self._in_thread(self._next_of, expected)
            if wanted is None or _digest(images, labels) != _digest(*wanted):
                self.wrong.append(f"batch {self.batches}: {_difference(labels, wanted)}")
                return
            self.batches += 1
            self.samples += len(labels)
            if time.monotonic() > until or self._draw.random() < 0.01:
                return
        if (rest := await self._in_thread(self._next_of, expected)) is not None:
            self.wrong.append(f"an epoch ended early; the next batch would be {rest[1].tolist()}")

    def _next_of(self, expected: Any) -> tuple[Any, Any] | None:
        """Return the next batch that has any sample left, without those that fail."""
        for images, labels in expected:
            sound = ~np.isin(labels, self._bad)
            self.failed += int((~sound).sum())
            if sound.any():
                return images[sound], labels[sound]
        return None

    async def _in_thread(self, fn: Any, *args: Any) -> Any:
        # Always the same thread: the reference belongs to it.
        return await asyncio.get_running_loop().run_in_executor(self._reference_thread, fn, *args)

    def _check_errors(self, errors: list[aioloader.SampleError]) -> None:
        blamed = sorted({error.index for error in errors} - set(self._bad.tolist()))
        if blamed:
            self.wrong.append(f"valid samples failed: {blamed}; the first: {errors[0]}")

    async def _kill_now_and_then(self, executor: ProcessExecutor) -> None:
        while True:
            await anyio.sleep(self._options.kill_s * (0.5 + self._draw.random()))
            if pids := executor.pids:
                with suppress(ProcessLookupError):
                    os.kill(self._draw.choice(pids), signal.SIGKILL)
                    self.kills += 1

    async def _watch(self, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(1.0)
            if time.monotonic() - self._last > _STUCK_S:
                self.wrong.append(f"no batch for {_STUCK_S:g} s")
                scope.cancel()

    def _look(self) -> None:
        axis_filter.cache_clear()  # of bounded length; crops of random sizes fill it with filters of random sizes
        gc.collect()
        with suppress(AttributeError):  # glibc's: free memory that the allocator keeps is not a leak
            ctypes.CDLL(None).malloc_trim(0)
        pid = os.getpid()
        children = len(process_tree(pid)) - 1
        self.usage.append(
            Usage(
                time.monotonic() - self._begin,
                private_nbytes(),
                len(os.listdir("/proc/self/fd")),
                threading.active_count(),
                children,
            )
        )
        if children:
            self.wrong.append(f"{children} processes live on after their loader was closed")


def private_nbytes() -> int:
    """Return the memory that this process alone has written to, swapped or not (Linux).

    Pages of libraries do not count: they are shared, and their share changes with the other running processes.
    """
    total = 0
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Dirty:", "SwapPss:")):
            total += int(line.split()[1]) * 1024
    return total


def _digest(images: Any, labels: Any) -> bytes:
    return hashlib.blake2b(images.tobytes() + labels.tobytes()).digest()


def _difference(labels: Any, wanted: Any) -> str:
    if wanted is None:
        return f"labels {labels.tolist()}, and none were due"
    if labels.tolist() != wanted[1].tolist():
        return f"labels {labels.tolist()}, not {wanted[1].tolist()}"
    return f"the labels are right, {labels.tolist()}, but the pixels are wrong"


def slope(seconds: Any, values: Any) -> tuple[float, float]:
    """Fit by least squares the growth of the values per minute, and its standard error.

    Args:
        seconds: times, float64 (n,); n at least 3.
        values: measured values, float64 (n,).
    """
    minutes = np.asarray(seconds, np.float64) / 60.0
    values = np.asarray(values, np.float64)
    centred = minutes - minutes.mean()
    spread = float((centred**2).sum())
    steepness = float((centred * values).sum()) / spread
    left = values - values.mean() - steepness * centred
    return steepness, float(np.sqrt((left**2).sum() / (len(values) - 2) / spread))


def is_faulty(rows: list[Row]) -> bool:
    """Return whether the figures of a run have a fault, or growth beyond what is allowed."""
    for row in rows:
        allowed = _FLAT_MIB_PER_MINUTE if row.get("growth of") == _MEMORY else 1e-6
        if row.get("a minute", 0.0) > allowed + 3 * row.get("standard error", 0.0):
            return True
    return any(row.get("counted") == _WRONG and row["number"] for row in rows)


def _steady(soak: Soak) -> list[Usage]:
    """Return the counts without those of the first rounds, which import and create the allocator's arenas."""
    return soak.usage[max(3, len(soak.usage) // 5) :]


def _counted(usage: list[Usage]) -> dict[str, list[float]]:
    return {
        _MEMORY: [each.memory_nbytes / 2**20 for each in usage],
        "descriptors": [float(each.descriptors) for each in usage],
        "threads": [float(each.threads) for each in usage],
    }


def figures(soak: Soak) -> list[Row]:
    """Return the counts, and the growth of what is counted after each round."""
    counts = {
        "rounds": soak.rounds,
        "of them resumed": soak.resumed,
        "batches": soak.batches,
        _WRONG: len(soak.wrong),
        "workers killed": soak.kills,
        "samples that failed on purpose": soak.failed,
    }
    rows: list[Row] = [{"counted": name, "number": number} for name, number in counts.items()]
    steady = _steady(soak)
    if len(steady) >= 5:
        times = [usage.seconds for usage in steady]
        for name, values in _counted(steady).items():
            growth, error = slope(times, values)
            rows.append({"growth of": name, "a minute": round(growth, 3), "standard error": round(error, 3)})
    return rows


def measure(
    data: str | None = None,
    minutes: float = 10.0,
    workers: int = available_cores(),
    batch_size: int = 32,
    repeat: int = 5,
    kill_s: float = 1.0,
    round_s: float = 8.0,
    seed: int = 0,
) -> list[Row]:
    """Run for some time, and count.

    Args:
        data: folder.
        minutes: of the run.
        workers: of the loader.
        batch_size: of the loader.
        repeat: how often each file is in an epoch.
        kill_s: seconds between two kills, on average.
        round_s: seconds of a loader's life, on average.
        seed: seed of order, draws and faults.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        # Threads that begin to allocate in further arenas of glibc's allocator would look like growth.
        os.environ["MALLOC_ARENA_MAX"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    with tempfile.TemporaryDirectory() as scratch:
        rec = Path(scratch, "soak.rec")
        write_rec(rec, load_jpegs(data) * repeat, 1)
        soak = Soak(rec, Options(minutes, workers, batch_size, kill_s, round_s, seed))
        asyncio.run(soak.run())
    print(*soak.wrong, sep="\n", file=sys.stderr)
    return figures(soak)


if __name__ == "__main__":
    sys.exit(is_faulty(run(measure, minutes=0.1, round_s=1.5, kill_s=0.4, repeat=2)))
