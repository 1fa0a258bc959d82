"""Tests of decoding: correct pixels for every form of every format, and an error for every damaged file."""

import struct
import zlib
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from aioloader.errors import DecodeError
from aioloader.transforms import Scratch, decode_image
from aioloader.transforms.lazy_image import LazyImageReader
from tests.aioloader.jpeg.samples import by_hand
from tests.aioloader.transforms.many_scans import jpeg_of_scans
from tests.aioloader.transforms.orientations import TURNED
from tests.cases import with_cases

FILES = Path(__file__).parents[2] / "data" / "images"


def make_image():
    """Return the image of tests/data/images: gradients and two bars, (32, 48, 3) RGB."""
    y, x = np.mgrid[0:32, 0:48]
    rgb = np.stack([x * 5, y * 8, 255 - (x + y) * 3], -1).astype(np.uint8)
    rgb[8:16, 8:20] = (250, 20, 30)
    rgb[20:28, 24:40] = (20, 40, 230)
    return rgb


IMAGE = make_image()
BGR = np.ascontiguousarray(IMAGE[..., ::-1])


def encode(suffix, image=BGR, *options):
    return cv2.imencode(suffix, image, list(options))[1].tobytes()


def error_of(data, **options):
    with pytest.raises(DecodeError) as caught:
        decode_image(data, **options)
    return caught.value


# --- JPEG ---


JPEGS = {
    **{
        f"sampling-{s}": simplejpeg.encode_jpeg(IMAGE, 90, colorsubsampling=s)
        for s in ("444", "422", "420", "440")
    },
    "grey": simplejpeg.encode_jpeg(IMAGE[..., :1].copy(), 90, "GRAY", "Gray"),
    "progressive": encode(".jpg", BGR, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "restart-markers": encode(".jpg", BGR, cv2.IMWRITE_JPEG_RST_INTERVAL, 2),
    "optimised": encode(".jpg", BGR, cv2.IMWRITE_JPEG_OPTIMIZE, 1),
}
CMYK = {name: (FILES / f"{name}.jpg").read_bytes() for name in ("cmyk", "cmyk-no-adobe", "ycck")}


@with_cases("scratch", [None, Scratch()], ids=["fresh", "scratch"])
@with_cases("data", JPEGS.values(), ids=JPEGS)
def test_jpeg_is_what_simplejpeg_gives(data, scratch):
    assert np.array_equal(decode_image(data, scratch=scratch), simplejpeg.decode_jpeg(data, "RGB"))
    grey = decode_image(data, flag=0, scratch=scratch)
    assert grey.shape == (32, 48, 1)
    assert np.array_equal(grey, simplejpeg.decode_jpeg(data, "GRAY"))


@with_cases("data", CMYK.values(), ids=CMYK)
def test_cmyk_has_its_colours(data):
    image = decode_image(data, scratch=Scratch())
    assert np.abs(image.astype(int) - IMAGE).mean() < 2
    grey = decode_image(data, flag=0)
    assert np.abs(grey[..., 0].astype(int) - cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)).max() <= 2


@with_cases("data", [JPEGS["grey"], encode(".png")], ids=["jpeg", "png"])
def test_any_bytes_like_will_do(data):
    view = memoryview(bytearray(data)).toreadonly()
    for other in (bytearray(data), view, np.frombuffer(data, np.uint8)):
        assert np.array_equal(decode_image(other), decode_image(data))
    assert view == data


