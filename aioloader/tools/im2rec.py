"""``python -m aioloader.tools.im2rec``: lists and record files of images, with the command line of MXNet's im2rec.

    python -m aioloader.tools.im2rec --list --recursive PREFIX ROOT      PREFIX.lst from a folder
    python -m aioloader.tools.im2rec PREFIX ROOT                         PREFIX.rec and PREFIX.idx from PREFIX.lst
    python -m aioloader.tools.im2rec IMAGES.lst ROOT OUT.rec resize=256  as the C++ program

Switches are accepted in the forms of all MXNet releases: ``--shuffle``, ``--no-shuffle``, ``--shuffle=1``,
``--recursive=True``; unlike in MXNet, the values 0, false and no switch off.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import recordio
from aioloader.errors import DecodeError, LoaderError
from aioloader.foundation.host_limits import available_cores
from aioloader.packing.encoding import library_versions, middle, to_bgr
from aioloader.packing.lists import (
    Listed,
    in_mxnet_order,
    label_fault,
    read_lines,
    split_list,
    walk_images,
    write_list,
)
from aioloader.packing.report import Packed, PackReport
from aioloader.packing.run import Job, Plan, run
from aioloader.packing.sources import Source
from aioloader.transforms.base import drop_grey_axis
from aioloader.transforms.decode import decode_image
from aioloader.transforms.interpolation import resize_image

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import Array


_COLORS = (-1, 0, 1)
_ENCODINGS = (".jpg", ".png")
_HEADER = recordio.IRHeader(0, 0.0, 0, 0)
_HEADER_BYTES = 24


@dataclass(frozen=True, slots=True)
class Recode:
    """Function from the bytes of an image to the bytes to store, with im2rec's options.

    Attributes:
        color: 1: colour; 0: grey; -1: unchanged, with alpha. With 1 and 0 the EXIF orientation is applied.
        resize: length of the shorter side in pixels, smaller images are enlarged too; 0: unchanged.
        center_crop: crop to the middle square first.
        quality: of JPEGs 1 to 100; of PNGs the compression level, where values above 9 mean 9.
        encoding: ".jpg" or ".png".
        interpolation: OpenCV's code, 0 to 4, or 9: cubic to enlarge, area to shrink.
        pass_through: store the bytes unchanged and unchecked; the other options are ignored.

    Raises:
        ValueError: an option is not allowed.
    """

    color: int = 1
    resize: int = 0
    center_crop: bool = False
    quality: int = 95
    encoding: str = ".jpg"
    interpolation: int = 1
    pass_through: bool = False

    def __post_init__(self) -> None:
        if self.color not in _COLORS:
            raise ValueError(f"color must be 1 (colour), 0 (grey) or -1 (as it is), got {self.color}")
        if self.encoding not in _ENCODINGS:
            raise ValueError(f"encoding must be {' or '.join(_ENCODINGS)}, got {self.encoding!r}")
        if self.resize < 0:
            raise ValueError(f"resize must not be negative, got {self.resize}")
        if self.quality < 0 or (self.encoding == ".jpg" and not 1 <= self.quality <= 100):
            raise ValueError(f"quality must lie between 1 and 100, got {self.quality}")

    def __call__(self, data: bytes) -> bytes:
        """Encode one image.

        Raises:
            DecodeError: it is not an image, is damaged, has more pixels than `DEFAULT_MAX_PIXELS` of
                `aioloader.transforms`, or cannot be encoded.
        """
        if self.pass_through:
            return data
        image = decode_image(data, flag=self.color, exif="ignore" if self.color == -1 else "apply")
        image = drop_grey_axis(to_bgr(image))
        if self.center_crop:
            image = middle(image)
        if self.resize:
            image = _resized(image, self.resize, self.interpolation)
        try:
            record = recordio.pack_img(_HEADER, image, self.quality, self.encoding)
        except recordio.errors.ImageEncodeError as error:
            raise DecodeError(str(error), nbytes=len(data)) from error
        return record[_HEADER_BYTES:]


def _resized(image: Array, shorter: int, interpolation: int) -> Array:
    """Resize an image to a shorter side of `shorter` pixels; the longer one is rounded down."""
    height, width = image.shape[:2]
    size = (height * shorter // width, shorter) if height > width else (shorter, width * shorter // height)
    planes = image[:, :, None] if image.ndim == 2 else image
    small = resize_image(planes, size, interpolation)
    return small[:, :, 0] if image.ndim == 2 else small


def job_of_list(
    images: Sequence[Listed],
    paths: Sequence[str],
    rec: str | os.PathLike[str],
    encode: Recode,
    *,
    index: bool = True,
    all_labels: bool = False,
    workers: int = 1,
    on_error: str = "skip",
) -> Job:
    """Return the job that writes a record for each image of a list, in its order.

    A record is a header (flag, labels, id, 0), then the image's bytes. In the report the keys of errors are the ids of
    the images that were left out.

    Args:
        images: the list.
        paths: the file of each image.
        rec: the record file; an existing one is replaced when the new one is complete.
        encode: encodes the bytes of a file.
        index: write an .idx next to it, with the ids as keys. An existing .idx is rewritten in any case, because it
            would not match the new records.
        all_labels: store all labels of an image that has several, with their number as the flag; else only the first.
        workers: number of encoding threads.
        on_error: "skip": leave out images that cannot be read or are damaged; "raise": stop at the first.
    """
    place = Path(rec)
    idx = place.with_suffix(".idx")
    indexed = index or idx.exists()
    file = Packed(place, idx if indexed else None, None, stop=len(images))
    options = {**asdict(encode), "all_labels": all_labels, "on_error": on_error, "index": indexed}
    options["libraries"] = {} if encode.pass_through else library_versions()
    return Job(
        source=Source("list", str(rec), images, paths),
        plan=Plan(np.arange(len(images), dtype=np.int64), (file,)),
        encode=encode,
        out=place,
        arguments=options,
        workers=workers,
        on_error=on_error,
        all_labels=all_labels,
    )


_SWITCHES = ("list", "recursive", "shuffle", "no-shuffle", "pass-through", "center-crop", "pack-label")
_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off"}
_PRINT_EVERY = 1000
_INTERPOLATIONS = (0, 1, 2, 3, 4, 9, 10)
_RANDOM, _BEST = 10, 9


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments after the program's name; None: those of this process.

    Returns:
        0: done; 1: no images or lists, or none that can be read, or a file cannot be read or written; 2: wrong
        usage, or there is no such folder; 130: interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if len(words) >= 3 and not any(word.startswith("-") for word in words):
            return _pack_with_keywords(words[0], words[1], words[2], words[3:])
        options = _options(words)
        return _make_lists(options) if options.list else _make_records(options)
    except KeyboardInterrupt:
        _note("interrupted; run the same command again to resume")
        return 130
    except (OSError, ValueError, LoaderError) as error:
        _note(f"error: {error}")
        return 2 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 1


def _note(text: str) -> None:
    print(f"im2rec: {text}", file=sys.stderr)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m aioloader.tools.im2rec",
        description="Make lists of images, or record files from such lists, with MXNet's options. The C++ program's "
        "form works too: IMAGES.lst ROOT OUT.rec [key=value ...]. For new work: aioloader pack.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("prefix", help="prefix of the names of lists and record files; or a folder of lists")
    parser.add_argument("root", help="the folder of the images")
    lists = parser.add_argument_group("lists")
    _switch(lists, "list", False, "make lists instead of records")
    lists.add_argument(
        "--exts", nargs="+", default=[".jpeg", ".jpg", ".png"], help="extensions of image files"
    )
    lists.add_argument("--chunks", type=int, default=1, help="number of lists")
    lists.add_argument("--train-ratio", type=float, default=1.0, help="share for the train list")
    lists.add_argument(
        "--test-ratio", type=float, default=0.0, help="share for the test list; only with a --train-ratio"
    )
    _switch(
        lists, "recursive", False, "include sub-folders: each with images is a class. Else all labels are 0"
    )
    _switch(lists, "shuffle", True, "shuffle the list, always in the same way")
    _switch(lists, "no-shuffle", False, "keep the order of the folders")
    records = parser.add_argument_group("records")
    _switch(records, "pass-through", False, "store the files' bytes unchanged")
    records.add_argument(
        "--resize", type=int, default=0, help="length of the shorter side in pixels; 0: unchanged"
    )
    _switch(records, "center-crop", False, "crop to the middle square first")
    records.add_argument("--quality", type=int, default=95, help="for JPEG 1 to 100, for PNG 1 to 9")
    records.add_argument("--num-thread", type=int, default=available_cores(), help="threads that encode")
    records.add_argument(
        "--color", type=int, choices=(-1, 0, 1), default=1, help="1: colour, 0: grey, -1: unchanged"
    )
    records.add_argument("--encoding", choices=(".jpg", ".png"), default=".jpg", help="format of the images")
    _switch(records, "pack-label", False, "store all labels of an image; else only the first")
    records.add_argument(
        "--on-error", choices=("skip", "raise"), default="skip", help="raise: stop at the first damaged image"
    )
    return parser.parse_args(_joined(words, parser))


def _switch(group: argparse._ArgumentGroup, name: str, default: bool, text: str) -> None:
    group.add_argument(f"--{name}", nargs="?", const=True, default=default, type=_truth, help=text)


def _truth(text: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither yes (1, true) nor no (0, false)")


def _joined(words: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Join each switch and its value in one word, so that a switch without a value does not consume the next word."""
    names = [name for action in parser._actions for name in action.option_strings]
    result: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*result, word, *words]
        matches = [name for name in names if name.startswith(word)] if word.startswith("--") else []
        if word in names:
            matches = [word]
        if len(matches) == 1 and matches[0][2:] in _SWITCHES:
            following = words[0].lower() if len(words) else ""
            value = words.pop(0) if following in _YES | _NO else "1"
            word = f"{matches[0]}={value}"
        result.append(word)
    return result


