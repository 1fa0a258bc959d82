"""Tests of the tile table: written, read, and always verified."""

from __future__ import annotations

import io
import pickle
import struct

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import jpeg
from aioloader.errors import LoaderError
from tests.aioloader.jpeg.samples import (
    Case,
    assert_cut_is_crop,
    before_frame,
    boxes,
    cases,
    encode,
    frame_of,
    full,
    segment,
    with_table_of,
)

BOX = (170, 100, 50, 60)
PLAIN = encode(400, 300, "420", 5)
TILED = encode(400, 300, "420", 5, table=True)


def test_the_table_is_laid_out_as_documented():
    start, stop = frame_of(TILED).tables[0]
    body = TILED[start:stop]
    assert TILED[start - 4 : start - 2] == b"\xff\xfe"
    head = struct.unpack_from("<8sBBHHHHHII", body)
    scan = frame_of(TILED).scan_start
    assert head == (b"ALtiles\0", 1, 0, 0, 1, 400, 300, 5, len(TILED) - scan, 5 * 19)
    offsets = struct.unpack(f"<{5 * 19 + 1}I", body[28:])
    assert offsets[0] == 0
    assert offsets[-1] == len(TILED) - scan
    for number, offset in enumerate(offsets[1:]):
        assert TILED[scan + offset - 2] == 0xFF
        assert TILED[scan + offset - 1] == (0xD9 if number == 5 * 19 - 1 else 0xD0 + number % 8)


def test_the_image_and_the_rest_of_the_file_stay_as_they_were():
    start, stop = frame_of(TILED).tables[0]
    assert TILED[: start - 4] + TILED[stop:] == PLAIN
    assert np.array_equal(full(TILED), full(PLAIN))


def test_a_fresh_table_replaces_all_others():
    again = jpeg.with_tile_table(TILED)
    assert again == TILED
    other = encode(400, 300, "420", 5, 50, table=True)
    start, stop = frame_of(other).tables[0]
    stale = other[start - 4 : stop]
    # One between the tables of the scan, one before the frame header.
    here = frame_of(PLAIN).scan_start - 14
    assert PLAIN[here : here + 2] == b"\xff\xda"
    twice = before_frame(PLAIN[:here] + stale + PLAIN[here:], stale)
    assert len(frame_of(twice).tables) == 2
    assert jpeg.with_tile_table(twice) == TILED


def test_a_table_too_long_for_a_segment_takes_several():
    # 256 x 125 intervals.
    image = np.zeros((1000, 2048), np.uint8)
    image[::7, ::5] = 200
    options = [cv2.IMWRITE_JPEG_QUALITY, 30, cv2.IMWRITE_JPEG_RST_INTERVAL, 1]
    data = jpeg.with_tile_table(cv2.imencode(".jpg", image, options)[1].tobytes())
    frame = frame_of(data)
    assert len(frame.tables) == 2
    assert jpeg.is_tiled(data)
    image = full(data)
    for box in ((0, 0, 9, 9), (1000, 500, 30, 20), (2030, 982, 18, 18)):
        found = jpeg.cut(data, frame, box)
        assert found is not None
        assert not found.stops_early
        x, y, width, height = box
        there = full(bytes(found.data))[y - found.top :, x - found.left :]
        assert np.array_equal(there[:height, :width], image[y : y + height, x : x + width])
    # Without its second half, or with the halves exchanged, it is not a table.
    (a, b), (c, d) = frame.tables
    first, second = data[a - 4 : b], data[c - 4 : d]
    rest = data[: a - 4] + data[d:]
    assert before_frame(rest, first + second) == data
    for tables in (first, second, second + first, first + first, first + second + second):
        odd = before_frame(rest, tables)
        assert not jpeg.is_tiled(odd)
        assert _same_bounds(odd, data)
        assert assert_cut_is_crop(odd, (1000, 500, 30, 20)) is not None


def _same_bounds(data: bytes, other: bytes) -> bool:
    found, expected = jpeg.tile_table(data, frame_of(data)), jpeg.tile_table(other, frame_of(other))
    assert found is not None
    assert expected is not None
    shift = frame_of(data).scan_start - frame_of(other).scan_start
    return found == [bound + shift for bound in expected]


@given(cases(tables=False))
@settings(max_examples=100)
def test_a_table_says_what_a_search_finds(case: Case):
    if not frame_of(case.data).restart_interval:
        assert jpeg.tile_table(case.data, frame_of(case.data)) is None
        return
    tabled = jpeg.with_tile_table(case.data)
    assert _same_bounds(tabled, case.data)
    assert_cut_is_crop(tabled, case.box)


STALE = {
    "of another image of this size": encode(400, 300, "420", 5, 80, blocks=False, table=True),
    "of the same image in another quality": encode(400, 300, "420", 5, 89, table=True),
    "of another interval": encode(400, 300, "420", 25, table=True),
    "of another size": encode(384, 304, "420", 5, table=True),
}


