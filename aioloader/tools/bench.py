"""Command `aioloader bench`: measure loading of the user's files, compared with a bare decode loop."""

from __future__ import annotations

import argparse
import glob
import itertools
import multiprocessing
import os
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import anyio
import anyio.to_thread
import numpy as np

from aioloader.datasets.decoding import parser_of
from aioloader.errors import EmptyDatasetError, MissingFieldError, SpanTooShortError
from aioloader.formats.base import PATTERN, files_text, folders_text
from aioloader.formats.opening import Recognized, make_dataset, recognize
from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.types import Spans
from aioloader.loader.images import images
from aioloader.observability.lag import Lag
from aioloader.pipeline.watchdog import watch_lag
from aioloader.rng import Rng
from aioloader.storage.urls import redact_url
from aioloader.tools.console import arguments, positive, seconds
from aioloader.transforms.antialias import resize_antialiased
from aioloader.transforms.decode import decode_image
from aioloader.transforms.geometry import RandomCrop, RandomResizedCrop
from aioloader.transforms.interpolation import CODES, FILTERED, interpolation_name
from aioloader.transforms.raw import RAW_MAGIC
from aioloader.transforms.tensor import IMAGENET_MEAN, IMAGENET_STD

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from aioloader.abc import ByteSource
    from aioloader.datasets.files import FileDataset
    from aioloader.foundation.types import Array
    from aioloader.loader.async_loader import AsyncDataLoader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    index_folder, *_, class_folder = folders_text()
    parser.description = (
        "Measure loading of a data set of any format with each executor and several numbers of workers, "
        "compared with a bare decode loop on the same images."
    )
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument(
        "path",
        metavar="PATH",
        help=f"{files_text()}, a pattern such as '{PATTERN}', {index_folder}, {class_folder}, or the URL of one",
    )
    parser.add_argument(
        "--image", metavar="NAME", help="field of the image, for formats whose samples have fields"
    )
    parser.add_argument("--label", metavar="NAME", help="field of the label")
    parser.add_argument("--size", type=positive, default=224, metavar="PIXELS", help="side of the images")
    parser.add_argument("--batch-size", type=positive, default=64, metavar="N", help="images per batch")
    parser.add_argument("--eval", action="store_true", help="centre crops in order, as for validation")
    parser.add_argument(
        "--rounds", type=positive, default=3, metavar="N", help="measurements of the best settings"
    )
    parser.add_argument("--seconds", type=seconds, default=2.0, metavar="S", help="duration of a measurement")


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from aioloader.observability.progress import ProgressBar

    recognize(options.path)  # its errors come before the progress bar
    settings = default_settings(available_cores())
    with ProgressBar("measuring", turns(options.rounds, settings), unit="turns") as bar:
        report = bench(
            **arguments(options, "eval"), train=not options.eval, settings=settings, tick=bar.update
        )
    print(bench_table(report))
    return 0


_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
# Fields of /proc/PID/stat after the name, which may contain spaces: user and system time, of it and of ended children.
_TIMES = slice(11, 15)


