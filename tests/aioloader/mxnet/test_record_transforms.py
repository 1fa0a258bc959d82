"""Tests of the transforms of MXNet's record iterator: the contract, MXNet's arithmetic, and the draws."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.foundation.types import ArraySpec
from aioloader.mxnet.gluon_geometry import Resize
from aioloader.mxnet.io.record_geometry import AreaCrop, Border, RandomAffine, SquareCrop, WindowCrop
from aioloader.transforms import Compose, RandomHorizontalFlip, is_native
from aioloader.transforms.color import RandomHLS, shift_hls
from aioloader.transforms.fused import table_length
from aioloader.transforms.planes import ToPlanes
from tests.aioloader.transforms.chains import H, W
from tests.aioloader.transforms.contract import Contract, draws, image
from tests.aioloader.transforms.drawn import even, uniform
from tests.aioloader.transforms.fusing import check, images, make
from tests.cases import with_cases

DRAWS = 2500

MEAN = np.random.default_rng(8).normal(100, 20, (3, H, W)).astype(np.float32)
TRANSFORMS = {
    "window": WindowCrop((20, 24)),
    "window-random": WindowCrop((20, 24), random=True),
    "window-of-the-size": WindowCrop((W, H), random=True),
    "window-enlarges": WindowCrop((60, 50), interpolation="auto"),
    "window-enlarges-twice": WindowCrop((90, 50), random=True, interpolation="random"),
    "square": SquareCrop((20, 24), (9, 30), random=True),
    "square-middle": SquareCrop(30, (20, 20), interpolation="area"),
    "area": AreaCrop((20, 24), (0.1, 1.0), (0.5, 2.0)),
    "area-never-fits": AreaCrop((60, 24), (1.5, 2.0)),
    "affine-nothing": RandomAffine(),
    "affine": RandomAffine(
        shear=0.2, max_angle=30, scale=(0.7, 1.3), ratio=(0.8, 1.2), fill=9, interpolation="random"
    ),
    "affine-angles": RandomAffine(angles=(0, 90), extents=(40, 50)),
    "border": Border(3, 7),
    "border-none": Border(0),
    "hls": RandomHLS(30, 60, 60),
    "hls-nothing": RandomHLS(),
    "planes": ToPlanes((1, 2, 3, 4), std=(2, 3, 4, 5), scale=0.5),
    "planes-random": ToPlanes(contrast=0.3, illumination=9),
    "planes-uint8": ToPlanes(dtype="uint8"),
    "planes-int8": ToPlanes((100, 120.5, 130.4, 0), dtype="int8"),
    "minus-image": ToPlanes(MEAN, mirror=0.5, std=(1, 2, 3, 4), scale=0.5, contrast=0.2, illumination=3),
    "minus-image-int8": ToPlanes(MEAN, mirror=1.0, dtype="int8"),
    "minus-image-uint8": ToPlanes(MEAN, mirror=1.0, dtype="uint8"),
}


@with_cases(
    ("transform", "dtype"), [(transform, np.uint8) for transform in TRANSFORMS.values()], ids=TRANSFORMS
)
class TestOne(Contract):
    """All of them, with bytes."""

    def test_out_spec_is_correct(self, transform, dtype):
        spec = transform.out_spec(ArraySpec((H, W, 3), np.dtype(dtype)))
        result = transform(image(), rng=draws())
        assert (spec.dtype, len(spec.shape)) == (result.dtype, result.ndim)
        assert all(each in (None, found) for each, found in zip(spec.shape, result.shape, strict=True))


@with_cases("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_the_draws_do_not_depend_on_the_pixels(transform):
    assert is_native(transform)
    assert transform.out_spec(None) is None
    after = set()
    for x in (image(), np.zeros_like(image())):
        rng = draws()
        transform(x, rng=rng)
        after.add(rng.random())
    assert len(after) == 1


CHAINS = {
    "train": [Resize(40, True), WindowCrop(32, True), RandomHorizontalFlip(), ToPlanes((1, 2, 3, 4))],
    "train-area": [AreaCrop(32, (0.1, 1), (0.7, 1.4)), RandomHorizontalFlip(), ToPlanes((1, 2, 3, 4))],
    "evaluate": [WindowCrop(32), ToPlanes(scale=0.5)],
    "enlarged": [WindowCrop((150, 120), True), RandomHorizontalFlip(), ToPlanes(dtype="uint8")],
    "resized-and-enlarged": [Resize(20, True), WindowCrop(32), ToPlanes(dtype="int8")],
    "square": [SquareCrop(24, (20, 30), True), RandomHLS(9, 9, 9), ToPlanes(contrast=0.1)],
    "warped": [
        RandomAffine(shear=0.1, max_angle=20),
        Border(3),
        WindowCrop(32, True),
        RandomHorizontalFlip(),
        ToPlanes(),
    ],
    "minus-image": [
        WindowCrop((W, H), True),
        ToPlanes(MEAN, mirror=0.5),
    ],
}
KINDS = ("jpeg-420", "restarts-420", "large", "exif-6", "png", "raw", "truncated", "no-image")


@with_cases("kind", KINDS)
@with_cases("chain", CHAINS.values(), ids=CHAINS)
def test_fused_with_decoding_they_give_the_same(chain, kind):
    stages = [Compose(chain)]
    plan = make(stages)
    for index in range(3):
        check(images()[kind], stages, index, plan)


def test_planes_without_draws_are_a_table():
    assert table_length([ToPlanes((1, 2, 3, 4), scale=0.1)]) == 1
    assert table_length([ToPlanes(contrast=0.1)]) == 0
    assert table_length([ToPlanes(dtype="uint8")]) == 0


# --- the arithmetic ---


@with_cases(
    ("height", "width", "size", "sizes"),
    [
        pytest.param(40, 60, (48, 48), [(72, 48)], id="higher"),
        pytest.param(60, 40, (48, 48), [(48, 72)], id="wider"),
        pytest.param(33, 20, (50, 40), [(24, 40), (50, 83)], id="both"),
        pytest.param(40, 60, (24, 24), [], id="none"),
    ],
)
def test_small_images_are_enlarged_step_by_step(height, width, size, sizes):
    x = image(height=height, width=width)
    expected = x
    for step in sizes:
        expected = cv2.resize(expected, step)
    left, top = (expected.shape[1] - size[0]) // 2, (expected.shape[0] - size[1]) // 2
    expected = expected[top : top + size[1], left : left + size[0]]
    assert np.array_equal(WindowCrop(size)(x), expected)


@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_a_window_always_has_its_size(height, width, w, h, random):
    assert WindowCrop((w, h), random)(image(height=height, width=width), rng=draws()).shape == (h, w, 3)
    assert AreaCrop((w, h), (0.2, 1))(image(height=height, width=width), rng=draws()).shape == (h, w, 3)


def test_an_affine_without_changes_changes_nothing():
    assert np.array_equal(RandomAffine()(image()), image())
    x = image(height=30, width=30)
    # MXNet rotates about the point at half the extents, which is half a pixel away from the centre.
    turned = RandomAffine(angles=(90,), fill=7)(x)
    assert np.array_equal(turned[1:], np.rot90(x)[:-1])
    assert (turned[0] == 7).all()
    grey = RandomAffine(angles=(30,))(x[..., :1])
    assert np.array_equal(grey[..., 0], RandomAffine(angles=(30,))(np.repeat(x[..., :1], 3, 2))[..., 1])


@with_cases(("scale", "expected"), [(0.5, (18, 20)), (1.5, (55, 61)), (0.001, (1, 1))])
def test_an_affine_scales_the_extents(scale, expected):
    assert RandomAffine(scale=(scale, scale))(image()).shape[:2] == expected
    limited = RandomAffine(scale=(scale, scale), extents=(30, 40))(image()).shape[:2]
    assert limited == tuple(min(40, max(30, int(extent * scale))) for extent in (H, W))


@with_cases("scale", [0.01, 1e-7])
@with_cases("interpolation", [0, 1])
def test_an_affine_takes_nothing_from_places_far_outside(scale, interpolation):
    affine = RandomAffine(scale=(scale, scale), extents=(1400, np.inf), fill=7, interpolation=interpolation)
    shown = np.argwhere((affine(np.zeros((150, 150, 1), np.uint8)) != 7)[..., 0])
    assert len(shown) < 9
    assert np.abs(shown - 700).max(initial=0) <= 2


@with_cases(("value", "expected"), [(300, 255), (-3, 0), (127.6, 128)])
def test_values_of_borders_stop_at_the_ends(value, expected):
    bordered = Border(2, value)(image())
    assert (bordered[:2] == expected).all()
    assert np.array_equal(bordered[2:-2, 2:-2], image())


@given(st.integers(-40, 40), st.integers(-90, 90), st.integers(-90, 90))
def test_shifts_of_hls_are_opencv_s(hue, lightness, saturation):
    x = image(height=9, width=8)
    hls = cv2.cvtColor(x, cv2.COLOR_RGB2HLS).astype(int)
    shifted = np.clip(hls + np.array([hue, lightness, saturation]), 0, (180, 255, 255)).astype(np.uint8)
    expected = cv2.cvtColor(shifted, cv2.COLOR_HLS2RGB) if hue or lightness or saturation else x
    assert np.array_equal(shift_hls(x, hue, lightness, saturation), expected)


@given(
    st.lists(st.floats(-200, 300, width=32), min_size=4, max_size=4),
    st.lists(st.floats(0.125, 200, width=32), min_size=4, max_size=4),
    st.floats(-2, 2, width=32),
    st.sampled_from([1, 3, 4]),
)
def test_planes_are_normalised_in_single_precision(mean, std, scale, channels):
    x = image(channels=channels)
    factor = np.float32(scale) / np.array(std, np.float32)
    expected = [(x[..., c].astype(np.float32) - np.float32(mean[c])) * factor[c] for c in range(channels)]
    assert np.array_equal(ToPlanes(mean, std=std, scale=scale)(x), expected)


def test_planes_of_int8_saturate():
    x = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    found = ToPlanes((127.5, 0, 0, 0), dtype="int8")(x)
    assert found.ravel().tolist() == [max(-128, value - 128) for value in range(256)]
    assert ToPlanes((0, 0, 0, 0), dtype="int8")(x).ravel().tolist() == [
        min(127, value) for value in range(256)
    ]


@with_cases(
    "call",
    [
        lambda: SquareCrop(5, (6, 5)),
        lambda: SquareCrop(5, (40, 41))(image()),
        lambda: AreaCrop(5, (0, 1)),
        lambda: AreaCrop(5, ratio=(2, 1)),
        lambda: RandomAffine(scale=(0, 1)),
        lambda: RandomAffine(shear=-1),
        lambda: RandomAffine(extents=(5, 4)),
        lambda: Border(-1),
        lambda: ToPlanes(std=(0, 1, 1, 1)),
        lambda: ToPlanes(mean=(0,)),
        lambda: ToPlanes(dtype="float64"),
        lambda: ToPlanes()(image().astype(np.float32)),
        lambda: ToPlanes(MEAN)(image(height=5, width=5)),
        lambda: RandomHLS(1, 1, 1)(image(channels=1)),
    ],
)
def test_wrong_options_are_refused(call):
    with pytest.raises(ValueError, match=r"\w"):
        call()


# --- draws ---


def test_crops_by_area_are_distributed_as_mxnet_s():
    crop = AreaCrop(16, (0.2, 0.5), (0.75, 1.25))
    boxes = np.array([crop.box(400, 400, draws(n)) for n in range(DRAWS)], float)
    area = boxes[:, 2] * boxes[:, 3] / 160_000
    assert uniform(np.clip(area, 0.2, 0.5), 0.2, 0.5)
    wide = boxes[:, 2] / boxes[:, 3]
    ratio = np.where(wide > 1.25, 1 / wide, wide)
    # Either side may be the longer one.
    assert ratio.min() >= 0.74
    assert wide.max() <= 1 / 0.74
    assert abs((wide > 1).mean() - 0.5) < 0.05
    assert uniform(boxes[:, 0] / (401 - boxes[:, 2]), 0, 1)
    assert uniform(boxes[:, 1] / (401 - boxes[:, 3]), 0, 1)


def test_squares_have_every_side_as_often():
    crop = SquareCrop(16, (10, 29), random=True)
    boxes = np.array([crop.box(60, 50, draws(n)) for n in range(DRAWS)])
    assert (boxes[:, 2] == boxes[:, 3]).all()
    assert even(boxes[:, 2], 10, 29)


def test_windows_of_enlarged_images_lie_everywhere_as_often():
    crop = WindowCrop((20, 30), random=True)
    assert even([crop.box(15, 20, draws(n)).place[0] for n in range(DRAWS)], 0, 20)


def test_planes_are_mirrored_as_often_as_not():
    x = np.array([[[0] * 3, [200] * 3]], np.uint8)
    mirrored = [ToPlanes(np.zeros((3, 1, 2)), mirror=0.5)(x, rng=draws(n))[0, 0, 0] > 0 for n in range(DRAWS)]
    assert abs(np.mean(mirrored) - 0.5) < 0.04
