"""Tests of albumentations' compositions with the sample's draws. Skipped if the package is missing."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import batchify
from aioloader.rng import Rng
from aioloader.transforms import Albumentations, boxes, is_native
from tests.docs.blocks import blocks

os.environ.setdefault(
    "NO_ALBUMENTATIONS_UPDATE", "1"
)  # otherwise it queries the network for its latest release
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


def test_it_stands_in_a_chain_with_boxes() -> None:
    chain = boxes.Compose(
        [boxes.RandomHorizontalFlip(1.0), Albumentations(_chain(True)), boxes.Resize((60, 60))]
    )
    made, found = chain(_image(), [[10, 10, 45, 35]], rng=Rng(4))
    assert made.shape == (60, 60, 3)
    assert found.shape[1] == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_do_not_depend_on_the_workers(workers: int) -> None:
    data = aioloader.SimpleDataset([_image(index) for index in range(8)])

    def run(count: int) -> Any:
        with aioloader.DataLoader(
            data.transform_first(Albumentations(_chain())),
            4,
            num_workers=count,
            seed=6,
            batchify_fn=batchify.Stack(),
        ) as loader:
            return [np.array(batch) for _ in range(2) for batch in loader]

    found = run(workers)
    for one, two in zip(found, run(1), strict=True):
        assert np.array_equal(one, two)
    assert not np.array_equal(found[0], found[2])


def test_threads_do_not_disturb_each_other() -> None:
    data = aioloader.SimpleDataset([_image(index) for index in range(400)])

    def run(**options: Any) -> Any:
        with aioloader.DataLoader(
            data.transform_first(Albumentations(_chain())), 8, seed=6, **options
        ) as loader:
            return [np.array(batch) for batch in loader]

    for one, two in zip(run(num_workers=4, executor="thread"), run(num_workers=0), strict=True):
        assert np.array_equal(one, two)


def test_what_it_does_not_take() -> None:
    with pytest.raises(TypeError, match=r"release 2\.0"):
        Albumentations(lambda image: image)
    with pytest.raises(ValueError, match="pascal_voc"):
        Albumentations(A.Compose([A.HorizontalFlip()], bbox_params=A.BboxParams(format="yolo")))
    with pytest.raises(ValueError, match="label_fields"):
        Albumentations(
            A.Compose(
                [A.HorizontalFlip()], bbox_params=A.BboxParams(format="pascal_voc", label_fields=["names"])
            )
        )
    with pytest.raises(ValueError, match="does not transform boxes"):
        Albumentations(_chain())(_image(), [[1, 2, 3, 4]], rng=Rng(5))


def test_the_example_of_the_page_about_boxes() -> None:
    block = blocks("segmentation-and-detection.md", "python")[-1]
    assert "import albumentations as A" in block.code
    rows = [[4, 4, 24, 24, 7], [30, 20, 44, 36, 8]]
    names: dict[str, Any] = {
        "__name__": "guide",
        "dataset": aioloader.SimpleDataset([(_image(index), np.float32(rows)) for index in range(8)]),
    }
    exec(compile("\n" * (block.line - 1) + block.code.replace("512", "32"), block.place, "exec"), names)
    with aioloader.DataLoader(names["train"], 4, num_workers=0, batchify_fn=list) as loader:
        for batch in loader:
            for image, found in batch:
                assert image.shape == (32, 32, 3)
                assert np.array_equal(np.sort(found[:, 4]), [7, 8])
