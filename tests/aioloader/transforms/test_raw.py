"""Tests of raw images: the written pixels, viewed without a copy; every kind of damage is a DecodeError."""

import struct
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from aioloader.errors import DecodeError
from aioloader.transforms import Scratch, decode_image, encode_raw, image_size, raw_image
from aioloader.transforms.formats import _MAGIC
from aioloader.transforms.raw import RAW_MAGIC
from tests.cases import with_cases

HEADER = 24
RGB = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
GREY = RGB[..., :1]

images = st.tuples(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3])).flatmap(
    lambda shape: arrays.arrays(np.uint8, shape)
)


@given(images)
def test_written_and_seen_are_the_same(image):
    data = encode_raw(image)
    assert len(data) == HEADER + image.size
    assert image_size(data) == ("raw", *image.shape[:2])
    np.testing.assert_array_equal(raw_image(data), image, strict=True)
    grey, colour = (decode_image(data, flag=flag) for flag in (0, 1))
    if image.shape[2] == 1:
        np.testing.assert_array_equal(grey, image, strict=True)
        np.testing.assert_array_equal(colour, np.repeat(image, 3, axis=2), strict=True)
    else:
        np.testing.assert_array_equal(colour, image, strict=True)
        assert grey.shape == (*image.shape[:2], 1)
        assert np.abs(grey[..., 0] - image @ np.array([0.299, 0.587, 0.114])).max() <= 1


def test_the_header_is_the_one_of_the_format_page():
    assert encode_raw(RGB)[:HEADER] == bytes.fromhex(
        "8c5241570d0a1a0a 01 01 0300 05000000 07000000 18000000".replace(" ", "")
    )


def test_pixels_are_seen_where_they_lie():
    memory = bytearray(b"head" + encode_raw(RGB) + b"tail")
    view = raw_image(memoryview(memory)[4:-4])
    memory[4 + HEADER] = 99
    assert view[0, 0, 0] == 99
    view[0, 0, 1] = 77
    assert memory[4 + HEADER + 1] == 77
    assert not raw_image(memoryview(memory).toreadonly()[4:-4]).flags.writeable


def test_a_view_of_pixels_and_rows_out_of_step_are_stored_row_by_row():
    wide = np.arange(5 * 9 * 3, dtype=np.uint8).reshape(5, 9, 3)
    for view in (wide[:, 1:8], wide[::-1, ::2], np.asfortranarray(wide)):
        np.testing.assert_array_equal(raw_image(encode_raw(view)), view)


def test_two_axes_are_grey():
    assert encode_raw(GREY[..., 0]) == encode_raw(GREY)


@with_cases("scratch", [None, Scratch()])
def test_decoding_gives_memory_of_its_own_in_the_colours_asked_for(scratch):
    data = bytearray(encode_raw(RGB))
    decoded = decode_image(data, scratch=scratch)
    data[HEADER:] = bytes(RGB.size)
    np.testing.assert_array_equal(decoded, RGB, strict=True)
    assert decoded.flags.writeable
    assert decoded.flags.c_contiguous
    for image, flag in ((GREY, 1), (RGB, 0)):
        found = decode_image(encode_raw(image), flag=flag, scratch=scratch)
        np.testing.assert_array_equal(found, decode_image(encode_raw(image), flag=flag), strict=True)


@with_cases("shape", [None, (3,), (2, 2, 4), (2, 2, 2, 3), (0, 2, 3), (2, 0)])
def test_what_is_no_image_is_refused(shape):
    image = np.zeros((5, 7, 3), np.uint16) if shape is None else np.zeros(shape, np.uint8)
    with pytest.raises(ValueError, match="encode_raw needs a uint8 image"):
        encode_raw(image)


# --- damage ---


def spoilt(place, form, value):
    data = bytearray(encode_raw(RGB))
    struct.pack_into(form, data, place, value)
    return bytes(data)


@with_cases(
    ("data", "reason"),
    [
        (encode_raw(RGB)[:-1], "is truncated, or its header is damaged"),
        (encode_raw(RGB) + b"\0", "is truncated, or its header is damaged"),
        (encode_raw(RGB)[: HEADER - 1], "ends within the header"),
        (encode_raw(RGB)[:HEADER], "is truncated"),
        *(
            (spoilt(8, "<B", 2), "version 2"),
            (spoilt(9, "<B", 7), "dtype 7"),
            (spoilt(10, "<H", 4), "4 channels"),
        ),
        *((spoilt(12, "<I", 0), "height 0"), (spoilt(16, "<I", 0), "width 0")),
        (spoilt(12, "<I", 0xFFFFFFFF), "height 4294967295"),
        *(
            (spoilt(*at), "is truncated")
            for at in ((16, "<I", 0x7FFFFFFF), (20, "<I", 23), (20, "<I", 0xFFFFFFFF))
        ),
    ],
)
def test_damage_is_a_decode_error(data, reason):
    for read in (raw_image, decode_image, image_size):
        with pytest.raises(DecodeError, match=reason) as caught:
            read(data)
        assert (caught.value.format, caught.value.nbytes) == ("raw", len(data))


def test_another_format_is_no_raw_image():
    with pytest.raises(DecodeError, match="not those of a raw image"):
        raw_image(b"\xff\xd8\xff" + bytes(40))


@given(st.binary(max_size=80), st.integers(0, 30))
def test_any_bytes_give_pixels_or_a_decode_error(tail, keep):
    data = (encode_raw(RGB)[:keep] if keep < HEADER else RAW_MAGIC) + tail
    try:
        pixels = raw_image(data)
    except DecodeError:
        return
    assert pixels.size == len(data) - HEADER


def test_too_many_pixels_are_refused_before_anything_is_allocated():
    with pytest.raises(DecodeError, match="more than max_pixels=34"):
        decode_image(encode_raw(RGB), max_pixels=34)
    assert decode_image(encode_raw(RGB), max_pixels=35).shape == RGB.shape


def test_a_refused_image_names_its_file():
    with pytest.raises(DecodeError) as caught:
        decode_image(encode_raw(RGB)[:-1], path="a.rec")
    assert "file: a.rec" in caught.value.__notes__


def test_no_other_format_begins_so():
    others = [magic for magic, name, _ in _MAGIC if name != "raw"]
    # JPEG, ICO, OpenEXR, Sun raster and others.
    others += [b"\xff\xd8\xff", b"\x00\x00\x01\x00", b"v/1\x01", b"\x59\xa6\x6a\x95", b"RIFF", b"P6\n"]
    others += [b"#?RADIANCE", b"\x93NUMPY", b"\x8aMNG\r\n\x1a\n", b"\x8bJNG\r\n\x1a\n"]
    assert not [m for m in others if RAW_MAGIC.startswith(m) or m.startswith(RAW_MAGIC)]


def test_a_view_keeps_its_memory():
    data = bytearray(encode_raw(RGB))
    before = sys.getrefcount(data)
    view = raw_image(data)
    assert sys.getrefcount(data) > before
    del data
    np.testing.assert_array_equal(view, RGB)
