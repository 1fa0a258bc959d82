"""Target: the JPEG scanner and the cutter. Crops are compared with the same crops of a full decode.

An input is one byte, which selects the options of the decode, and a JPEG.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Any

import numpy as np
from simplejpeg import decode_jpeg

from aioloader.errors import DecodeError
from aioloader.jpeg import cut, markers_are_whole, read_frame, scaled_size
from aioloader.transforms.decode import decode_image, stored_box
from aioloader.transforms.lazy_image import LazyImageReader
from tests.fuzz.mutation import TELLING, change, pick
from tests.fuzz.target import CORPUS, Draw, Finding, corpus_of

_MOST_PIXELS = 1 << 17
_SCALES = (1, 1, 1, 1, 1, 2, 4, 8)
_SAMPLINGS = bytes((0x11, 0x21, 0x12, 0x22, 0x41, 0x14, 0x31, 0x13, 0x42, 0x44, 0x01, 0x10, 0x00))
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
PIECES = (
    b"\xff\xd9",
    b"\xff\xd0",
    b"\xff\xd7",
    b"\xff\x00",
    b"\xff\xff",
    b"\xff\xda",
    b"\xff\xc0\0\x11\x08",
    b"\xff\xdd\0\4\0\1",
    b"\xff\xdd\0\4\0\0",
    b"\xff\xfe\0\2",
    b"\xff\xfe\0\x08stuff!",
    b"\xff\xe1\0\x04ab",
    b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0",
    b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\1",
    bytes(5),
)


def seeds() -> list[bytes]:
    """Return the valid JPEGs from which inputs are made."""
    return [path.read_bytes() for path in sorted((CORPUS / "jpeg").glob("*.jpg"))]


class Jpegs:
    """Small JPEGs of every sampling, with and without restart markers, and faults in them."""

    past = frozenset(("refused", "alone, as tolerant", "alone, otherwise", "equal, cut", "equal, whole"))

    def __init__(self) -> None:
        self._seeds = [bytes((0,)) + data for data in seeds()]
        self._seeds += [path.read_bytes() for path in corpus_of("jpeg")]
        # Readers are reused, as in workers: their memory of the last headers is part of the test.
        self._readers: dict[tuple[int, str, bool], LazyImageReader] = {}

    def make(self, draw: Draw) -> bytes:
        """Return a valid JPEG with one to three faults or oddities."""
        data = bytearray(pick(draw, self._seeds)[1:])
        for _ in range((1, 1, 1, 1, 2, 2, 3, 3)[int(draw() * 8)]):
            if len(data) < 4:
                break
            _CHANGES[int(draw() * len(_CHANGES))](data, draw, self)
        return bytes((int(draw() * 256),)) + bytes(data)

    def other(self, draw: Draw) -> bytes:
        """Return another valid JPEG."""
        return pick(draw, self._seeds)[1:]

    def check(self, data: bytes) -> str:
        """Decode the whole file, then a part of it by a cut, and compare."""
        options, stored = data[0] if data else 0, data[1:]
        key = zlib.crc32(data)
        flag = 0 if options & 7 == 0 else 1
        exif = "ignore" if options & 8 else "apply"
        scale = _SCALES[options >> 4 & 7]
        frame = read_frame(stored)
        whole = _whole(stored, flag, exif)
        if key & 15 == 0:
            markers_are_whole(stored)
        reader = self._readers.get((flag, exif, scale > 1))
        if reader is None:
            reader = LazyImageReader(flag, exif=exif, max_pixels=_MOST_PIXELS, dct_scaling=scale > 1)
            if reader.rectangles is not None:
                reader.rectangles.worth = 0.0  # even where it saves nothing
            self._readers[flag, exif, scale > 1] = reader
        found = box = None
        try:
            lazy = reader.open(stored)
            box = _box(key, lazy.width, lazy.height)
            found = _part(lazy, box, scale, options >> 7 and key >> 29)
        except DecodeError:
            pass
        if whole is None:
            if found is None:
                return "no frame" if frame is None else "refused"
            assert box is not None
            return _judge_alone(stored, flag, exif, box, found)
        if found is None or box is None:
            raise Finding("a part is refused of what can be decoded whole")
        if (lazy.height, lazy.width) != whole.shape[:2]:
            raise Finding(f"{lazy.height} x {lazy.width} announced, {whole.shape} decoded")
        x, y, width, height = box
        if not np.array_equal(found, whole[y : y + height, x : x + width]) and (
            scale == 1 or not _is_scaled(stored, lazy, box, scale, found, flag)
        ):
            raise Finding(f"the box {box} at 1/{scale} differs from that of a full decode")
        if frame is None:
            return "no frame, whole"
        orientation = lazy._orientation  # type: ignore[attr-defined]
        here = stored_box(box, orientation, frame.height, frame.width)
        return "equal, whole" if cut(stored, frame, here, scale=scale) is None else "equal, cut"


def _whole(data: bytes, flag: int, exif: str) -> Any:
    try:
        return decode_image(data, flag=flag, exif=exif, max_pixels=_MOST_PIXELS)
    except DecodeError:
        return None


def _box(key: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Return a crop that depends only on the input; often small, often at a border."""
    mixed = key * 0x9E3779B97F4A7C15 >> 7
    x, mixed = mixed % width, mixed // 4093
    y, mixed = mixed % height, mixed // 4093
    if key & 0x300 == 0:
        x = 0
    if key & 0xC00 == 0:
        y = 0
    most_across, most_down = width - x, height - y
    if key & 0x1000:
        most_across, most_down = min(most_across, 20), min(most_down, 20)
    return x, y, 1 + mixed % most_across, 1 + mixed // 4093 % most_down


