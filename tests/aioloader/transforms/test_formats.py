"""Tests of image headers: the size before decoding; garbage always raises DecodeError."""

import struct

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.errors import DecodeError
from aioloader.transforms import encode_raw, image_size
from aioloader.transforms.formats import read_header
from tests.aioloader.jpeg.samples import with_byte
from tests.cases import with_cases

IMAGE = np.zeros((5, 7, 3), np.uint8)


def encoded(suffix, *options):
    return cv2.imencode(suffix, IMAGE, list(options))[1].tobytes()


CASES = {
    "jpeg": ("jpeg", encoded(".jpg")),
    "jpeg-progressive": ("jpeg", encoded(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)),
    "jpeg-fill-bytes": ("jpeg", encoded(".jpg")[:2] + b"\xff\xff" + encoded(".jpg")[2:]),
    "png": ("png", encoded(".png")),
    "bmp": ("bmp", encoded(".bmp")),
    "bmp-top-down": ("bmp", b"BM" + bytes(12) + struct.pack("<Iii", 40, 7, -5)),
    "bmp-core": ("bmp", b"BM" + bytes(12) + struct.pack("<IHH", 12, 7, 5)),
    "gif": ("gif", b"GIF89a" + struct.pack("<HH", 7, 5)),
    "webp-lossy": ("webp", encoded(".webp", cv2.IMWRITE_WEBP_QUALITY, 80)),
    "webp-lossless": ("webp", encoded(".webp", cv2.IMWRITE_WEBP_QUALITY, 101)),
    "webp-extended": ("webp", b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x06\0\0\x04\0\0"),
    "tiff": ("tiff", encoded(".tiff")),
    "tiff-big-endian": (
        "tiff",
        b"MM\0*" + struct.pack(">IHHHIHHHHII", 8, 2, 256, 3, 1, 7, 0, 257, 4, 1, 5),
    ),
    "bigtiff": (
        "tiff",
        b"II+\0" + struct.pack("<HHQQHHQQHHQQ", 8, 0, 16, 2, 256, 4, 1, 7, 257, 3, 1, 5),
    ),
    "pnm": ("pnm", encoded(".ppm")),
    "pnm-comment": ("pnm", b"P6 # drawn\n7 # wide\n5 255\n"),
    "jp2": ("jp2", b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(20) + b"ihdr" + struct.pack(">II", 5, 7)),
    "jp2-codestream": ("jp2", b"\xff\x4f\xff\x51" + struct.pack(">HHIIII", 47, 0, 8, 7, 1, 2)),
    "raw": ("raw", encode_raw(IMAGE)),
    "avif": ("avif", b"\0\0\0\x18ftypavif" + bytes(12) + b"ispe\0\0\0\0" + struct.pack(">II", 7, 5)),
}


@with_cases(("name", "data"), CASES.values(), ids=CASES)
def test_size_comes_from_the_header(name, data):
    assert image_size(data) == (name, 5, 7)
    assert image_size(bytearray(data)) == (name, 5, 7)
    assert image_size(np.frombuffer(data, np.uint8)) == (name, 5, 7)


def outcome(data):
    try:
        return read_header(data)
    except DecodeError as error:
        return error


@with_cases("data", [case[1] for case in CASES.values()], ids=CASES)
def test_a_cut_header_is_a_decode_error_or_whole(data):
    for stop in range(min(len(data), 200)):
        found = outcome(data[:stop])
        if isinstance(found, DecodeError):
            assert found.nbytes == stop
        else:
            assert (found.height, found.width) == (5, 7)


@with_cases(
    ("data", "reason"),
    [
        pytest.param(b"", "no data", id="empty"),
        pytest.param(b"just a line of text\n", "no image format", id="text"),
        pytest.param(b"\xff\xd8\xff\xd9", "ends within|no frame", id="jpeg-without-frame"),
        pytest.param(b"\xff\xd8\xff\xda\0\x08\0\0", "no frame header", id="jpeg-scan-first"),
        pytest.param(b"\xff\xd8\xff\xe0\0\x01\0\0", "impossible length", id="jpeg-segment-length"),
        pytest.param(encoded(".jpg")[:20] + b"xx" + encoded(".jpg")[20:], "belong to none", id="jpeg-junk"),
        pytest.param(
            b"\xff\xd8\xff\xc0\0\x11\x08\0\0\0\x07\x03" + bytes(9),
            "has no height",
            id="jpeg-without-height",
        ),
        pytest.param(b"GIF89a\0\0\0\0", "height 0 and width 0", id="gif-of-nothing"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(20), "not IHDR", id="png-without-ihdr"),
    ],
)
def test_bad_headers_say_what_is_wrong(data, reason):
    with pytest.raises(DecodeError, match=reason):
        read_header(data)


MAGIC = st.sampled_from([data[:12] for _, data in CASES.values()])


DAMAGED = st.builds(
    lambda data, place, value: with_byte(data, place % min(len(data), 120), value),
    st.sampled_from([data for _, data in CASES.values()]),
    *(st.integers(0, 1 << 20), st.integers(0, 255)),
)


@settings(max_examples=4 * settings().max_examples // 5)
@given(st.binary(max_size=64) | st.tuples(MAGIC, st.binary(max_size=64)).map(b"".join) | DAMAGED)
def test_any_bytes_and_any_damaged_header_give_a_header_or_a_decode_error(data):
    header = outcome(data)
    if not isinstance(header, DecodeError):
        assert header.height > 0
        assert header.width > 0
        assert header.orientation in (None, *range(1, 9))


@with_cases(
    "data", [b"P5#\r7 5\n1 1\n255\n", b"P5 # a\r7#5 1\n255\n", b"P5 7x5 255\n", b"P5 7\f#\n\n5\r255\n"]
)
def test_numbers_of_pnm_are_those_that_the_decoder_finds(data):
    header = data + bytes(35)
    found = read_header(header)
    assert (found.format, found.width, found.height) in {("pnm", 7, 5)}
    image = cv2.imdecode(np.frombuffer(header, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert image is None or image.shape == (5, 7)


def test_digits_that_go_on_behind_what_is_looked_at_are_not_believed():
    with pytest.raises(DecodeError, match="no width and height"):
        read_header(b"P5 7 #" + b"x" * (1024 - 8) + b"\n5000 255\n" + bytes(35))


def test_of_two_extents_of_jpeg_2000_the_larger_ones_count():
    box = b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(20) + b"ihdr" + struct.pack(">II", 5, 7) + bytes(5000)
    stream = b"\xff\x4f\xff\x51" + struct.pack(">HHIIII", 47, 0, 30_000, 20_000, 0, 0)
    assert read_header(box + stream)[:3] == ("jp2", 20_000, 30_000)
    assert read_header(box)[:3] == ("jp2", 5, 7)
