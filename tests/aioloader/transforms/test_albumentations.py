"""Tests of albumentations' compositions with the sample's draws. Skipped if the package is missing."""

from __future__ import annotations

import os
import pickle
import random
from typing import Any

import numpy as np
import PIL.Image as pillow
import pytest

import aioloader
from aioloader.rng import Rng
from aioloader.transforms import Albumentations, Compose, boxes, is_native
from tests.cases import with_cases

# Otherwise it queries the network for its latest release.
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
A = pytest.importorskip("albumentations", reason="needs the extra aioloader[albumentations]")

DRAWS = 2000


def _image(index: int = 0) -> Any:
    return np.random.RandomState(index).randint(0, 256, (40, 50, 3)).astype(np.uint8)


def _chain(with_boxes: bool = False, **options: Any) -> Any:
    parameters = A.BboxParams(format="pascal_voc", min_visibility=0.1) if with_boxes else None
    return A.Compose(
        [A.RandomCrop(height=30, width=30), A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.5)],
        bbox_params=parameters,
        **options,
    )


def test_the_draws_decide() -> None:
    transform = Albumentations(_chain())
    image = _image()
    made = [transform(image, rng=Rng(1, 0, index)) for index in range(20)]
    again = [pickle.loads(pickle.dumps(transform))(image, rng=Rng(1, 0, index)) for index in range(20)]
    for one, two in zip(made, again, strict=True):
        assert one.shape == (30, 30, 3)
        assert np.array_equal(one, two)
    assert len({one.tobytes() for one in made}) > 15
    assert np.array_equal(image, _image())
    assert not is_native(transform)


def test_parts_of_a_composition_draw_numbers_of_their_own() -> None:
    transform = Albumentations(A.Compose([A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5)]))
    image = np.zeros((2, 2, 3), np.uint8)
    image[0, 0] = 255
    seen = [
        tuple(np.argwhere(transform(image, rng=Rng(2, 0, index))[..., 0])[0].tolist())
        for index in range(DRAWS)
    ]
    # Four equally likely outcomes: with one seed for all parts there would be two.
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert abs(seen.count(place) / DRAWS - 0.25) < 4 * (0.1875 / DRAWS) ** 0.5


def test_boxes_travel_along() -> None:
    chain = A.Compose([A.HorizontalFlip(p=1.0)], bbox_params=A.BboxParams(format="pascal_voc"))
    given = np.array([[10, 5, 20, 15, 3, 0.5], [0, 0, 50, 40, 7, 1]], np.float32)
    made, found, name = Albumentations(chain)(_image(), given, "name", rng=Rng(3))
    assert np.array_equal(made, _image()[:, ::-1])
    assert np.allclose(found, [[30, 5, 40, 15, 3, 0.5], [0, 0, 50, 40, 7, 1]])
    assert (found.dtype, name) == (np.float32, "name")
    _, none = Albumentations(chain)(_image(), np.zeros((0, 6), np.float32), rng=Rng(3))
    assert none.shape == (0, 6)


def test_fields_of_objects_keep_their_columns_and_types_without_objects() -> None:
    params = A.BboxParams("pascal_voc", label_fields=["classes"])
    chain = Albumentations(A.Compose([A.Crop(20, 20, 40, 40)], bbox_params=params))
    for count in (0, 1):  # none there, and one that the crop leaves out
        boxes = np.tile([2.0, 2.0, 8.0, 8.0, 0.5], (count, 1))
        made = chain({"image": _image(), "bboxes": boxes, "classes": np.ones(count, np.int64)}, rng=Rng(0))
        assert (made["bboxes"].shape, made["bboxes"].dtype) == ((0, 5), np.float64)
        assert (made["classes"].shape, made["classes"].dtype) == ((0,), np.int64)


def test_it_stands_in_a_chain_with_boxes() -> None:
    chain = boxes.Compose(
        [boxes.RandomHorizontalFlip(1.0), Albumentations(_chain(True)), boxes.Resize((60, 60))]
    )
    made, found = chain(_image(), [[10, 10, 45, 35]], rng=Rng(4))
    assert made.shape == (60, 60, 3)
    assert found.shape[1] == 4


def _mask(index: int = 0) -> Any:
    return _image(index)[..., 0] // 64


def _fields(**options: Any) -> Any:
    return A.Compose([A.RandomCrop(30, 30), A.HorizontalFlip(p=0.5), A.Rotate(30)], **options)


@with_cases(
    "fields",
    [
        {"mask": _mask()},
        {"mask": _image()[..., :2]},
        {"masks": [_mask(), _mask(1)]},
        {"masks": np.stack([_mask(), _mask(1)])},
        {"mask": _mask(), "bboxes": np.array([[0.2, 0.2, 0.9, 0.9]]), "classes": ["cat"]},
        {"keypoints": np.array([[20.0, 15.0]]), "depth": _mask()},
        {"masks": []},
    ],
)
@with_cases("strict", [False, True])
def test_fields_of_a_dict_by_the_names_of_albumentations(fields: dict[str, Any], strict: bool) -> None:
    """Compare with the composition itself, called with these fields."""
    targets = {"additional_targets": {"depth": "mask"}, "strict": strict}
    if "bboxes" in fields:
        targets["bbox_params"] = A.BboxParams("albumentations", label_fields=["classes"])
    if "keypoints" in fields:
        targets["keypoint_params"] = A.KeypointParams("xy")
    others = {"name": "a", "label": 3, "weights": np.arange(3), 7: "not a name"}
    for seed in range(4):
        composition = _fields(**targets)
        word = Rng(seed).integers(1 << 63)
        composition.set_random_state(np.random.default_rng(word), random.Random(word))
        expected = composition(image=_image(), **fields)
        given = {"label": 3, **fields, "image": _image(), **others}
        for call in (Albumentations(_fields(**targets)), Compose([Albumentations(_fields(**targets))])):
            made = call(given, rng=Rng(seed))
            assert list(made) == list(given)
            for name, value in made.items():
                wanted = others[name] if name in others else expected[name]
                assert type(value) is type(wanted)
                assert np.array_equal(value, wanted)


