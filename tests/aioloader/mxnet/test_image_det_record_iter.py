"""Tests of `ImageDetRecordIter`: MXNet's label rows, arguments, and bad records."""

import cv2
import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.errors import SampleError
from aioloader.mxnet.io import DetectionLabelError, LabelPadError, UnusedParameterWarning
from tests.aioloader.mxnet.image_records import golden_images, write
from tests.aioloader.mxnet.image_records import make_det as make
from tests.cases import with_cases

LABELS = [
    [2, 5, 0, 0.1, 0.2, 0.5, 0.6],
    [2, 5, 1, 0, 0, 1, 1, 2, 0.25, 0.5, 0.75, 1],
    [4, 6, 9, 9, 3, 0.3, 0.3, 0.4, 0.4, 7],
    [2, 5, 1, 0.1, 0.1, 0.2, 0.2, 1, 0.5, 0.5, 0.9, 0.9, 2, 0.1, 0.6, 0.2, 0.7],
]
CROPS = {"rand_crop_prob": 1}


@pytest.fixture
def four(tmp_path):
    """Write the golden images with objects; ids begin at 10."""
    return write(tmp_path / "four.rec", golden_images(), LABELS, first_id=10)


def decoded():
    """Return the golden images, RGB."""
    return [cv2.imdecode(np.frombuffer(b, np.uint8), cv2.IMREAD_COLOR)[..., ::-1] for b in golden_images()]


# --- rows of MXNet 1.9.1 ---


def test_label_rows(four):
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


@with_cases(
    ("mode", "shape", "extents"),
    [
        ("force", (50, 40), [(50, 40)] * 4),
        ("shrink", (50, 50), [(33, 50), (50, 33), (28, 50), (24, 24)]),
        ("shrink", (20, 20), [(13, 20), (20, 13), (11, 20), (20, 20)]),
        ("fit", (50, 40), [(26, 40), (50, 33), (23, 40), (40, 40)]),
    ],
)
def test_sizes(four, mode, shape, extents):
    batch = make(four, resize_mode=mode, data_shape=(3, *shape)).next()
    assert batch.label[0][:, 1:3].tolist() == [list(extent) for extent in extents]
    for found, image, (height, width) in zip(batch.data[0], decoded(), extents, strict=True):
        resized = cv2.resize(image, (width, height)) if image.shape[:2] != (height, width) else image
        assert np.array_equal(found[:, :height, :width], resized.transpose(2, 0, 1))
        assert not found[:, height:].any()
        assert not found[:, :, width:].any()


def test_labels_are_filled_up(four):
    row = make(four, label_pad_width=30, label_pad_value=-5).next().label[0][0]
    assert row.tolist() == pytest.approx([3, 24, 24, 7, *LABELS[0], *[-5] * 23])
    # Many scripts pass -1 for "as many as needed".
    assert make(four, label_pad_width=-1).provide_label[0].shape == (4, 21)
    with pytest.raises(LabelPadError, match="label_pad_width: 8 smaller than estimated width: 17") as caught:
        make(four, label_pad_width=8)
    assert (caught.value.width, caught.value.needed) == (8, 17)
    assert isinstance(caught.value, mx.MXNetError)
    part = make(four, batch_size=2, num_parts=2, part_index=0)  # which has the widths of all parts
    assert part.provide_label[0].shape == (2, 21)


def test_mirrored_boxes(four):
    plain, mirrored = make(four).next(), make(four, rand_mirror_prob=1).next()
    # Resized after it was mirrored, not before.
    assert np.abs(mirrored.data[0] - plain.data[0][..., ::-1]).max() <= 1
    row = mirrored.label[0][3].tolist()
    objects = [1, 0.8, 0.1, 0.9, 0.2], [1, 0.1, 0.5, 0.5, 0.9], [2, 0.8, 0.6, 0.9, 0.7]
    assert row[4:] == pytest.approx([2, 5, *sum(objects, [])], abs=1e-6)


def test_normalisation(four):
    plain = make(four).next().data[0]
    found = make(four, mean_r=10, std_r=2, scale=0.5, std_g=3).next().data[0]
    half, three = np.float32(0.5), np.float32(3)
    assert np.array_equal(found[:, 0], (plain[:, 0] - 10) * half / 2)
    assert np.array_equal(found[:, 1], plain[:, 1] * half / three)
    assert np.array_equal(found[:, 2], plain[:, 2] * half)


def test_a_mean_image(four, tmp_path):
    path = tmp_path / "mean.bin"
    plain = make(four).next().data[0]
    found = make(four, mean_img=str(path), rand_mirror_prob=0.5, seed=3)
    ((_, mean),) = mx.nd.load(path).items()
    assert np.array_equal(mean, plain.mean(0, dtype=np.float64).astype(np.float32))
    del found
    assert np.array_equal(make(four, mean_img=str(path)).next().data[0], plain - mean)


def test_gray_images(four):
    batch = make(four, data_shape=(1, 24, 24)).next()
    assert batch.data[0].shape == (4, 1, 24, 24)
    assert batch.label[0][:, 0].tolist() == [1] * 4
    with pytest.raises(mx.MXNetError, match="random_hue_prob: only images of 3 channels"):
        make(four, data_shape=(1, 24, 24), random_hue_prob=0.5)


