"""Packs a folder of images into one RecordIO file: as they are, made smaller, tiled, or raw.

OUT.rec holds the records, OUT.idx their offsets by key, OUT.lst one line "key <tab> label <tab> path" per record. All
three are written beside their places under other names and renamed when they are complete, so a file named .rec is
never half-written. Images are read and encoded in threads and written in order.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import recordio
from aioloader._error_budget import over_budget
from aioloader._failures import lighten
from aioloader.errors import DecodeError, LoaderError, SampleError, TooManyErrorsError, error_report
from aioloader.options import available_cores, check_max_errors
from aioloader.permutation import permute
from aioloader.storage.urls import beside, is_url, locate, suffix_of
from aioloader.tools.drafts import published
from aioloader.tools.encoding import Encoded, Encoding
from aioloader.tools.jpegtran import find_jpegtran
from aioloader.transforms import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator, Sequence

__all__ = ("EXTENSIONS", "PackError", "PackReport", "encoded_images", "list_images", "pack")

T = TypeVar("T", bytes, Encoded)

# The datasets read no larger ones either.
_MOST_FILE_NBYTES = 1 << 30
# What goes before an image in a record.
_HEADER_NBYTES = 24

EXTENSIONS = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".webp"})


class PackError(LoaderError, ValueError):
    """One image cannot be packed; the cause is chained.

    Attributes:
        path: its file.
        reason: the cause in one line.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot pack {path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(slots=True)
class PackReport:
    """What was packed.

    Attributes:
        rec, idx, lst: the files written; their URLs where that is where they are.
        classes: names of the classes; a record's label is the place of its class in here.
        records: number of records.
        nbytes: size of the .rec in bytes.
        source_nbytes: bytes of the images before.
        image_nbytes: bytes of the images now.
        resized: how many were made smaller.
        tiled: how many are tiled JPEGs.
        kept: how many stay as they are although something else was asked for, by reason (see `Encoded.kept`).
        skipped: (path, reason) of images that were left out.
        errors: every image that failed, those that were replaced too; `index` is its place in `list_images`.
        outside: how many images lie outside of the classes' folders, where there are classes; they are not packed.
        empty: names of sub-folders that hold no images. They are no classes, so later ones have smaller numbers.
    """

    rec: Path | str
    idx: Path | str
    lst: Path | str
    classes: tuple[str, ...]
    records: int = 0
    nbytes: int = 0
    source_nbytes: int = 0
    image_nbytes: int = 0
    resized: int = 0
    tiled: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    errors: list[SampleError] = field(default_factory=list)
    outside: int = 0
    empty: tuple[str, ...] = ()

    @property
    def replaced(self) -> int:
        """How many images failed and another one stands in their place."""
        return len(self.errors) - len(self.skipped)

    def error_report(self) -> dict[str, Any]:
        """Every image that failed, as a JSON object; see `aioloader.DataLoader.error_report`."""
        return error_report(self.errors)

    def _count(self, image: Encoded) -> None:
        self.records += 1
        self.source_nbytes += image.source_nbytes
        self.image_nbytes += len(image.data)
        self.resized += image.resized
        self.tiled += image.tiled
        if image.kept:
            self.kept[image.kept] = self.kept.get(image.kept, 0) + 1


def list_images(source: str | os.PathLike[str]) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """Find the images of a folder, in a fixed order: classes by name, then files by path.

    Each sub-folder that holds images, at any depth, is a class. Images outside of sub-folders are taken only where
    there are no classes, with label 0. Files and folders whose names begin with a dot are passed over.

    Returns:
        the names of the classes, and (path, label) of every image.

    Raises:
        NotADirectoryError: `source` is not a folder.
        ValueError: it holds no images.
    """
    root = Path(source)
    if not root.is_dir():
        raise NotADirectoryError(f"there is no folder {str(root)!r}")
    folders = _folders_in(root)
    found = {folder.name: sorted(_images_in(folder)) for folder in folders}
    classes = tuple(name for name, images in found.items() if images)
    items = [(path, label) for label, name in enumerate(classes) for path in found[name]]
    if not items:
        items = [(path, 0) for path in sorted(root.iterdir()) if _is_image(path)]
    if not items:
        raise ValueError(f"there are no images ({', '.join(sorted(EXTENSIONS))}) in {str(root)!r}")
    return classes, items


def pack(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    shuffle: bool = False,
    seed: int = 0,
    encoding: str = "keep",
    tile: bool = False,
    resize: int | None = None,
    quality: int = 95,
    num_workers: int | None = None,
    on_error: str = "raise",
    max_errors: float | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    tick: Callable[[int], object] | None = None,
) -> PackReport:
    """Pack a folder of images; existing files of these names are replaced.

    Args:
        source: folder with one sub-folder per class (see `list_images`).
        out: the .rec file to write; ".rec" is added if it is missing. The .idx and .lst lie beside it. It may be a URL:
            the files are then written to the system's temporary folder first, and uploaded when they are complete.
        shuffle: mix the records; otherwise they stand in the order of `list_images`.
        seed: of the shuffled order, 0 <= seed < 2**64.
        encoding: "keep": files as they are; "raw": pixels that need no decoder, upright RGB (`encode_raw`).
        tile: make JPEGs tiled ones, from which a crop is decoded without the rest; no pixel changes. Needs jpegtran.
        resize: make images smaller whose shorter side is longer than this, in pixels; with "keep" they become JPEGs.
        quality: of those JPEGs, 1 to 100.
        num_workers: threads that read and encode; None: one per core.
        on_error: "raise", or "skip": leave an image out that cannot be read or is damaged, and report it. Damage is
            noticed only where the image is decoded or tiled. "replace": the next image that is sound stands twice, with
            its own label, so that the number of records is that of the images; behind the last one the first.
        max_errors: with "skip" and "replace", how many images may fail; less than 1: which share of them, judged after
            1,000 images and at the end; None: any number.
        max_pixels: images of more pixels than this, by their header, count as damaged; None for no limit. The datasets
            have the same limit, so that what is packed can be read.
        tick: called with the number of images done so far, after each.

    Returns:
        what was packed.

    Raises:
        NotADirectoryError, ValueError: as `list_images`; an option is not allowed; or a name has a TAB or a line break.
        ProgramNotFoundError: `tile` without jpegtran.
        PackError: an image is damaged, or too large for a record; with "skip" and "replace", all are.
        TooManyErrorsError: more images failed than `max_errors`; its `errors` has them.
        OSError: a file cannot be read or written, or (`RemoteWriteError`) not be uploaded.

    After an error what stood at `out` before still does.
    """
    encode = Encoding(encoding, tile, resize, quality, find_jpegtran() if tile else None, max_pixels)
    if on_error not in ("raise", "skip", "replace"):
        raise ValueError(f"on_error must be 'raise', 'skip' or 'replace', got {on_error!r}")
    check_max_errors(max_errors)
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, or None, got {num_workers!r}")
    places = _places(out)
    classes, items = list_images(source)
    order = list(range(len(items)))
    root = Path(source)
    for path, _ in items:
        _listed_name(path, root)  # now, not after hours
    if shuffle:
        order = permute(seed, 0, len(items), 0, len(items)).tolist()
        items = [items[place] for place in order]
    if isinstance(places[0], Path):
        places[0].parent.mkdir(parents=True, exist_ok=True)
    report = PackReport(*places, classes)
    if classes:
        report.outside = sum(map(_is_image, root.iterdir()))
        report.empty = tuple(folder.name for folder in _folders_in(root) if folder.name not in classes)
    encoded = encoded_images([path for path, _ in items], encode, num_workers or available_cores())
    with (
        closing(encoded),
        published(report.rec, report.idx, report.lst) as (rec_draft, idx_draft, lst_draft),
    ):
        with (
            recordio.RecordWriter(rec_draft, index=idx_draft) as writer,
            open(lst_draft, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as lines,
        ):
            records = _Records(writer, lines, root, report)
            for number, ((path, label), image) in enumerate(zip(items, encoded, strict=True)):
                if isinstance(image, Encoded):
                    records.put(order[number], path, label, image)
                elif on_error == "raise":
                    raise image
                else:
                    records.leave_out(_failure(order[number], number, path, image), on_error == "replace")
                    _check_errors(max_errors, report, number + 1)
                if tick is not None:
                    tick(number + 1)
            records.finish()
            _check_errors(max_errors, report, len(items), at_end=True)
        if not report.records:
            first = report.errors[0]
            raise PackError(
                str(first.path), f"{first.reason}; and none of the {len(items)} images could be packed"
            )
        report.nbytes = rec_draft.stat().st_size
    return report


def _places(out: str | os.PathLike[str]) -> tuple[Path | str, Path | str, Path | str]:
    """Where the .rec, .idx and .lst go."""
    if isinstance(out, str) and is_url(out):
        locate(out)  # a URL that is none is told now, not after hours
        url = out if suffix_of(out) == ".rec" else beside(out, suffix_of(out) + ".rec")
        return url, beside(url, ".idx"), beside(url, ".lst")
    rec = Path(out)
    if rec.suffix != ".rec":
        rec = rec.with_name(rec.name + ".rec")
    return rec, rec.with_suffix(".idx"), rec.with_suffix(".lst")


class _Records:
    """Writes records in order, and in the places of images that are to be replaced the next one that is sound."""

    def __init__(self, writer: recordio.RecordWriter, lines: TextIO, root: Path, report: PackReport) -> None:
        self._writer = writer
        self._lines = lines
        self._root = root
        self._report = report
        self._waiting: list[SampleError] = []
        self._first: tuple[int, Path, int, Encoded] | None = None

    def put(self, index: int, path: Path, label: int, image: Encoded) -> None:
        """A sound image."""
        if self._first is None:
            self._first = index, path, label, image
        waiting, self._waiting = self._waiting, []
        for failed in waiting:
            failed.replaced_by = index
            self._write(path, label, image)
        self._write(path, label, image)

    def leave_out(self, failed: SampleError, replace: bool) -> None:
        """An image that failed."""
        lighten(failed)  # there may be many, and each holds its image
        self._report.errors.append(failed)
        if replace:
            self._waiting.append(failed)
        else:
            self._report.skipped.append((str(failed.path), failed.reason))

    def finish(self) -> None:
        """There are no more images."""
        if self._waiting and self._first is not None:
            index, path, label, image = self._first
            for failed in self._waiting:
                failed.replaced_by = index
                self._write(path, label, image)

    def _write(self, path: Path, label: int, image: Encoded) -> None:
        key = self._report.records
        header = recordio.IRHeader(0, float(label), key, 0)
        self._writer.write(recordio.pack(header, image.data), key)
        self._lines.write(f"{key}\t{label:.6f}\t{_listed_name(path, self._root)}\n")
        self._report._count(image)


def _failure(index: int, position: int, path: Path, error: PackError | OSError) -> SampleError:
    stage, reason = ("encode", error.reason) if isinstance(error, PackError) else ("read", str(error))
    failed = SampleError(reason, dataset="pack", index=index, position=position, path=str(path), stage=stage)
    failed.__cause__ = error.__cause__ if isinstance(error, PackError) else error
    return failed


def _check_errors(limit: float | None, report: PackReport, done: int, at_end: bool = False) -> None:
    count = len(report.errors)
    too_many = over_budget(limit, count, count, done, at_end)
    if too_many is not None:
        last = report.errors[-1]
        error = TooManyErrorsError(too_many.max_errors, count, too_many.samples, f"the last: {last}")
        error.errors = tuple(report.errors)
        raise error from last


def encoded_images(
    paths: Sequence[Path], encode: Callable[[bytes], T], workers: int
) -> Generator[T | PackError | OSError]:
    """Images, read and encoded in threads, in order; or why there is none. A few per worker are held at a time.

    Args:
        paths: their files.
        encode: what is done to the bytes of a file; raises DecodeError where they are no sound image.
        workers: number of threads.
    """

    def one(path: Path) -> T | PackError | OSError:
        try:
            if path.stat().st_size > _MOST_FILE_NBYTES:
                return PackError(str(path), f"more than {_MOST_FILE_NBYTES} bytes are no image")
            encoded = encode(path.read_bytes())
        except OSError as error:
            return error
        except DecodeError as error:
            failure = PackError(str(path), str(error))
            failure.__cause__ = error
            return failure
        nbytes = _nbytes(encoded)
        if nbytes + _HEADER_NBYTES > recordio.MAX_PAYLOAD:
            return PackError(str(path), f"{nbytes} bytes do not fit into one record; resize it")
        return encoded

    with ThreadPoolExecutor(workers, "aioloader-pack") as pool:
        ahead = deque(pool.submit(one, path) for path in paths[: 4 * workers])
        try:
            for path in paths[4 * workers :]:
                yield ahead.popleft().result()
                ahead.append(pool.submit(one, path))
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _nbytes(encoded: bytes | Encoded) -> int:
    return len(encoded.data if isinstance(encoded, Encoded) else encoded)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()


def _folders_in(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _images_in(folder: Path) -> Iterator[Path]:
    return (
        path for path in folder.rglob("*") if _is_image(path) and not _is_hidden(path.relative_to(folder))
    )


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _listed_name(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix()
    if set(name) & set("\t\n\r"):
        raise ValueError(f"a list cannot hold the name {name!r}: rename the file")
    return name
