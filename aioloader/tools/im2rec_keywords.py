"""Command line of MXNet's im2rec program in C++: ``IMAGES.lst ROOT OUT.rec [key=value ...]``.

The fields of its lists are separated by any white space: an id, `label_width` labels, and the rest is the path.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioloader.foundation.host_limits import available_cores
from aioloader.packing.lists import Listed
from aioloader.packing.recode import Recode
from aioloader.tools.listed_records import pack_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INTERPOLATIONS = (0, 1, 2, 3, 4, 9, 10)
_RANDOM, _BEST = 10, 9


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


def pack_with_keywords(lst: str, root: str, out: str, words: Sequence[str]) -> int:
    """Make a record file from a list.

    Args:
        lst: the list.
        root: the folder of the images. If there is no such folder, it is prepended to each path as text.
        out: the record file, with any extension; with ``nsplit`` more than 1, ".part000" and so on is appended. No .idx
            is written: `aioloader.tools.rec2idx` writes one.
        words: ``key=value``, see docs/migrating-from-mxnet.md. Unknown keys are reported and ignored.

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
    if options.nsplit > 1:
        out += f".part{options.part:03d}"
    if os.path.realpath(out) == os.path.realpath(lst):
        raise ValueError(f"the records would overwrite the list {lst}: the order is IMAGES.lst ROOT OUT.rec")
    start = os.path.join(root, "") if os.path.isdir(root) else root
    report = pack_list(
        images,
        [start + image.path for image in images],
        out,
        encode,
        index=False,
        all_labels=bool(options.pack_label),
        workers=available_cores(),
        on_error="raise",
    )
    print(f"Total: {report.records} images processed, written to {report.rec}")
    return 0


def _read_keywords(words: Sequence[str]) -> _Keywords:
    options = _Keywords()
    for word in words:
        name, equals, value = word.partition("=")
        known = getattr(options, name, None)
        if not equals or known is None:
            print(f"im2rec: unknown option {word!r} is ignored", file=sys.stderr)
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
            print(
                f"im2rec: {name}, line {number} is skipped ({line[:80]!r}): no id and label", file=sys.stderr
            )
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
