"""Tests of MixUp and CutMix without another library."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

from aioloader import transforms
from aioloader.rng import Rng
from aioloader.transforms import CutMix, MixUp, RandomApply, RandomChoice, is_native
from aioloader.transforms.mixing import mix_images, mix_labels

BATCH = np.random.default_rng(0).integers(0, 256, (5, 8, 9, 3), dtype=np.uint8), np.array([0, 3, 1, 2, 3])


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.73, 1.0])
def test_levels_are_rounded_to_the_nearest(share: float) -> None:
    images = BATCH[0]
    exact = images * share + np.roll(images, 1, 0) * (1 - share)
    found = mix_images(images, share)
    assert found.dtype == np.uint8
    # A sum near a half may be rounded either way.
    assert np.abs(found - exact).max() <= 0.5 + 1e-4
    strided = np.asfortranarray(images)
    np.testing.assert_array_equal(mix_images(strided, share), found)
    again = images.copy()
    assert mix_images(again, share, again) is again
    np.testing.assert_array_equal(again, found)


def test_fields_are_found_by_name_or_place() -> None:
    images, labels = BATCH
    expected = MixUp(num_classes=4)(BATCH, rng=Rng(7))
    assert expected[1].dtype == np.float32
    np.testing.assert_allclose(expected[1].sum(1), 1, rtol=1e-6)
    for batch, options in [
        ({"image": images, "label": labels}, {}),
        ({"image": images, "class_labels": labels, "text": ["a"] * 5}, {}),
        ({"image": images, "other": labels}, {"labels_getter": "other"}),
        ((images, ["a"] * 5, labels), {"labels_getter": 2}),
        ([images, np.arange(5), {"label": labels}], {"labels_getter": lambda batch: batch[2]["label"]}),
    ]:
        found = MixUp(num_classes=4, **options)(batch, rng=Rng(7))
        assert type(found) is type(batch)
        values = list(found.values()) if isinstance(found, dict) else list(found)
        values = [value["label"] if isinstance(value, dict) else value for value in values]
        np.testing.assert_array_equal(values[0], expected[0])
        assert any(np.array_equal(value, expected[1]) for value in values)
    separate = MixUp(num_classes=4)(images, labels, rng=Rng(7))
    np.testing.assert_array_equal(separate[1], expected[1])


@pytest.mark.parametrize("planes", [False, True])
def test_a_rectangle_is_that_of_the_image_before(planes: bool) -> None:
    images, labels = BATCH
    cutmix = CutMix(num_classes=4)
    for number in range(30):
        left, top, right, bottom = cutmix.rectangle(8, 9, Rng(number))
        expected = images.copy()
        expected[:, top:bottom, left:right] = np.roll(images, 1, 0)[:, top:bottom, left:right]
        given = images.transpose(0, 3, 1, 2).astype(np.float32) if planes else images
        found, probabilities = cutmix((given, labels), rng=Rng(number))
        np.testing.assert_array_equal(found.transpose(0, 2, 3, 1) if planes else found, expected)
        share = 1 - (right - left) * (bottom - top) / 72
        np.testing.assert_array_equal(probabilities, mix_labels(labels, 4, share))


def test_they_are_transforms() -> None:
    choice = RandomChoice([MixUp(num_classes=4), CutMix(alpha=0.3, num_classes=4)])
    assert is_native(choice)
    again = pickle.loads(pickle.dumps(choice))
    for number in range(6):
        for one, other in zip(choice(BATCH, rng=Rng(number)), again(BATCH, rng=Rng(number)), strict=True):
            np.testing.assert_array_equal(one, other)
    assert repr(MixUp(num_classes=4)) == "MixUp(alpha=1.0, num_classes=4, labels_getter='default')"


def test_choices_take_the_elements_of_a_batch_as_in_a_collate_function() -> None:
    images, labels = np.zeros((4, 3, 8, 8), np.float32), np.arange(4)
    for mix in (
        RandomChoice([MixUp(num_classes=4), CutMix(num_classes=4)]),
        RandomApply([MixUp(num_classes=4)], 1),
    ):
        mixed, shares = mix(images, labels, rng=Rng(0))
        assert mixed.shape == images.shape
        assert np.allclose(shares.sum(1), 1)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("PILToTensor", "leave it out"),
        ("ConvertImageDtype", "use ToTensor"),
        ("InterpolationMode", "interpolation='bicubic'"),
        ("RandomMixup", "use MixUp"),
        ("RandomCutMix", "use CutMix"),
    ],
)
def test_names_of_torchvision_that_do_not_exist_here_say_what_to_use(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(advice)):
        getattr(transforms, name)
    assert not hasattr(transforms, name)
