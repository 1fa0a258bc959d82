"""Benchmark of a loader on the caller's files: the best executor and number of workers, and the distance to the bound.

First every setting has one short turn. Then the best setting of each executor and the bare loop (see
`aioloader.tools.bare_loop`) alternate in rounds, so that their ratios compare measurements close in time. A turn uses a
new loader: it is opened, warms up, is timed, and then the lag of its event loop and its memory are measured. The last
two cost time themselves, so they are measured only after the timing.
"""

from __future__ import annotations

import itertools
import os
from contextlib import aclosing
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import numpy as np

from aioloader.datasets.decoding import ImageDecoder
from aioloader.errors import EmptyDatasetError, MissingFieldError, SpanTooShortError
from aioloader.formats.opening import Recognized, make_dataset, recognize
from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.types import Spans
from aioloader.images import images
from aioloader.loader.async_loader import AsyncDataLoader
from aioloader.storage.urls import redact_url
from aioloader.tools.bare_loop import BareLoop, Work
from aioloader.tools.lag import LagSummary, LoopLag
from aioloader.tools.usage import cpu_seconds, memory_nbytes
from aioloader.transforms import decode_image
from aioloader.transforms.raw import RAW_MAGIC

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from aioloader.abc import FetchingByteSource
    from aioloader.datasets.files import FileDataset
    from aioloader.foundation.types import Array

_SETTLE_S = 0.3
_WATCH_S = 1.0
# The bare loop needs just enough images that none stays in a core's cache.
_BARE_IMAGES, _BARE_NBYTES = 1000, 512 << 20
_READ_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class Setting:
    """Executor's name and number of workers, 0 for "inline"."""

    executor: str
    workers: int

    def __str__(self) -> str:
        return self.executor if self.executor == "inline" else f"{self.executor}, {self.workers}"


@dataclass(slots=True)
class BenchRow:
    """Result of one setting; medians over the rounds.

    Attributes:
        setting: the setting; None: the bare loop.
        rates: images per second in each round.
        first_batch_s: seconds from creating the loader to its first batch; None for the bare loop.
        cpu_ms: CPU milliseconds per image, of all processes together; None where the system does not report them.
        memory_nbytes: proportional set size of all processes, this one included; None as for `cpu_ms`.
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
        """Return the median of the rates."""
        return median(self.rates) if self.rates else 0.0


@dataclass(slots=True)
class BenchReport:
    """Result of `bench`.

    Attributes:
        samples: number of images of the data set.
        mean_nbytes: mean size of the images that the bare loop used.
        undecodable: number of sampled images that cannot be decoded.
        cores: number of cores that this process may use.
        tried: (setting, images per second) of the short turns.
        rows: results of the best setting of each executor, the fastest first.
        bare: result of the bare loop.
        explanation: `explain()` of the fastest loader.
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
    image: str | None = None,
    label: str | None = None,
    size: int = 224,
    batch_size: int = 64,
    train: bool = True,
    seconds: float = 2.0,
    rounds: int = 3,
    settings: Sequence[Setting] | None = None,
    tick: Callable[[int], object] | None = None,
) -> BenchReport:
    """Measure loading of a data set of any format, compared with the bare loop on the same images.

    Args:
        path, image, label: as for `aioloader.images`.
        size: side of the square images in pixels.
        batch_size: images of a batch.
        train: random resized crops and flips, shuffled; else resized, the centre cropped, in order.
        seconds: duration of the timed part of each turn.
        rounds: turns of each of the best settings.
        settings: settings to try; None: `default_settings`.
        tick: called after each turn with the number of turns so far; there are `turns` of them.

    Returns:
        the results. Images that cannot be decoded are skipped.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        EmptyDatasetError: its files have no samples; the error is a ValueError.
        ValueError: it is of a format that is not read, or contains no image that can be decoded.
    """
    found = recognize(path)
    given = (("image", image), ("label", label))
    names: dict[str, Any] = {name: value for name, value in given if value is not None}
    samples, bare_images, mean_nbytes, undecodable = _bare_images(found, names)
    cores = available_cores()
    numbers = itertools.count(1)

    def advance() -> None:
        number = next(numbers)
        if tick is not None:
            tick(number)

    def turn(setting: Setting, counted_s: float, watched: bool) -> _Turn:
        loader = images(
            found.paths[0] if found.format.is_folder else found.paths,
            size,
            min(batch_size, samples),
            train,
            **names,
            executor=setting.executor,
            num_workers=None if setting.executor == "inline" else setting.workers,
            on_error="skip",
        )
        assert isinstance(loader, AsyncDataLoader)
        result = anyio.run(_take_turn, loader, counted_s, watched)
        advance()
        return result

    tried = [
        (setting, turn(setting, min(1.0, seconds), False).rate)
        for setting in (default_settings(cores) if settings is None else settings)
    ]
    best = _best_of_each(tried)
    taken: dict[Setting, list[_Turn]] = {setting: [] for setting in best}
    bare = BenchRow(None)
    work = Work(size, "random" if train else "centre", train)
    with BareLoop(bare_images, cores, work) as loop:
        loop.measure(min(_SETTLE_S, seconds))
        for number in range(rounds):
            bare.rates.append(loop.measure(seconds))
            advance()
            # Every other round is reversed, so that no setting always runs after the same one.
            for setting in best if number % 2 == 0 else best[::-1]:
                taken[setting].append(turn(setting, seconds, True))
    rows = sorted(
        (_row(setting, found, bare.rates) for setting, found in taken.items()),
        key=lambda row: -row.images_per_s,
    )
    fastest = rows[0].setting
    assert fastest is not None
    return BenchReport(
        samples=samples,
        mean_nbytes=mean_nbytes,
        undecodable=undecodable,
        cores=cores,
        tried=tried,
        rows=rows,
        bare=bare,
        explanation=taken[fastest][-1].explanation,
    )