# --- unusual or wrong labels ---


def one(tmp_path, label):
    return write(tmp_path / "one.rec", golden_images()[:1], [label])


def test_a_record_without_objects_is_one(tmp_path):
    path = one(tmp_path, [2, 5])
    everything = {"rand_crop_prob": 1, "rand_mirror_prob": 1, "rand_pad_prob": 1, "max_pad_scale": 2}
    for arguments in ({}, {**everything, "min_crop_scales": 0.3, "min_crop_overlaps": 0.5}):
        row = make(path, batch_size=1, label_pad_width=6, **arguments).next().label[0][0]
        assert row.tolist() == [3, 24, 24, 2, 2, 5, -1, -1, -1, -1]


def test_boxes_beyond_the_image_are_kept_until_it_is_cropped(tmp_path):
    path = one(tmp_path, [2, 5, 0, -0.5, 0.2, 1.4, 0.6])
    row = make(path, batch_size=1).next().label[0][0].tolist()
    assert row[6:] == pytest.approx([0, -0.5, 0.2, 1.4, 0.6])
    row = make(path, batch_size=1, rand_mirror_prob=1).next().label[0][0].tolist()
    assert row[6:] == pytest.approx([0, -0.4, 0.2, 1.5, 0.6])
    row = make(path, batch_size=1, rand_crop_prob=1, min_crop_scales=0.9).next().label[0][0].tolist()
    assert (row[7], row[9]) == (0, 1)


@with_cases("label", [3.0, [2, 4, 0, 0.1, 0.2, 0.5]])
def test_wrong_labels_name_their_record(tmp_path, label):
    with pytest.raises(mx.MXNetError, match=r"Not enough label packed|object width") as caught:
        make(one(tmp_path, label), batch_size=1)
    assert isinstance(caught.value, SampleError)
    assert isinstance(caught.value.__cause__, DetectionLabelError)
    assert caught.value.key == 0


def test_a_label_that_a_wrong_index_hid_is_a_named_error(tmp_path):
    path = write(tmp_path / "a.rec", golden_images()[:2], [LABELS[0], [2, 5]], index=True)
    first, second = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "a.idx").write_text(f"{first}\n7\t12\n{second}\n")
    with pytest.raises(mx.MXNetError, match="label_pad_width: 2 smaller than estimated width: 7") as caught:
        make(path, batch_size=1)
    assert isinstance(caught.value.__cause__, LabelPadError)
    assert make(path, batch_size=1, label_pad_width=7).provide_label[0].shape == (1, 11)


def test_a_label_width_is_checked(four):
    with pytest.raises(mx.MXNetError, match="provide 12-dimensional label but label_width is set to 7"):
        make(four, label_width=7)


def test_a_list_replaces_the_labels(four, tmp_path):
    lst = tmp_path / "new.lst"
    lst.write_text("".join(f"{key}\t2\t5\t{key}\t0\t0\t1\t1\ta.jpg\n" for key in (12, 11, 13, 10)))
    rows = make(four, path_imglist=str(lst)).next().label[0]
    assert rows[:, 3:].tolist() == [[7, 2, 5, key, 0, 0, 1, 1] for key in (10, 11, 12, 13)]


@with_cases(
    ("arguments", "text"),
    [
        ({"data_shape": (4, 24, 24)}, "Invalid output shape"),
        ({"resize_mode": "other"}, "valid values are: {'fit', 'force', 'shrink'}"),
        ({"dtype": "uint8"}, "dtype: Invalid Input: 'uint8'"),
        ({"inter_method": 7}, "invalid inter_method 7"),
        ({"rand_crop_prob": 1.5}, "should be smaller equal to 1"),
        (
            {**CROPS, "num_crop_sampler": 3, "min_crop_scales": (0.1, 0.2)},
            "has 2 values for num_crop_sampler=3",
        ),
        ({"min_crop_scales": "a"}, "expect tuple of float but value='a'"),
        ({"max_crop_trials": 2.5}, "expect tuple of int"),
        (
            {**CROPS, "min_crop_scales": 0.9, "max_crop_scales": 0.5},
            "min_crop_scales 0.9 is more than max_crop",
        ),
    ],
)
def test_wrong_arguments(four, arguments, text):
    with pytest.raises(mx.MXNetError) as caught:
        make(four, **arguments)
    assert text in str(caught.value)


@with_cases(
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
def test_arguments_that_change_nothing_are_reported(four, arguments, why):
    with pytest.warns(UnusedParameterWarning, match=why) as caught:
        make(four, **arguments)
    assert len(caught) == 1


def test_workers_change_nothing(four):
    arguments = {"rand_crop_prob": 0.5, "min_crop_scales": 0.3, "shuffle": True, "seed": 5}
    inline = make(four, **arguments).next()
    other = make(four, executor="process", preprocess_threads=1, **arguments).next()
    assert np.array_equal(inline.data[0], other.data[0])
    assert np.array_equal(inline.label[0], other.label[0])
