"""Command `aioloader demo`: stream, measure and draw."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np

from aioloader.errors import SampleError
from aioloader.formats.base import RECORD_SUFFIX, in_words, names_with_fields
from aioloader.formats.opening import open_dataset, whole_of
from aioloader.formats.shards import is_record_file
from aioloader.loader.async_loader import AsyncDataLoader
from aioloader.observability.progress import ProgressBar
from aioloader.tools.bench import LagSummary, LoopLag
from aioloader.tools.console import arguments, natural, positive
from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import list_images, pack
from aioloader.transforms.base import Compose
from aioloader.transforms.geometry import RandomHorizontalFlip, RandomResizedCrop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    parser.description = (
        "Stream two epochs of training batches inside an async function, measure, and draw one batch."
    )
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument(
        "--path",
        metavar="PATH",
        help=f"a {RECORD_SUFFIX} file, or a folder of images; without it images are drawn",
    )
    parser.add_argument("--images", type=positive, default=500, metavar="N", help="number of images to draw")
    parser.add_argument("--batch-size", type=positive, default=64, metavar="N", help="images per batch")
    parser.add_argument("--epochs", type=positive, default=2, metavar="N", help="number of epochs")
    parser.add_argument("--size", type=positive, default=224, metavar="PIXELS", help="side of the crops")
    parser.add_argument(
        "--num-workers", type=natural, metavar="N", help="number of workers; without it one per core"
    )
    parser.add_argument(
        "--executor",
        choices=("process", "fork", "thread", "inline"),
        default="process",
        help="where to decode",
    )
    parser.add_argument(
        "--out", default="aioloader-sheet.png", metavar="PNG", help="image file to draw the batch to"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""

    report = demo(**arguments(options))
    _print_demo(report, options.executor)
    print(_next_steps(options.path))
    return 0


def _print_demo(report: DemoReport, executor: str) -> None:
    height, width, channels = report.shape or (0, 0, 0)
    where = "in the loop itself" if executor == "inline" else _workers(report.workers, executor)
    total = sum(epoch.images for epoch in report.epochs)
    lag = report.lag
    print(
        f"\n{total:,} images, cropped and flipped at random to {width} x {height} x {channels}, made {where}.",
        report.explanation,
        *(
            f"- epoch {number}: {epoch.images:,} images in {epoch.seconds:.2f} s, {epoch.images_per_s:,.0f} images/s; "
            f"first batch after {epoch.first_batch_s * 1e3:,.0f} ms"
            for number, epoch in enumerate(report.epochs)
        ),
        f"- event loop: a task scheduled every millisecond ran {lag.p50_ms:.2f} ms late at the median, "
        f"{lag.p99_ms:.2f} ms at the 99th percentile ({lag.ticks:,} ticks)",
        *(() if report.sheet is None else (f"- a batch to look at: {report.sheet}",)),
        sep="\n",
    )


def _next_steps(path: str | None) -> str:
    """Return the commands and lines to try next, on the caller's own data."""
    own = "PATH" if path is None else shlex.quote(path)
    literal = '"PATH"' if path is None else repr(path)
    asked = (
        ""
        if path is not None
        else f" (PATH: a folder of images, a {RECORD_SUFFIX} file, {in_words(names_with_fields())} files)"
    )
    return f"""
Next, with your own data{asked}:

    aioloader inspect {own}    describes it and suggests changes that make loading faster
    aioloader bench {own}      measures executors and numbers of workers on it

    import aioloader

    with aioloader.images({literal}, size=224, batch_size=64, blocking=True) as loader:
        for images, labels in loader: ...        # for tensors: output="torch"

In an async function it is `async with` and `async for`, without blocking=True.

`aioloader --help` lists all commands, `python -m pydoc aioloader.images` the arguments of `images`.{_guides()}"""


def _guides() -> str:
    """Return a line with the address of the guides, which the package's metadata has if the project has a site."""
    from importlib import metadata

    try:
        addresses = metadata.metadata("aioloader").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        addresses = []
    known: dict[str, str] = dict(address.split(", ", 1) for address in addresses)
    address = known.get("Documentation")
    return f"\nGuides: {address}" if address else ""


def _workers(count: int, executor: str) -> str:
    plural = "" if count == 1 else "es" if executor == "process" else "s"
    return f"by {count} worker {executor}{plural}"


_GROUND = (245, 245, 247)
_INK = (52, 54, 62)
_GAP = 12
_CAPTION = 24


