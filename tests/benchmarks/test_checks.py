"""Tests of the output checks: each wrong output is detected, and correct outputs pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioloader.rng import Rng
from aioloader.tools.draw import draw_image
from aioloader.transforms.geometry import RandomResizedCrop
from benchmarks.cases import CASES, MEAN, STD, Case
from benchmarks.checks import EpochCheck, WrongOutput, check_batch, features
from benchmarks.window_check import shrink
from tests.cases import with_cases

cv2 = pytest.importorskip("cv2")

IMAGES = 16
Make = Callable[[int, Rng], Any]


@pytest.fixture(scope="module")
def photos() -> list[Any]:
    return [draw_image(number, height=180, width=240) for number in range(IMAGES)]


@pytest.fixture(scope="module")
def reference(photos: list[Any]) -> dict[str, Any]:
    crop, rng = RandomResizedCrop(224), Rng(7)
    found = []
    for number, photo in enumerate(photos):
        rng.seek(7, 0, number)
        crops = [_cut(photo, crop.box(180, 240, rng)) for _ in range(40)]
        found.append(features(CASES["jpeg-uint8"], np.stack(crops)))
    return {
        "mean": np.stack([f.mean(axis=0) for f in found]),
        "std": np.stack([f.std(axis=0) for f in found]),
    }


def _cut(photo: Any, box: tuple[int, int, int, int]) -> Any:
    x, y, w, h = box
    return cv2.resize(photo[y : y + h, x : x + w], (224, 224))


def _random(photos: list[Any], *, flip: float = 0.5, cropped: bool = True, shift: int = 0) -> Make:
    """Return the images of a contender, which by default is correct."""
    crop = RandomResizedCrop(224)

    def make(number: int, rng: Rng) -> Any:
        box = crop.box(180, 240, rng) if cropped else (0, 0, 240, 180)
        image = _cut(photos[(number + shift) % IMAGES], box)
        return image[:, ::-1] if rng.random() < flip else image

    return make


def _batches(case: Case, make: Make, order: list[int] | None = None) -> Iterator[Any]:
    """Yield an epoch in batches; samples in a random order."""
    rng = Rng(3)
    if order is None:
        order = np.random.default_rng(0).permutation(case.samples).tolist()
    for start in range(0, len(order), case.batch_size):
        numbers = order[start : start + case.batch_size]
        images = []
        for number in numbers:
            rng.seek(3, 0, number)
            images.append(make(number, rng))
        yield np.ascontiguousarray(np.stack(images)), np.array(numbers, np.float32)


def _judge(case: Case, reference: Any, batches: Iterator[Any]) -> None:
    check = EpochCheck(case, reference)
    for batch in batches:
        check.add(batch)
    check.judge()


SHORT = CASES["jpeg-uint8"].scaled(0.125)


def test_a_right_epoch_passes(photos: list[Any], reference: Any) -> None:
    _judge(SHORT, reference, _batches(SHORT, _random(photos)))


def test_a_right_epoch_of_normalised_pixels_passes(photos: list[Any], reference: Any) -> None:
    case = CASES["jpeg-float32"].scaled(0.06)
    make = _random(photos)

    def normalised(number: int, rng: Rng) -> Any:
        return ((make(number, rng) / 255.0 - MEAN) / STD).transpose(2, 0, 1).astype(np.float32)

    _judge(case, reference, _batches(case, normalised))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda photos: _random(photos, cropped=False), "images are not cropped"),
        (lambda photos: _random(photos, flip=0.0), "of the images are mirrored"),
        (lambda photos: _random(photos, flip=1.0), "of the images are mirrored"),
        (lambda photos: _random([photo[..., ::-1] for photo in photos]), "red|blue|images of their labels"),
        (lambda photos: _random([(photo * 0.8).astype(np.uint8) for photo in photos]), "grey levels"),
        (lambda photos: _random(photos, shift=1), "images of their labels"),
        (lambda photos: _random([photo[::-1] for photo in photos]), "not upright"),
    ],
    ids=["whole", "never mirrored", "always mirrored", "bgr", "darker", "other image", "upside down"],
)
def test_wrong_pixels_are_noticed(wrong: Any, complaint: str, photos: list[Any], reference: Any) -> None:
    with pytest.raises(WrongOutput, match=complaint):
        _judge(SHORT, reference, _batches(SHORT, wrong(photos)))


def test_forgotten_normalisation_is_noticed(photos: list[Any], reference: Any) -> None:
    case = CASES["jpeg-float32"].scaled(0.06)
    make = _random(photos)

    def unnormalised(number: int, rng: Rng) -> Any:
        return (make(number, rng) / 255.0).transpose(2, 0, 1).astype(np.float32)

    with pytest.raises(WrongOutput, match="differ"):
        _judge(case, reference, _batches(case, unnormalised))


WINDOWS = replace(CASES["large"], samples=192, shape=(128, 128, 3))


@pytest.fixture(scope="module")
def wide() -> list[Any]:
    """Return images that are larger than the windows, with as much detail as photographs."""
    grain = np.random.default_rng(0)
    found = []
    for _ in range(4):
        noise = sum(
            cv2.resize(
                grain.normal(0, 40, (extent, extent * 2, 3)), (768, 512), interpolation=cv2.INTER_CUBIC
            )
            for extent in (4, 12, 32)
        )
        found.append(np.clip(noise + np.array((90, 120, 150)), 0, 255).astype(np.uint8))
    return found


def _window(wide: list[Any], *, reach: float = 1.0, flip: float = 0.5, shift: int = 0) -> Make:
    """Return windows of each image, at places of the upper left `reach` of all places."""

    def make(number: int, rng: Rng) -> Any:
        image = wide[(number + shift) % len(wide)]
        x, y = (int(rng.random() * reach * (extent - 127)) for extent in (image.shape[1], image.shape[0]))
        part = image[y : y + 128, x : x + 128]
        return part[:, ::-1] if rng.random() < flip else part

    return make


def _resized_window(wide: list[Any]) -> Make:
    return _window([cv2.resize(image, None, fx=0.6, fy=0.6) for image in wide])


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda wide: _window(wide), ""),
        (lambda wide: _window(wide, flip=0.0), "0% of the images are mirrored"),
        (lambda wide: _window(wide, flip=1.0), "100% of the images are mirrored"),
        (lambda wide: _window(wide, reach=0.6), "not drawn uniformly"),
        (lambda wide: _window(wide, reach=0.0), "not drawn uniformly"),
        (lambda wide: _window(wide, shift=1), "found in the images of their labels"),
        (lambda wide: _window([image[::-1] for image in wide]), "found in the images of their labels"),
        (_resized_window, "found in the images of their labels"),
        (lambda wide: _window([image[..., ::-1] for image in wide]), "red|found in"),
        (lambda wide: _window([(image * 0.9).astype(np.uint8) for image in wide]), "grey levels"),
    ],
    ids=[
        *("right", "never mirrored", "always mirrored", "upper left", "corner", "other image"),
        *("upside down", "resized", "bgr", "darker"),
    ],
)
def test_windows_are_found_in_their_images(wrong: Any, complaint: str, wide: list[Any]) -> None:
    reference = {"small": np.stack([np.rint(shrink(image)).astype(np.uint8) for image in wide])}
    if not complaint:
        _judge(WINDOWS, reference, _batches(WINDOWS, wrong(wide)))
        return
    with pytest.raises(WrongOutput, match=complaint):
        _judge(WINDOWS, reference, _batches(WINDOWS, wrong(wide)))


EVAL = CASES["eval"].scaled(0.05)


def _centre(photos: list[Any], shift: int = 0) -> Make:
    def make(number: int, rng: Rng) -> Any:
        small = cv2.resize(photos[number % IMAGES], (341, 256))
        return small[16:240, 58 + shift : 282 + shift]

    return make


@pytest.fixture(scope="module")
def fixed(photos: list[Any]) -> dict[str, Any]:
    make = _centre(photos)
    found = features(EVAL, np.stack([make(number, Rng(0)) for number in range(IMAGES)]))
    return {"mean": found, "std": np.zeros_like(found)}


def test_evaluation_in_order_passes_and_another_cut_does_not(photos: list[Any], fixed: Any) -> None:
    in_order = list(range(EVAL.samples))
    _judge(EVAL, fixed, _batches(EVAL, _centre(photos), in_order))
    with pytest.raises(WrongOutput, match="grey levels"):
        _judge(EVAL, fixed, _batches(EVAL, _centre(photos, 58), in_order))
    with pytest.raises(WrongOutput, match="not in the order of the file"):
        _judge(EVAL, fixed, _batches(EVAL, _centre(photos), in_order[::-1]))


@pytest.mark.parametrize(
    ("order", "complaint"),
    [
        (list(range(128)), "not shuffled"),
        ([*range(1, 128), 1], "1 are missing, 1 occur more than once"),
        ([*range(64), *range(64)], "64 are missing, 64 occur more than once"),
        (list(range(63, -1, -1)), "has 64 samples"),
    ],
    ids=["in order", "one twice", "half twice", "too few"],
)
def test_an_incomplete_epoch_is_noticed(order: list[int], complaint: str) -> None:
    case = CASES["jpeg-uint8"].scaled(0)
    assert case.samples == 128
    grey = np.full((224, 224, 3), 128, np.uint8)
    with pytest.raises(WrongOutput, match=complaint):
        _judge(
            case, {"mean": np.zeros((1, 5)), "std": np.ones((1, 5))}, _batches(case, lambda *_: grey, order)
        )


LABELS = np.arange(64)
RIGHT = np.zeros((64, 224, 224, 3), np.uint8)


@with_cases(
    "batch",
    [
        (RIGHT.astype(np.float32), LABELS),
        (RIGHT[:63], LABELS[:63]),
        (RIGHT.transpose(0, 3, 1, 2), LABELS),
        (RIGHT.transpose(0, 2, 1, 3), LABELS),
        (RIGHT, LABELS[:3]),
        (RIGHT, np.array(["a"] * 64)),
        RIGHT,
        None,
    ],
    ids=["dtype", "short", "axes", "strides", "labels", "text", "no labels", "nothing"],
)
def test_a_batch_of_another_kind_is_noticed(batch: Any) -> None:
    check_batch(CASES["jpeg-uint8"], (RIGHT, LABELS))
    with pytest.raises(WrongOutput):
        check_batch(CASES["jpeg-uint8"], batch)


def test_records_and_arrays_are_compared_to_the_byte() -> None:
    records = [number.to_bytes(8, "little") + bytes([number % 251]) * 1016 for number in range(512)]
    case = CASES["bytes"].scaled(0)
    order = np.random.default_rng(0).permutation(512).tolist()

    def judge(source: list[bytes]) -> None:
        batches = ([source[n] for n in order[start : start + 256]] for start in (0, 256))
        _judge(case, records.__getitem__, batches)

    judge(records)
    with pytest.raises(WrongOutput, match="do not match their labels"):
        judge([*records[:100], records[100][:-1] + b"x", *records[101:]])

    arrays = CASES["arrays"].scaled(0)
    images = np.random.default_rng(1).integers(0, 256, (64, 32, 32, 3), dtype=np.uint8)
    mixed = np.random.default_rng(2).permutation(64)

    def judge_arrays(shift: int) -> None:
        parts = (mixed[:32], mixed[32:])
        _judge(arrays, images, (((images[n] + np.uint8(shift)), n) for n in parts))

    judge_arrays(0)
    with pytest.raises(WrongOutput, match="do not match their labels"):
        judge_arrays(1)
