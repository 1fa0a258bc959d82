"""Tests of `ImageRecordIter`'s augmentation: transforms, 2,000 draws derived from pixels, seeds."""

import numpy as np

import aioloader.mxnet as mx
from aioloader.mxnet.gluon_geometry import Resize
from aioloader.mxnet.io.augment import augmentation
from aioloader.mxnet.io.parameters import IMAGE_PARAMETERS
from aioloader.mxnet.io.record_geometry import AreaCrop, Border, SquareCrop, WindowCrop
from aioloader.rng import Rng
from aioloader.transforms import RandomHorizontalFlip
from aioloader.transforms.color import FreeColorJitter, RandomHLS, RandomLighting
from tests.aioloader.mxnet.image_records import AUG, coordinates, make, write
from tests.aioloader.transforms.drawn import even, uniform
from tests.cases import with_cases

COUNT = 2000


def chain(**arguments):
    """Return the transform of images for these arguments; the others have their defaults."""
    defaults = {name: parameter.default for name, parameter in IMAGE_PARAMETERS.items()}
    return augmentation({**defaults, "data_shape": (3, 20, 24), **arguments})


def drawn(image, count=COUNT, **arguments):
    """Return what becomes of one image many times."""
    transform = chain(**{"data_shape": (3, *image.shape[:2]), **arguments})
    return np.stack([transform(image, rng=Rng(1, 0, number)) for number in range(count)])


SIZE = (24, 20)


@with_cases(
    ("arguments", "parts"),
    [
        ({}, [WindowCrop(SIZE)]),
        ({"rand_crop": True, "inter_method": 2}, [WindowCrop(SIZE, True, 2)]),
        ({"resize": 30}, [Resize(30, True), WindowCrop(SIZE)]),
        ({"pad": 4, "fill_value": 9}, [Border(4, 9), WindowCrop(SIZE)]),
        ({"max_crop_size": 40, "min_crop_size": 20, "rand_crop": True}, [SquareCrop(SIZE, (20, 40), True)]),
        (
            {"random_resized_crop": True, "min_random_area": 0.1, "max_random_area": 0.4},
            [AreaCrop(SIZE, (0.1, 0.4), (1.0, 1.0))],
        ),
        ({"random_resized_crop": True, "max_aspect_ratio": 0.25}, [AreaCrop(SIZE, (1.0, 1.0), (0.75, 1.25))]),
        (
            {"random_resized_crop": True, "max_aspect_ratio": 1.5, "min_aspect_ratio": 0.5},
            [AreaCrop(SIZE, (1.0, 1.0), (0.5, 1.5))],
        ),
        ({"brightness": 0.4}, [WindowCrop(SIZE), FreeColorJitter(0.4)]),
        ({"contrast": 0.4, "saturation": 0.3}, [WindowCrop(SIZE), FreeColorJitter(0.0, 0.4, 0.3)]),
        ({"random_h": 1, "random_s": 2, "random_l": 3}, [WindowCrop(SIZE), RandomHLS(1, 2, 3)]),
        ({"pca_noise": 0.2}, [WindowCrop(SIZE), RandomLighting(0.2)]),
        ({"rand_mirror": True}, [WindowCrop(SIZE), RandomHorizontalFlip(0.5)]),
        ({"mirror": True}, [WindowCrop(SIZE), RandomHorizontalFlip(1.0)]),
    ],
)
def test_arguments_are_those_of_transforms(arguments, parts):
    assert list(map(repr, chain(**arguments).transforms[:-1])) == list(map(repr, parts))


def gray(height=2, width=2, value=100):
    return np.full((height, width, 3), value, np.uint8)


def angles(found):
    """Return the degrees, counter-clockwise, by which an image of coordinates was rotated."""
    red = found[:, 0]
    right = (red[:, :, -1] - red[:, :, 0]).mean(1)
    down = (red[:, -1] - red[:, 0]).mean(1)
    return np.degrees(np.arctan2(-down, right))


def test_angles_are_whole_and_even():
    shape = {"data_shape": (3, 21, 21)}
    found = angles(drawn(coordinates(40, 40, 6), max_rotate_angle=10, **shape))
    nearest = np.rint(found)
    assert np.abs(found - nearest).max() < 0.4
    assert even(nearest.astype(int), -10, 10)
    listed = np.rint(angles(drawn(coordinates(40, 40, 6), rotate_list=(-20, 0, 15), **shape)))
    assert np.unique(listed).tolist() == [-20, 0, 15]
    assert min((listed == angle).sum() for angle in (-20, 0, 15)) > 550
    fixed = angles(drawn(coordinates(40, 40, 6), 20, rotate=30, **shape))
    assert np.abs(fixed - 30).max() < 0.4


