"""Tests of `ImageDetRecordIter`: MXNet's label rows, arguments, and bad records."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.errors import SampleError
from aioloader.mxnet.io import DetectionLabelError, LabelPadError, UnusedParameterWarning
from tests.aioloader.mxnet.image_records import golden_images, write
from tests.aioloader.mxnet.image_records import make_det as make

LABELS = [
    [2, 5, 0, 0.1, 0.2, 0.5, 0.6],
    [2, 5, 1, 0, 0, 1, 1, 2, 0.25, 0.5, 0.75, 1],
    [4, 6, 9, 9, 3, 0.3, 0.3, 0.4, 0.4, 7],
    [2, 5, 1, 0.1, 0.1, 0.2, 0.2, 1, 0.5, 0.5, 0.9, 0.9, 2, 0.1, 0.6, 0.2, 0.7],
]


@pytest.fixture
def four(tmp_path: Path) -> str:
    """Write the golden images with objects; ids begin at 10."""
    return write(tmp_path / "four.rec", golden_images(), LABELS, first_id=10)


def decoded() -> list[np.ndarray[Any, Any]]:
    """Return the golden images, RGB."""
    return [cv2.imdecode(np.frombuffer(b, np.uint8), cv2.IMREAD_COLOR)[..., ::-1] for b in golden_images()]


# --- rows of MXNet 1.9.1 ---


def test_label_rows(four: str) -> None:
    iterator = make(four)
    assert iterator.provide_label == [("softmax_label", (4, 21))]
    assert iterator.provide_data == [("data", (4, 3, 24, 24))]
    (batch,) = list(iterator)
    expected = [[3, 24, 24, len(row), *row, *[-1] * (17 - len(row))] for row in LABELS]
    assert batch.label[0].tolist() == [pytest.approx(row) for row in expected]
    assert (batch.pad, batch.index.tolist()) == (0, [10, 11, 12, 13])
    for found, image in zip(batch.data[0], decoded(), strict=True):
        resized = cv2.resize(image, (24, 24)) if image.shape[:2] != (24, 24) else image
        assert np.array_equal(found, resized.transpose(2, 0, 1))


def test_labels_are_filled_up(four: str) -> None:
    row = make(four, label_pad_width=30, label_pad_value=-5).next().label[0][0]
    assert row.tolist() == pytest.approx([3, 24, 24, 7, *LABELS[0], *[-5] * 23])
    # Many scripts pass -1 for "as many as needed".
    assert make(four, label_pad_width=-1).provide_label[0].shape == (4, 21)
    with pytest.raises(LabelPadError, match="label_pad_width: 8 smaller than estimated width: 17") as caught:
        make(four, label_pad_width=8)
    assert (caught.value.width, caught.value.needed) == (8, 17)
    assert isinstance(caught.value, mx.MXNetError)
    parts = [make(four, batch_size=2, num_parts=2, part_index=part) for part in (0, 1)]
    assert [part.provide_label[0].shape for part in parts] == [(2, 21)] * 2


@pytest.mark.parametrize(
    ("mode", "shape", "extents"),
    [
        ("force", (50, 40), [(50, 40)] * 4),
        ("shrink", (50, 50), [(33, 50), (50, 33), (28, 50), (24, 24)]),
        ("shrink", (20, 20), [(13, 20), (20, 13), (11, 20), (20, 20)]),
        ("fit", (50, 40), [(26, 40), (50, 33), (23, 40), (40, 40)]),
    ],
)
def test_sizes(four: str, mode: str, shape: tuple[int, int], extents: list[tuple[int, int]]) -> None:
    batch = make(four, resize_mode=mode, data_shape=(3, *shape)).next()
    assert batch.label[0][:, 1:3].tolist() == [list(extent) for extent in extents]
    for found, image, (height, width) in zip(batch.data[0], decoded(), extents, strict=True):
        resized = cv2.resize(image, (width, height)) if image.shape[:2] != (height, width) else image
        assert np.array_equal(found[:, :height, :width], resized.transpose(2, 0, 1))
        assert not found[:, height:].any()
        assert not found[:, :, width:].any()


def test_mirrored_boxes(four: str) -> None:
    plain, mirrored = make(four).next(), make(four, rand_mirror_prob=1).next()
    # Resized after it was mirrored, not before.
    assert np.abs(mirrored.data[0] - plain.data[0][..., ::-1]).max() <= 1
    row = mirrored.label[0][3].tolist()
    assert row[4:] == pytest.approx(
        [2, 5, 1, 0.8, 0.1, 0.9, 0.2, 1, 0.1, 0.5, 0.5, 0.9, 2, 0.8, 0.6, 0.9, 0.7], abs=1e-6
    )


def test_normalisation(four: str) -> None:
    plain = make(four).next().data[0]
    found = make(four, mean_r=10, std_r=2, scale=0.5, std_g=3).next().data[0]
    half, three = np.float32(0.5), np.float32(3)
    assert np.array_equal(found[:, 0], (plain[:, 0] - 10) * half / 2)
    assert np.array_equal(found[:, 1], plain[:, 1] * half / three)
    assert np.array_equal(found[:, 2], plain[:, 2] * half)


def test_a_mean_image(four: str, tmp_path: Path) -> None:
    path = tmp_path / "mean.bin"
    plain = make(four).next().data[0]
    found = make(four, mean_img=str(path), rand_mirror_prob=0.5, seed=3)
    ((_, mean),) = mx.nd.load(path).items()
    assert np.array_equal(mean, plain.mean(0, dtype=np.float64).astype(np.float32))
    del found
    assert np.array_equal(make(four, mean_img=str(path)).next().data[0], plain - mean)


def test_gray_images(four: str) -> None:
    batch = make(four, data_shape=(1, 24, 24)).next()
    assert batch.data[0].shape == (4, 1, 24, 24)
    assert batch.label[0][:, 0].tolist() == [1] * 4
    with pytest.raises(mx.MXNetError, match="random_hue_prob: only images of 3 channels"):
        make(four, data_shape=(1, 24, 24), random_hue_prob=0.5)


# --- unusual or wrong labels ---


def one(tmp_path: Path, label: Any) -> str:
    return write(tmp_path / "one.rec", golden_images()[:1], [label])


def test_a_record_without_objects_is_one(tmp_path: Path) -> None:
    path = one(tmp_path, [2, 5])
    everything = {"rand_crop_prob": 1, "rand_mirror_prob": 1, "rand_pad_prob": 1, "max_pad_scale": 2}
    for arguments in ({}, {**everything, "min_crop_scales": 0.3, "min_crop_overlaps": 0.5}):
        row = make(path, batch_size=1, label_pad_width=6, **arguments).next().label[0][0]
        assert row.tolist() == [3, 24, 24, 2, 2, 5, -1, -1, -1, -1]


def test_boxes_beyond_the_image_are_kept_until_it_is_cropped(tmp_path: Path) -> None:
    path = one(tmp_path, [2, 5, 0, -0.5, 0.2, 1.4, 0.6])
    row = make(path, batch_size=1).next().label[0][0].tolist()
    assert row[6:] == pytest.approx([0, -0.5, 0.2, 1.4, 0.6])
    row = make(path, batch_size=1, rand_mirror_prob=1).next().label[0][0].tolist()
    assert row[6:] == pytest.approx([0, -0.4, 0.2, 1.5, 0.6])
    row = make(path, batch_size=1, rand_crop_prob=1, min_crop_scales=0.9).next().label[0][0].tolist()
    assert (row[7], row[9]) == (0, 1)


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (3.0, "Not enough label packed in img_list or rec file"),
        ([1, 5, 0, 0.1, 0.2, 0.5, 0.6], "header width"),
        ([2, 4, 0, 0.1, 0.2, 0.5], "object width"),
        ([2, 5, 0, 0.1, 0.2, 0.5], "not a multiple"),
    ],
)
def test_wrong_labels_name_their_record(tmp_path: Path, label: Any, reason: str) -> None:
    with pytest.raises(mx.MXNetError, match=reason) as caught:
        make(one(tmp_path, label), batch_size=1)
    assert isinstance(caught.value, SampleError)
    assert isinstance(caught.value.__cause__, DetectionLabelError)
    assert caught.value.key == 0


def test_a_label_that_a_wrong_index_hid_is_a_named_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.rec", golden_images()[:2], [LABELS[0], [2, 5]], index=True)
    first, second = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "a.idx").write_text(f"{first}\n7\t12\n{second}\n")
    with pytest.raises(mx.MXNetError, match="label_pad_width: 2 smaller than estimated width: 7") as caught:
        make(path, batch_size=1)
    assert isinstance(caught.value.__cause__, LabelPadError)
    assert make(path, batch_size=1, label_pad_width=7).provide_label[0].shape == (1, 11)


def test_a_label_width_is_checked(four: str) -> None:
    with pytest.raises(mx.MXNetError, match="provide 12-dimensional label but label_width is set to 7"):
        make(four, label_width=7)


def test_a_list_replaces_the_labels(four: str, tmp_path: Path) -> None:
    lst = tmp_path / "new.lst"
    lst.write_text("".join(f"{key}\t2\t5\t{key}\t0\t0\t1\t1\ta.jpg\n" for key in (12, 11, 13, 10)))
    rows = make(four, path_imglist=str(lst)).next().label[0]
    assert rows[:, 3:].tolist() == [[7, 2, 5, key, 0, 0, 1, 1] for key in (10, 11, 12, 13)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"data_shape": (4, 24, 24)}, "Invalid output shape"),
        ({"resize_mode": "other"}, "valid values are: {'fit', 'force', 'shrink'}"),
        ({"dtype": "uint8"}, "dtype: Invalid Input: 'uint8'"),
        ({"inter_method": 7}, "invalid inter_method 7"),
        ({"rand_crop_prob": 1.5}, "should be smaller equal to 1"),
        (
            {"rand_crop_prob": 1, "num_crop_sampler": 3, "min_crop_scales": (0.1, 0.2)},
            "min_crop_scales has 2 values for num_crop_sampler=3",
        ),
        ({"min_crop_scales": "a"}, "expect tuple of float but value='a'"),
        ({"max_crop_trials": 2.5}, "expect tuple of int"),
        (
            {"rand_crop_prob": 1, "min_crop_scales": 0.9, "max_crop_scales": 0.5},
            "min_crop_scales 0.9 is more than max_crop_scales 0.5",
        ),
    ],
)
def test_wrong_arguments(four: str, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(mx.MXNetError) as caught:
        make(four, **arguments)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"max_random_hue": 18}, "max_random_hue has no effect: random_hue_prob is not given"),
        ({"min_crop_scales": 0.3}, "min_crop_scales has no effect: rand_crop_prob is not given"),
        (
            {"max_pad_scale": 2, "fill_value": 3},
            "max_pad_scale .*; fill_value .*: rand_pad_prob is not given",
        ),
        ({"std_a": 3}, "std_a has no effect: images have 3 channels"),
        ({"ctx": "cpu"}, "ctx has no effect"),
    ],
)
def test_arguments_that_change_nothing_are_reported(four: str, arguments: dict[str, Any], why: str) -> None:
    with pytest.warns(UnusedParameterWarning, match=why) as caught:
        make(four, **arguments)
    assert len(caught) == 1


# The usual call of a detector's training script: lists for five crop samplers, probabilities of 0, -1 for "estimate".
SCRIPT: dict[str, Any] = {
    "path_imglist": "",
    "label_width": -1,
    "label_pad_width": -1,
    "label_pad_value": -1,
    "mean_r": 123.68,
    "mean_g": 116.779,
    "mean_b": 103.939,
    "std_r": 70,
    "resize_mode": "force",
    "shuffle": True,
    "seed": 233,
    "preprocess_threads": 50,
    "inter_method": 10,
    "rand_mirror_prob": 0.5,
    "rand_crop_prob": 0.833333,
    "num_crop_sampler": 5,
    "min_crop_scales": [0.3] * 5,
    "max_crop_scales": [1.0] * 5,
    "min_crop_aspect_ratios": [0.5] * 5,
    "max_crop_aspect_ratios": [2.0] * 5,
    "min_crop_overlaps": [0.1, 0.3, 0.5, 0.7, 0.9],
    "max_crop_overlaps": [1.0] * 5,
    "min_crop_sample_coverages": [0.0] * 5,
    "max_crop_sample_coverages": [1.0] * 5,
    "min_crop_object_coverages": [0.0] * 5,
    "max_crop_object_coverages": [1.0] * 5,
    "max_crop_trials": [25] * 5,
    "crop_emit_mode": "center",
    "emit_overlap_thresh": 0.4,
    "rand_pad_prob": 0.5,
    "max_pad_scale": 4.0,
    "fill_value": 127,
    "random_hue_prob": 0.0,
    "max_random_hue": 18,
    "random_saturation_prob": 0.5,
    "max_random_saturation": 32,
    "random_illumination_prob": 0.5,
    "max_random_illumination": 32,
    "random_contrast_prob": 0.5,
    "max_random_contrast": 0.5,
}


def test_a_call_of_a_script(four: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        iterator = make(four, strict=True, **SCRIPT)
    first = iterator.next().label[0][0].asnumpy()
    header, width = int(first[4]), int(first[5])
    assert (header, width) in ((2, 5), (4, 6))
    assert (first.size - 4 - header) // width >= 1


def test_the_index_may_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "some.rec", golden_images(), LABELS, index=True)
    lines = (tmp_path / "some.idx").read_text().splitlines()
    (tmp_path / "two.idx").write_text("\n".join(lines[::2]) + "\n")
    batch = make(path, path_imgidx=str(tmp_path / "two.idx"), batch_size=2).next()
    assert batch.index.tolist() == [0, 2]


def test_workers_change_nothing(four: str) -> None:
    arguments = {"rand_crop_prob": 0.5, "min_crop_scales": 0.3, "shuffle": True, "seed": 5}
    inline = make(four, **arguments).next()
    other = make(four, executor="process", preprocess_threads=1, **arguments).next()
    assert np.array_equal(inline.data[0], other.data[0])
    assert np.array_equal(inline.label[0], other.label[0])
