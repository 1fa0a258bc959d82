"""Tests of the encodings of MDS columns, valid and damaged."""

from __future__ import annotations

import pickle
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aioloader.formats.mds.encodings import EncodingKind, parse_encoding
from tests.cases import with_cases

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
CODES = {"uint8": 8, "int8": 9, "uint16": 16, "int16": 17, "float16": 18, "uint32": 32, "int32": 33} | {
    "float32": 34,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
}


def decode(encoding: str, data: bytes) -> Any:
    """Return the value of encoded bytes."""
    return parse_encoding(encoding).decode(memoryview(data))


@with_cases("name", [*NUMBERS, *FLOATS])
def test_numbers_are_numpy_scalars(name: str) -> None:
    value = np.dtype(name).type(101)
    found = decode(name, value.tobytes())
    assert (found, found.dtype) == (101, np.dtype(name))
    assert parse_encoding(name).nbytes == value.nbytes
    with pytest.raises(ValueError, match="bytes is not"):
        decode(name, value.tobytes() + b"\0")


def test_values_in_text() -> None:
    assert decode("int", struct.pack("<q", -5)) == -5
    assert decode("str_int", str(10**40).encode()) == 10**40
    assert decode("str_float", b"1e-3") == np.float64(0.001)
    assert decode("str_decimal", b"0.10") == Decimal("0.10")
    for name in ("str_int", "str_float", "str_decimal"):
        for wrong in (b"", b"x", b"\xff", b"9" * 10_000 + b"x"):
            with pytest.raises(ValueError):  # noqa: PT011 (of several parsers)
                decode(name, wrong)


@pytest.mark.parametrize("name", ["bytes", "str", "json", "jpeg", "png"])
def test_bytes_are_not_copied(name: str) -> None:
    data = memoryview(b"anything")
    assert parse_encoding(name).decode(data) is data
    assert parse_encoding(name).nbytes is None


arrays = hnp.arrays(
    st.sampled_from([*NUMBERS, *FLOATS]),
    hnp.array_shapes(max_dims=4, max_side=5),
    elements={"allow_nan": False},
)


def encode_array(array: Any, dtype: bool, shape: bool, width: int = 0) -> bytes:
    """Return an array with its dtype and its shape where they are asked for."""
    parts = [bytes([CODES[array.dtype.name]])] if dtype else []
    if shape:
        parts += [bytes([array.ndim << 2 | width]), np.array(array.shape, f"<u{1 << width}").tobytes()]
    return b"".join([*parts, array.tobytes()])


@given(arrays, st.integers(0, 3))
def test_arrays(array: Any, width: int) -> None:
    shape = ",".join(map(str, array.shape))
    for encoding, data in (
        ("ndarray", encode_array(array, True, True, width)),
        (f"ndarray:{array.dtype.name}", encode_array(array, False, True, width)),
        (f"ndarray:{array.dtype.name}:{shape}", array.tobytes()),
    ):
        found = decode(encoding, data)
        assert found.dtype == array.dtype
        assert found.flags.writeable
        np.testing.assert_array_equal(found, array)
        for wrong in (data[:-1], data + b"\0", b""):
            with pytest.raises(ValueError):  # noqa: PT011
                decode(encoding, wrong)
    assert parse_encoding(f"ndarray:{array.dtype.name}:{shape}").nbytes == array.nbytes


def test_extents_of_an_array_without_elements_take_no_memory() -> None:
    for extents in ((0, 1 << 62), (0, (1 << 64) - 1), (1 << 62, 1 << 62, 0)):
        data = bytes([8, len(extents) << 2 | 3]) + np.array(extents, "<u8").tobytes()
        try:
            assert decode("ndarray", data).nbytes == 0
        except ValueError:
            pass
    with pytest.raises(ValueError, match="has 4611686018427387904 bytes"):
        decode("ndarray", bytes([8, 1 << 2 | 3]) + np.array([1 << 62], "<u8").tobytes())
    with pytest.raises(ValueError):  # noqa: PT011 (too many dimensions for numpy, or extents of 1)
        decode("ndarray", bytes([8, 63 << 2]) + bytes(63) + b"\0")


def pil(mode: str, width: int, height: int, raw: bytes) -> bytes:
    """Return pixels as Pillow's modes store them."""
    return struct.pack("<3I", width, height, len(mode)) + mode.encode() + raw


