"""Tests of detection labels: layout, and boxes that are transformed with their image."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import aioloader.mxnet as mx
from aioloader.mxnet.io.augment import CropLimits, DetectionLabelError, ObjectLabel, Rect
from tests.cases import with_cases

ANY = CropLimits((0.0, 1.0), (0.0, 1.0), (0.0, 1.0))


def label(*boxes):
    objects = [[number, *box] for number, box in enumerate(boxes)]
    return ObjectLabel(np.array([2, 5, *np.ravel(objects)], np.float32))


@with_cases(
    ("values", "reason"),
    [
        ([], "Not enough label packed in img_list or rec file"),
        ([1.0], "Not enough label packed"),
        ([1, 5, 0, 0, 0, 1, 1], "header width must be a number from 2 to 7, not 1"),
        ([8, 5, 0, 0, 0, 1, 1], "header width must be a number from 2 to 7, not 8"),
        ([2.5, 5, 0, 0, 0, 1, 1], "header width must be"),
        ([2, 4, 0, 0, 0, 1], "object width must be a number from 5 on, not 4"),
        ([2, 1e30], r"object width must be a number from 5 on, not 1e\+30"),
        ([2, math.inf, 0, 0, 0, 1, 1], "object width must be a number from 5 on, not inf"),
        ([2, 5, 0, 0, 0, 1, 1, 7], "6 numbers behind the header are not a multiple of the object width 5"),
    ],
)
def test_a_label_that_is_none(values, reason):
    with pytest.raises(DetectionLabelError, match=reason) as caught:
        ObjectLabel(np.array(values, np.float32))
    assert isinstance(caught.value, mx.MXNetError)
    assert isinstance(caught.value, ValueError)
    assert caught.value.width == len(values)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_boxes_without_area_are_left_out():
    values = [4, 6, 9, 8, *(1, 0.5, 0.2, 0.1, 0.6, 7), *(2, 0.1, 0.1, 0.9, 0.9, 6), *(3, 0, 0.5, 1, 0.5, 5)]
    found = ObjectLabel(np.array(values, np.float32)).values()
    assert found.tolist() == pytest.approx([4, 6, 9, 8, 2, 0.1, 0.1, 0.9, 0.9, 6])
    assert ObjectLabel(np.array([2, 5], np.float32)).values().tolist() == [2, 5]


def test_boxes_without_end_are_left_out():
    made = label((0, 0, math.inf, 1), (-math.inf, 0, 1, 1), (0, 0, math.nan, 1), (0, 0, 1, 1))
    assert made.objects[:, 0].tolist() == [3]


def test_boxes_far_outside_or_rounded_to_nothing_do_no_harm():
    made = label((-3e38, -3e38, 3e38, 3e38), (-1e-12, 0, 1e-12, 1), (0.1, 0.1, 0.2, 0.2))
    made.mirror()
    assert made.objects[1, 1] == made.objects[1, 3] == 1
    assert made.crop(Rect(0.5, 0.0, 0.5, 1.0), ANY, "overlap", 0.0)
    assert made.objects[:, 0].tolist() == [0, 2]
    assert made.objects[0, 1:].tolist() == [0, 0, 1, 1]


BOX = st.tuples(*[st.floats(0, 1, width=32)] * 4).map(
    lambda edges: (
        min(edges[0], edges[2]),
        min(edges[1], edges[3]),
        max(edges[0], edges[2]),
        max(edges[1], edges[3]),
    )
)


@given(st.lists(BOX, max_size=4))
def test_mirroring_twice_changes_nothing(boxes):
    made = label(*boxes)
    before = made.values()
    made.mirror()
    assert (made.objects[:, 3] >= made.objects[:, 1]).all()
    made.mirror()
    assert made.values() == pytest.approx(before, abs=1e-6)


@given(st.lists(BOX, min_size=1, max_size=4), BOX, st.sampled_from(["center", "overlap"]))
def test_a_crop_shows_what_its_boxes_say(boxes, rect, emit):
    left, top, right, bottom = rect
    assume(right - left > 0.01 and bottom - top > 0.01)
    made = label(*boxes)
    assume(len(made.objects))
    before = made.objects.copy()
    frame = Rect(left, top, right - left, bottom - top)
    cut = made.crop(frame, ANY, emit, 0.3)
    if not cut:
        assert np.array_equal(made.objects, before)
        return
    kept = {int(number) for number in made.objects[:, 0]}
    for _, *found in made.objects:
        assert 0 <= found[0] <= found[2] <= 1
        assert 0 <= found[1] <= found[3] <= 1
    for number, *box in before:
        x0, x1 = max(box[0], left), min(box[2], right)
        y0, y1 = max(box[1], top), min(box[3], bottom)
        if int(number) in kept:
            (found,) = made.objects[made.objects[:, 0] == number]
            back = [found[1] * frame.width + left, found[2] * frame.height + top]
            assert back == pytest.approx([x0, y0], abs=1e-3)
            assert found[3] * frame.width + left == pytest.approx(x1, abs=1e-3)
        elif emit == "overlap":
            area = (box[2] - box[0]) * (box[3] - box[1])
            assert max(0, x1 - x0) * max(0, y1 - y0) <= 0.3 * area + 1e-5


def test_a_crop_must_fulfil_its_limits():
    rect = Rect(0.0, 0.0, 0.5, 0.5)

    def crops(**limits):
        return label((0.25, 0.25, 0.75, 0.75)).crop(rect, ANY._replace(**limits), "overlap", 0.1)

    # A quarter of the box is a quarter of the crop and a seventh of both.
    assert crops()
    assert crops(overlap=(0.14, 0.15))
    assert not crops(overlap=(0.15, 1.0))
    assert not crops(overlap=(0.0, 0.14))
    assert crops(sample_coverage=(0.25, 1.0))
    assert not crops(sample_coverage=(0.26, 1.0))
    assert crops(object_coverage=(0.2, 0.3))
    assert not crops(object_coverage=(0.3, 1.0))
    assert not label((0.25, 0.25, 0.75, 0.75)).crop(rect, ANY, "overlap", 0.3)
    assert not label((0.3, 0.3, 0.75, 0.75)).crop(rect, ANY, "center", 0.3)
    assert label().crop(rect, CropLimits((0.9, 1.0), (0.0, 1.0), (0.0, 1.0)), "center", 0.3)


def test_boxes_at_the_border_stay_inside():
    made = label((0.0, 0.0, 1.0, 1.0), (0.9, 0.9, 1.0, 1.0), (0.0, 0.5, 0.1, 1.0))
    assert made.crop(Rect(0.5, 0.5, 0.5, 0.5), ANY, "overlap", 0.0)
    assert made.objects.tolist() == [
        pytest.approx([0, 0, 0, 1, 1]),
        pytest.approx([1, 0.8, 0.8, 1, 1], abs=1e-6),
    ]
    made.frame(Rect(-1.0, -0.5, 2.0, 2.0))
    assert made.objects[0].tolist() == [0, 0.5, 0.25, 1, 0.75]