@with_cases("data", [*JPEGS.values(), *CMYK.values()], ids=[*JPEGS, *CMYK])
def test_a_jpeg_cut_anywhere_is_an_error(data):
    for stop in range(1, len(data) - 1, max(1, len(data) // 60)):
        error = error_of(data[:stop])
        assert error.nbytes == stop
        assert error.format in ("jpeg", None)
    error_of(data[:-1])


@with_cases("data", JPEGS.values(), ids=JPEGS)
def test_a_jpeg_cut_and_closed_is_an_error_if_a_scan_is_short(data):
    scan = data.rfind(b"\xff\xda") + 20
    error_of(data[:scan] + b"\xff\xd9")


@with_cases("name", ["sampling-420", "restart-markers"])
def test_bytes_before_the_end_marker_do_no_harm(name):
    data = JPEGS[name]
    longer = data[:-2] + b"\x12\x34" * 20 + data[-2:]
    with pytest.raises(ValueError, match="extraneous bytes before marker 0xd9"):
        simplejpeg.decode_jpeg(longer, strict=True)
    for scratch in (None, Scratch()):
        assert np.array_equal(decode_image(longer, scratch=scratch), decode_image(data))


def test_bytes_after_the_end_do_no_harm():
    data = JPEGS["sampling-420"]
    assert np.array_equal(decode_image(data + b"more" * 9), decode_image(data))


def test_bytes_before_a_restart_marker_are_damage():
    data = JPEGS["restart-markers"]
    place = data.index(b"\xff\xd1")
    error = error_of(data[:place] + b"\x12\x34" * 20 + data[place:])
    assert "extraneous" in error.reason


@pytest.mark.parametrize("marker", [b"\xff\xd0", b"\xff\xd1"])
def test_a_jpeg_with_restart_markers_cut_and_closed_behind_extra_bytes_is_damage(marker):
    data = JPEGS["restart-markers"]
    broken = data[: data.index(marker)] + b"\x12\x34" * 20 + b"\xff\xd9"
    error_of(broken)
    lazy = LazyImageReader().open(broken)
    with pytest.raises(DecodeError):
        lazy.pixels()
    with pytest.raises(DecodeError):
        lazy.region((0, 0, lazy.width, lazy.height))


@with_cases("factors", [[0x11, 0x11, 0x11], [0x42, 0x11, 0x11], [0x11, 0x21, 0x11], [0x22, 0x21, 0x12]])
def test_unusual_sampling_is_decoded_but_never_truncated(factors):
    data = by_hand(factors, (32, 64), (-28, -38, 32).__getitem__)
    image = decode_image(data, scratch=Scratch())
    assert image.shape == (32, 64, 3)
    # YCbCr to RGB of BT.601 full range.
    expected = [100 + 1.402 * 32, 100 - 0.344136 * -38 - 0.714136 * 32, 100 + 1.772 * -38]
    assert np.abs(image - np.array(expected)).max() <= 1.5
    for stop in range(2, len(data)):
        error_of(data[:stop])


# --- other formats ---


ALPHA = np.dstack([BGR, np.full(BGR.shape[:2], 7, np.uint8)])
EXACT = {
    "png": encode(".png"),
    "png-alpha": encode(".png", ALPHA),
    "png-16-bit": encode(".png", BGR.astype(np.uint16) * 257),
    "png-16-bit-alpha": encode(".png", ALPHA.astype(np.uint16) * 257),
    "bmp": encode(".bmp"),
    "webp-lossless": encode(".webp", BGR, cv2.IMWRITE_WEBP_QUALITY, 101),
    "tiff": encode(".tiff"),
    "pnm": encode(".ppm"),
}


@with_cases("data", EXACT.values(), ids=EXACT)
def test_a_cut_file_is_an_error(data):
    for stop in range(1, len(data), max(1, len(data) // 30)):
        assert error_of(data[:stop]).nbytes == stop
    if data[:8] == EXACT["png"][:8]:
        # The last chunk has no pixels, but its absence shows that the file was cut.
        error_of(data[:-12])


@pytest.mark.parametrize("data", [b"", b"\0", b"not an image", bytes(1000), b"\xff\xd8\xff"], ids=repr)
def test_what_is_no_image_is_a_decode_error(data):
    error = error_of(data, path="/some/file")
    assert error.nbytes == len(data)
    assert error.__notes__ == ["file: /some/file"]


# --- limits and options ---


def png_of(height, width):
    """Return a PNG header that announces a size, without pixels after it."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


BOMBS = {
    "jpeg": JPEGS["grey"].replace(struct.pack(">HH", 32, 48), struct.pack(">HH", 65500, 65500)),
    "png": png_of(100_000, 100_000),
    "bmp": b"BM" + bytes(12) + struct.pack("<Iii", 40, 100_000, -100_000),
    "gif": b"GIF89a" + struct.pack("<HH", 65535, 65535),
    "webp": b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\xff\x00\xff\xff\x00",
    "tiff": b"II*\0" + struct.pack("<IHHHIIHHII", 8, 2, 256, 4, 1, 1 << 20, 257, 4, 1, 1 << 20),
    "pnm": b"P6 100000 100000 255\n",
}


@with_cases("data", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_by_its_header(data):
    scratch = Scratch()
    error = error_of(data, scratch=scratch)
    assert "more than max_pixels=178956970" in error.reason
    assert scratch.nbytes == 0


@pytest.mark.parametrize(
    "data", [JPEGS["grey"], EXACT["png"], EXACT["webp-lossless"]], ids=["jpeg", "png", "webp"]
)
def test_max_pixels_is_inclusive_and_optional(data):
    assert decode_image(data, max_pixels=32 * 48).shape == (32, 48, 3)
    assert decode_image(data, max_pixels=None).shape == (32, 48, 3)
    assert "48 x 32 is 1536 pixels" in error_of(data, max_pixels=32 * 48 - 1).reason


@pytest.mark.parametrize("options", [{"exif": "maybe"}, {"flag": 2}, {"flag": -2}], ids=repr)
def test_bad_options_are_named(options):
    with pytest.raises(ValueError, match=f"got {next(iter(options.values()))!r}") as caught:
        decode_image(EXACT["png"], **options)
    assert not isinstance(caught.value, DecodeError)


# --- orientation ---


def oriented(name, orientation, image=BGR):
    """Return the image in a format, with an orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = BytesIO()
    form = name.partition("-")[0]
    Image.fromarray(image[..., ::-1].copy()).save(buffer, form, exif=exif, lossless=True, quality=95)
    data = buffer.getvalue()
    if name == "png-exif-last":
        place = data.index(b"eXIf") - 4
        end = place + 12 + int.from_bytes(data[place : place + 4], "big")
        data = data[:place] + data[end:-12] + data[place:end] + data[-12:]
    return data


@with_cases("flag", [1, 0], ids=["colour", "grey"])
@with_cases("orientation", range(1, 9))
@with_cases("name", ["jpeg", "png", "png-exif-last", "webp", "tiff"])
def test_one_rule_of_orientation_for_all_formats(name, orientation, flag):
    scratch = Scratch() if orientation % 2 == flag else None
    data = oriented(name, orientation)
    stored = decode_image(oriented(name, 1), flag=flag, exif="ignore")
    if flag and name != "jpeg":
        assert np.array_equal(stored, IMAGE)
    assert np.array_equal(decode_image(data, flag=flag, exif="ignore", scratch=scratch), stored)
    upright = decode_image(data, flag=flag, exif="apply", scratch=scratch)
    assert np.array_equal(upright, TURNED[orientation](stored))
    assert upright.flags.c_contiguous


# --- scratch ---


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 255), st.booleans(), st.sampled_from([1, 6])), max_size=12))
def test_a_kept_image_never_changes(steps):
    scratch = Scratch(buffers=2)
    kept = []
    for level, keep, orientation in steps:
        image = decode_image(
            oriented("jpeg", orientation, np.full((40, 30, 3), level, np.uint8)), scratch=scratch
        )
        if keep:
            kept.append((level, image[5:20]))
        del image
    for level, view in kept:
        assert np.abs(view.astype(int) - level).max() <= 1


