"""Tests of leases: a batch stays unchanged as long as any view of it lives."""

import gc
import threading

import anyio
import numpy as np

from aioloader import AsyncDataLoader, DataLoader, ImageRecordDataset
from aioloader.transforms import Compose, RandomResizedCrop
from tests.aioloader.loader.samples import Numbers, churn
from tests.cases import with_cases
from tests.executors import pool


def test_a_view_outlives_loader_and_thread(executor):
    """executors/test_shared_memory.py has views of all kinds."""
    kept, before = [], []

    def use():
        loader = DataLoader(Numbers(60), 10, **pool(executor, 2), memory_limit=1 << 20)
        for images, _ in loader:
            kept.append(images[1:].T)
            before.append(kept[-1].copy())
        churn(loader)
        loader.close()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    gc.collect()
    with DataLoader(Numbers(60), 10, **pool(executor, 2)) as other:
        churn(other)
    assert np.array_equal(kept, before)


def test_a_view_outlives_the_loop(executor):
    async def main():
        async with AsyncDataLoader(Numbers(60), 10, **pool(executor, 2)) as loader:
            return [images[3:] async for images, _ in loader]

    kept = anyio.run(main)
    anyio.run(main)
    assert [each[:, 0, 0].tolist() for each in kept] == [list(range(s + 3, s + 10)) for s in range(0, 60, 10)]


@with_cases(
    ("executor", "limit"), [("inline", None), ("thread", 1 << 20), ("process", None), ("process", 1 << 20)]
)
def test_all_batches_of_an_epoch_may_be_kept(photo_rec, executor, limit):
    dataset = ImageRecordDataset(photo_rec).transform_first(Compose([RandomResizedCrop(64)]))
    options = {**pool(executor, 2), "memory_limit": limit}
    with DataLoader(dataset, 4, **options) as loader:
        kept = list(loader)
        copies = [images.copy() for images, _ in kept]
        churn(loader)
    assert all(np.array_equal(images, copy) for (images, _), copy in zip(kept, copies, strict=True))


def test_memory_is_used_again_once_a_batch_is_dropped(executor):
    with DataLoader(Numbers(400), 10, **pool(executor, 2)) as loader:
        list(loader)
        peak = loader.stats().memory_peak_bytes
        churn(loader)
        assert loader.stats().memory_peak_bytes <= 2 * peak
        gc.collect()
        assert loader.stats().memory_bytes == 0


def test_a_batch_takes_the_memory_of_its_rows_once_the_samples_are_known(executor):
    with DataLoader(Numbers(1600), 400, **pool(executor, 2)) as loader:
        churn(loader)
        for images, numbers in loader:  # noqa: B007  # only the last batch is kept
            pass
        gc.collect()
        assert loader.stats().memory_bytes <= 1.2 * (images.nbytes + numbers.nbytes)