def _part(lazy: Any, box: tuple[int, int, int, int], scale: int, how: int) -> Any:
    """Return the pixels of the box, by one of the decoding methods."""
    x, y, width, height = box
    if scale > 1 or how < 4:
        return lazy.region(box, scale)
    if how < 6:
        pixels = lazy.frame(box)
        return pixels[y : y + height, x : x + width]
    pixels = lazy.pixels(np.empty((lazy.height, lazy.width, lazy.channels), np.uint8))
    return pixels[y : y + height, x : x + width]


def _is_scaled(data: bytes, lazy: Any, box: Any, scale: int, found: Any, flag: int) -> bool:
    """Return whether these are the pixels of the whole image decoded at that scale."""
    if lazy._orientation != 1:
        return True  # the sides of rotated boxes are rounded in stored coordinates: not compared
    rows, columns = scaled_size(lazy.height, scale), scaled_size(lazy.width, scale)
    small = decode_jpeg(
        data, "RGB" if flag else "GRAY", min_height=rows, min_width=columns, min_factor=scale, strict=False
    )
    x, y, width, height = box
    half = scale // 2
    wanted = small[
        (y + half) // scale : (y + height + half) // scale, (x + half) // scale : (x + width + half) // scale
    ]
    return small.shape[:2] == (rows, columns) and np.array_equal(found, wanted)


def _judge_alone(data: bytes, flag: int, exif: str, box: tuple[int, int, int, int], found: Any) -> str:
    """Compare a part of a damaged image, decoded without a warning, with a lenient decoder's pixels."""
    if exif == "apply":
        return "alone, otherwise"
    try:
        whole = decode_jpeg(data, "RGB" if flag else "GRAY", strict=False)
    except (ValueError, RuntimeError):
        return "alone, otherwise"
    x, y, width, height = box
    same = np.array_equal(found, whole[y : y + height, x : x + width])
    return "alone, as tolerant" if same else "alone, otherwise"


# -- changes -------------------------------------------------------------------------------------------------------


def _segments(data: bytearray) -> list[int]:
    """Return the starts of the headers' segments; the last is the scan's header. Empty for heavy damage."""
    places = []
    at, size = 2, len(data)
    while at + 4 <= size and data[at] == 0xFF and len(places) < 64:
        places.append(at)
        if data[at + 1] == 0xDA:
            return places
        at += 2 + (data[at + 2] << 8 | data[at + 3])
    return []


def _scan(data: bytearray) -> int:
    """Return the start of the entropy-coded data."""
    places = _segments(data)
    if not places:
        return 0
    at = places[-1]
    return min(len(data) - 1, at + 2 + (data[at + 2] << 8 | data[at + 3]))


def _blind(data: bytearray, draw: Draw, target: Jpegs) -> None:
    change(data, 2, draw, PIECES)


def _in_scan(data: bytearray, draw: Draw, target: Jpegs) -> None:
    change(data, _scan(data), draw, PIECES)


def _one_byte_in_scan(data: bytearray, draw: Draw, target: Jpegs) -> None:
    start = _scan(data)
    data[start + int(draw() * (len(data) - start))] = int(draw() * 256)


def _extents(data: bytearray, draw: Draw, target: Jpegs) -> None:
    at = data.find(b"\xff\xc0\0") + 5 + (0 if draw() < 0.6 else 2)
    if at < 7 or at + 2 > len(data):
        return
    extent = (data[at] << 8 | data[at + 1]) + int(draw() * 33) - 16
    if draw() < 0.1:
        extent = int(draw() * 1024)
    data[at : at + 2] = struct.pack(">H", min(max(extent, 0), 65535))


