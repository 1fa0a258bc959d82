"""Tests of cuts: the pixels equal those of a full decode for every size, kind, crop and set of restart markers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import jpeg
from aioloader.jpeg.cut import interval_ends
from tests.aioloader.jpeg.samples import (
    KINDS,
    Case,
    assert_cut_is_crop,
    cases,
    crop,
    encode,
    frame_of,
    full,
    pixels,
)
from tests.cases import with_cases


@given(cases())
@settings(max_examples=3 * settings().max_examples // 2)
def test_a_crop_has_the_pixels_of_a_full_decode_and_every_interval_ends_with_its_marker(case: Case):
    found, frame = assert_cut_is_crop(case.data, case.box), frame_of(case.data)
    assert jpeg.markers_are_whole(case.data)
    if frame.restart_interval:
        ends = interval_ends(case.data, frame)
        assert ends is not None
        assert len(ends) == frame.intervals
        kinds = [case.data[end - 2 : end] for end in ends]
        assert kinds == [bytes((0xFF, 0xD0 + number % 8)) for number in range(len(ends) - 1)] + [b"\xff\xd9"]
        assert case.data.count(b"\xff\xd0", frame.scan_start) == (len(ends) - 1 + 7) // 8
    if found is not None:
        assert (found.left, found.top, found.width) == (0, 0, frame.width)
        assert found.height < frame.height


@with_cases(("kind", "restart"), [*zip(KINDS, (0, 1, 2, 3, 6, 12), strict=True), ("420", 0), ("420", 3)])
def test_every_small_crop_of_a_small_image(kind, restart):
    data = encode(48, 40, kind, restart)
    image = full(data)
    frame = frame_of(data)
    cut = 0
    for x in range(0, 48, 7):
        for y in range(0, 40, 3):
            for width, height in ((1, 1), (4, 3)):
                box = (x, y, min(width, 48 - x), min(height, 40 - y))
                found = jpeg.cut(data, frame, box)
                if found is not None:
                    cut += 1
                    assert np.array_equal(pixels(data, box, found), crop(image, box))
    assert cut > 0


def test_an_image_without_restart_markers_is_cut_below_the_crop_only():
    found = assert_cut_is_crop(encode(200, 300, "420"), (60, 100, 50, 60))
    assert found is not None
    assert (found.left, found.top, found.width) == (0, 0, 200)
    assert 160 <= found.height <= 176
    assert found.stops_early


# 25 MCUs of 16 x 16 pixels in a row; the crop and its margin need 11 rows of them, 275 MCUs.
@with_cases(
    ("restart", "intervals"),
    [(1, 275), (5, 55), (25, 11), (275, 1), (7, 40), (10, 28), (50, 6), (300, 1), (9999, 1)],
)
def test_an_image_with_restart_markers_is_cut_behind_the_interval_that_ends_the_crop(restart, intervals):
    data = encode(400, 300, "420", restart)
    found = assert_cut_is_crop(data, (170, 100, 50, 60))
    assert found is not None
    assert (found.left, found.top, found.width, found.height) == (0, 0, 400, 162)
    assert bytes(found.data[-2:]) == b"\xff\xd9"
    assert found.stops_early == (intervals * restart > 275)
    scan = frame_of(data).scan_start
    marker = bytes((0xFF, 0xD0 + (intervals - 1) % 8 if intervals * restart < 25 * 19 else 0xD9))
    kept = found.data[scan:-2] + marker
    assert data[scan:].startswith(kept)
    assert kept.count(marker) == (intervals + 7) // 8
    if not found.stops_early:
        full(bytes(found.data), strict=True)  # without any warning


@with_cases("restart", [0, 5, 7, 25, 50])
def test_a_crop_that_needs_nearly_everything_is_left_to_a_full_decode(restart):
    data = encode(400, 300, "420", restart)
    frame = frame_of(data)
    for box in ((0, 0, 400, 300), (0, 0, 400, 290), (10, 10, 385, 285)):
        assert jpeg.cut(data, frame, box) is None


@with_cases("box", [(-1, 0, 5, 5), (0, -1, 5, 5), (0, 0, 0, 5), (0, 0, 5, 0), (96, 0, 5, 5), (0, 46, 5, 5)])
def test_a_box_outside_of_the_image_is_refused(box):
    data = encode(100, 50)
    with pytest.raises(ValueError, match="100 x 50"):
        jpeg.cut(data, frame_of(data), box)


@with_cases("restart", [0, 5])
def test_any_bytes_will_do(restart):
    data = encode(400, 300, "420", restart)
    box = (170, 100, 50, 60)
    expected = jpeg.cut(data, frame_of(data), box)
    assert expected is not None
    middle_of_a_slab = memoryview(bytearray(b"\xff" * 9 + data + b"\xff\xd9" * 9))[9:-18]
    for other in (memoryview(data), middle_of_a_slab):
        assert jpeg.cut(other, frame_of(other), box) == expected
        assert bytes(other) == data


@given(cases(), st.sampled_from([2, 4, 8]))
@settings(max_examples=4 * settings().max_examples // 5)
def test_a_crop_that_is_shrunk_in_the_decoder_has_the_pixels_of_a_whole_that_is(case: Case, scale: int):
    frame = frame_of(case.data)
    found = jpeg.cut(case.data, frame, case.box, scale=scale)
    if found is None:
        return
    shape = jpeg.scaled_size(frame.height, scale), jpeg.scaled_size(frame.width, scale), 3
    whole = full(case.data, min_height=shape[0], min_width=shape[1], min_factor=scale)
    assert whole.shape == shape
    assert np.array_equal(pixels(case.data, case.box, found, scale), crop(whole, case.box, scale))


@with_cases(
    ("box", "target", "scale"),
    [
        ((224, 224), (224, 224), 1),
        ((100, 100), (224, 224), 1),
        ((447, 900), (224, 224), 1),
        ((448, 448), (224, 224), 2),
        ((1000, 448), (224, 224), 2),
        ((895, 1000), (224, 224), 2),
        ((896, 896), (224, 224), 4),
        ((1792, 1792), (224, 224), 8),
        ((9999, 9999), (1, 1), 8),
    ],
)
def test_a_decoder_may_shrink_as_far_as_the_target_allows(box, target, scale):
    assert jpeg.scale_for(box, target) == scale
