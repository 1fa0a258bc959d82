"""Measures a loader on files of the caller's own: which executor and how many workers, and what is left to gain.

First every setting has one short turn. Then the best of each executor and the bare loop (see
`aioloader.tools.bare_loop`) take turns in rounds, so that their ratios compare neighbours in time. In a turn the loader
is new: it is opened, runs for a moment until it has settled, is counted, and then watched: lateness of a ticker in its
event loop, and memory, neither of which is free and so neither of which is there while it is counted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import numpy as np

import recordio
from aioloader.datasets import ImageFolderDataset, InsightFaceDataset
from aioloader.errors import DecodeError
from aioloader.foundation.host_limits import available_cores
from aioloader.images import image_dataset, images
from aioloader.storage.urls import path_of
from aioloader.tools.bare_loop import BareLoop, Work
from aioloader.tools.lag import LagSummary, LoopLag
from aioloader.tools.usage import cpu_seconds, memory_nbytes
from aioloader.transforms import decode_image
from aioloader.transforms.raw import RAW_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.foundation.types import Array

__all__ = (
    "BenchReport",
    "BenchRow",
    "Setting",
    "bench",
    "bench_table",
    "default_settings",
    "existing",
    "turns",
)

_SETTLE_S = 0.3
_WATCH_S = 1.0
# The bare loop needs pictures enough that none stays in a core's cache, and no more.
_BARE_PICTURES, _BARE_NBYTES = 1000, 512 << 20


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the work is done: an executor's name and the number of its workers, 0 for "inline"."""

    executor: str
    workers: int

    def __str__(self) -> str:
        return self.executor if self.executor == "inline" else f"{self.executor}, {self.workers}"


@dataclass(slots=True)
class BenchRow:
    """What one setting reached; medians over the rounds.

    Attributes:
        setting: which; None: the bare loop.
        rates: images per second in each round.
        first_batch_s: seconds from making the loader to its first batch; None for the bare loop.
        cpu_ms: CPU milliseconds per image, all processes together; None where the system does not tell.
        memory_nbytes: proportional set size of all processes, this one included; None as before.
        lag: lateness of a task in the loader's event loop, in the last round.
        of_bare: rate as a share of the bare loop's, round by round.
    """

    setting: Setting | None
    rates: list[float] = field(default_factory=list)
    first_batch_s: float | None = None
    cpu_ms: float | None = None
    memory_nbytes: int | None = None
    lag: LagSummary | None = None
    of_bare: list[float] = field(default_factory=list)

    @property
    def images_per_s(self) -> float:
        """The median."""
        return median(self.rates) if self.rates else 0.0


@dataclass(slots=True)
class BenchReport:
    """What `bench` found.

    Attributes:
        samples: images of the data set.
        mean_nbytes: mean size of its files, of those that the bare loop was given.
        undecodable: how many of those looked at cannot be decoded.
        cores: that this process may use.
        tried: (setting, images per second) of the short turns.
        rows: the best of each executor, the fastest first.
        bare: the bare loop.
        explanation: the fastest loader's own words on what limits it.
    """

    samples: int
    mean_nbytes: float
    undecodable: int
    cores: int
    tried: list[tuple[Setting, float]]
    rows: list[BenchRow]
    bare: BenchRow
    explanation: str


@dataclass(slots=True)
class _Turn:
    rate: float = 0.0
    first_batch_s: float = 0.0
    cpu_ms: float | None = None
    memory_nbytes: int | None = None
    lag: LagSummary | None = None
    explanation: str = ""


