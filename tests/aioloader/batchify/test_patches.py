"""Tests of `Patches`: the order of values against a plain reference, prompts with several images, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.batchify import PatchBatch, Patches
from aioloader.errors import BatchDtypeError, BatchShapeError
from tests.aioloader.foundation.test_patches import plain_patches
from tests.cases import with_cases


def image_of(rows: int, columns: int, side: int, channels: int = 3, dtype: Any = np.uint8) -> Any:
    rng = np.random.default_rng(rows * 100 + columns)
    return rng.integers(0, 256, (rows * side, columns * side, channels)).astype(dtype)


@given(
    patch=st.integers(1, 3),
    merge=st.integers(1, 3),
    temporal=st.integers(1, 2),
    prompts=st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=3), min_size=1, max_size=3
    ),
    dtype=st.sampled_from([np.uint8, np.float32]),
)
def test_patches_are_those_of_the_plain_patches(
    patch: int, merge: int, temporal: int, prompts: Any, dtype: Any
) -> None:
    side = patch * merge
    samples = [[image_of(*extents, side, dtype=dtype) for extents in prompt] for prompt in prompts]
    images = [image for sample in samples for image in sample]

    batch = Patches(patch, merge, temporal)(samples)

    assert isinstance(batch, PatchBatch)
    assert len(batch) == len(samples)
    assert batch.offsets.tolist() == [0, *np.cumsum([len(sample) for sample in samples])]
    assert batch.image_grid_thw.dtype == batch.offsets.dtype == np.int64
    assert batch.image_grid_thw.tolist() == [
        [1, image.shape[0] // patch, image.shape[1] // patch] for image in images
    ]
    assert batch.cu_seqlens.dtype == np.int32
    assert batch.cu_seqlens.tolist() == [0, *np.cumsum(batch.image_grid_thw.prod(axis=1))]
    if images:
        assert batch.pixel_values.dtype == dtype
        expected = np.concatenate([plain_patches(image, patch, merge, temporal) for image in images])
        assert np.array_equal(batch.pixel_values, expected)
    else:
        assert batch.pixel_values.shape == (0, 3 * temporal * patch * patch)


def test_single_images_are_samples_too() -> None:
    images = [image_of(1, 2, 4), image_of(2, 1, 4)]
    batch = Patches(2, 2)(images)
    assert batch.offsets.tolist() == [0, 1, 2]
    assert np.array_equal(batch.pixel_values, Patches(2, 2)([images]).pixel_values)


def test_results_of_a_processor_are_put_together() -> None:
    def processed(rows: int, columns: int) -> Any:
        image = image_of(rows, columns, 4, dtype=np.float32)
        grid = np.array([[1, 2 * rows, 2 * columns]])
        return {"pixel_values": plain_patches(image, 2, 2, 2), "image_grid_thw": grid}

    samples = [{"id": n, "images": [processed(1, n + 1), processed(n + 1, 1)]} for n in range(2)]
    batch = Patches(2, 2)(samples)
    plain = Patches(2, 2)(
        [
            [image_of(1, 1, 4, dtype=np.float32), image_of(1, 1, 4, dtype=np.float32)],
            [image_of(1, 2, 4, dtype=np.float32), image_of(2, 1, 4, dtype=np.float32)],
        ]
    )
    assert batch["id"].tolist() == [0, 1]
    for name in ("pixel_values", "image_grid_thw", "cu_seqlens", "offsets"):
        assert np.array_equal(getattr(batch["images"], name), getattr(plain, name))


def test_other_fields_are_stacked_or_listed() -> None:
    samples = [(image_of(1, 1, 4), n, np.zeros(2), f"{n}") for n in range(2)]
    patches, labels, arrays, texts = Patches(2, 2)(samples)
    assert len(patches) == 2
    assert labels.tolist() == [0, 1]
    assert arrays.shape == (2, 2)
    assert texts == ["0", "1"]


IMAGE = image_of(1, 1, 4)


@with_cases(
    ("samples", "error", "text", "place"),
    [
        ([IMAGE, np.zeros((4, 6, 3), np.uint8)], BatchShapeError, "sample 1: .*multiples of 4", 1),
        ([IMAGE, image_of(1, 1, 4, channels=1)], BatchShapeError, "equally many channels", 1),
        ([IMAGE, image_of(1, 1, 4, dtype=np.float32)], BatchDtypeError, "float32", 1),
        ([IMAGE, [IMAGE]], BatchShapeError, "fewer than 1 levels", 0),
        ([[IMAGE], [[IMAGE]]], BatchShapeError, "more than 1 levels", 1),
        ([IMAGE, np.zeros((4, 4))], BatchShapeError, r"sample 1 has an array of shape \(4, 4\)", 1),
        ([IMAGE, "text"], BatchShapeError, "sample 1 has a str", 1),
        (
            [{"pixel_values": np.zeros((3, 24)), "image_grid_thw": np.array([[1, 2, 2]])}],
            BatchShapeError,
            "itself",
            0,
        ),
    ],
)
def test_images_that_do_not_fit_are_named(samples: Any, error: Any, text: str, place: int) -> None:
    with pytest.raises(error, match=text) as caught:
        Patches(2, 2)(samples)
    assert caught.value.place == place


@with_cases("numbers", [(0, 2, 2), (2, 0, 2), (2, 2, 0)])
def test_numbers_below_one_are_refused(numbers: Any) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        Patches(*numbers)