def test_scales_are_uniform():
    found = drawn(coordinates(60, 60, 4), max_random_scale=1.5, min_random_scale=0.75, data_shape=(3, 21, 21))
    steps = (found[:, 0, :, -1] - found[:, 0, :, 0]).mean(1) / 20
    assert uniform(np.clip(4 / steps, 0.75, 1.5), 0.75, 1.5)


def test_aspect_ratios_are_uniform():
    found = drawn(coordinates(60, 60, 4), max_aspect_ratio=0.5, data_shape=(3, 21, 21))
    along_x = 80 / (found[:, 0, :, -1] - found[:, 0, :, 0]).mean(1)
    along_y = 80 / (found[:, 1, -1] - found[:, 1, 0]).mean(1)
    assert uniform(np.clip(along_y / along_x, 0.5, 1.5), 0.5, 1.5)


def test_shears_are_uniform():
    found = drawn(coordinates(60, 60, 4), max_shear_ratio=0.3, data_shape=(3, 41, 21))
    down = (found[:, 0, -1] - found[:, 0, 0]).mean(1) / 160
    assert uniform(np.clip(down, -0.3, 0.3), -0.3, 0.3)


def test_hue_lightness_and_saturation():
    light = drawn(gray(), random_l=40)[:, 0, 0, 0] - 100
    assert -40 <= light.min() < -34
    assert 34 < light.max() <= 40
    assert abs(light.std() - 80 * np.sqrt(17 / 300)) < 1.2
    colour = gray()
    colour[..., 0] = 180
    hues = drawn(colour, random_h=30)
    assert len(np.unique(hues[:, 1, 0, 0])) > 20
    dull = drawn(colour, random_s=60)
    assert (dull.max(1) - dull.min(1)).std() > 5


def test_contrast_and_illumination():
    found = drawn(gray(), max_random_illumination=20, scale=0.5)[:, 0, 0, 0]
    assert uniform(found, 40, 60)
    found = drawn(gray(), max_random_contrast=0.3, mean_r=50)[:, 0, 0, 0]
    assert uniform(found, 35, 65)


# --- seeds ---

RANDOM = {
    "rand_crop": True,
    "rand_mirror": True,
    "max_random_scale": 1.3,
    "max_random_illumination": 3,
    "max_rotate_angle": 10,
    "random_l": 50,
    "random_s": 40,
    "random_h": 10,
    "max_shear_ratio": 2,
}


def pixels(**arguments):
    """Return two epochs over the golden images."""
    values = {"data_shape": (3, 20, 20), "batch_size": 2, "executor": "inline", **RANDOM, **arguments}
    values = {name: value for name, value in values.items() if value is not None}
    iterator = mx.io.ImageRecordIter(path_imgrec=AUG, **values)
    passes = []
    for _ in range(2):
        passes.append(np.concatenate([batch.data[0] for batch in iterator]))
        iterator.reset()
    return passes


def test_seeds_decide_what_is_drawn():
    first, second = pixels(seed_aug=3)
    assert not np.array_equal(first, second)  # MXNet repeats the same crops in every epoch
    assert all(map(np.array_equal, pixels(seed_aug=3), (first, second)))
    assert all(map(np.array_equal, pixels(seed_aug=3, seed=9), (first, second)))
    assert not np.array_equal(pixels(seed_aug=4)[0], first)
    by_seed = pixels(seed=5)
    assert all(map(np.array_equal, pixels(seed=5), by_seed))
    assert not np.array_equal(pixels(seed=6)[0], by_seed[0])
    unsigned = {"dtype": "uint8", "max_random_illumination": None}
    assert all(map(np.array_equal, pixels(seed_aug=3, **unsigned), pixels(seed_aug=3, **unsigned)))


def test_a_record_that_is_borrowed_is_drawn_again(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    path = write(tmp_path / "a.rec", [image])
    iterator = make(path, batch_size=2, rand_crop=True, seed=1)
    batch = iterator.next()
    assert batch.pad == 1
    assert not np.array_equal(batch.data[0][0], batch.data[0][1])


@with_cases("draws", [{"inter_method": 10, "resize": 17}, {"max_crop_size": 20, "min_crop_size": 10}])
def test_rows_and_passes_do_not_share_their_draws(tmp_path, draws):
    image = np.random.default_rng(0).integers(0, 256, (24, 30, 3), np.uint8)
    iterator = make(write(tmp_path / "a.rec", [image] * 12), data_shape=(3, 16, 16), batch_size=12, **draws)
    first = iterator.next().data[0]
    iterator.reset()
    assert not np.array_equal(first, iterator.next().data[0])
    assert len({row.tobytes() for row in first}) > 1


def test_workers_change_nothing():
    expected = pixels(seed=2, shuffle=True)
    for executor in ("thread", "process"):
        found = pixels(seed=2, shuffle=True, executor=executor, preprocess_threads=2, prefetch_buffer=2)
        assert all(map(np.array_equal, found, expected))