def _make_lists(options: argparse.Namespace) -> int:
    prefix = os.path.abspath(options.prefix)
    images, classes = walk_images(os.path.abspath(options.root), options.exts, options.recursive)
    if not images:
        into = "" if options.recursive else "; --recursive includes sub-folders"
        _note(f"there are no images ({' '.join(options.exts)}) in {options.root}{into}")
        return 1
    for folder, number in classes.items():
        print(folder, number)
    if options.test_ratio and options.train_ratio == 1.0:
        _note(
            f"--test-ratio {options.test_ratio} does nothing without --train-ratio: one list has all images"
        )
    mix = options.shuffle and not options.no_shuffle
    images = in_mxnet_order(images) if mix else images
    for name, part in split_list(images, options.chunks, options.train_ratio, options.test_ratio):
        write_list(f"{prefix}{name}.lst", part)
    return 0


def _make_records(options: argparse.Namespace) -> int:
    encode = Recode(
        color=options.color,
        resize=options.resize,
        center_crop=options.center_crop,
        quality=options.quality,
        encoding=options.encoding,
        pass_through=options.pass_through,
    )
    if options.num_thread < 1:
        raise ValueError(f"--num-thread must be at least 1, got {options.num_thread}")
    lists = _lists_of(os.path.abspath(options.prefix))
    if not lists:
        print(f"Did not find and list file with prefix {os.path.abspath(options.prefix)}")
        return 1
    return max(_convert(path, encode, options) for path in lists)