def process_tree(pid: int) -> list[int]:
    """Return a process and its living descendants, parents before children; empty if it cannot be found."""
    found = [pid] if _text(f"{pid}/stat") else []
    for parent in found:  # the list grows during the loop
        for children in glob.glob(f"{parent}/task/*/children", root_dir=_PROC):
            found += map(int, _text(children).split())
    return found


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of a process, its living descendants, and those that have ended and been reaped."""
    stats = filter(None, (_text(f"{member}/stat") for member in process_tree(pid)))
    ticks = [sum(map(int, stat.rpartition(")")[2].split()[_TIMES])) for stat in stats]
    return sum(ticks) / _TICKS_PER_S if ticks else None


def memory_nbytes(pid: int) -> int | None:
    """Return the memory of a process and its descendants: the proportional set size (a page shared by n counts 1/n).

    Reading it walks page tables, so do not call it while something is being timed.
    """
    lines = [line for member in process_tree(pid) for line in _text(f"{member}/smaps_rollup").splitlines()]
    kib = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return 1024 * sum(kib) if kib else None


def _text(name: str) -> str:
    """Return the text of a file below /proc; "" if it cannot be read, as after the end of its process."""
    try:
        return (_PROC / name).read_text()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Work:
    """Operations on each image.

    Attributes:
        size: side of the results in pixels.
        crop: "random" (`RandomResizedCrop`), "window" (a square of `size` at a random place, not resized), "centre"
            (shorter side resized to size * 8 / 7, then a centre crop) or "none" (images already have this size).
        flip: mirror about half of the images.
        normalise: float32 channels first, ImageNet's mean and standard deviation; else uint8 channels last.
        interpolation: name of the interpolation for resizing.
        antialias: resize as the loader does by default, averaging over all pixels that a pixel of the result covers;
            only for bilinear and bicubic.
    """

    size: int = 224
    crop: str = "random"
    flip: bool = True
    normalise: bool = False
    interpolation: str = "linear"
    antialias: bool = True


class ImageWorker:
    """Decoder and augmenter of images with reused memory: a result is valid until the next call.

    Args:
        images: see `BareLoop`.
        work: operations on each image.
    """

    def __init__(self, images: Sequence[bytes | Array], work: Work) -> None:
        import cv2
        import simplejpeg

        cv2.setNumThreads(1)
        self._cv2: Any = cv2
        self._jpeg: Any = simplejpeg
        self._images = images
        self._work = work
        self._crop = RandomCrop(work.size) if work.crop == "window" else RandomResizedCrop(work.size)
        self._code = CODES[interpolation_name(work.interpolation, "BareLoop", antialias=False)]
        self._rng = Rng(0)
        self._scratch = np.empty(0, np.uint8)
        size = (work.size, work.size)
        self._resized = np.empty((*size, 3), np.uint8)
        self._flipped = np.empty((*size, 3), np.uint8)
        self._planes = np.empty((3, *size), np.float32)
        mean, std = (np.asarray(v, np.float32).reshape(3, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
        self._table = ((np.arange(256, dtype=np.float32) / np.float32(255) - mean) / std).astype(np.float32)

    def make(self, index: int) -> Array:
        """Return the result for image `index`, modulo the number of images."""
        source = self._images[index % len(self._images)]
        image = self._decode(source) if isinstance(source, bytes) else source
        height, width = image.shape[:2]
        work, rng = self._work, self._rng
        rng.seek(0, 0, index)
        if work.crop == "random":
            x, y, w, h = self._crop.box(height, width, rng)
            image = self._resize(image[y : y + h, x : x + w], work.size, work.size, self._resized)
        elif work.crop == "window":
            x, y, w, h = self._crop.box(height, width, rng)
            image = image[y : y + h, x : x + w]
        elif work.crop == "centre":
            short = round(work.size * 8 / 7)
            w, h = (short, height * short // width) if width < height else (width * short // height, short)
            left, top = (w - work.size) // 2, (h - work.size) // 2
            image = self._resize(image, w, h, None)[top : top + work.size, left : left + work.size]
        if work.flip and rng.random() < 0.5:
            image = self._cv2.flip(image, 1, dst=self._flipped)
        elif work.crop in ("centre", "window"):
            np.copyto(self._resized, image)
            image = self._resized
        if work.normalise:
            for plane, row, place in zip(self._cv2.split(image), self._table, self._planes, strict=True):
                self._cv2.LUT(plane, row, dst=place)
            return self._planes
        return image

    def _decode(self, data: bytes) -> Array:
        try:
            height, width, _, _ = self._jpeg.decode_jpeg_header(data)
            if self._scratch.size < height * width * 3:
                self._scratch = np.empty(height * width * 3, np.uint8)
            image: Array = self._jpeg.decode_jpeg(data, buffer=self._scratch)
            return image
        except ValueError:  # PNG and other formats, and rare kinds of JPEG
            decoded: Any = self._cv2.imdecode(np.frombuffer(data, np.uint8), self._cv2.IMREAD_COLOR)
            return np.asarray(self._cv2.cvtColor(decoded, self._cv2.COLOR_BGR2RGB), np.uint8)

    def _resize(self, image: Array, width: int, height: int, out: Array | None) -> Array:
        if self._work.antialias:
            made = np.empty((height, width, 3), np.uint8) if out is None else out
            resize_antialiased(image, (height, width), made, kernel=FILTERED[self._code])
            return made
        return np.asarray(self._cv2.resize(image, (width, height), dst=out, interpolation=self._code))


def serve(commands: Connection[Any, Any], images: list[bytes | Array], work: Work) -> None:
    """Run a process of the loop.

    A command is a number of seconds, answered with (number of results, seconds taken); or None, which ends the process.
    """
    worker = ImageWorker(images, work)
    commands.send("ready")
    index = 0
    while (command := commands.recv()) is not None:
        done = 0
        start = now = perf_counter()
        while now - start < command:
            worker.make(index)
            index += 1
            done += 1
            now = perf_counter()
        commands.send((done, now - start))


class BareLoop:
    """Processes of the loop, which stay alive between measurements; a context manager.

    Args:
        images: encoded images, or uint8 (height, width, 3) for images that are not to be decoded; divided among the
            processes.
        workers: number of processes.
        work: operations on each image.
    """

    def __init__(self, images: Sequence[bytes | Array], workers: int, work: Work | None = None) -> None:
        self._images = list(images)
        self._workers = max(1, min(workers, len(self._images)))
        self._work = work or Work()
        self._stack = ExitStack()
        self._pipes: list[Connection[Any, Any]] = []

    def __enter__(self) -> BareLoop:
        context = multiprocessing.get_context("spawn")
        for number in range(self._workers):
            mine, theirs = context.Pipe()
            share = self._images[number :: self._workers]
            process = context.Process(target=serve, args=(theirs, share, self._work), daemon=True)
            process.start()
            theirs.close()
            self._stack.callback(process.join)
            self._stack.callback(mine.send, None)
            self._pipes.append(mine)
        for pipe in self._pipes:
            pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, seconds: float) -> float:
        """Measure the images per second of all processes together, over `seconds`."""
        for pipe in self._pipes:
            pipe.send(seconds)
        answers: list[tuple[int, float]] = [pipe.recv() for pipe in self._pipes]
        return sum(done / took for done, took in answers)


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
    size: int = 224,
    batch_size: int = 64,
    train: bool = True,
    seconds: float = 2.0,
    rounds: int = 3,
    settings: Sequence[Setting] | None = None,
    tick: Callable[[int], object] | None = None,
    **fields: str | None,
) -> BenchReport:
    """Measure loading of a data set of any format, compared with the bare loop on the same images.

    Args:
        path: as for `aioloader.images`.
        size: side of the square images in pixels.
        batch_size: images of a batch.
        train: random resized crops and flips, shuffled; else resized, the centre cropped, in order.
        seconds: duration of the timed part of each turn.
        rounds: turns of each of the best settings.
        settings: settings to try; None: `default_settings`.
        tick: called after each turn with the number of turns so far; there are `turns` of them.
        fields: image and label, as for `aioloader.images`; None: the format's own.

    Returns:
        the results. Images that cannot be decoded are skipped.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        EmptyDatasetError: its files have no samples; the error is a ValueError.
        ValueError: it is of a format that is not read, or contains no image that can be decoded.
    """
    found = recognize(path)
    names = {name: value for name, value in fields.items() if value is not None}
    samples, bare_images, mean_nbytes, undecodable = _bare_images(found, names)
    cores = available_cores()
    numbers = itertools.count(1)

    def advance() -> None:
        number = next(numbers)
        if tick is not None:
            tick(number)

    def turn(setting: Setting, counted_s: float, watched: bool) -> _Turn:
        loader = _loader(found, setting, (size, min(batch_size, samples), train), names)
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


def _loader(
    found: Recognized, setting: Setting, batches: tuple[int, int, bool], names: dict[str, Any]
) -> AsyncDataLoader:
    loader = images(
        found.paths if found.format.has_shards else found.paths[0],
        *batches,
        **names,
        executor=setting.executor,
        num_workers=None if setting.executor == "inline" else setting.workers,
        on_error="skip",
    )
    return cast("AsyncDataLoader", loader)


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
    decoder = parser_of(dataset)
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


def _items(source: ByteSource, spans: Spans) -> list[memoryview | Exception]:
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
            f"{report.rows[0].setting}:",
            report.explanation,
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


class LagSummary(NamedTuple):
    """Lag in milliseconds: the median, the 99th percentile, the maximum; and the number of ticks."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    ticks: int


class LoopLag:
    """Collector of the lag of one loop. Run `watch` in a task group next to the work, and cancel it at the end."""

    def __init__(self) -> None:
        self._lag = Lag()

    async def watch(self) -> None:
        """Tick every millisecond until cancelled."""
        await watch_lag(self._lag, 0.001, counts_missed=False)

    def result(self) -> LagSummary:
        """Return the lag so far; zeros before the first tick."""
        lag = self._lag
        p50, p99 = (lag.quantile(share) or 0.0 for share in (0.5, 0.99))
        return LagSummary(1e3 * p50, 1e3 * p99, 1e3 * lag.max_s, lag.count)
