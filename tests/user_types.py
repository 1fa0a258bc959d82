"""Typed program of a user, for type checkers: `.ci/user_types.py` checks it, and nothing runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader

if TYPE_CHECKING:
    from typing import assert_type

    import numpy.typing as npt

    Pair = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


class Squares(aioloader.Dataset["tuple[npt.NDArray[np.uint8], int]"]):
    """Dataset with a type of samples."""

    def __getitem__(self, index: int) -> tuple[npt.NDArray[np.uint8], int]:
        return np.zeros((8, 8, 3), np.uint8), index

    def __len__(self) -> int:
        return 10


async def fetched(number: int) -> bytes:
    """Return something that has to be awaited."""
    return bytes(number)


def of_datasets() -> None:
    """Samples of typed datasets and of their views."""
    dataset = Squares()
    image, number = dataset.take(5)[0]
    assert_type(image, "npt.NDArray[np.uint8]")
    assert_type(number, int)
    plain: aioloader.Dataset = aioloader.SimpleDataset([1, 2])
    assert_type(plain[0], Any)
    numbers = aioloader.SimpleDataset([1, 2])
    assert_type(numbers[0], int)
    assert_type(numbers.transform(str).shard(2, 0)[0], str)
    assert_type(numbers.transform(fetched)[0], bytes)
    assert_type(numbers.transform(aioloader.transforms.ToTensor())[0], Any)
    assert_type(aioloader.ConcatDataset([numbers, numbers.take(1)])[0], int)


async def of_async_loaders() -> None:
    """Batches: of any type, or of that in brackets."""
    async with aioloader.AsyncDataLoader(Squares(), 4, shuffle=True, seed=1) as loader:
        async for images, labels in loader:
            print(images.shape, labels.shape)
        loader.check_receipt(sum([loader.receipt(), loader.receipt()]))
    async with aioloader.AsyncDataLoader["Pair"](Squares(), 4) as typed:
        async for batch in typed:
            assert_type(batch, "Pair")


def of_loaders() -> None:
    """Batches of the blocking loader, of a line, and of a collate function that draws."""

    def collate(samples: list[Any], *, rng: aioloader.Rng) -> npt.NDArray[np.float64]:
        return np.full(len(samples), rng.random())

    with aioloader.DataLoader(Squares(), 4, collate_fn=collate) as loader:
        for batch in loader:
            print(batch)
    with aioloader.images("photos", blocking=True) as lines:
        for images, labels in lines:
            print(images.mean(), labels.max())


def of_options() -> None:
    """Options that several classes have, by their names."""
    tars = aioloader.TarDataset(
        "train.tar", fields=("jpg", "json"), exif="ignore", cache="memory", cache_limit="4GB"
    )
    folder = aioloader.ImageFolderDataset("photos", 1, synsets=["cat", "dog"], max_pixels=None)
    loader = aioloader.DataLoader(dataset=tars, batch_size=4, drop_last=True, executor="thread")
    assert_type(loader.batch_size, "int | None")
    service = aioloader.ImageService(None, allow=("path",), root="photos", timeout=None)
    print(len(folder), service.closed)