def _lists_of(prefix: str) -> list[str]:
    """Return the lists with a prefix, or in a folder of that name.

    MXNet uses every list whose name begins with the prefix. Here PREFIX.lst and PREFIX_*.lst take precedence: other
    lists are used only if there are none of these.
    """
    folder = prefix if os.path.isdir(prefix) else os.path.dirname(prefix)
    if not os.path.isdir(folder):
        return []
    found = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".lst"))
    found = [path for path in found if path.startswith(prefix) and os.path.isfile(path)]
    own = [path for path in found if path == f"{prefix}.lst" or path.startswith(f"{prefix}_")]
    if own and folder != prefix:
        for path in found:
            if path not in own:
                _note(f"{path} is ignored: it is not a list of {prefix}")
        return own
    return found


def _convert(path: str, encode: Recode, options: argparse.Namespace) -> int:
    """Make the record file of a list; return 0, or 1 if all lines are skipped."""
    skipped = 0

    def bad_line(number: int, line: str, reason: str) -> None:
        nonlocal skipped
        skipped += 1
        _note(f"{path}, line {number} is skipped ({line[:80]!r}): {reason}")

    images = list(read_lines(path, bad_line))
    if skipped and not images:
        _note(f"error: all {skipped} lines of {path} are skipped, so no record file is written")
        return 1
    _note_labels(path, images, all_labels=options.pack_label)
    if not options.pack_label and any(len(image.labels) > 1 for image in images):
        _note(f"{path} has lines with several labels; only the first is stored; --pack-label stores all")
    if len({image.key for image in images}) < len(images):
        _note(f"{path} has an id more than once: only one of these records can be found by its key")
    print("Creating .rec file from", path, "in", os.path.dirname(path))
    begin = time.monotonic()

    def begin_at(done: int, count: int, reason: str) -> None:
        if done or reason:
            text = f"resuming at image {done + 1} of {count}" if done else f"starting over: {reason}"
            _note(text)

    def tick(done: int) -> None:
        if done % _PRINT_EVERY == 0:
            print(f"time: {time.monotonic() - begin:.2f}  count: {done}", flush=True)

    root = os.path.abspath(options.root)
    job = job_of_list(
        images,
        [os.path.join(root, image.path) for image in images],
        Path(path).with_suffix(".rec"),
        encode,
        all_labels=options.pack_label,
        workers=options.num_thread,
        on_error=options.on_error,
    )
    report = run(job, PackReport(job.plan.outputs, ()), begin=begin_at, tick=tick)
    for error in report.errors:
        _note(f"id {error.key} is skipped: {error.path}: {error.reason}")
    if report.errors:
        _note(f"{report.rec} has {report.records} records; {len(report.errors)} were skipped")
    return 0


