"""Tests of damaged or truncated files: an error or a full decode, never silently wrong pixels."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings

from aioloader import jpeg
from aioloader.errors import DecodeError
from aioloader.jpeg.cut import interval_ends
from aioloader.transforms import decode_image
from tests.aioloader.jpeg.samples import (
    Damaged,
    crop,
    encode,
    frame_of,
    full,
    pixels,
    segment,
    wrong_bytes,
)
from tests.cases import with_cases

WIDTH, HEIGHT = 200, 150
FILES = {
    "plain": encode(WIDTH, HEIGHT, "420"),
    "plain grey": encode(WIDTH, HEIGHT, "grey"),
    "short intervals": encode(WIDTH, HEIGHT, "420", 4),
    "short intervals 444": encode(WIDTH, HEIGHT, "444", 5),
    "an interval for each row": encode(WIDTH, HEIGHT, "422", 13),
    "odd intervals": encode(WIDTH, HEIGHT, "420", 7),
}
WITH_MARKERS = [name for name, data in FILES.items() if frame_of(data).restart_interval]
IMAGES = {name: full(data) for name, data in FILES.items()}
# One has a thumbnail, whose end is not that of the image.
FILES["with a thumbnail"] = (
    FILES["plain"][:2] + segment(0xE1, b"Exif\0\0" + FILES["plain"]) + FILES["plain"][2:]
)
IMAGES["with a thumbnail"] = IMAGES["plain"]
BOXES = [(0, 0, 20, 20), (60, 40, 40, 30), (150, 90, 30, 30)]


def attempt(data, box):
    """Return the pixels of a crop, or None if the file needs a full decode."""
    frame = jpeg.read_frame(data)
    if frame is None:
        return None
    x, y, width, height = box
    if x + width > frame.width or y + height > frame.height:
        return None
    found = jpeg.cut(data, frame, box)
    if found is None:
        return None
    try:
        return pixels(data, box, found)
    except (Damaged, RuntimeError):
        return None


@with_cases("data", FILES.values(), ids=FILES)
@with_cases(
    "rest", [b"", b"\0" * 5000, b"\xff" * 5000, b"\0", b"\xff"], ids=["", "zeros", "ones", "zero", "one"]
)
def test_a_file_cut_off_and_filled_up_is_left_to_a_full_decode(data, rest):
    for stop in {*range(frame_of(data).scan_start, len(data) - 1, 97), *range(len(data) - 12, len(data) - 1)}:
        for box in BOXES:
            assert attempt(data[:stop] + rest, box) is None


@with_cases("name", FILES)
def test_a_file_cut_off_and_closed_gives_right_pixels_or_none(name):
    data = FILES[name]
    frame = frame_of(data)
    ends = interval_ends(data, frame) if frame.restart_interval else None
    right = left_out = 0
    for stop in range(frame.scan_start, len(data) - 2, 41):
        for box in BOXES:
            found = attempt(data[:stop] + b"\xff\xd9", box)
            if found is None:
                left_out += 1
                continue
            right += 1
            assert np.array_equal(found, crop(IMAGES[name], box))
            # Without restart markers only the rows above the crop's end are decoded; with them, all are counted.
            assert ends is None or stop >= ends[-2]
    assert left_out > 0
    assert right > 0 or ends is not None


@with_cases("name", FILES)
def test_a_scan_that_stops_short_within_the_crop_is_an_error(name):
    # The file has only the upper part of the crop, which is rows 60 to 119 of 150.
    data = FILES[name]
    scan = frame_of(data).scan_start
    for share in (0.5, 0.6, 0.7):
        stop = scan + int((len(data) - scan) * share)
        assert attempt(data[:stop] + b"\xff\xd9", (0, 60, WIDTH, 60)) is None


@given(wrong_bytes(FILES))
@settings(max_examples=2 * settings().max_examples)
def test_one_wrong_byte_is_no_other_image_than_a_full_decode_shows(damage):
    check_damage(*damage)


@pytest.mark.slow
@given(wrong_bytes(FILES))
@settings(max_examples=2_000)
def test_many_wrong_bytes_one_at_a_time(damage):
    check_damage(*damage)


def check_damage(name: str, damaged: bytes, box: tuple[int, int, int, int]) -> None:
    found = attempt(damaged, box)
    if found is None or np.array_equal(found, crop(IMAGES[name], box)):
        return
    # A damaged file that decodes without a warning has the same pixels in a decode of the whole file.
    whole = simplejpeg.decode_jpeg(damaged, strict=False)
    assert np.array_equal(found, crop(whole, box))


@with_cases("name", WITH_MARKERS)
def test_damage_in_an_interval_below_the_crop_does_no_harm(name):
    data = FILES[name]
    ends = interval_ends(data, frame_of(data))
    assert ends is not None
    odd = bytearray(data)
    odd[ends[-2] : ends[-2] + 8] = b"\xff\0" * 4  # a Huffman table has no code of all ones
    with pytest.raises(ValueError, match="Corrupt"):
        simplejpeg.decode_jpeg(odd, strict=True)
    box = (0, 0, 20, 20)
    assert np.array_equal(attempt(bytes(odd), box), crop(IMAGES[name], box))
    assert attempt(bytes(odd), (180, 130, 20, 20)) is None


@with_cases("name", WITH_MARKERS)
@with_cases("number", [0, 2])
def test_extra_bytes_before_a_restart_marker_are_left_to_a_full_decode(name, number):
    data = FILES[name]
    ends = interval_ends(data, frame_of(data))
    assert ends is not None
    odd = data[: ends[number] - 2] + bytes(50) + data[ends[number] - 2 :]
    assert attempt(odd, (0, 0, WIDTH, 80)) is None
    with pytest.raises(DecodeError, match="extraneous"):
        decode_image(odd)


def test_only_the_one_warning_is_harmless():
    data = FILES["plain"]
    found = jpeg.cut(data, frame_of(data), (0, 0, 20, 20))
    assert found is not None
    with pytest.raises(ValueError, match="extraneous") as caught:
        simplejpeg.decode_jpeg(found.data, strict=True)
    assert jpeg.harmless(str(caught.value))
    assert jpeg.EARLY_STOP_WARNING.fullmatch(str(caught.value))
    for message in (
        "Corrupt JPEG data: 12 extraneous bytes before marker 0xd0",
        "Corrupt JPEG data: premature end of data segment",
        "Corrupt JPEG data: bad Huffman code",
        "Premature end of JPEG file",
        "found marker 0xd9 instead of RST3",
        "",
    ):
        assert not jpeg.harmless(message)


def test_headers_that_announce_a_huge_image_cost_nothing():
    for name in (*WITH_MARKERS, "plain"):
        data = bytearray(FILES[name])
        frame = frame_of(data)
        data[frame.size_at : frame.size_at + 4] = b"\xff" * 4
        if frame.restart_interval:
            place = data.index(b"\xff\xdd\0\4") + 4
            data[place : place + 2] = b"\0\1"
        # It announces 67 million restart intervals: they are counted before memory is allocated for them.
        assert attempt(bytes(data), (0, 0, 65535, 20)) is None


MARKED = encode(400, 300, "420", 5)
SCAN = frame_of(MARKED).scan_start
OPTIONS = [cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 2]
PROGRESSIVE = cv2.imencode(".jpg", np.zeros((64, 80, 3), np.uint8), OPTIONS)[1].tobytes()


@with_cases(
    "data",
    [
        pytest.param(MARKED[:-2], id="no EOI"),
        pytest.param(MARKED[:SCAN], id="no scan"),
        pytest.param(MARKED[:SCAN] + b"\xff\xd9", id="an empty scan"),
        pytest.param(MARKED.replace(b"\xff\xd3", b"\xff\xd4", 1), id="wrong number"),
        pytest.param(MARKED.replace(b"\xff\xd3", b"", 1), id="missing"),
        pytest.param(MARKED.replace(b"\xff\xd3", b"\xff\xd3\xff\xd3", 1), id="twice"),
        pytest.param(MARKED[:-2] + b"\xff\xd6\xff\xd9", id="one too many"),
        pytest.param(
            MARKED[: len(MARKED) // 2] + b"\xff\xd9" + MARKED[len(MARKED) // 2 :], id="EOI in the middle"
        ),
        pytest.param(PROGRESSIVE, id="several scans"),
    ],
)
def test_markers_that_are_not_those_announced_are_noticed(data):
    assert not jpeg.markers_are_whole(data)
    frame = jpeg.read_frame(data)
    if frame is not None:
        assert interval_ends(data, frame) is None
        assert jpeg.cut(data, frame, (170, 100, 50, 60)) is None
