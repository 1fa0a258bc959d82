"""One cold epoch of a loader over files at URLs; started by `benchmarks.remote_formats`.

    python -m benchmarks.remote_epoch LOADER WORKERS BATCH URL...

LOADER is one of `LOADERS`; each runs in an environment with its packages (see `benchmarks.contenders`). Prints a line
of JSON: the labels, the seconds from opening the files to the first batch, and those to the last one; and the CPU
seconds of imports, which are not counted. Starting workers is.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from benchmarks.cases import CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CASE = CASES["jpeg-antialias"]


class Clock:
    """Times and labels of the batches of an epoch. The clock starts when it is made."""

    def __init__(self) -> None:
        self._imports_cpu_s = process_time()
        self._begin = perf_counter()
        self._first_s = self._last_s = 0.0
        self._first_count = 0
        self._labels: list[int] = []

    def take(self, images: Any, labels: Any) -> None:
        """Count a batch."""
        self._last_s = perf_counter() - self._begin
        if tuple(images.shape[1:]) != CASE.shape:
            raise SystemExit(f"the images have the shape {tuple(images.shape[1:])}")
        if not self._labels:
            self._first_s, self._first_count = self._last_s, len(labels)
        self._labels += [int(label) for label in labels]

    def result(self) -> dict[str, Any]:
        """Return the facts that are printed."""
        return {
            "first_s": self._first_s,
            "first_count": self._first_count,
            "last_s": self._last_s,
            "labels": self._labels,
            "imports_cpu_s": self._imports_cpu_s,
        }


def of_aioloader(
    urls: Sequence[str], workers: int, batch: int, *, shuffle_shards: int | None = None
) -> Clock:
    """Load with this project, in random order: of all samples, or of those of some files at a time."""
    import asyncio
    import importlib

    import aioloader
    from aioloader import transforms

    # Lazy imports, done before the clock starts, as those of the others, whose packages import all of themselves.
    suffix = urls[0].rpartition(".")[2]
    for package in (
        "anyio._backends._asyncio",
        "cv2",
        "numpy",
        "obstore.store",
        "simplejpeg",
        "aioloader.formats.opening",
        f"aioloader.formats.{suffix}.dataset",
        "aioloader.loader.async_loader",
        "aioloader.storage.remote.opening",
        *["pyarrow.parquet"] * (suffix == "parquet"),
    ):
        importlib.import_module(package)

    async def epoch() -> Clock:
        clock = Clock()
        augment = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
        options = {} if shuffle_shards is None else {"shuffle_shards": shuffle_shards}
        dataset: Any = aioloader.open_dataset(list(urls), **options)
        loader = aioloader.AsyncDataLoader[Any](
            dataset.transform_first(augment), batch, shuffle=True, executor="process", num_workers=workers
        )
        async with loader:
            async for images, labels in loader:
                clock.take(images, labels)
        return clock

    return asyncio.run(epoch())


def of_datasets(urls: Sequence[str], workers: int, batch: int) -> Clock:
    """Load Parquet with Hugging Face's streaming, in the order of the files, which is its fastest."""
    import datasets
    import torch
    from torch.utils.data import DataLoader

    from benchmarks.contenders.hf_datasets import ImageTransform

    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    make = ImageTransform(CASE, "opencv")

    def collate(rows: list[dict[str, Any]]) -> tuple[Any, list[int]]:
        found = make({"image": [row["image"] for row in rows], "label": [row["label"] for row in rows]})
        return torch.stack(found["image"]), found["label"]

    clock = Clock()
    streamed = datasets.load_dataset("parquet", data_files=list(urls), split="train", streaming=True)
    streamed = streamed.cast_column("image", datasets.Image(decode=False))
    for images, labels in DataLoader(streamed, batch_size=batch, num_workers=workers, collate_fn=collate):
        clock.take(images, labels)
    return clock


def of_webdataset(urls: Sequence[str], workers: int, batch: int) -> Clock:
    """Load tars with WebDataset, through its pipes from curl, in the order of the files, which is its fastest."""
    import torch
    import webdataset
    from torch.utils.data import default_collate

    from benchmarks.contenders.webdataset import ImageTransform

    torch.set_num_threads(1)
    make = ImageTransform(CASE)

    clock = Clock()
    streamed = webdataset.WebDataset(list(urls), shardshuffle=False, empty_check=False)
    streamed = streamed.map(make).batched(batch, collation_fn=default_collate)
    for images, labels in webdataset.WebLoader(streamed, batch_size=None, num_workers=workers):
        clock.take(images, labels)
    return clock


LOADERS: dict[str, Callable[[Sequence[str], int, int], Clock]] = {
    "aioloader": of_aioloader,
    "aioloader, shuffle_shards=4": partial(of_aioloader, shuffle_shards=4),
    "datasets": of_datasets,
    "webdataset": of_webdataset,
}


if __name__ == "__main__":
    name, workers, batch, *urls = sys.argv[1:]
    print(json.dumps(LOADERS[name](urls, int(workers), int(batch)).result()))
