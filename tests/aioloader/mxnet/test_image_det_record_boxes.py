"""Tests of `ImageDetRecordIter`: boxes that match their pixels, and draws: 2,000 images, one seed."""

import numpy as np
import pytest

from tests.aioloader.mxnet.image_records import make_det as make
from tests.aioloader.mxnet.image_records import write
from tests.cases import with_cases

COUNT = 2000


@pytest.fixture
def marked(tmp_path):
    """Write one image many times: black, with a white rectangle that is its only object."""
    image = np.full((30, 40, 3), 10, np.uint8)
    image[6:21, 6:26] = 250
    label = [2, 5, 7, 6 / 40, 6 / 30, 26 / 40, 21 / 30]
    return write(tmp_path / "marked.rec", [image] * COUNT, [label] * COUNT)


def edges(found):
    """Return left, top, right, bottom of the white pixels of every image, in shares."""
    white = found[:, 0] > 190
    rows, columns = white.any(2), white.any(1)
    return np.stack(
        [
            columns.argmax(1) / columns.shape[1],
            rows.argmax(1) / rows.shape[1],
            1 - columns[:, ::-1].argmax(1) / columns.shape[1],
            1 - rows[:, ::-1].argmax(1) / rows.shape[1],
        ],
        axis=1,
    )


def drawn(path, **arguments):
    values = {"data_shape": (3, 30, 40), "batch_size": COUNT, "seed": 2, **arguments}
    batch = make(path, **values).next()
    return np.asarray(batch.data[0]), np.asarray(batch.label[0])


@with_cases(
    "arguments",
    [
        {"rand_mirror_prob": 0.5},
        {"rand_pad_prob": 0.6, "max_pad_scale": 2, "fill_value": 20},
        {
            "rand_crop_prob": 1,
            "min_crop_scales": 0.5,
            "min_crop_aspect_ratios": 0.5,
            "max_crop_aspect_ratios": 2,
        },
        {
            **{"rand_crop_prob": 0.7, "num_crop_sampler": 2, "min_crop_scales": (0.4, 0.6)},
            **{"crop_emit_mode": "overlap", "emit_overlap_thresh": 0.2, "rand_mirror_prob": 0.5},
            **{"rand_pad_prob": 0.5, "max_pad_scale": 1.5, "max_crop_trials": (3, 5)},
        },
    ],
    ids=["mirror", "pad", "crop", "all"],
)
def test_boxes_follow_their_pixels(marked, arguments):
    found, rows = drawn(marked, inter_method=0, batch_size=400, **arguments)
    assert (rows[:, 3] == 7).all()
    boxes = rows[:, 7:11]
    assert (boxes >= -1e-6).all()
    assert (boxes <= 1 + 1e-6).all()
    # A pixel of the result covers up to two of the image.
    assert np.abs(edges(found) - boxes).max() < 0.06
    assert len(np.unique(boxes.round(3), axis=0)) > 1


def test_probabilities_and_ranges(marked):
    _, rows = drawn(marked, rand_pad_prob=0.5, max_pad_scale=3)
    width = rows[:, 9] - rows[:, 7]
    padded = width < 0.5 - 1e-6
    # One scale in forty is too small to be used.
    assert abs(padded.mean() - 0.5 * (1 - 0.025)) < 0.045
    scale = 0.5 / width[padded]
    assert scale.min() > 1.04
    assert 2.9 < scale.max() <= 3.05
    assert abs(scale.mean() - 2.025) < 0.07
    _, rows = drawn(marked, rand_crop_prob=1, min_crop_scales=0.5, max_crop_scales=0.9)
    changed = (np.abs(rows[:, 7:11] - rows[:, 7:11].mean(0)) > 1e-6).any(1)
    assert changed.mean() > 0.9


def test_colours_of_detection_images(marked):
    light, _ = drawn(marked, max_random_illumination=30, random_illumination_prob=0.5)
    level = light[:, 0, 15, 20] - 250
    changed = level != 0
    assert abs(changed.mean() - 0.5 * 60 / 61) < 0.05
    assert level.min() == -30
    spread, _ = drawn(marked, max_random_contrast=0.4, random_contrast_prob=1)
    dark = spread[:, 0, 0, 0]
    assert (dark.min(), dark.max()) == (6, 14)