def default_settings(cores: int) -> list[Setting]:
    """Return inline, and threads and processes with 1, cores / 2, cores and cores + 1 workers."""
    counts = sorted({1, max(1, cores // 2), cores, cores + 1})
    return [
        Setting("inline", 0),
        *(Setting(name, count) for name in ("thread", "process") for count in counts),
    ]


def turns(rounds: int, settings: Sequence[Setting]) -> int:
    """Return the number of turns of `bench`."""
    return len(settings) + rounds * (1 + len({setting.executor for setting in settings}))


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
        first_batch_s=median(turn.first_batch_s for turn in taken),
        cpu_ms=median(cpu) if cpu else None,
        memory_nbytes=max(memory) if memory else None,
        lag=taken[-1].lag,
        of_bare=[rate / bare for rate, bare in zip(rates, bare_rates, strict=True)],
    )


async def _take_turn(loader: AsyncDataLoader[Any], seconds: float, watched: bool) -> _Turn:
    """Measure a new loader, and close it."""
    turn = _Turn()
    begin = perf_counter()
    async with loader, aclosing(_counts(loader)) as counts:
        await anext(counts)
        turn.first_batch_s = perf_counter() - begin
        await _receive(counts, min(_SETTLE_S, seconds))
        used = cpu_seconds(os.getpid())
        count, took = await _receive(counts, seconds)
        used_then = cpu_seconds(os.getpid())
        turn.rate = count / took
        if used is not None and used_then is not None:
            turn.cpu_ms = 1e3 * (used_then - used) / count
        turn.explanation = loader.explain()
        if watched:
            lag = LoopLag()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lag.watch)
                await _receive(counts, min(_WATCH_S, seconds))
                tasks.cancel_scope.cancel()
            turn.lag = lag.result()
            turn.memory_nbytes = await anyio.to_thread.run_sync(memory_nbytes, os.getpid())
    return turn


async def _counts(loader: AsyncDataLoader[Any]) -> AsyncGenerator[int]:
    """Yield the number of images of each batch, epoch after epoch, without an end."""
    while True:
        empty = True
        async for batch in loader:
            empty = False
            yield len(batch[0])
        if empty:
            raise ValueError("no image can be decoded")


async def _receive(counts: AsyncGenerator[int], seconds: float) -> tuple[int, float]:
    """Receive batches for a time, but at least one; return (images, seconds)."""
    count = 0
    begin = now = perf_counter()
    while now - begin < seconds or not count:
        count += await anext(counts)
        now = perf_counter()
    return count, now - begin


def _bare_images(found: Recognized, options: dict[str, Any]) -> tuple[int, list[bytes | Array], float, int]:
    """Return the dataset's length, an even sample of its images, their mean size, and the number of damaged ones.

    Raises:
        EmptyDatasetError: there are no samples.
        MissingFieldError: samples have no such fields.
        ValueError: no image can be decoded.
    """
    dataset = make_dataset(found, options)
    samples = len(dataset)
    name = redact_url(found.paths[0])
    if not samples:
        raise EmptyDatasetError(name, len(found.paths))
    positions = range(0, samples, max(1, samples // _BARE_IMAGES))[:_BARE_IMAGES]
    kept: list[bytes | Array] = []
    errors: list[Exception] = []
    nbytes = 0
    for data in _encoded(dataset, positions):
        try:
            if isinstance(data, Exception):
                raise data
            if nbytes + len(data) > _BARE_NBYTES:
                break
            image = decode_image(data)
            kept.append(image if data.startswith(RAW_MAGIC) else data)
        except MissingFieldError:
            raise
        except (OSError, ValueError, EOFError) as error:
            errors.append(error)
            continue
        nbytes += len(data)
    if not kept:
        raise ValueError(
            f"{name!r} contains no image that can be decoded, so there is nothing to measure: {errors[0]}"
        )
    return samples, kept, nbytes / len(kept), len(errors)


def _encoded(dataset: FileDataset, positions: Sequence[int]) -> Iterator[bytes | Exception]:
    """Yield the encoded image of each sample, or the error of a sample that cannot be read."""
    decoder = dataset.decoder
    assert isinstance(decoder, ImageDecoder)
    source = dataset.open_source()
    try:
        for low in range(0, len(positions), _READ_TOGETHER):
            indices = np.array(positions[low : low + _READ_TOGETHER], np.int64)
            extras = dataset.extras(indices)
            for place, data in enumerate(_items(source, dataset.spans(indices))):
                if isinstance(data, Exception):
                    yield data
                    continue
                extra = None if extras is None else extras[place]
                try:
                    yield bytes(decoder.parse(data, extra, dataset.location(int(indices[place])))[0])
                except (ValueError, EOFError) as error:
                    yield error
    finally:
        source.close()


def _items(source: FetchingByteSource, spans: Spans) -> list[memoryview | Exception]:
    """Read items at once, or one by one if one of them cannot be read; return the error of each such item."""
    try:
        plan, data = source.fetch(spans)
    except SpanTooShortError as short:
        if len(spans) == 1:
            return _items(source, Spans(spans.file, spans.offset, np.array([short.needed])))
    except (OSError, ValueError, EOFError) as error:
        if len(spans) == 1:
            return [error]
    else:
        ends = (plan.start + plan.length).tolist()
        return [data[start:end].toreadonly() for start, end in zip(plan.start.tolist(), ends, strict=True)]
    return [item for place in range(len(spans)) for item in _items(source, _one(spans, place))]


def _one(spans: Spans, place: int) -> Spans:
    return Spans(
        spans.file[place : place + 1], spans.offset[place : place + 1], spans.length[place : place + 1]
    )


def bench_table(report: BenchReport) -> str:
    """Format the report as a table with explanations, for a terminal."""
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
            "bare loop: one process per core that only decodes and transforms whole images in memory,",
            "without files, order, batches or transport; of bare: share of its rate",
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
