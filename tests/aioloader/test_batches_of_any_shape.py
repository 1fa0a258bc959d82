"""Tests of ragged batches, padded ones and patches: values, errors, and batches of loaders."""

from __future__ import annotations

import gc
from typing import Any

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from aioloader import AsyncDataLoader, DataLoader
from aioloader.batchify import Pad, PatchBatch, Patches, Ragged, RaggedBatch
from aioloader.foundation.patches import write_patches

IMAGES = nps.arrays(np.uint8, nps.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=6))
EXECUTORS = [("inline", 0), ("thread", 2), ("process", 1), ("process", 3)]


class Photos:
    """Dataset of images whose sizes depend on the index, with their labels; every third has two images in a list."""

    def __init__(self, length: int = 23, nested: bool = False) -> None:
        self.length = length
        self.nested = nested

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        draw = np.random.default_rng(index)
        images = [
            draw.integers(
                0, 256, (28 * int(draw.integers(1, 4)), 28 * int(draw.integers(1, 4)), 3), dtype=np.uint8
            )
            for _ in range(1 + index % 3)
        ]
        return (images if self.nested else images[0]), index


# -- ragged ------------------------------------------------------------------------------------------------------------


@given(st.lists(IMAGES, min_size=1, max_size=6))
def test_a_ragged_batch_returns_its_samples(samples: list[Any]) -> None:
    batch = Ragged()(samples)
    assert len(batch) == len(samples)
    for made, sample in zip(batch, samples, strict=True):
        assert made.dtype == sample.dtype
        assert np.array_equal(made, sample)
        assert not sample.size or np.shares_memory(made, batch.values)
    assert np.array_equal(batch[-1], samples[-1])
    with pytest.raises(IndexError):
        batch[len(samples)]


@given(st.lists(st.lists(IMAGES, max_size=3), min_size=1, max_size=5))
def test_lists_of_images_keep_their_nesting(samples: list[list[Any]]) -> None:
    batch = Ragged()(samples)
    if not any(samples):
        assert len(batch) == len(samples)
        return
    assert [[image.tolist() for image in sample] for sample in batch] == [
        [image.tolist() for image in sample] for sample in samples
    ]
    assert batch.levels[0].tolist() == np.cumsum([0, *map(len, samples)]).tolist()
    assert batch.arrays == sum(map(len, samples))