def test_pixels() -> None:
    image = np.arange(4 * 5 * 4, dtype=np.uint8).reshape(4, 5, 4)
    rgb = np.ascontiguousarray(image[..., :3])
    np.testing.assert_array_equal(decode("pil", pil("RGB", 5, 4, rgb.tobytes())), rgb)
    for mode in ("RGBA", "RGBa", "RGBX"):
        np.testing.assert_array_equal(decode("pil", pil(mode, 5, 4, image.tobytes())), rgb)
    grey = np.ascontiguousarray(image[..., :1])
    np.testing.assert_array_equal(decode("pil", pil("L", 5, 4, grey.tobytes())), grey)
    two = np.ascontiguousarray(image[..., :2])
    np.testing.assert_array_equal(decode("pil", pil("LA", 5, 4, two.tobytes())), grey)
    # Rows of single bits end with whole bytes.
    found = decode("pil", pil("1", 10, 2, b"\xff\xc0\x80\x40"))
    assert found.shape == (2, 10, 1)
    assert found[..., 0].tolist() == [[255] * 10, [255, *[0] * 8, 255]]


def test_pixels_are_those_of_pillow() -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    pixels = np.random.default_rng(0).integers(0, 256, (7, 13, 3), np.uint8)
    for mode in ("RGB", "L", "RGBA", "LA", "1", "RGBX"):
        stored = (
            image.fromarray(pixels).convert("RGB").convert("L" if mode in ("LA", "1") else mode).convert(mode)
        )
        found = decode("pil", pil(mode, *stored.size, stored.tobytes()))
        wanted = np.asarray(stored.convert("L" if mode in ("L", "LA", "1") else "RGB"))
        np.testing.assert_array_equal(found.squeeze(), wanted, err_msg=mode)


@with_cases(
    ("data", "text"),
    [
        (b"", "inside the extents"),
        (pil("RGB", 2, 2, bytes(11)), "have 12 bytes, and the data 11"),
        (pil("RGB", 2, 2, bytes(13)), "have 12 bytes, and the data 13"),
        (pil("RGB", 0, 2, b""), "0 x 2"),
        (pil("RGB", (1 << 32) - 1, (1 << 32) - 1, b""), "and the data 0"),
        (pil("P", 2, 2, bytes(4)), "the mode 'P'"),
        (pil("F", 1, 1, bytes(4)), "the mode 'F'"),
        (struct.pack("<3I", 1, 1, 1 << 31) + b"RGB", "the mode of the image has"),
    ],
)
def test_other_pixels_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        decode("pil", data)


def test_lists() -> None:
    body = struct.pack("<3I", 2, 3, 4) + b"onefour"
    for name in ("jpegarray", "jpeg_array"):
        assert list(map(bytes, decode(name, body))) == [b"one", b"four"]
    for name in ("list[jpeg]", "list[png]"):
        assert list(map(bytes, decode(name, bytes(4) + body))) == [b"one", b"four"]
        assert decode(name, bytes(8)) == []
    pixels = pil("L", 1, 1, b"\7")
    (found,) = decode("list[pil]", bytes(4) + struct.pack("<2I", 1, len(pixels)) + pixels)
    assert found.tolist() == [[[7]]]
    for wrong in (b"", bytes(7), bytes(4) + body[:-1], bytes(4) + body + b"\0", bytes(4) + b"\xff" * 8):
        with pytest.raises(ValueError):  # noqa: PT011
            decode("list[jpeg]", wrong)


def test_pickled_values_are_refused() -> None:
    with pytest.raises(ValueError, match="unpickling runs code"):
        parse_encoding("pkl")


@with_cases(
    "name",
    [
        *(
            "",
            "jpg",
            "str:utf-8",
            "ndarray:complex64",
            "ndarray:int8:",
            "ndarray:int8:0",
            "ndarray:int8:-1,3",
        ),
        *("ndarray:int8:3,", "ndarray:int8:1.5", "ndarray:int8:3:4", "ndarray:int8:" + "9" * 10),
        "ndarray:int8:" + ",".join("1" * 64),
    ],
)
def test_unknown_encodings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"not known|malformed|too large"):
        parse_encoding(name)


names = st.sampled_from(
    [
        *(*NUMBERS, *FLOATS, "int", "str_int", "str_float", "str_decimal", "pil", "list[pil]", "list[jpeg]"),
        *("jpegarray", "ndarray", "ndarray:float32", "ndarray:uint8:2,2"),
    ]
)


@given(names, st.binary(max_size=64))
def test_any_bytes_are_a_value_or_refused(name: str, data: bytes) -> None:
    encoding = pickle.loads(pickle.dumps(parse_encoding(name)))
    try:
        value = encoding.decode(memoryview(data))
    except ValueError:
        return
    if encoding.kind in (EncodingKind.ARRAY, EncodingKind.PIXELS):
        assert value.nbytes <= 8 * len(data)
