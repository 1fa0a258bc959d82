"""``python -m aioloader.tools.insightface SRC OUT``: packs a folder of identities as a set in InsightFace's layout.

SRC has one sub-folder of aligned face crops for each identity. The output is train.rec, train.idx, property and
train.lst in OUT. The images' bytes are packed unchanged, unless ``--size`` requires another size. ``--extract`` is the
inverse.

The header is the first record, so that an .idx made by a scan has the right keys.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

import recordio
from aioloader.datasets import InsightFaceDataset
from aioloader.errors import DecodeError, LoaderError, SampleError
from aioloader.foundation.host_limits import available_cores
from aioloader.observability.progress import ProgressBar
from aioloader.packing.encoding import Encoded
from aioloader.packing.sources import Source
from aioloader.packing.writer import encoded_in_order
from aioloader.tools.console import arguments
from aioloader.tools.pack import PackError, list_images
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, check_extents, decode_image
from aioloader.transforms.formats import image_size, read_header
from recordio._partial_files import published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.foundation.types import Array

# Keys up to here are exact as float32, in which the layout stores them.
_EXACT = 1 << 24
# A face crop has some kilobytes; files are read in batches of about a megabyte.
_MEAN_NBYTES = 1 << 14
# Images that are read together when a set is extracted.
_AT_ONCE = 256
_SUFFIXES = {"jpeg": ".jpg", "tiff": ".tif"}


@dataclass(slots=True)
class FacePackReport:
    """Result of packing a set of faces.

    Attributes:
        rec: path of the .rec file; the others are in the same folder.
        identities: names of the sub-folders; an image's label is the index of its sub-folder here.
        size: (height, width) of the images in pixels.
        images: number of images.
        nbytes: size of the .rec in bytes.
        resized: number of images that had another size and were re-encoded.
        skipped: (path, reason) of images that were left out.
        without: names of identities without a packed image.
    """

    rec: Path
    identities: tuple[str, ...]
    size: tuple[int, int] | None = None
    images: int = 0
    nbytes: int = 0
    resized: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    without: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Return whether all keys in the header are exact; with more than 2**24 records some are rounded."""
        return self.images + len(self.identities) < _EXACT


def pack_faces(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    quality: int = 95,
    num_workers: int | None = None,
    on_error: str = "raise",
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    tick: Callable[[int], object] | None = None,
) -> FacePackReport:
    """Pack a folder of identities; existing files of the same names are replaced when all new ones are complete.

    Args:
        source: folder with one sub-folder per identity.
        out: folder to write to; created if it is missing.
        size: (height, width) in pixels: images of another size are scaled until they cover it, cropped to the centre,
            and encoded as JPEGs. None: all images must have the same size, and keep their bytes.
        quality: quality of those JPEGs, 1 to 100.
        num_workers: number of threads that read and encode; None: one per core.
        on_error: "raise"; or "skip": leave out files that cannot be read, are not images, or, without `size`, have
            another size than the first image.
        max_pixels: images of more pixels than this count as damaged; None for no limit.
        tick: called with the number of images done so far, after each.

    Raises:
        NotADirectoryError: `source` is not a folder, or `out` is a file.
        ValueError: the source has no sub-folders with images; or an option is not allowed.
        PackError: an image is damaged or has another size; with "skip": all are.
        OSError: a file cannot be read or written.

    After an error, existing files in `out` are unchanged.
    """
    _check_options(size, quality, num_workers, on_error)
    names, items = list_images(source)
    if not names:
        raise ValueError(
            f"{os.fspath(source)!r} has no sub-folders with images: create one for each identity"
        )
    for path, _ in items:
        if set(str(path)) & set("\t\n\r"):
            raise ValueError(f"a list cannot contain the name {str(path)!r}: rename the file")
    folder = output_folder(out)
    report = FacePackReport(folder / "train.rec", names, size)
    places = [folder / name for name in ("train.rec", "train.idx", "property", "train.lst")]
    encoded = encoded_in_order(
        Source("faces", os.fspath(source), (), [str(path) for path, _ in items]),
        np.arange(len(items), dtype=np.int64),
        _FaceEncoder(size, quality, max_pixels),
        workers=num_workers or available_cores(),
        executor="thread",
        mean_nbytes=_MEAN_NBYTES,
        on_error="skip",
    )
    with closing(encoded), published(*places) as partial_files:
        rec, idx, properties, lst = partial_files
        with (
            recordio.RecordWriter(rec, index=idx) as writer,
            open(lst, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as lines,
        ):
            faces = _Records(writer, lines, report)
            for done, ((path, label), (_, image)) in enumerate(zip(items, encoded, strict=True), 1):
                error = faces.put(path, label, image)
                if error is not None and on_error == "raise":
                    raise error
                if error is not None:
                    report.skipped.append((str(path), error.reason))
                if tick is not None:
                    tick(done)
            if not report.images or report.size is None:
                first, reason = report.skipped[0]
                raise PackError(first, f"{reason}; and none of the {len(items)} images could be packed")
            faces.write_identities()
        with open(rec, "rb+") as file:
            file.write(recordio.serialize(_numbers(0, report.images + 1, report.images + 1 + len(names))))
        properties.write_text(f"{len(names)},{report.size[0]},{report.size[1]}\n", encoding="ascii")
        report.nbytes = rec.stat().st_size
    return report


def _check_options(
    size: tuple[int, int] | None, quality: int, num_workers: int | None, on_error: str
) -> None:
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    if size is not None and min(size) < 1:
        raise ValueError(f"size must be at least 1 pixel, got {size!r}")
    if not 1 <= quality <= 100:
        raise ValueError(f"quality must lie between 1 and 100, got {quality!r}")
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, or None, got {num_workers!r}")


@dataclass(frozen=True)
class _FaceEncoder:
    """Function from the bytes of a file to those of its record; see `pack_faces` for the attributes."""

    size: tuple[int, int] | None
    quality: int
    max_pixels: int | None

    def __call__(self, data: bytes) -> Encoded:
        header = read_header(data)
        check_extents(header, self.max_pixels, len(data))
        if self.size is None or (header.height, header.width) == self.size:
            return Encoded(data, len(data))
        import cv2

        image = _covering(decode_image(data, max_pixels=self.max_pixels), self.size)
        options = [cv2.IMWRITE_JPEG_QUALITY, self.quality]
        encoded = np.asarray(cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)[1])
        return Encoded(encoded.tobytes(), len(data), resized=True)


