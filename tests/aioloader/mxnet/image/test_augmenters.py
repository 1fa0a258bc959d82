"""Tests of augmenters: the values, texts and golden images of MXNet 1.9.1, and no change of their input."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.image import CastAug, CenterCropAug, HorizontalFlipAug, ImageIter, ResizeAug
from tests.cases import with_cases

VALUES = np.array([55.46, 4.794, 1.148])
VECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])

# Augmenter; the first six numbers of MXNet's result for `gradient` after seeding both generators with 5, and the sum.
MADE = {
    "brightness": (
        mx.image.BrightnessJitterAug(0.5),
        [193.1391, 52.7764, 131.3795, 215.5971, 75.2344, 281.8483],
        8790.074,
    ),
    "contrast": (
        mx.image.ContrastJitterAug(0.5),
        [178.1340, 37.7713, 116.3744, 200.5921, 60.2294, 266.8432],
        7889.771,
    ),
    "saturation": (
        mx.image.SaturationJitterAug(0.5),
        [181.7885, 41.4258, 120.0289, 200.1913, 59.8286, 266.4425],
        7889.771,
    ),
    "hue": (
        mx.image.HueJitterAug(0.5),
        [161.0082, 42.6425, 168.4082, 160.6881, 76.1571, 286.1668],
        7941.626,
    ),
    "gray": (mx.image.RandomGrayAug(1.0), [78.15, 78.15, 78.15, 106.13, 106.13, 106.13], 7070.61),
    "lighting": (
        mx.image.LightingAug(0.5, VALUES, VECTORS),
        [165.0455, 38.7616, 110.9970, 185.0455, 58.7616, 244.9970],
        7404.081,
    ),
    "jitter": (
        mx.image.ColorJitterAug(0.1, 0.2, 0.3),
        [211.2788, 25.8645, 129.6965, 230.6777, 45.2634, 318.1932],
        8425.152,
    ),
    "sized crop": (
        mx.image.RandomSizedCropAug((2, 3), (0.3, 0.9), (0.75, 1.33), 1),
        [137.0, 140.5, 185.0, 63.5, 84.0, 169.5],
        2300.5,
    ),
    "crop": (mx.image.RandomCropAug((2, 3)), [39.0, 87.0, 174.0, 88.0, 81.0, 165.0], 2092.0),
    "flip": (mx.image.HorizontalFlipAug(0.5), [172.0, 47.0, 117.0, 192.0, 67.0, 251.0], 7828.0),
    "normalize": (
        mx.image.ColorNormalizeAug(mx.nd.array([1, 2, 3]), mx.nd.array([2, 2, 4])),
        [85.5, 22.5, 28.5, 95.5, 32.5, 62.0],
        3157.75,
    ),
    "cast": (mx.image.CastAug("uint8"), [172, 47, 117, 192, 67, 251], 7828),
}


@with_cases(("augmenter", "first", "total"), MADE.values(), ids=MADE)
def test_values_are_mxnet_s(augmenter, first, total, gradient):
    random.seed(5)
    np.random.seed(5)
    before = gradient.copy()
    made = augmenter(mx.nd.array(gradient))
    assert isinstance(made, mx.nd.NDArray)
    assert np.allclose(np.asarray(made, float).ravel()[:6], first, atol=2e-3)
    assert np.asarray(made, float).sum() == pytest.approx(total, rel=1e-5)
    assert np.array_equal(gradient, before)


@with_cases("augmenter", [row[0] for row in MADE.values()], ids=MADE)
@with_cases("dtype", ["uint8", "float32"])
def test_the_image_that_is_given_stays(augmenter, dtype, gradient):
    source = gradient.astype(dtype)
    source.flags.writeable = False
    for _ in range(4):
        augmenter(source)
        augmenter(mx.nd.from_numpy(source))
    assert np.array_equal(source, gradient)


DUMPS = {
    '["resizeaug", {"size": 30, "interp": 2}]': mx.image.ResizeAug(30),
    '["forceresizeaug", {"size": [3, 4], "interp": 2}]': mx.image.ForceResizeAug((3, 4)),
    '["randomcropaug", {"size": [3, 4], "interp": 2}]': mx.image.RandomCropAug((3, 4)),
    '["centercropaug", {"size": [3, 4], "interp": 2}]': mx.image.CenterCropAug((3, 4)),
    '["randomsizedcropaug", {"size": [3, 4], "area": 0.08, "ratio": [0.75, 1.33], "interp": 2}]': (
        mx.image.RandomSizedCropAug((3, 4), 0.08, (0.75, 1.33))
    ),
    '["horizontalflipaug", {"p": 0.5}]': mx.image.HorizontalFlipAug(0.5),
    '["castaug", {"type": "float32"}]': mx.image.CastAug(),
    '["brightnessjitteraug", {"brightness": 0.1}]': mx.image.BrightnessJitterAug(0.1),
    '["contrastjitteraug", {"contrast": 0.1}]': mx.image.ContrastJitterAug(0.1),
    '["saturationjitteraug", {"saturation": 0.1}]': mx.image.SaturationJitterAug(0.1),
    '["huejitteraug", {"hue": 0.1}]': mx.image.HueJitterAug(0.1),
    '["randomgrayaug", {"p": 0.2}]': mx.image.RandomGrayAug(0.2),
    '["colornormalizeaug", {"mean": [1.0, 2.0, 3.0], "std": null}]': (
        mx.image.ColorNormalizeAug(mx.nd.array([1, 2, 3]), None)
    ),
    '["lightingaug", {"alphastd": 0.1, "eigval": [1.0, 1.0, 1.0], "eigvec": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], '
    "[0.0, 0.0, 1.0]]}]": mx.image.LightingAug(0.1, np.ones(3), np.eye(3)),
}


@with_cases(("text", "augmenter"), DUMPS.items(), ids=[type(a).__name__ for a in DUMPS.values()])
def test_dumps(text, augmenter):
    assert augmenter.dumps() == text
    assert json.loads(text)[0] == type(augmenter).__name__.lower()


def test_dumps_of_containers():
    cast, resize = mx.image.CastAug(), mx.image.ResizeAug(3)
    assert mx.image.SequentialAug([cast, resize]).dumps() == ["sequentialaug", [cast.dumps(), resize.dumps()]]
    assert mx.image.RandomOrderAug([cast]).dumps() == ["randomorderaug", [cast.dumps()]]
    assert mx.image.ColorJitterAug(0.1, 0, 0).dumps() == [
        "colorjitteraug",
        ['["brightnessjitteraug", {"brightness": 0.1}]'],
    ]


def test_create_augmenter_in_mxnet_s_order():
    made = mx.image.CreateAugmenter(
        (3, 20, 24), resize=30, rand_crop=True, rand_resize=True, rand_mirror=True, mean=True, std=True,
        brightness=0.1, contrast=0.1, saturation=0.1, hue=0.1, pca_noise=0.1, rand_gray=0.2, inter_method=1,
    )  # fmt: skip
    names = [type(augmenter).__name__ for augmenter in made]
    assert names == [
        "ResizeAug", "RandomSizedCropAug", "HorizontalFlipAug", "CastAug", "ColorJitterAug", "HueJitterAug",
        "LightingAug", "RandomGrayAug", "ColorNormalizeAug",
    ]  # fmt: skip
    assert made[0].dumps() == '["resizeaug", {"size": 30, "interp": 1}]'
    assert made[2].dumps() == '["horizontalflipaug", {"p": 0.5}]'
    assert json.loads(made[1].dumps())[1] == {
        "size": [24, 20], "area": 0.08, "ratio": [0.75, 4 / 3], "interp": 1,
    }  # fmt: skip
    mean, std = json.loads(made[-1].dumps())[1].values()
    assert np.allclose(mean, (123.68, 116.28, 103.53))
    assert np.allclose(std, (58.395, 57.12, 57.375))


@with_cases(
    ("arguments", "names"),
    [
        ({}, ["CenterCropAug", "CastAug"]),
        ({"rand_crop": True}, ["RandomCropAug", "CastAug"]),
        ({"mean": np.array([1.0, 2.0, 3.0])}, ["CenterCropAug", "CastAug", "ColorNormalizeAug"]),
        ({"std": np.array([2.0])}, ["CenterCropAug", "CastAug", "ColorNormalizeAug"]),
        ({"hue": 0.1}, ["CenterCropAug", "CastAug", "HueJitterAug"]),
    ],
)
def test_create_augmenter_takes_only_what_is_asked_for(arguments, names):
    assert [type(a).__name__ for a in mx.image.CreateAugmenter((3, 4, 4), **arguments)] == names


def test_create_augmenter_refuses():
    with pytest.raises(AssertionError, match="rand_crop=True"):
        mx.image.CreateAugmenter((3, 2, 2), rand_resize=True)
    with pytest.raises(AssertionError, match="1 or 3 numbers"):
        mx.image.CreateAugmenter((3, 2, 2), mean=np.zeros(2))
    with pytest.raises(TypeError):
        mx.image.CreateAugmenter((3, 2, 2), rand_corp=True)


def test_an_augmenter_of_one_s_own(gradient):
    class Negative(mx.image.Augmenter):
        def __init__(self, top):
            super().__init__(top=top)
            self.top = top

        def __call__(self, src):
            return self.top - src

    chain = mx.image.SequentialAug([mx.image.CastAug(), Negative(255)])
    assert np.array_equal(chain(gradient.astype(np.uint8)), 255 - gradient)
    assert chain.dumps()[1][1] == '["negative", {"top": 255}]'
    with pytest.raises(NotImplementedError):
        mx.image.Augmenter()(gradient)


GOLDEN = Path(__file__).parents[3] / "data" / "mxnet"
CROP = CenterCropAug((24, 24))
MEAN, STD = np.array([123.68, 116.78, 103.94], np.float32), np.array([58.4, 57.1, 57.4], np.float32)

# Configuration of ImageRecordIter; equivalent augmenters; largest difference of a value.
CONFIGS = {
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


def _batch(augmenters, index=True):
    path_imgidx = str(GOLDEN / "aug.idx") if index else None
    iterator = ImageIter(
        4, (3, 24, 24), path_imgrec=str(GOLDEN / "aug.rec"), path_imgidx=path_imgidx, aug_list=augmenters
    )
    (batch,) = iterator
    assert batch.label[0].asnumpy().tolist() == [0, 1, 2, 3]
    return batch.data[0].asnumpy()


@with_cases(("name", "augmenters", "tolerance"), [(k, *v) for k, v in CONFIGS.items()], ids=CONFIGS)
def test_images_are_those_of_mxnet(name, augmenters, tolerance):
    with np.load(GOLDEN / "aug_expected.npz") as expected:
        assert np.abs(_batch(augmenters) - expected[name].astype(np.float32)).max() <= tolerance


@with_cases("index", [True, False])
def test_the_usual_augmenters_crop_the_middle(index):
    with np.load(GOLDEN / "aug_expected.npz") as expected:
        assert np.array_equal(_batch(None, index), expected["center_crop"].astype(np.float32))


def test_the_mean_image_is_that_of_the_middles():
    mean = mx.nd.load(GOLDEN / "mean_img.bin")["mean_img"]
    assert np.allclose(_batch(None).mean(axis=0), mean, atol=1e-4)
