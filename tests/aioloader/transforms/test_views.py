"""Several views of one image: each as if made of the whole image, from its own stream, wherever it is written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import transforms as t
from aioloader.rng import VIEW_DOMAIN, Rng
from aioloader.tools.crops import index_crops
from tests.cases import with_cases
from tests.executors import pool

GLOBAL = t.Compose([t.RandomResizedCrop(40, (0.4, 1.0)), t.RandomHorizontalFlip(), t.ColorJitter(0.4)])
LOCAL = t.Compose([t.RandomResizedCrop(16, (0.02, 0.1)), t.RandomHorizontalFlip(), t.ToTensor()])
DINO = {"global": (GLOBAL, 2), "local": (LOCAL, 3)}


def foreign(image: Any, *, rng: Rng) -> Any:
    return image[:16, :20] // (1 + rng.integers(3))


CHAINS: dict[str, dict[str, Any]] = {
    "DINO": DINO,
    "small crops": {"local": (LOCAL, 2)},
    "foreign": {"any": (foreign, 2), "local": (LOCAL, 1)},
    "resized": {"a": (t.Compose([t.Resize(60), t.RandomCrop(32)]), 2), "b": (GLOBAL, 1)},
    "altered in place": {"a": (t.Compose([t.RandomErasing(1.0), t.Resize((20, 20))]), 3)},
    "flipped whole": {"a": (t.Compose([t.RandomHorizontalFlip(), t.Resize((20, 20))]), 4)},
}


def by_hand(image: Any, groups: Any, rng: Rng) -> dict[str, Any]:
    """Make the views of a whole image, by the rule in the docstring."""
    word, number, result = rng.word(), 0, {}
    for name, (transform, count) in groups.items():
        made = []
        for _ in range(count):
            made.append(t.bind(transform)(image, Rng(word, 0, number, VIEW_DOMAIN), None))
            number += 1
        result[name] = np.stack(made)
    return result


def assert_same(found: Any, expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, views in expected.items():
        assert found[name].dtype == views.dtype
        np.testing.assert_array_equal(found[name], views)


@with_cases("groups", CHAINS.values(), ids=CHAINS)
def test_views_of_an_array(groups: Any) -> None:
    image = np.random.default_rng(0).integers(0, 256, (70, 90, 3), dtype=np.uint8)
    before = image.copy()
    views = pickle.loads(pickle.dumps(t.Views(groups)))
    assert_same(views(image, rng=Rng(4)), by_hand(image, groups, Rng(4)))
    np.testing.assert_array_equal(image, before)
    crops = t.Views(groups, as_list=True)(image, rng=Rng(4))
    flat = [view for group in by_hand(image, groups, Rng(4)).values() for view in group]
    assert len(crops) == len(flat) == t.Views(groups, as_list=True).leaves
    for found, expected in zip(crops, flat, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module")
def crops(photo_rec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a crop index of `photo_rec`."""
    out = tmp_path_factory.mktemp("index") / "photos.crops"
    index_crops([str(photo_rec)], out=out, num_workers=0, executor="inline")
    return out


@pytest.mark.parametrize(
    ("executor", "index", "names"),
    [
        ("inline", False, CHAINS),
        ("inline", True, ["DINO", "small crops", "resized"]),
        ("thread", False, ["DINO"]),
        ("process", False, ["foreign"]),
    ],
)
def test_a_loader_decodes_once_for_all(
    request: pytest.FixtureRequest, photo_rec: Path, executor: str, index: bool, names: Any
) -> None:
    """Whole, crop by crop or by rectangle, and written in rows or not: the values are those of the whole image."""
    crop_index = request.getfixturevalue("crops") if index else None
    dataset = aioloader.ImageRecordDataset(photo_rec, crop_index=crop_index).take(12)
    plain = list(aioloader.ImageRecordDataset(photo_rec, crop_index=None).take(12))
    for number, groups in enumerate(CHAINS[name] for name in names):
        as_list = number % 2 == index
        viewed = dataset.transform_first(t.Views(groups, as_list=as_list))
        place = 0
        with aioloader.DataLoader(viewed, 5, seed=2, **pool(executor, 2)) as loader:
            for views, labels in loader:
                for row in range(len(labels)):
                    image, label = plain[place]
                    expected = by_hand(image, groups, Rng(2, 0, place, position=place))
                    assert labels[row] == label
                    if as_list:
                        flat = [view for group in expected.values() for view in group]
                        for found, wanted in zip(views, flat, strict=True):
                            np.testing.assert_array_equal(found[row], wanted)
                    else:
                        assert_same({name: views[name][row] for name in views}, expected)
                    place += 1
        assert place == len(plain)


def test_views_are_written_to_their_rows(photo_rec: Path) -> None:
    dataset = aioloader.ImageRecordDataset(photo_rec)
    stages = dataset.transform_first(t.Views(DINO))
    with aioloader.DataLoader(stages, 4, executor="inline") as loader:
        views, _ = next(iter(loader))
        shapes = {name: array.shape for name, array in views.items()}
    assert shapes == {"global": (4, 2, 40, 40, 3), "local": (4, 3, 3, 16, 16)}


def test_a_view_does_not_depend_on_the_other_ones() -> None:
    image = np.random.default_rng(0).integers(0, 256, (70, 90, 3), dtype=np.uint8)
    alone = t.Views({"global": (GLOBAL, 2)})(image, rng=Rng(3))
    np.testing.assert_array_equal(alone["global"], t.Views(DINO)(image, rng=Rng(3))["global"])
    first, second = alone["global"]
    assert (first != second).any()


def test_views_of_other_shapes_are_refused() -> None:
    image = np.zeros((9, 9, 3), np.uint8)

    def cut(image: Any, *, rng: Rng) -> Any:
        return image[: 2 + rng.integers(6)]

    with pytest.raises(ValueError, match="must be alike, but of 'a' view 0"):
        t.Views({"a": (cut, 9)})(image, rng=Rng(0))
    assert len(t.Views({"a": (cut, 9)}, as_list=True)(image, rng=Rng(0))) == 9