@pytest.mark.parametrize("other", STALE.values(), ids=STALE)
def test_a_stale_table_is_not_used(other):
    data = with_table_of(PLAIN, other)
    assert not jpeg.is_tiled(data)
    assert _same_bounds(data, PLAIN)
    found = assert_cut_is_crop(data, BOX)
    assert found is not None
    # The kept headers have no tables; so this is the same cut as with the right table.
    assert found == jpeg.cut(TILED, frame_of(TILED), BOX)


@pytest.mark.parametrize("other", STALE.values(), ids=STALE)
def test_a_table_says_nothing_about_an_image_without_restart_markers(other):
    data = with_table_of(encode(400, 300, "420"), other)
    assert jpeg.tile_table(data, frame_of(data)) is None
    found = assert_cut_is_crop(data, BOX)
    assert found is not None
    assert found.stops_early


@pytest.mark.parametrize("number", [0, 1, 2, 37, 38, 39, 93, 94, 95])
@pytest.mark.parametrize("change", [-300, -1, 1, 300, 1 << 31])
def test_a_single_wrong_offset_is_not_used(number, change):
    start, _ = frame_of(TILED).tables[0]
    odd = bytearray(TILED)
    place = start + 28 + 4 * number
    (offset,) = struct.unpack_from("<I", odd, place)
    struct.pack_into("<I", odd, place, (offset + change) % (1 << 32))
    data = bytes(odd)
    assert not jpeg.is_tiled(data)
    assert _same_bounds(data, TILED)
    # For any set of touched tiles.
    for box in (BOX, (0, 0, 200, 150), (0, 0, 400, 200), (240, 160, 160, 140)):
        assert assert_cut_is_crop(data, box) is not None


@given(
    place=st.integers(0, 28 + 4 * (5 * 19 + 1) - 1),
    value=st.integers(0, 255),
    box=boxes(400, 300),
    short=st.booleans(),
)
@settings(max_examples=200)
def test_damage_in_a_table_changes_no_pixel(place, value, box, short):
    start, stop = frame_of(TILED).tables[0]
    body = bytearray(TILED[start:stop])
    body[place] = value
    odd = before_frame(PLAIN, segment(0xFE, bytes(body[:place] if short else body)))
    assert_cut_is_crop(odd, box)
    assert _same_bounds(odd, TILED)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(encode(100, 80), "no restart markers", id="no restart markers"),
        pytest.param(b"not an image", "not a baseline JPEG", id="no JPEG"),
        pytest.param(
            cv2.imencode(".jpg", np.zeros((40, 40, 3), np.uint8), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[
                1
            ].tobytes(),
            "not a baseline JPEG",
            id="progressive",
        ),
        pytest.param(PLAIN[:-2], "restart markers", id="no EOI"),
        pytest.param(PLAIN.replace(b"\xff\xd3", b"\xff\xd4", 1), "restart markers", id="markers out of turn"),
    ],
)
def test_what_can_have_no_table_is_refused_by_name(data, reason):
    with pytest.raises(jpeg.NotTileableError, match=reason) as caught:
        jpeg.with_tile_table(data)
    error = caught.value
    assert isinstance(error, ValueError)
    assert isinstance(error, LoaderError)
    assert reason in error.reason
    assert pickle.loads(pickle.dumps(error)).reason == error.reason
    assert not jpeg.is_tiled(data)


def test_other_programs_read_a_tiled_image():
    expected = cv2.imdecode(np.frombuffer(PLAIN, np.uint8), cv2.IMREAD_COLOR)
    assert np.array_equal(cv2.imdecode(np.frombuffer(TILED, np.uint8), cv2.IMREAD_COLOR), expected)
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    with image.open(io.BytesIO(TILED)) as there:
        assert np.array_equal(np.asarray(there), expected[:, :, ::-1])


@pytest.mark.parametrize("restart", [1, 5, 25])
def test_tiled_means_tiles_or_rows_and_a_table_that_holds(restart):
    assert jpeg.is_tiled(encode(400, 300, "420", restart, table=True))
    assert not jpeg.is_tiled(encode(400, 300, "420", restart))


@pytest.mark.parametrize("restart", [2, 7, 50])
def test_intervals_that_divide_no_row_are_no_tiles(restart):
    data = encode(400, 300, "420", restart, table=True)
    assert not jpeg.is_tiled(data)
    assert jpeg.tile_table(data, frame_of(data)) is not None


@pytest.mark.parametrize(
    ("width", "kind", "interval"),
    [
        (500, "420", 2),  # 32 units of 16 pixels
        (500, "444", 3),  # 63 units of 8 pixels
        (400, "420", 1),  # 25
        (112, "420", 1),  # 7
        (376, "444", 1),  # 47, a prime
        (688, "444", 2),  # 86 = 2 * 43
        (320, "444", 4),  # 40
        (280, "444", 5),  # 35
        (16, "420", 1),
        (1, "grey", 1),
        (256, "411", 1),  # 8 units of 32 pixels
    ],
)
def test_tiles_are_about_32_pixels_wide(width, kind, interval):
    frame = frame_of(encode(width, 50, kind))
    assert frame.mcus_per_row % interval == 0
    assert jpeg.restart_interval(frame) == interval