def _note_labels(path: str, images: Sequence[Listed], *, all_labels: bool) -> None:
    """Report labels that records cannot have; they are stored as the nearest float32 nevertheless, as in MXNet."""
    for image in images:
        fault = next(filter(None, map(label_fault, image.labels if all_labels else image.labels[:1])), "")
        if fault:
            _note(f"{path}: the label of the id {image.key} {fault}")


# -- the C++ program's form --------------------------------------------------------------------------------------------

# The fields of its lists are separated by any white space: an id, `label_width` labels, and the rest is the path.


@dataclass
class _Keywords:
    color: int = 1
    resize: int = -1
    label_width: int = 1
    pack_label: int = 0
    nsplit: int = 1
    part: int = 0
    center_crop: int = 0
    quality: int = 95
    encoding: str = ".jpg"
    inter_method: int = 1
    unchanged: int = 0


def _pack_with_keywords(lst: str, root: str, out: str, words: Sequence[str]) -> int:
    """Make a record file from a list.

    Args:
        lst: the list.
        root: the folder of the images. If there is no such folder, it is prepended to each path as text.
        out: the record file, with any extension; with ``nsplit`` more than 1, ".part000" and so on is appended. No .idx
            is written: `aioloader.tools.rec2idx` writes one.
        words: ``key=value``, see the page Migrating from MXNet. Unknown keys are reported and ignored.

    Returns:
        0.

    Raises:
        ValueError: a value is not allowed; `out` is the list; a line has too few labels; an image is damaged.
        OSError: a file cannot be read or written.
    """
    options = _read_keywords(words)
    if options.inter_method not in _INTERPOLATIONS:
        raise ValueError(
            f"inter_method must be one of {', '.join(map(str, _INTERPOLATIONS))}, got {options.inter_method}"
        )
    if options.pack_label and options.label_width <= 1:
        raise ValueError("pack_label=1 needs a label_width of more than 1")
    if options.nsplit < 1 or not 0 <= options.part < options.nsplit:
        raise ValueError(f"part must be between 0 and nsplit - 1, got {options.part} of {options.nsplit}")
    resize = max(0, options.resize)
    encode = Recode(
        color=options.color,
        resize=resize,
        center_crop=bool(options.center_crop)
        and resize > 0,  # as in MXNet: without a resize it has no effect
        quality=options.quality,
        encoding=options.encoding,
        # MXNet draws a random interpolation for each image; a reproducible file is more useful.
        interpolation=_BEST if options.inter_method == _RANDOM else options.inter_method,
        pass_through=bool(options.unchanged),
    )
    with open(lst, "rb") as file:
        lines = part_of_lines(file.read(), options.part, options.nsplit)
    images = list(read_blank_separated(lines, options.label_width, lst))
    if lines and not images:
        raise ValueError(f"all lines of {lst} are skipped, so no record file is written")
    _note_labels(lst, images, all_labels=bool(options.pack_label))
    if options.nsplit > 1:
        out += f".part{options.part:03d}"
    if os.path.realpath(out) == os.path.realpath(lst):
        raise ValueError(f"the records would overwrite the list {lst}: the order is IMAGES.lst ROOT OUT.rec")
    start = os.path.join(root, "") if os.path.isdir(root) else root
    job = job_of_list(
        images,
        [start + image.path for image in images],
        out,
        encode,
        index=False,
        all_labels=bool(options.pack_label),
        workers=available_cores(),
        on_error="raise",
    )
    report = run(job, PackReport(job.plan.outputs, ()))
    print(f"Total: {report.records} images processed, written to {report.rec}")
    return 0


