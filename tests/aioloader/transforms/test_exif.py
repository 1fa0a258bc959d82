"""Tests of EXIF orientation: the parser never fails, and orienting agrees with a table written by hand."""

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioloader.jpeg.frame import find_orientation, read_orientation
from aioloader.transforms import Scratch
from aioloader.transforms.decode import stored_box, upright
from tests.aioloader.jpeg.samples import with_byte
from tests.aioloader.transforms.orientations import TURNED
from tests.cases import with_cases


def tiff(orientation, order="<", kind=3, count=1, before=1):
    """Return a TIFF structure with `before` other entries before the orientation."""
    entries = b"".join(struct.pack(order + "HHII", 0x0200 + n, 4, 1, 7) for n in range(before))
    value = struct.pack(
        order + {1: "B3x", 3: "HH", 4: "I"}[kind], *([orientation, 0][: 2 if kind == 3 else 1])
    )
    entries += struct.pack(order + "HHI", 0x0112, kind, count) + value
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(order + "IH", 8, before + 1) + entries + b"\0\0\0\0"


@with_cases("order", ["<", ">"], ids=["little", "big"])
@with_cases("kind", [1, 3, 4], ids=["byte", "short", "long"])
@with_cases("orientation", range(1, 9))
def test_orientation_is_found(order, kind, orientation):
    data = b"prefix" + tiff(orientation, order, kind)
    assert read_orientation(data, 6) == orientation
    assert read_orientation(tiff(orientation, order, kind, before=511)) == orientation
    assert read_orientation(b"Exif\0\0" * 8 + data[6:]) == orientation
    assert read_orientation(b"Exif\0\0" * 9 + data[6:]) is None


@with_cases(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(tiff(0), id="zero"),
        pytest.param(tiff(9), id="nine"),
        pytest.param(tiff(6, count=2), id="two-values"),
        pytest.param(b"XX*\0" + tiff(6)[4:], id="no-byte-order"),
        pytest.param(tiff(6)[:20], id="cut-off"),
        pytest.param(tiff(6, before=512), id="behind-the-entries-that-are-read"),
        pytest.param(tiff(6, before=12)[:8] + b"\x0c" + tiff(6, before=12)[9:], id="behind-the-table"),
        pytest.param(b"II*\0\xff\xff\xff\xff" + tiff(6)[8:], id="table-outside"),
        pytest.param(b"II*\0\0\0\0\0" + tiff(6)[8:], id="table-in-the-mark"),
    ],
)
def test_malformed_means_as_stored(data):
    assert (read_orientation(data) or 1) == 1


@pytest.mark.parametrize(
    ("exif", "xmp", "found"),
    [(6, 3, 6), (None, 3, 3), (9, 3, 1), (None, 0, 1), (None, 9, 1), (None, None, None)],
)
def test_an_xmp_packet_counts_where_the_exif_block_has_none(exif, xmp, found):
    block = tiff(7 if exif is None else exif)
    if exif is None:
        block = block.replace(struct.pack("<H", 0x0112), struct.pack("<H", 0x0113))
    for spelling in ('<a tiff:Orientation="{}"/>', "<a tiff:Orientation='{}'/>", "<tiff:Orientation>{}</x>"):
        packet = b"" if xmp is None else spelling.format(xmp).encode()
        data = block + packet
        assert find_orientation(data, (0, len(block)), (len(block), len(data))) == found


damaged = st.builds(
    lambda place, value: with_byte(tiff(6), place, value), st.integers(0, 37), st.integers(0, 255)
)


@given(
    st.binary(max_size=200) | st.binary(max_size=120).map(lambda tail: b"II*\0\x08\0\0\0" + tail) | damaged
)
@example(tiff(6, ">"))
def test_any_bytes_give_an_orientation(data):
    assert read_orientation(data) in (None, *range(1, 9))


@with_cases("channels", [1, 3])
@with_cases("pooled", [False, True], ids=["new", "pool"])
@with_cases("orientation", range(1, 9))
def test_upright_agrees_with_numpy(orientation, pooled, channels):
    stored = np.arange(5 * 7 * channels, dtype=np.uint8).reshape(5, 7, channels)
    expected = TURNED[orientation](stored).copy()
    scratch = Scratch() if pooled else None
    result = upright(stored.copy(), orientation, scratch)
    assert np.array_equal(result, expected)
    assert result.flags.c_contiguous
    if scratch is not None and orientation >= 5:
        assert np.shares_memory(result, scratch._buffers[0])


@given(st.data(), st.integers(1, 8), st.integers(1, 12), st.integers(1, 12))
def test_a_box_of_the_upright_image_is_found_in_the_stored_one(data, orientation, height, width):
    stored = np.arange(height * width).reshape(height, width)
    turned = TURNED[orientation](stored)
    x = data.draw(st.integers(0, turned.shape[1] - 1))
    y = data.draw(st.integers(0, turned.shape[0] - 1))
    w = data.draw(st.integers(1, turned.shape[1] - x))
    h = data.draw(st.integers(1, turned.shape[0] - y))
    sx, sy, sw, sh = stored_box((x, y, w, h), orientation, height, width)
    cut = stored[sy : sy + sh, sx : sx + sw]
    assert np.array_equal(TURNED[orientation](cut), turned[y : y + h, x : x + w])
