"""JPEGs of every kind, crops of them, and the expected pixels of a crop."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
import simplejpeg
from hypothesis import strategies as st

from aioloader import jpeg

SAMPLINGS = {
    "444": 0x111111,
    "422": 0x211111,
    "440": 0x121111,
    "420": 0x221111,
    "411": 0x411111,
}
KINDS = (*SAMPLINGS, "grey")

# Neighbouring pixels are independent: a pixel that was interpolated from the wrong one differs.
_NOISE = np.random.default_rng(0).integers(0, 256, (700, 700, 3), np.uint8)
_BLOCKS = cv2.resize(_NOISE[:100, :100], (700, 700), interpolation=cv2.INTER_LINEAR)


def make_image(width: int, height: int, blocks: bool = True) -> Any:
    """Return noise, or blocks of colour, uint8 (height, width, 3)."""
    return (_BLOCKS if blocks else _NOISE)[:height, :width]


@lru_cache(maxsize=256)
def encode(
    width: int,
    height: int,
    kind: str = "420",
    restart: int = 0,
    quality: int = 90,
    blocks: bool = True,
) -> bytes:
    """Encode a baseline JPEG; with a restart marker after every `restart` MCUs, if that is not 0."""
    image = make_image(width, height, blocks)
    if kind == "grey":
        image = np.ascontiguousarray(image[..., 1])
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, restart]
    if kind != "grey":
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[kind]]
    data: bytes = cv2.imencode(".jpg", image, options)[1].tobytes()
    return data


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def frame_of(data: Any) -> jpeg.Frame:
    frame = jpeg.read_frame(data)
    assert frame is not None
    return frame


def exif(orientation: int, order: str = "<") -> bytes:
    """Return an Exif segment with an orientation."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return segment(0xE1, b"Exif\0\0" + mark + struct.pack(order + "IH", 8, 1) + entry + bytes(4))


def oriented(data: bytes, orientation: int) -> bytes:
    return data[:2] + exif(orientation) + data[2:]