def bench(
    path: str | os.PathLike[str],
    *,
    size: int = 224,
    batch_size: int = 64,
    train: bool = True,
    seconds: float = 2.0,
    rounds: int = 3,
    settings: Sequence[Setting] | None = None,
    tick: Callable[[int], object] | None = None,
) -> BenchReport:
    """Measure loading of a .rec file or a folder, beside the bare loop on the same files.

    Args:
        path: as for `aioloader.images`.
        size: side of the square images in pixels.
        batch_size: images of a batch.
        train: random resized crops and flips, shuffled; else resized, the centre cropped, in order.
        seconds: that each turn is counted for.
        rounds: turns of each of the best settings.
        settings: what is tried; None: `default_settings`.
        tick: called with the number of turns taken so far, after each; there are `turns` of them.

    Returns:
        what was found. Images that cannot be decoded are skipped.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: it holds not a single image that can be decoded.
    """
    path = existing(path)
    samples, pictures, mean_nbytes, undecodable = _pictures(path)
    if not pictures:
        raise ValueError(
            f"{path!r} holds not a single image that can be decoded, so there is nothing to measure"
        )
    cores = available_cores()
    counter = _Counter(tick)

    def turn(setting: Setting, counted_s: float, watched: bool) -> _Turn:
        loader = images(
            path,
            size,
            min(batch_size, samples),
            train,
            executor=setting.executor,
            num_workers=setting.workers,
            on_error="skip",
        )
        result = anyio.run(_take_turn, loader, counted_s, watched)
        counter.advance()
        return result

    tried = [
        (setting, turn(setting, min(1.0, seconds), False).rate)
        for setting in (default_settings(cores) if settings is None else settings)
    ]
    best = _best_of_each(tried)
    taken: dict[Setting, list[_Turn]] = {setting: [] for setting in best}
    bare = BenchRow(None)
    work = Work(size, "random" if train else "centre", train)
    with BareLoop(pictures, cores, work) as loop:
        loop.measure(min(_SETTLE_S, seconds))
        for number in range(rounds):
            bare.rates.append(loop.measure(seconds))
            counter.advance()
            # Every other round backwards, so that nobody always follows the same one.
            for setting in best if number % 2 == 0 else best[::-1]:
                taken[setting].append(turn(setting, seconds, True))
    rows = sorted(
        (_row(setting, found, bare.rates) for setting, found in taken.items()),
        key=lambda row: -row.images_per_s,
    )
    fastest = rows[0].setting
    assert fastest is not None
    return BenchReport(
        samples, mean_nbytes, undecodable, cores, tried, rows, bare, taken[fastest][-1].explanation
    )


def existing(path: str | os.PathLike[str]) -> str:
    """`path` with ``~`` expanded.

    Raises:
        FileNotFoundError: there is nothing.
    """
    expanded = path_of(path)
    if not os.path.exists(expanded):
        raise FileNotFoundError(f"there is no file or folder {expanded!r}")
    return expanded