def _shorter(data: bytearray, draw: Draw, target: Jpegs) -> None:
    """Announce fewer rows than the scan has, or a row less: the surplus is harmless."""
    at = data.find(b"\xff\xc0\0") + 5
    if at >= 5 and at + 2 <= len(data):
        height = data[at] << 8 | data[at + 1]
        data[at : at + 2] = struct.pack(">H", 1 + int(draw() * height))


def _sampling(data: bytearray, draw: Draw, target: Jpegs) -> None:
    at = data.find(b"\xff\xc0\0") + 11 + 3 * int(draw() * 3)
    if at >= 11 and at < len(data):
        data[at] = _SAMPLINGS[int(draw() * len(_SAMPLINGS))]


def _interval(data: bytearray, draw: Draw, target: Jpegs) -> None:
    at = data.find(b"\xff\xdd\0\4")
    if at < 0 or at + 6 > len(data):
        places = _segments(data)
        if places:
            data[places[-1] : places[-1]] = b"\xff\xdd\0\4\0" + bytes((int(draw() * 9),))
        return
    data[at + 5] = int(draw() * 40)


def _new_segment(data: bytearray, draw: Draw, target: Jpegs) -> None:
    """Insert comments, application segments and fill bytes anywhere in the headers."""
    places = _segments(data)
    if not places:
        return
    at = places[int(draw() * len(places))]
    if draw() < 0.3:
        data[at:at] = b"\xff" * (1 + int(draw() * 3))
        return
    body = bytes(int(draw() * 40))
    marker = (0xFE, 0xE0, 0xE1, 0xE2, 0xED, 0xEF, 0xC8, 0x01)[int(draw() * 8)]
    data[at:at] = struct.pack(">BBH", 0xFF, marker, 2 + len(body)) + body


def _move_segment(data: bytearray, draw: Draw, target: Jpegs) -> None:
    """Remove, duplicate or move a segment."""
    places = _segments(data)
    if len(places) < 3:
        return
    one = int(draw() * (len(places) - 1))
    piece = data[places[one] : places[one + 1]]
    kind = draw()
    to = places[int(draw() * (len(places) - 1))]
    if kind < 0.3:
        data[to:to] = piece
    else:
        del data[places[one] : places[one + 1]]
        if kind > 0.5 and to <= places[one]:
            data[to:to] = piece


def _orientation(data: bytearray, draw: Draw, target: Jpegs) -> None:
    order = "<" if draw() < 0.5 else ">"
    mark = b"II*\0" if order == "<" else b"MM\0*"
    tiff = mark + struct.pack(order + "IHHHIHH", 8, 1, 0x0112, 3, 1, int(draw() * 10), 0) + bytes(4)
    data[2:2] = struct.pack(">BBH", 0xFF, 0xE1, 8 + len(tiff)) + b"Exif\0\0" + tiff


def _restarts(data: bytearray, draw: Draw, target: Jpegs) -> None:
    """Remove, duplicate, exchange or renumber restart intervals."""
    start = _scan(data)
    marks = [found.start() for found in _RESTART.finditer(data, start)]
    if len(marks) < 2:
        return
    first, second = sorted(marks[int(draw() * len(marks))] for _ in range(2))
    kind = int(draw() * 4)
    if kind == 0:
        data[first + 1] = 0xD0 + int(draw() * 8)
    elif kind == 1:
        data[second + 2 : second + 2] = data[first + 2 : second + 2]
    elif kind == 2:
        del data[first:second]
    else:
        data[first + 1], data[second + 1] = data[second + 1], data[first + 1]


def _end(data: bytearray, draw: Draw, target: Jpegs) -> None:
    """Change the end: nothing, surplus bytes, or another image."""
    kind = int(draw() * 6)
    if kind == 0:
        del data[len(data) - 1 - int(draw() * 4) :]
    elif kind == 1:
        data[-2:-2] = bytes(int(draw() * 8))
    elif kind == 2:
        data += bytes(TELLING[int(draw() * len(TELLING))] for _ in range(int(draw() * 20)))
    elif kind == 3:
        data += target.other(draw)
    elif kind == 4:
        data[len(data) - int(draw() * min(len(data) - 4, 400)) :] = b"\xff\xd9"
    else:
        data[-2:-2] = pick(draw, PIECES)


_CHANGES = (
    _blind,
    _in_scan,
    _one_byte_in_scan,
    _one_byte_in_scan,
    _extents,
    _shorter,
    _sampling,
    _interval,
    _new_segment,
    _new_segment,
    _move_segment,
    _orientation,
    _orientation,
    _restarts,
    _end,
    _end,
)