def contact_sheet(
    images: Array, captions: Sequence[str], *, title: str = "", columns: int | None = None
) -> Array:
    """Lay images out in a grid.

    Args:
        images: uint8 (n, height, width, 3) RGB.
        captions: one per image; text that does not fit is cut off.
        title: a line above the grid.
        columns: images in a row; None: the sheet is about square.

    Returns:
        uint8 (height, width, 3) RGB.

    Raises:
        ValueError: there are no images, or not one caption per image.
    """
    count, height, width, _ = images.shape
    if not count or len(captions) != count:
        raise ValueError(f"need one caption for each of at least one image, got {len(captions)} for {count}")
    columns = min(count, columns or math.ceil(math.sqrt(count * height / width)))
    rows = -(-count // columns)
    top = _GAP + (34 if title else 0)
    cell_w, cell_h = width + _GAP, height + _CAPTION + _GAP
    sheet = np.empty((top + rows * cell_h, _GAP + columns * cell_w, 3), np.uint8)
    sheet[...] = _GROUND
    if title:
        _write(sheet, title, at=(_GAP, 30), width=sheet.shape[1] - 2 * _GAP, size=0.7)
    for place, (image, caption) in enumerate(zip(images, captions, strict=True)):
        y, x = top + place // columns * cell_h, _GAP + place % columns * cell_w
        sheet[y : y + height, x : x + width] = image
        _write(sheet, caption, at=(x, y + height + 17), width=width, size=0.5)
    return sheet


def write_png(path: str | os.PathLike[str], image: Array) -> Path:
    """Write uint8 (height, width, 3) RGB as a PNG file; its folder is created if it is missing."""
    import cv2

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    good, data = cv2.imencode(".png", image[..., ::-1])
    if not good:
        raise OSError(f"OpenCV could not write a PNG of shape {image.shape}")
    target.write_bytes(data.tobytes())
    return target


def _write(sheet: Array, text: str, *, at: tuple[int, int], width: int, size: float) -> None:
    import cv2

    font = cv2.FONT_HERSHEY_SIMPLEX
    text = text.encode("ascii", "replace").decode()  # the font has no other characters
    fitted = text
    while len(fitted) > 1 and cv2.getTextSize(fitted, font, size, 1)[0][0] > width:
        text = text[:-1]
        fitted = text.rstrip() + ".."
    cv2.putText(
        sheet, fitted, at, fontFace=font, fontScale=size, color=_INK, thickness=1, lineType=cv2.LINE_AA
    )


_MOST_ON_SHEET = 36  # a sheet with more images is not legible


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Figures of one epoch.

    Attributes:
        images, batches: numbers of delivered images and batches.
        seconds: time from the first request to the last batch.
        first_batch_s: seconds from the first request to the first batch.
    """

    images: int
    batches: int
    seconds: float
    first_batch_s: float

    @property
    def images_per_s(self) -> float:
        """Return the images per second of the whole epoch, its start included."""
        return self.images / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class DemoReport:
    """Result of the demonstration.

    Attributes:
        epochs: one report per epoch.
        lag: lateness of a task in the same event loop as the stream.
        explanation: `explain()` of the loader.
        workers: number of workers.
        shape: (height, width, channels) of an image of a batch.
        sheet: path of the contact sheet, or None if there was no batch.
    """

    epochs: tuple[EpochReport, ...]
    lag: LagSummary
    explanation: str
    workers: int
    shape: tuple[int, ...]
    sheet: Path | None


async def stream(
    rec: str | os.PathLike[str],
    *,
    classes: Sequence[str] = (),
    batch_size: int = 64,
    epochs: int = 2,
    size: int = 224,
    num_workers: int | None = None,
    executor: str = "process",
    sheet: str | os.PathLike[str] | None = None,
) -> DemoReport:
    """Stream a record file for some epochs, with a progress bar on standard error.

    Args:
        rec: the file.
        classes: names of the labels 0, 1, ... for the sheet.
        batch_size: images of a batch.
        epochs: passes over the data.
        size: side of the crops in pixels.
        num_workers: number of workers; None: one per core.
        executor: "process", "fork", "thread" or "inline".
        sheet: path of the contact sheet of the first batch; None: none is written.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it contains no records, or is damaged.
        SampleError: an image is damaged.

    Cancellation stops the workers at once and is re-raised.
    """
    augment = Compose([RandomResizedCrop(size), RandomHorizontalFlip()])
    dataset = open_dataset(rec).transform_first(augment)
    if not len(dataset):
        raise ValueError(f"{os.fspath(rec)!r} contains no records, so there is nothing to stream")
    workers = None if executor == "inline" else num_workers
    lag = LoopLag()
    reports: list[EpochReport] = []
    kept: tuple[Array, Array] | None = None
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lag.watch)
        try:
            async with AsyncDataLoader[Any](
                dataset,
                batch_size,
                shuffle=True,
                num_workers=workers,
                executor=executor,
            ) as loader:
                for epoch in range(epochs):
                    with ProgressBar(f"epoch {epoch}", len(dataset)) as bar:
                        report, batch = await _one_epoch(loader, bar)
                    reports.append(report)
                    if kept is None:
                        kept = batch
                stats, explanation = loader.stats(), loader.explain()
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        # Raised outside the task group, which would wrap the loader's error.
        raise failure
    written = None
    if kept is not None and sheet is not None:
        sample, labels = kept
        first = reports[0].images if reports[0].batches == 1 else batch_size
        title = f"{len(sample)} of the {first} images of batch 0" if first > len(sample) else "batch 0"
        written = write_png(sheet, contact_sheet(sample, [_caption(y, classes) for y in labels], title=title))
    shape = kept[0].shape[1:] if kept is not None else ()
    return DemoReport(
        epochs=tuple(reports),
        lag=lag.result(),
        explanation=explanation,
        workers=max(1, stats.workers),
        shape=shape,
        sheet=written,
    )


async def _one_epoch(
    loader: AsyncDataLoader[Any], bar: ProgressBar
) -> tuple[EpochReport, tuple[Array, Array] | None]:
    """Stream one epoch; return its figures, and copies of the first batch's images and labels for the sheet."""
    seen = batches = 0
    first_s = 0.0
    kept = None
    start = perf_counter()
    async for images, labels in loader:
        if not batches:
            first_s = perf_counter() - start
            kept = images[:_MOST_ON_SHEET].copy(), labels[:_MOST_ON_SHEET].copy()
        batches += 1
        seen += len(images)
        bar.update(seen)
    return EpochReport(seen, batches, perf_counter() - start, first_s), kept


def demo(
    path: str | os.PathLike[str] | None = None,
    *,
    images: int = 500,
    out: str | os.PathLike[str] = "aioloader-sheet.png",
    **options: Any,
) -> DemoReport:
    """Run the demonstration from start to end.

    Args:
        path: a record file, or a folder: with one sub-folder per class, which is packed into a temporary record file
            first, or one that a format recognizes by a record file in it; None: draw images.
        images: number of images to draw.
        out: path of the contact sheet.
        options: batch_size, epochs, size, num_workers and executor, as for `stream`.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: the folder or file contains no images, or the file is not named as a record file.
    """

    def run(rec: Path, classes: Sequence[str]) -> DemoReport:
        return anyio.run(partial(stream, rec, classes=classes, sheet=out, **options))

    source = None if path is None else Path(path).expanduser()
    if source is not None and not source.exists():
        raise FileNotFoundError(f"there is no file or folder {str(source)!r}")
    if source is not None and not source.is_dir():
        if not is_record_file(os.fspath(source)):
            raise ValueError(f"{str(source)!r} is neither a folder nor a {RECORD_SUFFIX} file")
        return run(source, ())
    faces = None if source is None else whole_of(os.fspath(source))
    if faces is not None:
        return run(Path(faces.paths[0]), ())
    with tempfile.TemporaryDirectory(prefix="aioloader-demo-") as scratch:
        if source is None:
            source = Path(scratch, "images")
            with ProgressBar("drawing", images) as bar:
                draw_folder(source, count=images, tick=bar.update)
        files = list_images(source)[1]
        with ProgressBar("packing", len(files)) as bar:
            packed = pack(source, Path(scratch, f"images{RECORD_SUFFIX}"), tick=bar.update)
        try:
            return run(Path(packed.rec), packed.classes)
        except SampleError as error:
            # The record file is temporary and about to be deleted: name the image file that the record was made from.
            raise SampleError(
                error.reason,
                dataset="folder",
                index=error.index,
                stage=error.stage,
                path=str(files[error.index][0]),
            ) from error.__cause__


def _caption(label: Array, classes: Sequence[str]) -> str:
    if label.ndim:
        return "label " + " ".join(f"{value:g}" for value in label.ravel())
    number = int(label)
    if number == label and 0 <= number < len(classes):
        return f"{number} {classes[number]}"
    return f"label {float(label):g}"
