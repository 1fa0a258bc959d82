"""Tests of IRHeader, pack, unpack, and of images: pack_img, unpack_img."""

import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordio import HeaderError, IRHeader, pack, pack_img, testing, unpack, unpack_img
from recordio.errors import ImageEncodeError, MissingDependencyError, PayloadTypeError
from tests.cases import with_cases

SCALAR = "00000000 0000803f 0100000000000000 0000000000000000 64617461"
ARRAY = "03000000 00000000 0200000000000000 0000000000000000 0000803f 00000040 00004040 64617461"


@with_cases(
    ("header", "expected"),
    [((0, 1.0, 1, 0), SCALAR), ((9, True, 1, 0), SCALAR), (IRHeader(0, [1, 2, 3], 2, 0), ARRAY)],
    ids=["scalar", "flag forced to 0", "array"],
)
def test_known_bytes(header, expected):
    assert pack(header, b"data") == bytes.fromhex(expected)


@given(testing.headers(), st.binary(max_size=40))
@settings(max_examples=3 * settings().max_examples // 2)
def test_unpack_undoes_pack(header, body):
    back, rest = unpack(pack(header, body))
    assert rest == body
    assert back[2:] == header[2:]
    labels = header.label if isinstance(header.label, list) else [header.label]
    if header.label == []:
        assert (back.flag, back.label) == (0, 0.0)
    else:
        assert np.array_equal(np.atleast_1d(back.label), np.array(labels, np.float32))


def test_nested_labels_are_flattened_and_one_label_list_stays_an_array():
    header, _ = unpack(pack((0, np.arange(6).reshape(2, 3), 0, 0), b""))
    assert (header.flag, header.label.tolist()) == (6, [0, 1, 2, 3, 4, 5])
    header, _ = unpack(pack((0, [7], 0, 0), b""))
    assert (header.flag, header.label.shape, header.label.dtype) == (1, (1,), np.float32)


@with_cases("kind", [bytes, bytearray, memoryview])
def test_the_body_is_a_slice_of_the_same_kind(kind):
    _, body = unpack(kind(pack((0, [1, 2], 0, 0), b"body")))
    assert type(body) is kind
    assert bytes(body) == b"body"


def test_labels_and_a_memoryview_body_share_memory_and_labels_are_read_only():
    slab = bytearray(pack((0, [1, 2], 0, 0), b"body"))
    header, body = unpack(memoryview(slab))
    slab[-4:] = b"BODY"
    assert bytes(body) == b"BODY"
    assert not header.label.flags.writeable
    assert np.shares_memory(header.label, np.frombuffer(slab, np.uint8))


@with_cases("ids", [(-1, 0), (2**64, 0), (0, 2**64), (1.5, 0)], ids=repr)
def test_ids_must_fit_64_unsigned_bits(ids):
    with pytest.raises(struct.error):
        pack((0, 0.0, *ids), b"")


def test_errors_keep_the_types_that_callers_expect():
    with pytest.raises(struct.error, match="unpack requires a buffer of 24 bytes"):
        unpack(b"x" * 23)
    with pytest.raises(ValueError, match="buffer is smaller than requested size"):
        unpack(pack((0, [1, 2, 3], 0, 0), b"")[:-1])
    with pytest.raises(PayloadTypeError):
        pack((0, 0, 0, 0), "text")
    with pytest.raises(HeaderError):
        pack((0, 1e39, 0, 0), b"")


@given(st.binary(max_size=60))
@settings(max_examples=3 * settings().max_examples // 2)
def test_unpacking_any_bytes_returns_a_header_or_raises_our_own_error(data):
    try:
        unpack(data)
    except HeaderError:
        pass


HEADER = IRHeader(0, 3.0, 7, 0)
IMAGE = np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)


@with_cases("shape", [(20, 30), (20, 30, 1), (20, 30, 3), (20, 30, 4)], ids=str)
@with_cases("quality", [3, 95])
def test_png_is_lossless_at_any_level(shape, quality):
    image = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    header, back = unpack_img(pack_img(HEADER, image, quality, ".png"))
    assert header == HEADER
    assert back is not None
    assert np.array_equal(back, image.squeeze())


@with_cases("suffix", [".jpg", ".JPEG"])
def test_jpeg_quality_counts_and_colours_keep_their_order(suffix):
    image = np.zeros((32, 32, 3), np.uint8)
    image[..., 0] = 200  # blue
    _, back = unpack_img(pack_img(HEADER, image, 95, suffix), 1)
    assert back is not None
    assert np.abs(back.astype(int) - image).max() <= 3
    assert len(pack_img(HEADER, IMAGE, 10)) < len(pack_img(HEADER, IMAGE, 95))


@with_cases("iscolor", [-1, 0, 1])
@with_cases("body", [b"", b"no image", b"\xff\xd8\xff\xe0"], ids=["empty", "text", "cut"])
def test_an_image_that_cannot_be_decoded_is_none(body, iscolor):
    assert unpack_img(pack(HEADER, body), iscolor) == (HEADER, None)


@with_cases("suffix", [".nothing", "png"])
def test_what_cannot_be_encoded_is_an_assertion_error(suffix):
    with pytest.raises(AssertionError, match="failed to encode image") as caught:
        pack_img(HEADER, IMAGE, img_fmt=suffix)
    assert isinstance(caught.value, ImageEncodeError)


def test_a_missing_opencv_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        pack_img(HEADER, IMAGE)
