"""Tests of transforms with boxes: boxes stay on their objects, and the image equals the image transform's."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioloader
from aioloader import batchify, transforms
from aioloader.rng import Rng
from aioloader.transforms import boxes as bx
from aioloader.transforms import is_native
from tests.cases import with_cases

H, W = 48, 64
COLOURS = [(250, 10, 10), (10, 250, 10), (10, 10, 250)]
DRAWS = 2000


def _scene(seed: int) -> tuple[Any, Any]:
    """Draw a black image with up to three disjoint boxes of different colours, and the boxes with two columns."""
    draws = np.random.RandomState(seed)
    image = np.zeros((H, W, 3), np.uint8)
    rows = []
    for number in range(draws.randint(1, 4)):
        left, top = 21 * number, draws.randint(0, H - 20)
        width, height = draws.randint(6, 21), draws.randint(6, 21)
        image[top : top + height, left : left + width] = COLOURS[number]
        rows.append([left, top, left + width, top + height, number, seed])
    return image, np.array(rows, np.float32)


def _found(image: Any, number: int) -> Any:
    """Return the box of the pixels of box `number`; None if there are none."""
    rows, columns = np.nonzero((np.asarray(image) == COLOURS[number]).all(axis=2))
    if not len(rows):
        return None
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


# No transform here interpolates, so that colours do not change.
EXACT = {
    "flip left right": bx.RandomHorizontalFlip(1.0),
    "flip top bottom": bx.RandomVerticalFlip(1.0),
    "pad": bx.Pad((5, 3, 2, 0), fill=(1, 2, 3)),
    "center crop": bx.CenterCrop((40, 30)),
    "random crop": bx.RandomCrop((40, 30)),
    "object crop": bx.RandomObjectCrop(0.2, (0.5, 2.0), (0.1, 0.9), 0.0),
    "expand": bx.RandomExpand((0.5, 2.0), (1.2, 4.0), value=9),
    "chain": bx.Compose(
        [bx.RandomHorizontalFlip(), bx.RandomExpand(), bx.RandomObjectCrop(min_eject_coverage=0.0), bx.Pad(2)]
    ),
    "sometimes": bx.RandomApply(bx.RandomVerticalFlip(1.0), 0.5),
}
RESIZED = {
    "resize": bx.Resize((31, 57)),
    "shorter side": bx.Resize(90),
    "resized crop": bx.RandomResizedCrop((33, 44), (0.2, 1.0)),
    "small crop": bx.CenterCrop((100, 100)),
}
ALL = {**EXACT, **RESIZED}


@given(name=st.sampled_from(list(EXACT)), seed=st.integers(0, 10_000))
@settings(max_examples=2 * settings().max_examples)
def test_boxes_stay_on_their_objects(name: str, seed: int) -> None:
    image, boxes = _scene(seed)
    made, found = EXACT[name](image, boxes, rng=Rng(1, 0, seed))
    seen = {}
    for row in found:
        number = int(row[4])
        assert row[5] == seed
        assert row[:4].tolist() == _found(made, number)
        seen[number] = True
    for number in range(len(boxes)):
        if number not in seen:
            assert _found(made, number) is None
    assert found[:, 4].tolist() == sorted(found[:, 4])  # in their order


@given(name=st.sampled_from(list(RESIZED)), seed=st.integers(0, 10_000))
def test_boxes_are_resized_with_the_image(name: str, seed: int) -> None:
    image, boxes = _scene(seed)
    made, found = RESIZED[name](image, boxes, rng=Rng(1, 0, seed))
    height, width = made.shape[:2]
    assert (found[:, :4] >= 0).all()
    assert (found[:, [0, 2]] <= width).all()
    assert (found[:, [1, 3]] <= height).all()
    for row in found:
        x0, y0, x1, y1 = row[:4]
        if x1 - x0 > 6 and y1 - y0 > 6:
            middle = np.asarray(made)[int((y0 + y1) / 2), int((x0 + x1) / 2)]
            assert np.abs(middle.astype(int) - COLOURS[int(row[4])]).max() < 60


@with_cases("transform", ALL.values(), ids=ALL)
def test_seeds_decide_copies_behave_alike_and_no_input_is_altered(transform: Any) -> None:
    assert is_native(transform)
    assert isinstance(transform, transforms.BoxTransform)
    image, boxes = _scene(3)
    image.flags.writeable = boxes.flags.writeable = False
    copy = pickle.loads(pickle.dumps(transform))
    assert repr(copy) == repr(transform)
    for index in range(8):
        one = transform(image, boxes, "name", 7, rng=Rng(3, 1, index))
        two = copy(image, boxes, rng=Rng(3, 1, index))
        assert one[2:] == ("name", 7)
        assert np.array_equal(one[0], two[0])
        assert np.array_equal(one[1], two[1])
    again = _scene(3)
    assert np.array_equal(image, again[0])
    assert np.array_equal(boxes, again[1])


@with_cases("transform", ALL.values(), ids=ALL)
def test_no_boxes_and_boxes_of_any_dtype(transform: Any) -> None:
    image, boxes = _scene(5)
    for none in (np.zeros((0, 4), np.float32), np.zeros((0, 6)), []):
        made, found = transform(image, none, rng=Rng(4))
        assert len(found) == 0
        assert found.shape[1] >= 4
        assert np.array_equal(transform(image, rng=Rng(4)), made)
    assert transform(image, boxes.astype(np.float64), rng=Rng(6))[1].dtype == np.float64
    assert transform(image, boxes.astype(int), rng=Rng(6))[1].dtype == np.float32
    with pytest.raises(ValueError, match="boxes must be"):
        transform(image, boxes[:, :3], rng=Rng(6))


@with_cases(
    "kind",
    [
        bx.RandomHorizontalFlip,
        bx.RandomVerticalFlip,
        bx.Resize,
        bx.CenterCrop,
        bx.RandomCrop,
        bx.RandomResizedCrop,
    ],
)
def test_images_are_those_of_the_transform_for_images(kind: Any) -> None:
    argument: Any = 0.5 if kind.__name__.endswith("Flip") else (20, 30) if kind is bx.Resize else 20
    with_boxes, alone = kind(argument), getattr(transforms, kind.__name__)(argument)
    image, boxes = _scene(8)
    for index in range(20):
        rng, other = Rng(7, 0, index), Rng(7, 0, index)
        assert np.array_equal(with_boxes(image, boxes, rng=rng)[0], alone(image, rng=other))
        assert rng.random() == other.random()


def test_min_coverage_decides_which_boxes_stay() -> None:
    image = np.zeros((10, 20, 3), np.uint8)
    boxes = [[0, 0, 10, 10], [8, 0, 12, 10], [14, 0, 20, 10]]
    crops = {share: bx.CenterCrop(10, share)(image, boxes)[1].tolist() for share in (0.0, 0.17, 0.5, 0.6)}
    assert crops[0.0] == [[0, 0, 5, 10], [3, 0, 7, 10], [9, 0, 10, 10]]
    assert crops[0.17] == [[0, 0, 5, 10], [3, 0, 7, 10]]
    assert crops[0.5] == [[3, 0, 7, 10]]
    assert crops[0.6] == [[3, 0, 7, 10]]


def test_boxes_of_an_image_with_as_many_columns_are_no_mask() -> None:
    image, found = bx.CenterCrop((1, 2))(np.zeros((1, 4, 3), np.uint8), np.array([[0.0, 0.0, 4.0, 1.0]]))
    assert (image.shape, found.tolist()) == ((1, 2, 3), [[0, 0, 2, 1]])


def test_boxes_at_the_border_and_without_area() -> None:
    image = np.zeros((10, 10, 3), np.uint8)
    boxes = np.array([[0, 0, 10, 10], [5, 5, 5, 9], [10, 10, 12, 12]], np.float32)
    assert bx.CenterCrop(10)(image, boxes)[1].tolist() == [[0, 0, 10, 10]]
    assert bx.RandomHorizontalFlip(1.0)(image, boxes)[1].tolist() == [
        [0, 0, 10, 10],
        [5, 5, 5, 9],
        [-2, 10, 0, 12],
    ]


def test_geometry() -> None:
    boxes = np.array([[0, 0, 4, 2], [3, 3, 1, 5]], np.float32)
    assert bx.box_areas(boxes).tolist() == [8, 0]
    assert bx.box_coverages(boxes, (2, 1, 9, 9)).tolist() == [0.25, 0]
    assert bx.shift_boxes(boxes, 1, 2)[0].tolist() == [1, 2, 5, 4]
    assert bx.resize_boxes(boxes, (4, 4), (2, 8))[0].tolist() == [0, 0, 8, 1]
    assert bx.flip_boxes(boxes, 10, 1)[0].tolist() == [0, 8, 4, 10]


@given(
    before=st.integers(1, 5000), after=st.integers(1, 5000), dtype=st.sampled_from([np.float32, np.float64])
)
def test_what_ends_at_the_edge_does_so_in_the_resized_image(before: int, after: int, dtype: Any) -> None:
    boxes = np.array([[0, 0, before, before]], dtype)
    found = bx.resize_boxes(boxes, (before, before), (after, after))
    assert found.dtype == dtype
    assert found.tolist() == [[0, 0, after, after]]


def test_an_overlap_that_is_only_rounding_is_none() -> None:
    boxes = np.array([[0, 0, 10.0004, 8], [0, 0, 10.004, 8], [12, 0, 12.0004, 8]])
    assert bx.crop_boxes(boxes, (10, 0, 5, 8)).tolist() == [pytest.approx([0, 0, 0.004, 8])]


def test_values_of_added_pixels() -> None:
    image = np.full((2, 2, 3), 9, np.uint8)
    assert bx.Pad(1, 300)(image)[0].tolist() == [[255] * 3] * 4
    assert bx.Pad((0, 1, 0, 0), (-1, 1.6, 3))(image)[0].tolist() == [[0, 2, 3]] * 2
    assert bx.Pad((0, 1, 0, 0), 0.25)(image.astype(np.float32))[0].tolist() == [[0.25] * 3] * 2


# --- guarantees of crops and canvases ---


@with_cases("covered", [0.1, 0.5, 0.9])
def test_object_crops_show_enough(covered: float) -> None:
    crop = bx.RandomObjectCrop(covered, (0.5, 2.0), (0.05, 0.6), 0.3, max_attempts=10)
    image, boxes = _scene(2)
    changed = 0
    for index in range(DRAWS // 2):
        rectangle = crop.rectangle(H, W, boxes, Rng(8, 0, index))
        if rectangle is None:
            continue
        changed += 1
        x, y, width, height = rectangle
        assert 0 <= x <= x + width <= W
        assert 0 <= y <= y + height <= H
        slack = (width + height + 1) / 2 / (H * W)
        assert 0.05 - slack <= width * height / (H * W) <= 0.6 + slack
        assert 0.5 - 1 / height <= width / height <= 2.0 + 1 / height
        coverages = bx.box_coverages(boxes, rectangle)
        assert coverages[coverages > 0].min() > covered
        assert coverages.max() > 0.3
        if index % 100 == 0:
            found = crop(image, boxes, rng=Rng(8, 0, index))[1]
            assert len(found) == (coverages > 0.3).sum()
    assert changed > DRAWS * 0.1


def test_object_crops_of_an_image_without_boxes_reach_all_of_their_ranges() -> None:
    crop = bx.RandomObjectCrop(0.1, (0.75, 1.33), (0.2, 0.5))
    none = np.zeros((0, 4), np.float32)
    found = np.array([crop.rectangle(100, 120, none, Rng(9, 0, index)) for index in range(DRAWS)], float)
    shares, ratios = found[:, 2] * found[:, 3] / 12_000, found[:, 2] / found[:, 3]
    assert 0.19 < shares.min() < 0.22
    assert 0.48 < shares.max() < 0.51
    assert 0.73 < ratios.min() < 0.77
    assert 1.31 < ratios.max() < 1.35
    assert abs((found[:, 0] / (120 - found[:, 2])).mean() - 0.5) < 0.03
    assert abs((found[:, 1] / (100 - found[:, 3])).mean() - 0.5) < 0.03


def test_canvases_reach_all_of_their_ranges() -> None:
    expand = bx.RandomExpand((0.75, 1.33), (1.0, 3.0))
    found = np.array([expand.canvas(60, 60, Rng(10, 0, index)) for index in range(DRAWS)], float)
    shares, ratios = found[:, 2] * found[:, 3] / 3600, found[:, 2] / found[:, 3]
    assert 1.0 < shares.min() < 1.2
    assert 2.9 < shares.max() < 3.05
    assert 0.73 < ratios.min() < 0.78
    assert 1.30 < ratios.max() < 1.35
    assert (found[:, 2:] >= 62).all()
    assert abs((found[:, :2] / (found[:, 2:] - 60)).mean() - 0.5) < 0.03


# --- chains ---


def test_colours_and_tensors_are_taken_as_they_are() -> None:
    image, boxes = _scene(9)
    chain = bx.Compose(
        [bx.RandomHorizontalFlip(1.0), transforms.RandomBrightness(0.2), transforms.ToTensor()]
    )
    made, found = chain(image, boxes, rng=Rng(12))
    assert (made.shape, made.dtype) == ((3, H, W), np.float32)
    assert np.array_equal(found, bx.flip_boxes(boxes, W, 0))


def test_transforms_of_images_that_move_pixels_move_the_boxes_too() -> None:
    image, boxes = _scene(9)
    made, found = bx.Compose([transforms.Resize(10), transforms.CenterCrop(8)])(image, boxes)
    expected = bx.Compose([bx.Resize(10), bx.CenterCrop(8)])(image, boxes)
    assert np.array_equal(made, expected[0])
    assert np.array_equal(found, expected[1])
    turned, found = bx.Compose([transforms.RandomRotation((90, 90), expand=True)])(image, boxes)
    assert turned.shape == (W, H, 3)
    assert np.allclose(
        found[:, :4], np.stack([boxes[:, 1], W - boxes[:, 2], boxes[:, 3], W - boxes[:, 0]], 1)
    )


def test_what_changes_the_image_only_leaves_the_boxes() -> None:
    image, boxes = _scene(9)
    made, found = bx.Compose([bx.ImageOnly(lambda image: 255 - image)])(image, boxes)
    assert np.array_equal(made, 255 - image)
    assert np.array_equal(found, boxes)
    assert not is_native(bx.Compose([bx.ImageOnly(lambda image: image)]))


class Shift(bx.BoxTransform):
    """Custom transform that moves the image to the right."""

    def apply_boxes(self, x: Any, boxes: Any, rng: Any) -> Any:
        places = rng.integers(5)
        return np.roll(x, places, axis=1), bx.shift_boxes(boxes, places, 0)


def test_a_transform_of_one_s_own() -> None:
    image, boxes = _scene(0)
    made, found = bx.Compose([Shift(), bx.Resize((H, W))])(image, boxes, rng=Rng(13))
    offset = found[0, 0] - boxes[0, 0]
    assert np.array_equal(made, np.roll(image, int(offset), axis=1))


# --- in a loader ---


class Scenes(aioloader.Dataset):
    """Dataset of (image, boxes, number)."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return (*_scene(index), index)


def test_batches_of_boxes(leftovers: Any) -> None:
    chain = bx.Compose(
        [
            bx.RandomExpand(),
            bx.RandomObjectCrop(),
            bx.RandomHorizontalFlip(),
            bx.Resize((32, 32)),
            transforms.ToTensor(),
        ]
    )
    collate = batchify.Group(batchify.Stack(), batchify.Pad(val=-1), batchify.Stack())

    def run(executor: str) -> list[Any]:
        with aioloader.DataLoader(
            Scenes().transform(chain), 4, batchify_fn=collate, executor=executor, seed=5
        ) as loader:
            return [tuple(np.array(part) for part in batch) for _ in range(2) for batch in loader]

    batches = run("thread")
    for images, boxes, numbers in batches:
        assert images.shape == (4, 3, 32, 32)
        assert boxes.shape[0] == 4
        assert boxes.shape[2] == 6
        assert (boxes[boxes[..., 4] >= 0][:, 5] >= 0).all()
        assert len(numbers) == 4
    assert not np.array_equal(batches[0][0], batches[3][0])  # another epoch
    for one, two in zip(batches, run("inline"), strict=True):
        for left, right in zip(one, two, strict=True):
            assert np.array_equal(left, right)