def test_memory_is_used_again():
    scratch = Scratch()
    places = []
    for _ in range(5):
        image = decode_image(JPEGS["sampling-420"], scratch=scratch)
        places.append(image.__array_interface__["data"][0])
        del image
    assert all(a == b for a, b in pairwise(places))


def test_a_jpeg_of_very_many_scans_is_refused():
    data = encode(".jpg", BGR, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    assert data.count(b"\xff\xda") > 1
    # The last scan, repeated: each makes the decoder process all coefficients again.
    last = data.rindex(b"\xff\xda")
    many = data[:last] + data[last:-2] * 600 + data[-2:]
    assert "more than 500; no encoder" in error_of(many).reason
    assert decode_image(data).shape == BGR.shape
    # After a complete scan nothing more is decoded.
    plain = encode(".jpg", BGR)
    assert decode_image(plain + plain * 600).shape == BGR.shape


@with_cases(
    ("extent", "scans", "components", "most"),
    [
        (8, 500, 3, None),
        (8, 501, 3, 500),
        (4096, 128, 3, None),  # 2^31 pixels in all scans together
        (4096, 129, 3, 128),
        (8192, 65, 1, 64),
    ],
)
def test_the_larger_an_image_the_fewer_scans_it_may_have(extent, scans, components, most):
    """Each scan costs time for every block of the image, whether it has data for it or not."""
    data = jpeg_of_scans(extent, scans, components)
    if most is None:
        image = decode_image(data)
        assert image.shape == (extent, extent, 3)
        assert (image == 128).all()
    else:
        assert f"more than {most}; no encoder" in error_of(data).reason


def test_a_chunk_of_a_png_that_is_longer_than_the_data_is_refused_unread():
    data = bytearray(encode(".png", BGR))
    place = data.index(b"IDAT") - 4
    data[place : place + 4] = b"\xff\0\0\0"
    assert "a chunk is longer than the data" in error_of(bytes(data)).reason
    assert decode_image(encode(".png", BGR) + b"more").shape == BGR.shape
