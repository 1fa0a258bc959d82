"""Tests of recognising the content of a record from its bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import recordio
from aioloader.formats.collection import Record
from aioloader.formats.recordio.view import detection_boxes, record_of
from aioloader.transforms import encode_raw
from aioloader.viewer.records import box_table, label_text, parse_label
from tests.aioloader.viewer.sets import detection_label, jpeg
from tests.cases import with_cases

BARE = Record(4, 17, "a.rec", 0)


def framed(label: object, body: bytes) -> memoryview:
    return memoryview(recordio.serialize(recordio.pack(recordio.IRHeader(0, label, 5, 6), body)))


def test_an_image_record_shows_everything() -> None:
    body = jpeg(1)
    record, found = record_of(BARE, framed(3.0, body))
    assert bytes(found) == body
    wanted = replace(
        BARE, nbytes=len(body), flag=0, id=5, id2=6, labels=(3.0,), format="jpeg", width=80, height=60
    )
    assert record == wanted


def test_a_raw_image_is_one() -> None:
    record, _ = record_of(BARE, framed([1.0, 2.5], encode_raw(np.zeros((5, 7, 3), np.uint8))))
    assert (record.kind, record.format, record.width, record.height) == ("image", "raw", 7, 5)
    assert (record.flag, record.labels, record.boxes) == (2, (1.0, 2.5), ())


@pytest.mark.parametrize(
    ("data", "kind", "problem"),
    [
        (framed(1.0, b""), "empty", "without an image"),
        (framed(1.0, b"no picture"), "damaged", "no image format"),
        (framed(1.0, jpeg(1)[:12]), "damaged", ""),
        (memoryview(recordio.serialize(b"short")), "foreign", "5 bytes without the header"),
        (memoryview(bytes(40)), "damaged", "magic number"),
        (framed(1.0, jpeg(1))[:50], "damaged", "ends"),
        (memoryview(b""), "damaged", "ends"),
    ],
    ids=["no body", "text", "cut header", "no header", "no magic", "cut", "nothing"],
)
def test_what_is_no_image_says_why(data: memoryview, kind: str, problem: str) -> None:
    record, _ = record_of(BARE, data)
    assert record.kind == kind
    assert record.problem is not None
    assert problem in record.problem
    assert "\n" not in record.problem


@settings(max_examples=40)
@given(st.binary(max_size=200))
def test_any_bytes_are_something(data: bytes) -> None:
    record, _ = record_of(BARE, memoryview(data))
    assert record.kind in ("image", "damaged", "foreign", "empty")
    assert (record.problem is None) == (record.kind == "image")


EDGES = st.tuples(
    st.integers(0, 90), *[st.floats(0, 0.5, width=32)] * 2, *[st.floats(0.5625, 1, width=32)] * 2
)


@settings(max_examples=40)
@given(st.lists(EDGES, min_size=1, max_size=8), st.integers(0, 3), st.integers(0, 2))
def test_boxes_of_detection_labels_come_back(
    objects: list[tuple[float, ...]], more_header: int, more: int
) -> None:
    rows = [(*each, *[9.0] * more) for each in objects]
    label = np.array([2 + more_header, 5 + more, *[0.0] * more_header, *np.ravel(rows)], np.float32)
    assert [tuple(box) for box in detection_boxes(label)] == objects


@with_cases(
    "label",
    [
        [],
        [1, 2, 3],
        [2, 5, 1, 0.1, 0.1, 0.2],
        [2, 5, 1, 10, 10, 200, 200],
        [2, 4, 1, 0.1, 0.1, 0.2, 0.2, 0.3],
        [2.5, 5, 1, 0.1, 0.1, 0.2, 0.2],
        [2, 5, 1, math.nan, 0.1, 0.2, 0.2],
        [2, 5, 1, 0.4, 0.1, 0.2, 0.2],
        [1e30, 5, 1, 0.1, 0.1, 0.2, 0.2],
        [-2, 5, 1, 0.1, 0.1, 0.2, 0.2],
    ],
    ids=str,
)
def test_other_labels_have_no_boxes(label: list[float]) -> None:
    assert detection_boxes(np.array(label, np.float32)) == ()


@settings(max_examples=40)
@given(st.lists(st.floats(width=32), max_size=40))
def test_any_label_is_taken(label: list[float]) -> None:
    for box in detection_boxes(np.array(label, np.float32)):
        assert box.right > box.left
        assert box.bottom > box.top


def test_boxes_in_pixels() -> None:
    boxes = detection_boxes(detection_label((3, 0.25, 0.5, 0.75, 1)))
    assert box_table(boxes, 80, 60).tolist() == [[20, 30, 60, 60, 3]]
    assert box_table((), 80, 60).shape == (0, 5)


@settings(max_examples=40)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(3.4028234663852886e38)  # whose eight digits are greater in double precision
def test_a_label_survives_its_address(value: float) -> None:
    assert np.float32(parse_label(label_text(value))) == np.float32(value)


@with_cases("text", ["", "nan", "inf", "1e39", "1e999", "x", "<b>", "1" * 50])
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="labels are numbers"):
        parse_label(text)