def by_hand(
    factors: list[int], size: tuple[int, int], level_of: Callable[[int], int], restart: int = 0
) -> bytes:
    """Build a JPEG of three components with any sampling factors, such as 0x21, of DC coefficients only.

    With a DC quantiser of 8, one step is one level. `level_of` returns the level of a component's next block, less 128.
    """
    height, width = size
    across, down = max(f >> 4 for f in factors), max(f & 15 for f in factors)
    components = b"".join(bytes((n, factor, 0)) for n, factor in enumerate(factors, 1))
    head = b"".join(
        (
            segment(0xDB, b"\0" + bytes([8] * 64)),
            segment(0xC0, struct.pack(">BHHB", 8, height, width, 3) + components),
            # DC: categories 0 to 11, all of 4 bits. AC: only "end of block", one bit.
            segment(0xC4, b"\0" + bytes([0, 0, 0, 12] + [0] * 12) + bytes(range(12))),
            segment(0xC4, b"\x10" + bytes([1] + [0] * 15) + b"\0"),
            segment(0xDD, struct.pack(">H", restart)),
            segment(0xDA, b"\3\1\0\2\0\3\0\0\x3f\0"),
        )
    )
    units = -(-height // (8 * down)) * -(-width // (8 * across))
    scan = b""
    for first in range(0, units, restart or units):
        bits, last = "", [0, 0, 0]
        for _ in range(first, min(first + (restart or units), units)):
            for n, factor in enumerate(factors):
                for _ in range((factor >> 4) * (factor & 15)):
                    level = level_of(n)
                    step, last[n] = level - last[n], level
                    category = abs(step).bit_length()
                    bits += f"{category:04b}"
                    if category:
                        bits += f"{step if step > 0 else step + (1 << category) - 1:0{category}b}"
                    bits += "0"
        bits += "1" * (-len(bits) % 8)
        scan += int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
        scan += bytes((0xFF, 0xD0 + first // (restart or units) % 8))
    return b"\xff\xd8" + head + scan[:-1] + b"\xd9"


def with_byte(data: bytes, place: int, value: int) -> bytes:
    return data[:place] + bytes((value,)) + data[place + 1 :]


def before_frame(data: bytes, extra: bytes) -> bytes:
    """Insert bytes before the frame header."""
    here = frame_of(data).size_at - 5
    return data[:here] + extra + data[here:]


def full(data: Any, **options: Any) -> Any:
    return simplejpeg.decode_jpeg(data, **options)


class Damaged(Exception):
    """Error raised when a decoder reported damage, or the whole file has to be decoded."""


def pixels(data: Any, box: tuple[int, int, int, int], cut: jpeg.Cut, scale: int = 1) -> Any:
    """Decode a cut, strictly, and take the box from it.

    Raises:
        Damaged: the decoder reported a fault.
    """
    options = {}
    if scale > 1:
        options = {
            "min_height": jpeg.scaled_size(cut.height, scale),
            "min_width": jpeg.scaled_size(cut.width, scale),
            "min_factor": scale,
        }
    shape = (jpeg.scaled_size(cut.height, scale), jpeg.scaled_size(cut.width, scale), 3)
    buffer = np.zeros(shape[0] * shape[1] * shape[2], np.uint8)
    try:
        simplejpeg.decode_jpeg(cut.data, buffer=buffer, strict=True, **options)
    except ValueError as error:
        if not (cut.stops_early and jpeg.harmless(str(error))):
            raise Damaged(str(error)) from None
    x, y, width, height = box
    top, left = (y - cut.top) // scale, (x - cut.left) // scale
    bottom = jpeg.scaled_size(y + height - cut.top, scale)
    right = jpeg.scaled_size(x + width - cut.left, scale)
    return buffer.reshape(shape)[top:bottom, left:right]


def crop(image: Any, box: tuple[int, int, int, int], scale: int = 1) -> Any:
    x, y, width, height = box
    return image[
        y // scale : jpeg.scaled_size(y + height, scale), x // scale : jpeg.scaled_size(x + width, scale)
    ]


def assert_cut_is_crop(data: Any, box: tuple[int, int, int, int], **options: Any) -> jpeg.Cut | None:
    """Compare a crop with a full decode, if the file is cut at all."""
    found = jpeg.cut(data, frame_of(data), box, **options)
    if found is not None:
        x, y, width, height = box
        assert found.left <= x
        assert found.top <= y
        assert x + width <= found.left + found.width
        assert y + height <= found.top + found.height
        assert found.left % 8 == 0
        assert found.top % 8 == 0
        assert np.array_equal(pixels(data, box, found), crop(full(data), box))
    return found


class Case(NamedTuple):
    data: bytes
    box: tuple[int, int, int, int]


sizes = st.one_of(st.integers(1, 40), st.integers(1, 260), st.integers(1, 700))


@st.composite
def boxes(draw: st.DrawFn, width: int, height: int) -> tuple[int, int, int, int]:
    """Draw crops; often at a border of the image, or of a block."""

    def span(extent: int) -> tuple[int, int]:
        edges = [e for e in (0, 8, 16, 32, 48, 64, 128, extent - 1, extent) if e <= extent]
        place = st.one_of(
            st.integers(0, extent),
            st.builds(
                lambda edge, off: min(extent, max(0, edge + off)), st.sampled_from(edges), st.integers(-3, 3)
            ),
        )
        start, stop = sorted((draw(place), draw(place)))
        if start == stop:
            start, stop = (start, stop + 1) if stop < extent else (start - 1, stop)
        return start, stop - start

    x, across = span(width)
    y, down = span(height)
    return x, y, across, down


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a JPEG of any size and kind, with or without restart markers, and a crop of it."""
    width, height = draw(sizes), draw(sizes)
    kind = draw(st.sampled_from(KINDS))
    plain = encode(width, height, kind)
    frame = frame_of(plain)
    row = frame.mcus_per_row
    restart = draw(
        st.one_of(
            st.just(0),
            st.sampled_from([n for n in range(1, row + 1) if row % n == 0]),
            st.integers(1, 2 * row),
            st.integers(1, 3).map(lambda rows: rows * row),
        )
    )
    blocks = draw(st.booleans())
    data = encode(width, height, kind, restart, 90 if blocks else 50, blocks)
    return Case(data, draw(boxes(width, height)))


@st.composite
def wrong_bytes(draw: st.DrawFn, files: Mapping[str, bytes]) -> tuple[str, bytes, tuple[int, int, int, int]]:
    """Draw (name of a file, its bytes with one changed, removed or added, a crop)."""
    name, share, value = draw(st.sampled_from(list(files))), draw(st.floats(0, 1)), draw(st.integers(0, 255))
    data = files[name]
    frame, place, new = frame_of(data), int(share * (len(data) - 1)), bytes((value,))
    instead = draw(st.sampled_from([new, b"", new + data[place : place + 1]]))
    return name, data[:place] + instead + data[place + 1 :], draw(boxes(frame.width, frame.height))