def _covering(image: Array, size: tuple[int, int]) -> Array:
    """Scale an image until it covers a size, and crop it to the centre."""
    import cv2

    height, width = image.shape[:2]
    scale = max(size[0] / height, size[1] / width)
    tall, wide = max(size[0], round(height * scale)), max(size[1], round(width * scale))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    scaled = np.asarray(cv2.resize(image, (wide, tall), interpolation=how))
    top, left = (tall - size[0]) // 2, (wide - size[1]) // 2
    return np.ascontiguousarray(scaled[top : top + size[0], left : left + size[1]])


class _Records:
    """Writer of the records of the images, and then of the identities."""

    def __init__(self, writer: recordio.RecordWriter, lines: TextIO, report: FacePackReport) -> None:
        self._writer = writer
        self._lines = lines
        self._report = report
        self._counts = [0] * len(report.identities)
        writer.write(_numbers(0, 1, 1), 0)  # placeholder for the header, which is known at the end

    def put(self, path: Path, label: int, image: Encoded | SampleError) -> PackError | None:
        """Write an image, or return the error if it failed or has another size."""
        if isinstance(image, SampleError):
            cause = image.__cause__
            error = PackError(str(path), str(cause or image.reason))
            error.__cause__ = cause
            return error
        report = self._report
        _, height, width = image_size(image.data)
        if report.size is None:
            report.size = height, width
        elif (height, width) != report.size:
            expected, wide = report.size
            return PackError(
                str(path),
                f"it is {height} x {width} pixels, and the first image is {expected} x {wide}; a set has aligned crops "
                "of one size: align the images, or resize them with --size",
            )
        report.images += 1
        report.resized += image.resized
        self._counts[label] += 1
        key = report.images
        self._writer.write(recordio.pack(recordio.IRHeader(0, float(label), key, 0), image.data), key)
        self._lines.write(f"1\t{path}\t{label}\n")
        return None

    def write_identities(self) -> None:
        """Write the records of the identities, after all images."""
        report = self._report
        stop = 1
        for number, count in enumerate(self._counts):
            key = report.images + 1 + number
            self._writer.write(_numbers(key, stop, stop + count), key)
            stop += count
        report.without = tuple(
            name for name, count in zip(report.identities, self._counts, strict=True) if not count
        )


def _numbers(key: int, first: int, second: int) -> bytes:
    """Return a record of two numbers: the header, or an identity."""
    return recordio.pack(recordio.IRHeader(2, [float(first), float(second)], key, 0), b"")


def output_folder(out: str | os.PathLike[str]) -> Path:
    """Return the folder to write to, and create it if it is missing.

    Raises:
        NotADirectoryError: it is a file.
        OSError: it cannot be created.
    """
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(f"{str(folder)!r} is a file: choose a folder to write to") from None
    return folder


# -- extraction --------------------------------------------------------------------------------------------------------


def extract_faces(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tick: Callable[[int], object] | None = None,
) -> int:
    """Write the images of a set to files ``OUT/<label>/<key>.jpg``, with unchanged bytes.

    Args:
        source: folder or .rec file of the set; see `InsightFaceDataset`.
        out: folder to write to, which must be empty or missing. All labels are written with the same number of digits,
            so that the sub-folders, sorted by name, have the same labels again.
        tick: called after each block with the number of images written so far.

    Returns:
        number of images.

    Raises:
        FileExistsError: there is something in `out`.
        NotADirectoryError: it is a file.
        ValueError: the set is damaged.
        OSError: a file cannot be read or written.
    """
    dataset = InsightFaceDataset(source)
    labels = dataset.labels()
    folder = output_folder(out)
    if any(folder.iterdir()):
        raise FileExistsError(f"{str(folder)!r} is not empty: choose another folder")
    digits = len(str(int(labels.max()))) if len(labels) else 1
    for number, (key, body) in enumerate(_bodies(dataset)):
        place = folder / f"{int(labels[number]):0{digits}d}"
        place.mkdir(exist_ok=True)
        (place / f"{key:08d}{_suffix(body)}").write_bytes(body)
        if tick is not None and ((number + 1) % _AT_ONCE == 0 or number + 1 == len(dataset)):
            tick(number + 1)
    return len(dataset)


