"""Tests of samples with boxes, masks and keypoints: the targets stay on their objects, with one draw for all."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image as pillow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import DataLoader, SimpleDataset, TarDataset
from aioloader import transforms as t
from aioloader.rng import Rng
from aioloader.transforms import boxes as boxes_of
from aioloader.transforms.boxes import ImageOnly
from tests.aioloader.datasets.tars import write_tar
from tests.cases import with_cases

H, W = 60, 80
MOVES = {
    "flip-left-right": t.RandomHorizontalFlip(0.5),
    "flip-top-bottom": t.RandomVerticalFlip(1.0),
    "resize": t.Resize((90, 61)),
    "shorter-side": t.Resize(45),
    "center-crop": t.CenterCrop((40, 66)),
    "center-crop-padded": t.CenterCrop((70, 66)),
    "random-crop": t.RandomCrop((50, 60)),
    "random-crop-padded": t.RandomCrop((50, 60), padding=(9, 20)),
    "random-crop-if-needed": t.RandomCrop((90, 100), pad_if_needed=True),
    "resized-crop": t.RandomResizedCrop((48, 56), (0.3, 1.0)),
    "fixed": t.CropResize(4, 8, 50, 60, (70, 40)),
    "pad": t.Pad((3, 1, 2, 6)),
    "rotation": t.RandomRotation(30),
    "rotation-quarter": t.RandomRotation((90, 90), expand=True),
    "rotation-half": t.RandomRotation((180, 180)),
    "rotation-expanded": t.RandomRotation((-50, 50), expand=True),
    "rotation-about": t.RandomRotation(20, center=(3, 9)),
    "affine": t.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), (-9, 9, -5, 5)),
    "perspective": t.RandomPerspective(0.3, 1.0),
}


def scene(seed: int) -> dict[str, Any]:
    """Return a sample of two discs: the mask, the box and the centre of each."""
    draws = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(np.arange(W) + 0.5, np.arange(H) + 0.5), -1)
    centres = np.array([[20.0, 24.0], [56.0, 34.0]]) + draws.uniform(-4, 4, (2, 2))
    radii = draws.uniform(8, 12, 2)
    masks = np.stack(
        [((places - centre) ** 2).sum(-1) < r * r for centre, r in zip(centres, radii, strict=True)]
    )
    image = np.full((H, W, 3), 30, np.uint8)
    for channel, mask in enumerate(masks):
        image[mask, channel] = 250
    boxes = np.concatenate([centres - radii[:, None], centres + radii[:, None]], 1).astype(np.float32)
    keypoints = np.concatenate([centres[:, None], np.ones((2, 1, 1))], 2).astype(np.float32)
    return {
        "image": image,
        "boxes": boxes,
        "masks": masks,
        "keypoints": keypoints,
        "label": np.array([7, 9]),
        "name": "scene",
    }


@settings(max_examples=2 * settings().max_examples)
@given(name=st.sampled_from(list(MOVES)), seed=st.integers(0, 10_000))
def test_targets_stay_on_their_objects(name: str, seed: int) -> None:
    made = t.JointCompose([MOVES[name]])(scene(seed), rng=Rng(1, 0, seed))
    image, masks = made["image"], made["masks"]
    height, width = image.shape[:2]
    assert masks.shape == (len(made["boxes"]), height, width)
    assert masks.dtype == np.bool_
    assert len(made["boxes"]) == len(made["keypoints"]) == len(made["label"])
    assert made["name"] == "scene"
    for label, mask, box, point in zip(
        made["label"], masks, made["boxes"], made["keypoints"][:, 0], strict=True
    ):
        colour = image[:, :, {7: 0, 9: 1}[int(label)]] > 140
        # Edges may differ by two pixels: the image is interpolated, the mask is not.
        near = np.ones((5, 5), np.uint8)
        # The object ends at the border of the image, too.
        inside = cv2.erode(mask.view(np.uint8), near, borderType=cv2.BORDER_CONSTANT, borderValue=0)
        edge = cv2.dilate(mask.view(np.uint8), near) != inside
        assert not ((colour != mask) & ~edge).any()
        rows, columns = np.nonzero(mask)
        if len(rows) < 60:
            continue
        found = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert (np.array(found)[:2] >= box[:2] - 1.6).all()
        assert (np.array(found)[2:] <= box[2:] + 1.6).all()
        inside = (point[:2] >= 0).all() and point[0] < width and point[1] < height
        assert point[2] == inside
        if inside and mask.sum() > 0.9 * np.pi * 64:
            assert mask[int(point[1]), int(point[0])]


@with_cases("transform", MOVES.values(), ids=MOVES)
def test_the_image_is_that_of_the_transform_alone_and_the_sample_is_not_altered(transform: Any) -> None:
    sample = scene(0)
    for index in range(5):
        rng, other = Rng(3, 0, index), Rng(3, 0, index)
        made = t.JointCompose([transform])(sample, rng=rng)
        assert np.array_equal(made["image"], transform(sample["image"], rng=other))
        assert rng.random() == other.random()
    for name, value in scene(0).items():
        assert np.array_equal(sample[name], value)


def test_rows_of_boxes_that_are_left_out_go_with_them() -> None:
    sample = scene(1) | {"mask": scene(1)["masks"].any(0), "scores": np.array([0.5, 0.25]), "iscrowd": [0, 1]}
    with pytest.warns(UserWarning, match=r"'scores'.*per_box=.*keep=") as caught:
        made = t.JointCompose([t.CropResize(0, 0, H, 38)])(sample)
    assert len(caught) == 1
    assert made["mask"].shape == (H, 38)
    assert made["iscrowd"].tolist() == [0]
    assert made["label"].tolist() == [7]
    assert len(made["masks"]) == len(made["keypoints"]) == len(made["boxes"]) == 1
    assert made["scores"].tolist() == [0.5, 0.25]
    kept = ("label", "iscrowd", "masks", "keypoints")
    named = t.JointCompose([t.CropResize(0, 0, H, 38)], per_box=("scores",), keep=kept)(sample)
    assert named["scores"].tolist() == [0.5]
    assert named["label"].tolist() == [7, 9]
    plane = t.JointCompose([t.CropResize(0, 0, H, 38)])(scene(1) | {"masks": scene(1)["masks"].any(0)})
    assert plane["masks"].shape == (H, 38)
    assert t.JointCompose([t.CropResize(0, 0, H, 48)], 0.9, keep="scores")(sample)["label"].tolist() == [7]
    # Without a box less, and without as many rows, there is nothing to say.
    t.JointCompose([t.RandomHorizontalFlip(1.0)])(sample)
    t.JointCompose([t.CropResize(0, 0, H, 38)])(scene(1) | {"size": np.array([H, W, 3]), "name": "ab"})


def test_chains_change_image_and_targets_together() -> None:
    chain = t.JointCompose(
        [
            t.Compose([t.RandomResizedCrop(32), t.RandomHorizontalFlip()]),
            t.RandomApply([t.RandomBrightness(0.5), t.RandomVerticalFlip(1.0)], 0.5),
            t.RandomErasing(1.0),
            ImageOnly(lambda image: 255 - image),
            t.ToTensor(),
        ]
    )
    assert chain(scene(0), rng=Rng(2))["image"].shape == (3, 32, 32)
    assert chain(scene(0), rng=Rng(2))["masks"].shape[1:] == (32, 32)
    known = t.JointCompose([t.RandomResizedCrop(32), t.ToTensor()])
    assert t.is_native(known)
    again = pickle.loads(pickle.dumps(known))
    assert np.array_equal(again(scene(0), rng=Rng(2))["image"], known(scene(0), rng=Rng(2))["image"])
    assert repr(again) == repr(known)


def test_an_image_without_targets() -> None:
    assert set(t.JointCompose([t.Resize(9)])({"image": scene(0)["image"]})) == {"image"}
    empty = scene(0) | {"boxes": [], "masks": np.zeros((0, H, W), bool), "keypoints": np.zeros((0, 4, 3))}
    made = t.JointCompose([t.RandomRotation(9), t.Resize(9)])(empty)
    assert made["boxes"].shape == (0, 4)
    assert made["masks"].shape == (0, 9, 12)
    assert made["keypoints"].shape == (0, 4, 3)


@with_cases(
    ("name", "usual"),
    [("masks", "mask"), ("masks", "segmentation"), ("boxes", "bboxes"), ("keypoints", "keypoint")],
)
def test_fields_of_the_usual_names_move(name: str, usual: str) -> None:
    chain = t.JointCompose([t.RandomResizedCrop(40, (0.1, 0.4)), t.RandomHorizontalFlip()])
    left_out = 0
    for seed in range(12):
        expected = chain(scene(seed), rng=Rng(seed))
        sample = scene(seed)
        sample[usual] = sample.pop(name)
        made = chain(sample, rng=Rng(seed))
        assert made.keys() == sample.keys()
        for field, value in made.items():
            assert np.array_equal(value, expected[name if field == usual else field])
        left_out += 2 - len(made["label"])
    assert left_out


def test_a_mask_of_any_form_moves_as_its_planes() -> None:
    planes = scene(3)["masks"].astype(np.uint8)
    chain = t.JointCompose([t.RandomRotation(30), t.RandomResizedCrop(32)])
    given = {
        "plane": {"mask": planes[0]},
        "channels": {"mask": planes.transpose(1, 2, 0)},
        "list": {"masks": list(planes)},
        "pillow": {"mask": pillow.fromarray(planes[0])},
        "both": {"mask": planes[0], "masks": planes},
    }
    image = scene(3)["image"]
    made = {form: chain({"image": image, **fields}, rng=Rng(5)) for form, fields in given.items()}
    expected = chain({"image": image, "masks": planes}, rng=Rng(5))["masks"]
    assert expected.any()
    for form in ("plane", "pillow", "both"):
        assert np.array_equal(made[form]["mask"], expected[0])
    assert np.array_equal(made["channels"]["mask"], expected.transpose(1, 2, 0))
    for form in ("list", "both"):
        assert np.array_equal(made[form]["masks"], expected)


@with_cases("dtype", ["int64", "uint32", "int32", "float16", "int8", "bool"])
@with_cases("transform", [t.Resize((90, 61)), t.RandomResizedCrop(32), t.RandomRotation(30)])
def test_a_mask_of_any_dtype_keeps_its_values(dtype: str, transform: Any) -> None:
    sample = scene(3)
    planes = sample["masks"].astype(np.uint8)
    expected = t.JointCompose([transform])(sample | {"masks": planes}, rng=Rng(5))["masks"]
    made = t.JointCompose([transform])(sample | {"masks": planes.astype(dtype)}, rng=Rng(5))["masks"]
    assert expected.any()
    assert made.dtype == dtype
    assert np.array_equal(made, expected.astype(dtype))


def test_an_image_without_objects_may_have_empty_lists() -> None:
    empty: dict[str, Any] = {"boxes": [], "masks": [], "keypoints": [], "label": []}
    for transform in (t.Resize((30, 20)), t.RandomRotation(30)):
        made = t.JointCompose([transform])({"image": scene(0)["image"], **empty})
        assert made["masks"].shape == (0, *made["image"].shape[:2])
        assert made["boxes"].shape == (0, 4)
        assert not len(made["keypoints"])


UNMOVED: dict[str, dict[str, Any]] = {
    "depth": {"depth": np.zeros((H, W), np.float32)},
    "label": {"label": np.zeros((H, W), np.int64)},
    "channels last": {"other": np.zeros((H, W, 3))},
    "channels first": {"other": np.zeros((3, H, W))},
    "list": {"instances": [np.zeros((H, W), bool)]},
    "rows": {"plane": np.zeros((H, W), int).tolist()},
    "planes of rows": {"planes": np.zeros((2, H, W), int).tolist()},
    "pillow": {"annotation": pillow.new("L", (W, H))},
    "nested": {"target": {"area": 3, "plane": np.zeros((H, W))}},
    "torchvision's target": {"target": {"boxes": np.zeros((1, 4)), "labels": np.ones(1)}},
    "unknown format": {"bbox": np.zeros((1, 4))},
    "points": {"points": np.zeros((5, 2))},
    "landmarks": {"landmarks": [[3.0, 4.0]]},
    "half": {"depth": np.zeros((H // 2, W // 2), np.float32)},
    "a quarter": {"features": np.zeros((4, H // 4, W // 4), np.float32)},
}


@with_cases("change", UNMOVED.values(), ids=UNMOVED)
def test_an_array_that_would_stay_behind_is_refused(change: dict[str, Any]) -> None:
    (name,) = change
    sample = {"image": scene(0)["image"], "id": 7, "name": "scene", "size": np.array([H, W])} | change
    flip = t.RandomHorizontalFlip(0.0)  # refused before it is drawn
    for moving in (flip, t.RandomApply([t.Compose([flip])], 0.0)):
        with pytest.raises(ValueError, match=rf"{name!r}.*keep"):
            t.JointCompose([moving])(sample)
    kept = t.JointCompose([t.RandomHorizontalFlip(1.0)], keep=name)(sample)
    assert kept[name] is change[name]
    assert np.array_equal(kept["image"], sample["image"][:, ::-1])
    assert t.JointCompose([t.RandomBrightness(0.5)])(sample)[name] is change[name]


def test_a_target_that_is_to_stay_can_be_kept() -> None:
    sample = scene(0)
    made = t.JointCompose([t.RandomHorizontalFlip(1.0)], keep=["masks", "boxes"])(sample)
    assert made["masks"] is sample["masks"]
    assert made["boxes"] is sample["boxes"]
    with pytest.raises(ValueError, match="'boxes' and 'bboxes'"):
        t.JointCompose([t.Resize(9)])(sample | {"bboxes": sample["boxes"]})


@with_cases(
    "transform",
    [
        boxes_of.RandomHorizontalFlip(0.0),
        boxes_of.RandomObjectCrop(),
        boxes_of.Compose([ImageOnly(lambda image: image), t.RandomHorizontalFlip(0.0)]),
        boxes_of.RandomApply([t.RandomHorizontalFlip(0.0)], 0.0),
    ],
)
def test_a_mask_in_a_tuple_is_refused(transform: Any) -> None:
    sample = scene(0)
    image, found, mask = sample["image"], sample["boxes"], sample["masks"][0]
    for rest in ((mask,), ("name", mask), ([mask],), ({"mask": mask},)):
        with pytest.raises(ValueError, match="JointCompose"):
            transform(image, found, *rest)
    # As boxes it would be a table of numbers.
    with pytest.raises(ValueError, match="JointCompose"):
        transform(image, mask)
    assert transform(image, found, "name", 3)[2:] == ("name", 3)
    still = boxes_of.Compose([boxes_of.RandomApply(ImageOnly(lambda image: image)), t.RandomBrightness(0.1)])
    assert still(image, found, mask)[2] is mask


def test_no_field_is_lost_without_boxes() -> None:
    with pytest.raises(ValueError, match="boxes must be"):
        boxes_of.RandomHorizontalFlip()(scene(0)["image"], None, "name")


@with_cases(
    ("change", "error", "text"),
    [
        ({"masks": np.zeros((2, 9, 9))}, ValueError, "masks must be"),
        ({"mask": np.zeros((H, 9))}, ValueError, "mask must be"),
        ({"segmentation": [[1.0, 2.0, 3.0], [4.0]]}, ValueError, "segmentation must be"),
        ({"segmentation": {"counts": b"", "size": [H, W]}}, ValueError, "segmentation must be"),
        ({"keypoints": np.zeros((2, 4))}, ValueError, "keypoints must be"),
        ({"boxes": np.zeros((2, 3))}, ValueError, "boxes must be"),
        ({"image": b"jpeg"}, TypeError, "numpy array"),
    ],
)
def test_wrong_fields_are_named(change: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        t.JointCompose([t.Resize(9)])(scene(0) | change)


def test_in_a_loader() -> None:
    data = SimpleDataset([{name: scene(n)[name] for name in ("image", "masks")} for n in range(8)])
    chain = t.JointCompose([t.RandomResizedCrop(16), t.RandomHorizontalFlip()])
    with DataLoader(data.transform(chain), 4, num_workers=0, seed=3) as loader:
        batches = [(batch["image"].copy(), batch["masks"].copy()) for batch in loader]
    assert [image.shape for image, _ in batches] == [(4, 16, 16, 3)] * 2
    expected = chain(data[5], rng=Rng(3, 0, 5, position=5))
    assert np.array_equal(batches[1][0][1], expected["image"])
    assert np.array_equal(batches[1][1][1], expected["masks"])


FIRST = {
    "flip": (t.RandomHorizontalFlip(1.0), True),
    "chain": (t.Compose([t.RandomBrightness(0.5), t.RandomResizedCrop(32)]), True),
    "applied at random": (t.RandomApply([t.RandomRotation(30)], 1.0), True),
    "beside a function": (t.Compose([t.Resize((30, 40)), lambda image: image]), True),
    "colours": (t.Compose([t.RandomBrightness(0.5), t.ToTensor()]), False),
    "function": (lambda image: image, False),
    "chain of functions": (t.Compose([lambda image: image]), False),
    "nothing": (t.Compose([]), False),
}


@with_cases(("transform", "moves"), FIRST.values(), ids=FIRST)
@with_cases("source", ["arrays", "file"])
def test_a_mask_beside_the_first_element_is_warned_of_once(
    source: str, transform: Any, moves: bool, tmp_path: Path
) -> None:
    images = [scene(n)["image"] for n in range(3)]
    masks = [scene(n)["masks"].any(0).astype(np.uint8) for n in range(3)]
    if source == "arrays":
        data: Any = SimpleDataset([(image, "a", mask) for image, mask in zip(images, masks, strict=True)])
    else:
        members = []
        for number, (image, mask) in enumerate(zip(images, masks, strict=True)):
            members.append((f"{number}.png", cv2.imencode(".png", image)[1].tobytes()))
            stored = io.BytesIO()
            np.save(stored, mask)
            members.append((f"{number}.mask.npy", stored.getvalue()))
        data = TarDataset(str(write_tar(tmp_path / "a.tar", members)), image="png", label="mask.npy")
    changed = data.transform_first(transform)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with DataLoader(changed, 1, num_workers=0, batchify_fn=list) as loader:
            found = [batch[0] for batch in loader]
    assert len(found) == 3
    texts = [str(each.message) for each in caught]
    assert len(texts) == moves, texts
    assert all("JointCompose" in text for text in texts)
    # What has another size, and labels, stay without a word.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for label in (3, np.zeros(4), np.zeros((2, 5)), "name"):
            SimpleDataset([(images[0], label)]).transform_first(transform)[0]