def test_fields_are_collated_separately() -> None:
    samples = [
        {"image": np.zeros((n, 2)), "name": str(n), "number": n, "pages": [np.ones(n)] * n} for n in (1, 3)
    ]
    batch = Ragged()(samples)
    assert batch["image"].shapes.tolist() == [[1, 2], [3, 2]]
    assert batch["name"] == ["1", "3"]
    assert [len(each) for each in batch["pages"]] == [1, 3]
    assert [int(each) for each in batch["number"]] == [1, 3]
    pages, label = Ragged()([([np.ones(2)], 1), ([], 2)])
    assert (len(pages), pages[1], len(label)) == (2, [], 2)


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([np.zeros(2, np.uint8), np.zeros(2, np.float32)], "float32, uint8"),
        ([np.zeros(2), np.zeros((2, 2))], "numbers of axes"),
        ([[np.zeros(2)], np.zeros(2)], "lists of one"),
        ([], "no samples"),
    ],
)
def test_what_cannot_be_ragged_is_a_named_error(samples: list[Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Ragged()(samples)


# -- pad ---------------------------------------------------------------------------------------------------------------


@given(st.lists(IMAGES, min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 255))
def test_padded_batches_contain_the_samples_and_the_value(
    samples: list[Any], multiple: int, value: int
) -> None:
    batch, sizes = Pad(val=value, multiple_of=multiple, sizes=True)(samples)
    assert sizes.tolist() == [list(sample.shape) for sample in samples]
    assert all(extent % multiple == 0 for extent in batch.shape[1:])
    for row, sample in zip(batch, samples, strict=True):
        expected = np.full(batch.shape[1:], value, np.uint8)
        expected[: sample.shape[0], : sample.shape[1]] = sample
        assert np.array_equal(row, expected)


def test_padding_to_a_size() -> None:
    samples = [np.ones((2, 3, 3)), np.ones((4, 1, 3))]
    assert Pad(to=(6, 5))(samples).shape == (2, 6, 5, 3)
    assert Pad(to=(None, 5))(samples).shape == (2, 4, 5, 3)
    assert Pad(to=8)([np.ones(3)]).shape == (1, 8)
    assert Pad(multiple_of=(4, 2))(samples).shape == (2, 4, 4, 3)
    with pytest.raises(ValueError, match=r"sample 1 has shape \(4, 1, 3\)"):
        Pad(to=(3, 5))(samples)
    with pytest.raises(ValueError, match="one argument"):
        Pad(round_to=2, multiple_of=2)


# -- patches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_patches_are_those_of_each_image(nested: bool) -> None:
    samples = [Photos(nested=nested)[index] for index in range(6)]
    batch, labels = Patches()(samples)
    images = [image for sample, _ in samples for image in (sample if nested else [sample])]
    assert labels.tolist() == list(range(6))
    assert isinstance(batch, PatchBatch)
    assert batch.pixel_values.dtype == np.uint8
    assert batch.num_tokens == len(batch.pixel_values) // 4
    assert batch.owners.tolist() == [
        n for n, (sample, _) in enumerate(samples) for _ in (sample if nested else [0])
    ]
    for number, image in enumerate(images):
        first, last = batch.cu_seqlens[number : number + 2]
        expected = np.empty((last - first, 1176), np.uint8)
        write_patches(image, expected)
        assert np.array_equal(batch.pixel_values[first:last], expected)
        assert batch.image_grid_thw[number].tolist() == [1, image.shape[0] // 14, image.shape[1] // 14]


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([np.zeros((28, 30, 3), np.uint8)], "multiples of 28"),
        ([np.zeros((28, 28, 3), np.uint8), np.zeros((28, 28, 3), np.float32)], "one dtype"),
        ([np.zeros((28, 28), np.uint8)], "height, width, channels"),
        ([[[np.zeros((28, 28, 3), np.uint8)]]], "deeper"),
    ],
)
def test_what_has_no_patches_is_a_named_error(samples: list[Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Patches()(samples)


# -- in loaders --------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return the arrays of a batch as bytes, to compare."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, (RaggedBatch, PatchBatch)):
        return [plain(each) for each in vars(value).values()]
    return [plain(each) for each in value] if isinstance(value, (tuple, list)) else value


@pytest.mark.parametrize("collate", [Ragged(), Patches(), Pad], ids=["ragged", "patches", "pad"])
def test_batches_are_bit_identical_over_executors(collate: Any, leftovers: Any) -> None:
    from aioloader.batchify import Group, Stack

    collate = Group(Pad(multiple_of=8), Stack()) if collate is Pad else collate
    nested = not isinstance(collate, Group)
    found = []
    for executor, workers in EXECUTORS:
        options: Any = {"executor": executor, "num_workers": workers, "batchify_fn": collate, "shuffle": True}
        with DataLoader(Photos(nested=nested), 5, **options) as loader:
            found.append([plain(batch) for batch in loader])
    assert len(found[0]) == 5
    assert found[0] == found[1] == found[2] == found[3]


def test_a_batch_that_is_kept_holds_its_memory_and_returns_it() -> None:
    with DataLoader(Photos(400), 100, num_workers=1, batchify_fn=Ragged()) as loader:
        kept, _ = next(iter(loader))
        expected = [image.copy() for image in kept]
        for _ in range(3):
            for _ in loader:
                pass
        assert all(np.array_equal(*pair) for pair in zip(kept, expected, strict=True))
        gc.collect()
        used = loader._runtime.memory_usage()[0]
        del kept
        gc.collect()
        assert loader._runtime.memory_usage()[0] < used


def test_a_loader_with_ragged_batches_can_be_left_in_the_middle(run_on: Any, leftovers: Any) -> None:
    async def main() -> None:
        async with AsyncDataLoader(
            Photos(200, nested=True), 8, num_workers=2, batchify_fn=Ragged()
        ) as loader:
            with anyio.move_on_after(10):
                async for batch, _ in loader:
                    assert len(batch) == 8
                    break
            state = loader.state_dict()
        async with AsyncDataLoader(Photos(200, nested=True), 8, num_workers=1, batchify_fn=Ragged()) as other:
            other.load_state_dict(state)
            async for _, labels in other:
                assert [int(label) for label in labels] == list(range(8, 16))
                break

    run_on(main)


@pytest.mark.torch
def test_tensors_of_a_ragged_batch() -> None:
    torch = pytest.importorskip("torch")
    with DataLoader(Photos(), 4, num_workers=1, batchify_fn=Ragged(), output="torch") as loader:
        batch, _ = next(iter(loader))
    assert isinstance(batch.values, torch.Tensor)
    assert batch.offsets.dtype == torch.int64
    assert torch.equal(batch[2], torch.from_numpy(Photos()[2][0]))


def test_gluons_loader_takes_it() -> None:
    import aioloader.mxnet as mx

    loader = mx.gluon.data.DataLoader(Photos(), 4, batchify_fn=Ragged(), num_workers=0)
    batch, _ = next(iter(loader))
    assert len(batch) == 4
