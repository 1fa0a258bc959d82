"""Tests with golden image files of MXNet 1.9.1: the results of `ImageIter` and the augmenters for aug.rec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.image import CastAug, CenterCropAug, HorizontalFlipAug, ImageIter, ResizeAug
from tests.cases import with_cases

GOLDEN = Path(__file__).parents[3] / "data" / "mxnet"
CROP = CenterCropAug((24, 24))
MEAN, STD = np.array([123.68, 116.78, 103.94], np.float32), np.array([58.4, 57.1, 57.4], np.float32)

# Configuration of ImageRecordIter; equivalent augmenters; largest difference of a value.
CONFIGS: dict[str, tuple[list[Any], float]] = {
    "center_crop": ([CROP], 0),
    "resize28": ([ResizeAug(28, 1), CROP], 0),
    "resize28_nn": ([ResizeAug(28, 0), CROP], 0),
    "resize28_cubic": ([ResizeAug(28, 2), CROP], 1),  # OpenCV's versions differ by 1
    "resize28_area": ([ResizeAug(28, 3), CROP], 0),
    "resize28_lanczos": ([ResizeAug(28, 4), CROP], 0),
    "resize28_auto9": ([ResizeAug(28, 9), CROP], 1),
    "mirror": ([CROP, HorizontalFlipAug(1.0)], 0),
    "scale_only": ([CROP, CastAug(), lambda image: image * np.float32(1 / 255)], 1e-6),
    "mean_std_scale": (
        [CROP, mx.image.ColorNormalizeAug(MEAN, STD), lambda image: image * np.float32(0.5)],
        1e-5,
    ),
    "pad4_fill127": ([lambda image: mx.image.copyMakeBorder(image, 4, 4, 4, 4, value=127), CROP], 0),
}


def _batch(augmenters: list[Any] | None, index: bool = True) -> Any:
    path_imgidx = str(GOLDEN / "aug.idx") if index else None
    iterator = ImageIter(
        4, (3, 24, 24), path_imgrec=str(GOLDEN / "aug.rec"), path_imgidx=path_imgidx, aug_list=augmenters
    )
    (batch,) = iterator
    assert batch.label[0].asnumpy().tolist() == [0, 1, 2, 3]
    return batch.data[0].asnumpy()


@with_cases(("name", "augmenters", "tolerance"), [(k, *v) for k, v in CONFIGS.items()], ids=CONFIGS)
def test_images_are_those_of_mxnet(name: str, augmenters: list[Any], tolerance: float) -> None:
    with np.load(GOLDEN / "aug_expected.npz") as expected:
        assert np.abs(_batch(augmenters) - expected[name].astype(np.float32)).max() <= tolerance


@pytest.mark.parametrize("index", [True, False])
def test_the_usual_augmenters_crop_the_middle(index: bool) -> None:
    with np.load(GOLDEN / "aug_expected.npz") as expected:
        assert np.array_equal(_batch(None, index), expected["center_crop"].astype(np.float32))


def test_the_mean_image_is_that_of_the_middles() -> None:
    mean = mx.nd.load(GOLDEN / "mean_img.bin")["mean_img"]
    assert np.allclose(_batch(None).mean(axis=0), mean, atol=1e-4)