def test_elements_of_a_tuple_that_are_masks() -> None:
    transform = Albumentations(_fields())
    planes = np.stack([_mask(), _mask(1)])
    expected = transform({"image": _image(), "mask": _mask(), "masks": planes}, rng=Rng(1))
    image, mask = transform(_image(), _mask(), rng=Rng(1))
    assert np.array_equal(image, expected["image"])
    assert np.array_equal(mask, expected["mask"])
    _, masks, label, mask, name = transform(_image(), planes, 3, _mask(), "name", rng=Rng(1))
    assert np.array_equal(masks, expected["masks"])
    assert np.array_equal(mask, expected["mask"])
    assert (label, name) == (3, "name")
    image, label = transform(_image(), 7, rng=Rng(1))
    assert np.array_equal(image, expected["image"])
    assert label == 7
    with pytest.raises(ValueError, match="two masks"):
        transform(_image(), _mask(), _mask(), rng=Rng(1))
    # With boxes, they are the element after the image.
    params = A.BboxParams(format="pascal_voc")
    flip = Albumentations(A.Compose([A.HorizontalFlip(p=1.0)], bbox_params=params))
    image, found, mask, label = flip(_image(), [[10, 5, 20, 15, 3]], _mask(), 4, rng=Rng(3))
    assert np.array_equal(mask, _mask()[:, ::-1])
    assert np.allclose(found, [[30, 5, 40, 15, 3]])
    assert label == 4


@with_cases(
    ("fields", "text"),
    [
        ({"depth": _mask()}, r"'depth'.*additional_targets.*keep"),
        ({"label": _mask()}, r"'label'.*additional_targets"),
        ({"boxes": np.zeros((1, 4))}, r"'boxes'.*'bboxes'"),
        ({"target": {"masks": np.zeros((1, 40, 50))}}, "'target'"),
        ({"bboxes": np.ones((1, 4))}, "bbox_params=BboxParams"),
        ({"keypoints": np.ones((1, 2))}, "keypoint_params=KeypointParams"),
    ],
)
def test_a_field_that_would_stay_behind_is_refused(fields: dict[str, Any], text: str) -> None:
    (name,) = fields
    with pytest.raises(ValueError, match=text):
        Albumentations(_fields())({"image": _image(), **fields})
    made = Albumentations(_fields(), keep=name)({"image": _image(), **fields})
    assert made[name] is fields[name]
    with pytest.raises(TypeError, match="a dict with an image"):
        Albumentations(_fields())({"mask": _mask()})


@with_cases("kind", ["pillow", "rows"])
def test_masks_that_are_no_arrays_are_named(kind: str) -> None:
    mask: Any = _mask().tolist() if kind == "rows" else pillow.fromarray(_mask())
    transform = Albumentations(_fields(additional_targets={"depth": "mask"}))
    for fields in ({"mask": mask}, {"masks": [_mask(), mask]}, {"depth": mask}):
        (name,) = fields
        with pytest.raises(TypeError, match=rf"'{name}' must be a numpy array.*np\.asarray"):
            transform({"image": _image(), **fields})
    with pytest.raises(TypeError, match=r"must be a numpy array.*np\.asarray"):
        transform(_image(), mask)


@with_cases("as_dict", [True, False])
def test_batches_do_not_depend_on_the_workers_and_masks_stay_on_their_images(as_dict: bool) -> None:
    grey = [np.full((40, 50, 3), index, np.uint8) for index in range(40)]
    for image in grey:
        image[5:20, 9:30] = 255
    rows = [{"image": image, "mask": image[..., 0]} for image in grey]
    data = aioloader.SimpleDataset(rows if as_dict else [tuple(row.values()) for row in rows])
    viewed = data.transform(Albumentations(A.Compose([A.RandomCrop(20, 20), A.D4(p=1)])))

    def run(**options: Any) -> Any:
        with aioloader.DataLoader(viewed, 4, seed=6, **options) as loader:
            batches = [batch.values() if as_dict else batch for _ in range(2) for batch in loader]
            return [[np.array(part) for part in batch] for batch in batches]

    found = run(executor="thread", num_workers=4)
    for one, two in zip(found, run(num_workers=0), strict=True):
        assert np.array_equal(one[0][..., 1], one[1])
        assert np.array_equal(one[0], two[0])
    assert not np.array_equal(found[0][0], found[10][0])  # another epoch


def test_what_it_does_not_take() -> None:
    with pytest.raises(TypeError, match=r"release 2\.0"):
        Albumentations(lambda image: image)
    for params, text in (
        (A.BboxParams(format="yolo"), "pascal_voc"),
        (A.BboxParams(format="pascal_voc", label_fields=["names"]), "label_fields"),
    ):
        with pytest.raises(ValueError, match=text):
            Albumentations(A.Compose([A.HorizontalFlip()], bbox_params=params))(_image(), [[1, 2, 3, 4]])
    with pytest.raises(ValueError, match="does not transform boxes"):
        Albumentations(_chain())(_image(), [[1, 2, 3, 4]], rng=Rng(5))