def _read_keywords(words: Sequence[str]) -> _Keywords:
    options = _Keywords()
    for word in words:
        name, equals, value = word.partition("=")
        known = getattr(options, name, None)
        if not equals or known is None:
            _note(f"unknown option {word!r} is ignored")
            continue
        try:
            setattr(options, name, type(known)(value))
        except ValueError:
            raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    return options


def part_of_lines(data: bytes, part: int, parts: int) -> list[bytes]:
    """Return the lines of one part of a text. Pure.

    Rule, as in dmlc: the text is divided into parts of equal size in bytes. A line belongs to the part that contains
    its first byte, or to the part before if it begins exactly at the start of a part.
    """
    step = -(-len(data) // parts)
    low, high = step * part, step * (part + 1)
    lines, start = [], 0
    for line in data.splitlines(keepends=True):
        if (start > low or part == 0) and start <= high:
            lines.append(line)
        start += len(line)
    return lines


def read_blank_separated(lines: Sequence[bytes], width: int, name: str) -> Iterator[Listed]:
    """Iterate over the images of a list whose fields are separated by white space.

    Args:
        lines: its lines.
        width: number of labels of each line; the rest is the path.
        name: name of the list, for errors.

    Lines whose id or first label is not a number are reported on standard error and skipped, as in MXNet.

    Raises:
        ValueError: a line has fewer labels.
    """
    for number, raw in enumerate(lines, 1):
        line = os.fsdecode(raw).strip()
        fields = line.split(None, 1 + width)
        if not fields:
            continue
        try:
            key = int(fields[0])
            float(fields[1])
        except (ValueError, IndexError):
            _note(f"{name}, line {number} is skipped ({line[:80]!r}): no id and label")
            continue
        try:
            labels = tuple(float(field) for field in fields[1 : 1 + width])
        except ValueError:
            labels = ()
        if len(labels) < width or len(fields) < 2 + width:
            raise ValueError(
                f"{name}, line {number} ({line[:80]!r}) has fewer than {width} labels before its path; set label_width"
            )
        if not 0 <= key < 1 << 64:
            raise ValueError(f"{name}, line {number}: the id {key} is not between 0 and 2**64 - 1")
        yield Listed(key, labels, fields[1 + width])


if __name__ == "__main__":
    sys.exit(main())