def default_settings(cores: int) -> list[Setting]:
    """Inline, and threads and processes: one, half as many as there are cores, as many, and one more."""
    counts = sorted({1, max(1, cores // 2), cores, cores + 1})
    return [
        Setting("inline", 0),
        *(Setting(name, count) for name in ("thread", "process") for count in counts),
    ]


def turns(rounds: int, settings: Sequence[Setting]) -> int:
    """How many turns `bench` takes with so many rounds."""
    return len(settings) + rounds * (1 + len({setting.executor for setting in settings}))


class _Counter:
    def __init__(self, tick: Callable[[int], object] | None) -> None:
        self._tick = tick
        self._done = 0

    def advance(self) -> None:
        self._done += 1
        if self._tick is not None:
            self._tick(self._done)


def _best_of_each(tried: Sequence[tuple[Setting, float]]) -> list[Setting]:
    best: dict[str, tuple[Setting, float]] = {}
    for setting, rate in tried:
        if setting.executor not in best or rate > best[setting.executor][1]:
            best[setting.executor] = (setting, rate)
    return [setting for setting, _ in best.values()]


def _row(setting: Setting, taken: Sequence[_Turn], bare_rates: Sequence[float]) -> BenchRow:
    cpu = [turn.cpu_ms for turn in taken if turn.cpu_ms is not None]
    memory = [turn.memory_nbytes for turn in taken if turn.memory_nbytes is not None]
    rates = [turn.rate for turn in taken]
    return BenchRow(
        setting,
        rates,
        median(turn.first_batch_s for turn in taken),
        median(cpu) if cpu else None,
        max(memory) if memory else None,
        taken[-1].lag,
        [rate / bare for rate, bare in zip(rates, bare_rates, strict=True)],
    )


async def _take_turn(loader: Any, seconds: float, watched: bool) -> _Turn:
    """One turn of a new loader; it is closed afterwards."""
    turn = _Turn()
    begin = perf_counter()
    async with loader:
        batches = _Forever(loader)
        await batches.next()
        turn.first_batch_s = perf_counter() - begin
        await batches.run(min(_SETTLE_S, seconds))
        used = cpu_seconds(os.getpid())
        count, took = await batches.run(seconds)
        used_then = cpu_seconds(os.getpid())
        turn.rate = count / took
        if used is not None and used_then is not None:
            turn.cpu_ms = 1e3 * (used_then - used) / count
        turn.explanation = loader.explain()
        if watched:
            lag = LoopLag()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lag.watch)
                await batches.run(min(_WATCH_S, seconds))
                tasks.cancel_scope.cancel()
            turn.lag = lag.result()
            turn.memory_nbytes = await anyio.to_thread.run_sync(memory_nbytes, os.getpid())
    return turn


class _Forever:
    """Batches of one epoch after the other."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._epoch = loader.__aiter__()
        self._empty = True

    async def next(self) -> int:
        """Take a batch; gives its number of images."""
        while True:
            try:
                batch = await self._epoch.__anext__()
            except StopAsyncIteration:
                if self._empty:
                    raise ValueError("not a single image can be decoded") from None
                self._empty = True
                self._epoch = self._loader.__aiter__()
                continue
            self._empty = False
            return len(batch[0])

    async def run(self, seconds: float) -> tuple[int, float]:
        """Take batches for so long; gives (images, seconds), at least one batch."""
        count = 0
        begin = now = perf_counter()
        while now - begin < seconds or not count:
            count += await self.next()
            now = perf_counter()
        return count, now - begin


def _pictures(path: str) -> tuple[int, list[bytes | Array], float, int]:
    """Length of the data, pictures for the bare loop spread evenly over it, their mean size, how many are damaged."""
    dataset: Any = image_dataset(path)
    samples = len(dataset)
    if not samples:
        raise ValueError(f"there are no images in {path!r}")
    positions = range(0, samples, max(1, samples // _BARE_PICTURES))[:_BARE_PICTURES]
    if isinstance(dataset, ImageFolderDataset):
        encoded: Iterator[bytes] = (Path(dataset.items[k][0]).read_bytes() for k in positions)
    elif isinstance(dataset, InsightFaceDataset):
        encoded = _payloads(str(dataset.facts(0).path), dataset.lines.at(np.array(positions)).tolist())
    else:
        encoded = _payloads(path, positions)
    found: list[bytes | Array] = []
    nbytes = damaged = 0
    for data in encoded:
        if nbytes + len(data) > _BARE_NBYTES:
            break
        try:
            image = decode_image(data)
            found.append(image if data.startswith(RAW_MAGIC) else data)
        except DecodeError:
            damaged += 1
            continue
        nbytes += len(data)
    return samples, found, nbytes / len(found) if found else 0.0, damaged


def _payloads(path: str, positions: Sequence[int]) -> Iterator[bytes]:
    with recordio.RecordReader(path) as reader:
        for position in positions:
            try:
                yield recordio.unpack(reader[position])[1]
            except recordio.RecordIOError:
                yield b""  # a damaged record is one that cannot be decoded


def bench_table(report: BenchReport) -> str:
    """The report in words and columns, for a terminal."""
    head = ("", "images/s", "of bare", "first batch", "CPU/image", "memory", "lag p50, p99")
    lines = [head, *map(_cells, [*report.rows, report.bare])]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    table = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    tried = "; ".join(f"{setting}: {rate:,.0f}" for setting, rate in report.tried)
    cores = f"{report.cores} core{'' if report.cores == 1 else 's'}"
    return "\n".join(
        [
            f"{report.samples:,} images, mean {report.mean_nbytes / 1e3:,.0f} kB; {cores}; "
            f"medians of {len(report.bare.rates)} rounds",
            *([f"{report.undecodable} of those looked at cannot be decoded"] if report.undecodable else []),
            "",
            *table,
            "",
            f"tried first, images/s: {tried}",
            "",
            f"{report.rows[0].setting}: {report.explanation}",
        ]
    )


def _cells(row: BenchRow) -> tuple[str, ...]:
    return (
        "bare loop" if row.setting is None else str(row.setting),
        f"{row.images_per_s:,.0f}",
        f"{median(row.of_bare):.2f}" if row.of_bare else "",
        "" if row.first_batch_s is None else f"{row.first_batch_s * 1e3:,.0f} ms",
        "" if row.cpu_ms is None else f"{row.cpu_ms:.2f} ms",
        "" if row.memory_nbytes is None else f"{row.memory_nbytes / 1e6:,.0f} MB",
        "" if row.lag is None else f"{row.lag.p50_ms:.2f}, {row.lag.p99_ms:.1f} ms",
    )
