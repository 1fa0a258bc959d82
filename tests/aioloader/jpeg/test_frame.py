"""Tests of frame headers: the JPEGs that may be cut, and correct cuts of unusual ones."""

from __future__ import annotations

import struct
from pathlib import Path

import cv2
import numpy as np
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st

from aioloader import jpeg
from tests.aioloader.jpeg.samples import (
    KINDS,
    SAMPLINGS,
    assert_cut_is_crop,
    before_frame,
    by_hand,
    crop,
    encode,
    frame_of,
    full,
    make_image,
    pixels,
    segment,
    with_byte,
)
from tests.cases import with_cases

BOX = (170, 100, 50, 60)
DATA = {restart: encode(400, 300, "420", restart) for restart in (0, 5)}
SOF, DRI, SOS, ADOBE, EXIF = 0xC0, 0xDD, 0xDA, 0xEE, 0xE1


def cv2_jpeg(image, *options: int) -> bytes:
    data: bytes = cv2.imencode(".jpg", image, options)[1].tobytes()
    return data


# --- parsing ---


@with_cases(
    ("kind", "unit", "margins"),
    [
        ("444", (8, 8), (0, 0)),
        ("422", (16, 8), (2, 0)),
        ("440", (8, 16), (0, 2)),
        ("420", (16, 16), (2, 2)),
        ("411", (32, 8), (4, 0)),
        ("grey", (8, 8), (0, 0)),
    ],
)
@with_cases(("width", "height"), [(1, 1), (65, 63), (700, 333)])
def test_a_frame_says_how_large_the_image_and_its_units_are(kind, unit, margins, width, height):
    data = encode(width, height, kind)
    frame = frame_of(data)
    assert (frame.width, frame.height) == (width, height)
    assert (frame.mcu_width, frame.mcu_height) == unit
    assert (frame.x_margin, frame.y_margin) == margins
    assert frame.mcus_per_row == -(-width // unit[0])
    assert frame.mcu_rows == -(-height // unit[1])
    assert frame.restart_interval == 0
    assert frame.intervals == 1
    assert struct.unpack_from(">HH", data, frame.size_at) == (height, width)


@with_cases("restart", [1, 5, 7, 65535])
def test_a_frame_says_how_many_restart_intervals_there_are(restart):
    frame = frame_of(encode(400, 300, "420", restart))
    assert frame.restart_interval == restart
    assert frame.intervals == -(-25 * 19 // restart)


def test_what_decoding_does_not_need_is_separate():
    body = b"Exif\0\0" + b"II*\0" + bytes(20)
    adobe = segment(ADOBE, b"Adobe\0\x64\0\0\0\0\1")
    extra = (
        segment(EXIF, body)
        + segment(0xFE, b"a comment")
        + adobe
        + segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(99))
    )
    data = before_frame(DATA[5], extra)
    frame = frame_of(data)
    kept = b"".join(data[start:stop] for start, stop in frame.needed)
    plain = DATA[5][: frame_of(DATA[5]).scan_start]
    assert kept == before_frame(DATA[5], adobe)[: len(plain) + len(adobe)]
    assert frame.exif is not None
    assert data[slice(*frame.exif)] == body[6:]
    assert_cut_is_crop(data, BOX)


def test_the_first_exif_block_counts():
    first, second = (segment(EXIF, b"Exif\0\0" + text) for text in (b"first", b"second"))
    data = before_frame(DATA[0], segment(EXIF, b"http://ns.adobe.com/") + first + second)
    span = frame_of(data).exif
    assert span is not None
    assert data[slice(*span)] == b"first"


# --- unusual, but valid ---


def fill_bytes(data: bytes) -> bytes:
    """Insert fill bytes before every marker of the headers and before the restart markers."""
    place, pieces = 2, [data[:2]]
    scan = frame_of(data).scan_start
    while place < scan:
        length = 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        pieces.append(b"\xff\xff\xff" + data[place : place + length])
        place += length
    body = data[scan:]
    for number in range(8):
        body = body.replace(bytes((0xFF, 0xD0 + number)), bytes((0xFF, 0xFF, 0xFF, 0xD0 + number)))
    return b"".join(pieces) + body


def several_restart_intervals(data: bytes) -> bytes:
    """Define restart intervals twice; the last definition counts."""
    last = frame_of(data).restart_interval
    scan = data.rindex(b"\xff\xda", 0, frame_of(data).scan_start)
    wrong, right = (segment(DRI, struct.pack(">H", n)) for n in (3, last))
    return data[:2] + wrong + data[2:scan] + wrong + right + data[scan:]


def adobe_rgb(data: bytes) -> bytes:
    """Remove JFIF's marker and add Adobe's for untransformed colours: the components are R, G and B."""
    assert data[2:4] == b"\xff\xe0"
    return data[:2] + segment(ADOBE, b"Adobe\0\x64\0\0\0\0\0") + data[20:]


def extended(data: bytes) -> bytes:
    """Return the same file as an extended sequential frame (SOF1)."""
    here = frame_of(data).size_at - 4
    return data[:here] + b"\xc1" + data[here + 1 :]


def odd_grey(data: bytes) -> bytes:
    """Return a grey image with sampling factors of 2, which have no effect."""
    frame = frame_of(data)
    grey = encode(frame.width, frame.height, "grey", frame.restart_interval)
    place = frame_of(grey).size_at + 6
    assert grey[place] == 0x11
    return grey[:place] + b"\x22" + grey[place + 1 :]


ODD = {
    "fill bytes": fill_bytes,
    "restart interval defined several times": several_restart_intervals,
    "components are R, G, B": adobe_rgb,
    "extended sequential": extended,
    "grey with sampling factors": odd_grey,
    "data after the end": lambda data: data + b"\0" * 999 + b"trailing",
    "another image after the end": lambda data: data + encode(400, 300, "420", 4, 50),
    "markers after the end": lambda data: data + bytes(range(0xD0, 0xD8)).join([b"\xff"] * 9) + b"\xff\xd9\0",
    "a thumbnail with its own end marker": lambda data: before_frame(
        data, segment(EXIF, b"Exif\0\0" + encode(16, 16))
    ),
    "bytes before the end": lambda data: data[:-2] + b"\x12\x34" * 20 + data[-2:],
}


@with_cases("change", ODD.values(), ids=ODD)
@with_cases("restart", [0, 5, 10])
@with_cases("kind", ["420", "444"])
def test_odd_files_are_cut_like_others(change, restart, kind):
    data = change(encode(400, 300, kind, restart))
    image = simplejpeg.decode_jpeg(data, strict=False)
    assert image.shape == (300, 400, 3)
    frame = frame_of(data)
    for box in (BOX, (0, 0, 30, 40), (200, 0, 3, 200)):
        found = jpeg.cut(data, frame, box)
        assert found is not None
        assert np.array_equal(pixels(data, box, found), crop(image, box))


@with_cases("factors", ["22 12 12", "22 21 21", "12 12 12", "21 21 21"])
def test_sampling_written_in_other_factors_is_cut_right(factors):
    # The factors of 4:2:2, 4:4:0 and 4:4:4, with both numbers of one direction larger than necessary.
    luma, chroma, _ = (int(factor, 16) for factor in factors.split())
    rng = np.random.default_rng(1)
    data = by_hand([luma, chroma, chroma], (70, 90), lambda _: int(rng.integers(-60, 60)), 3)
    image = full(data)
    assert image.std() > 5
    frame = frame_of(data)
    assert frame.x_margin == (0 if luma >> 4 == chroma >> 4 else 2)
    assert frame.y_margin == (0 if luma & 15 == chroma & 15 else 2)
    for box in ((0, 0, 9, 9), (30, 15, 3, 20), (60, 30, 30, 20), (15, 47, 18, 1)):
        assert assert_cut_is_crop(data, box) is not None


# --- to be decoded whole ---


def separate_scans() -> bytes:
    """Build three components in separate scans: valid, baseline, and not to be cut."""
    planes = [cv2_jpeg(np.ascontiguousarray(make_image(80, 64)[..., c])) for c in range(3)]
    frame = frame_of(planes[0])
    head = planes[0][: frame.size_at - 5] + segment(
        SOF, struct.pack(">BHHB", 8, 64, 80, 3) + b"\1\x11\0\2\x11\0\3\x11\0"
    )
    scan_head = segment(SOS, b"\1\1\0\0\x3f\0")
    between = planes[0][frame.size_at + 8 : frame.scan_start - len(scan_head)]
    scans = [
        segment(SOS, bytes((1, n, 0, 0, 63, 0))) + plane[frame.scan_start : -2]
        for n, plane in enumerate(planes, 1)
    ]
    return head + between + b"".join(scans) + b"\xff\xd9"


def height_after_the_scan() -> bytes:
    data = bytearray(DATA[0])
    struct.pack_into(">H", data, frame_of(DATA[0]).size_at, 0)
    return bytes(data[:-2]) + segment(0xDC, struct.pack(">H", 300)) + b"\xff\xd9"


SIZE_AT = frame_of(DATA[0]).size_at
SOS_AT = DATA[0].rindex(b"\xff\xda", 0, frame_of(DATA[0]).scan_start)
WHOLE = {
    "nothing": b"",
    "text": b"a" * 2000,
    "PNG": cv2.imencode(".png", make_image(20, 20))[1].tobytes(),
    "progressive": cv2_jpeg(make_image(80, 64), cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "progressive with restart markers": cv2_jpeg(
        make_image(80, 64), cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 5
    ),
    "a scan for each component": separate_scans(),
    "height after the scan": height_after_the_scan(),
    "width 0": DATA[0][: SIZE_AT + 2] + b"\0\0" + DATA[0][SIZE_AT + 4 :],
    "lossless": with_byte(DATA[0], SIZE_AT - 4, 0xC3),
    "arithmetic coding": with_byte(DATA[0], SIZE_AT - 4, 0xC9),
    "arithmetic conditioning": before_frame(DATA[0], segment(0xCC, b"\0\x10")),
    "hierarchical": before_frame(DATA[0], segment(0xDE, DATA[0][SIZE_AT - 1 : SIZE_AT + 14])),
    "number of lines before the scan": before_frame(DATA[0], segment(0xDC, b"\1\0")),
    "12 bits": with_byte(DATA[0], SIZE_AT - 1, 12),
    "two frame headers": before_frame(DATA[0], DATA[0][SIZE_AT - 5 : SIZE_AT + 14]),
    "no frame header": DATA[0][: SIZE_AT - 5] + DATA[0][SIZE_AT + 14 :],
    "no scan": DATA[0][:SOS_AT],
    "no scan but an end": DATA[0][:SOS_AT] + b"\xff\xd9",
    "frame header of another length": with_byte(DATA[0], SIZE_AT + 4, 4),
    "two components": with_byte(DATA[0], SIZE_AT + 4, 2),
    "scan of fewer components": DATA[0][:SOS_AT]
    + segment(SOS, b"\2\1\0\2\x11\0\x3f\0")
    + DATA[0][SOS_AT + 14 :],
    "luma of no sampling factor": with_byte(DATA[0], SIZE_AT + 6, 0x20),
    "chroma of no sampling factor": with_byte(with_byte(DATA[0], SIZE_AT + 9, 0), SIZE_AT + 12, 0),
    "chroma components that differ": with_byte(DATA[0], SIZE_AT + 9, 0x21),
    "chroma finer than luma": with_byte(with_byte(DATA[0], SIZE_AT + 9, 0x41), SIZE_AT + 12, 0x41),
    "sampling factors that are not multiples": with_byte(DATA[0], SIZE_AT + 6, 0x32)[: SIZE_AT + 9]
    + b"\x21\1\3\x21\1"
    + DATA[0][SIZE_AT + 14 :],
    "bytes between segments": before_frame(DATA[0], b"\0"),
    "restart marker between segments": before_frame(DATA[0], b"\xff\xd0"),
    "restart interval of 3 bytes": before_frame(DATA[0], segment(DRI, b"\0\5\0")),
    "segment of length 1": before_frame(DATA[0], b"\xff\xfe\0\1"),
    "segment beyond the end": before_frame(DATA[0], b"\xff\xfe\xff\xff"),
}


@with_cases("data", WHOLE.values(), ids=WHOLE)
def test_what_cannot_be_cut_is_left_to_the_decoder(data):
    assert jpeg.read_frame(data) is None
    assert jpeg.read_frame(memoryview(data)) is None


@with_cases("name", ["cmyk.jpg", "cmyk-no-adobe.jpg", "ycck.jpg"])
def test_four_components_are_left_to_the_decoder(name):
    data = (Path(__file__).parents[2] / "data" / "images" / name).read_bytes()
    assert cv2.imdecode(np.frombuffer(data, np.uint8), 1) is not None
    assert jpeg.read_frame(data) is None


def test_those_that_cannot_be_cut_can_be_decoded_if_they_are_valid():
    assert full(WHOLE["progressive"]).shape == (64, 80, 3)
    there = full(WHOLE["a scan for each component"])
    assert there.shape == (64, 80, 3)
    assert there.std() > 10


@with_cases("kind", KINDS)
def test_headers_cut_off_anywhere_are_no_frame(kind):
    data = encode(33, 44, kind, 2)
    start = frame_of(data).scan_start
    for stop in range(start):
        assert jpeg.read_frame(data[:stop]) is None
    assert jpeg.read_frame(data[:start]) is not None
    assert set(SAMPLINGS) | {"grey"} == set(KINDS)


@given(st.binary(max_size=60))
def test_any_bytes_can_be_looked_at(data):
    for text in (data, b"\xff\xd8" + data, b"\xff\xd8\xff\xc0\0\x0b" + data):
        jpeg.read_frame(text)
