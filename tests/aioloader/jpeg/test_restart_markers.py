"""Tests of the search for restart markers."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings

from aioloader import jpeg
from aioloader.jpeg.cut import interval_ends
from tests.aioloader.jpeg.samples import Case, cases, encode, frame_of
from tests.cases import with_cases

DATA = encode(400, 300, "420", 5)
SCAN = frame_of(DATA).scan_start
PROGRESSIVE = cv2.imencode(
    ".jpg",
    np.zeros((64, 80, 3), np.uint8),
    [cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 2],
)[1].tobytes()


@given(cases())
@settings(max_examples=100)
def test_every_interval_ends_with_its_marker(case: Case):
    frame = frame_of(case.data)
    assert jpeg.markers_are_whole(case.data)
    if not frame.restart_interval:
        return
    ends = interval_ends(case.data, frame)
    assert ends is not None
    assert len(ends) == frame.intervals
    kinds = [case.data[end - 2 : end] for end in ends]
    assert kinds == [bytes((0xFF, 0xD0 + number % 8)) for number in range(len(ends) - 1)] + [b"\xff\xd9"]
    assert case.data.count(b"\xff\xd0", frame.scan_start) == (len(ends) - 1 + 7) // 8


@with_cases(
    "data",
    [
        pytest.param(DATA[:-2], id="no EOI"),
        pytest.param(DATA[:SCAN], id="no scan"),
        pytest.param(DATA[:SCAN] + b"\xff\xd9", id="an empty scan"),
        pytest.param(DATA.replace(b"\xff\xd3", b"\xff\xd4", 1), id="wrong number"),
        pytest.param(DATA.replace(b"\xff\xd3", b"", 1), id="missing"),
        pytest.param(DATA.replace(b"\xff\xd3", b"\xff\xd3\xff\xd3", 1), id="twice"),
        pytest.param(DATA[:-2] + b"\xff\xd6\xff\xd9", id="one too many"),
        pytest.param(DATA[: len(DATA) // 2] + b"\xff\xd9" + DATA[len(DATA) // 2 :], id="EOI in the middle"),
        pytest.param(PROGRESSIVE, id="several scans"),
    ],
)
def test_markers_that_are_not_those_announced_are_noticed(data):
    assert not jpeg.markers_are_whole(data)
    frame = jpeg.read_frame(data)
    if frame is not None:
        assert interval_ends(data, frame) is None
        assert jpeg.cut(data, frame, (170, 100, 50, 60)) is None