def _bodies(dataset: InsightFaceDataset) -> Iterator[tuple[int, memoryview]]:
    """Yield the key and the encoded image of every sample."""
    source = dataset.open_source()
    try:
        for begin in range(0, len(dataset), _AT_ONCE):
            indices = np.arange(begin, min(begin + _AT_ONCE, len(dataset)), dtype=np.int64)
            plan, data = source.fetch(dataset.spans(indices))
            for index, start, length in zip(
                indices.tolist(), plan.start.tolist(), plan.length.tolist(), strict=True
            ):
                location = dataset.location(index)
                payload: Any = recordio.extract(
                    data[start : start + length], path=location.path, offset=location.offset or 0
                )
                yield int(str(location.key)), memoryview(recordio.unpack(payload)[1])
    finally:
        source.close()


def _suffix(body: memoryview) -> str:
    try:
        name = image_size(body)[0]
    except DecodeError:
        return ".bin"
    return _SUFFIXES.get(name, f".{name}")


# -- the command -------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments after the program's name; None: those of this process.

    Returns:
        0: done; 1: an image is damaged or of another size, or a file cannot be read or written; 2: wrong usage, or
        there is no such folder; 130: interrupted.
    """
    options = _parser().parse_args(argv)
    try:
        return _extract(options) if options.extract else _pack(options)
    except KeyboardInterrupt:
        print("insightface: interrupted; no incomplete set is left", file=sys.stderr)
        return 130
    except (OSError, ValueError, LoaderError, recordio.RecordIOError) as error:
        print(f"insightface: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m aioloader.tools.insightface",
        description="Pack a folder with one sub-folder of aligned face crops per identity as InsightFace's programs "
        "read it: OUT/train.rec, train.idx and property, and train.lst with the files and labels. A label is the "
        "index of a sub-folder among the sorted names.",
    )
    parser.add_argument(
        "source", metavar="SRC", help="the folder; with --extract a set, its folder or .rec file"
    )
    parser.add_argument("out", metavar="OUT", help="the folder to write to")
    parser.add_argument(
        "--size",
        type=_size,
        metavar="PIXELS",
        help="resize all images to this size, such as 112 or 112x96 (height x width): they are scaled until they cover "
        "it and cropped to the centre, which does not align faces. Without it all images must have the same size",
    )
    parser.add_argument(
        "--quality",
        type=partial(_within, 1, 100),
        default=95,
        help="of JPEGs that --size resizes, 1 to 100 (95)",
    )
    parser.add_argument(
        "--num-workers",
        type=partial(_within, 1, 4096),
        metavar="N",
        help="number of threads (default: one per core)",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="skip: leave out images that cannot be packed",
    )
    parser.add_argument(
        "--extract",
        action="store_true",
        help="write the images of a set to files, OUT/LABEL/KEY.jpg",
    )
    return parser


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    try:
        size = int(height), int(width or height)
    except ValueError:
        size = 0, 0
    if not (0 < size[0] < 1 << 16 and 0 < size[1] < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 112 or 112x96")
    return size


def _within(low: int, high: int, text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high:,}, not {text[:40]!r}")
    return number


def _pack(options: argparse.Namespace) -> int:
    with ProgressBar("packing", len(list_images(options.source)[1])) as bar:
        report = pack_faces(**arguments(options, "extract"), tick=bar.update)
    for path, reason in report.skipped:
        print(f"insightface: left out {path}: {reason}", file=sys.stderr)
    height, width = report.size or (0, 0)
    print(
        f"{report.rec}: {report.images:,} images of {len(report.identities):,} identities, {height} x {width} pixels, "
        f"{report.nbytes / 1e6:,.1f} MB"
    )
    if report.resized:
        print(f"{report.resized:,} had another size and were re-encoded; resizing does not align faces")
    if report.skipped:
        print(f"{len(report.skipped):,} left out")
    if report.without:
        more = ", ..." if len(report.without) > 5 else ""
        print(f"identities without images: {len(report.without):,} ({', '.join(report.without[:5])}{more})")
    if not report.exact:
        print(
            "more than 16,777,216 records: some keys in the header are rounded, as the layout stores them as float32"
        )
    return 0


def _extract(options: argparse.Namespace) -> int:
    with ProgressBar("extracting", len(InsightFaceDataset(options.source))) as bar:
        count = extract_faces(options.source, options.out, tick=bar.update)
    print(f"{options.out}: {count:,} images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
