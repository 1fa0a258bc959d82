"""Tests with a real cluster of two nodes: local batches, also when a node dies and when a sample kills a worker."""

import math
import os
import signal
import time

import anyio
import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader, ImageRecordDataset, WorkerError
from aioloader.executors import RayExecutor
from aioloader.foundation.types import INDEX, Chunk
from aioloader.transforms import ColorJitter, Compose, RandomHorizontalFlip, RandomResizedCrop
from tests.aioloader.cluster import local_cluster, wait_until
from tests.aioloader.loader.samples import Made, Numbers, souvenirs

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
CHAIN = Compose([RandomResizedCrop(32), RandomHorizontalFlip(), ColorJitter(brightness=0.3)])
OPTIONS = {"batch_size": 8, "shuffle": True, "seed": 3}


@pytest.fixture(scope="module")
def nodes():
    with local_cluster() as made:
        yield made


@pytest.fixture
def cluster(nodes):
    """Return a cluster of two nodes, repaired after earlier tests."""
    nodes.make_whole()
    return nodes


def deadly(killed=(), endless=()):
    """Return a dataset of which some items kill the process that makes them, and some never end."""

    def make(index):
        if index in killed:
            os.kill(os.getpid(), signal.SIGKILL)
        while index in endless:
            time.sleep(0.1)
        return np.full(5, index), index

    return Made(40, make)


def noise(index):
    """Return, after a moment, an array that depends on the index, and the index."""
    time.sleep(0.01)
    return np.full((16, 16), index * 31 % 256, np.uint8), index


SLOW = Made(400, noise)


def total(samples):
    """Batchify to the numbers alone, and their count."""
    return np.stack([image for image, _ in samples]).sum(axis=0), [index for _, index in samples]


def content(batches):
    return [[np.asarray(leaf).tobytes() for leaf in batch] for batch in batches]


# The first, as the others share a cluster.
def test_without_a_cluster_the_error_says_what_to_do():
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'aioloader[ray]'")
    assert not ray.is_initialized()
    with DataLoader(Numbers(10), 5, executor=RayExecutor()) as loader:
        with pytest.raises(WorkerError, match=r"call ray\.init\(\) first"):
            next(iter(loader))


def test_the_batches_are_those_made_here(cluster, photo_rec):
    dataset = ImageRecordDataset(photo_rec).transform_first(CHAIN)
    plain = DataLoader(dataset, **OPTIONS, num_workers=0)
    expected = content([*plain, *plain])

    async def passes(loader):
        async with loader:
            return content([batch for _ in range(2) async for batch in loader])

    for backend in ("asyncio", "trio"):
        loader = AsyncDataLoader(dataset, **OPTIONS, executor=RayExecutor(2))
        assert anyio.run(passes, loader, backend=backend) == expected
    with DataLoader(dataset, **OPTIONS, executor=RayExecutor()) as loader:
        assert content([*loader, *loader]) == expected
        assert loader.stats().workers >= 1
        assert loader.stats().decodes == plain.stats().decodes

    # A caller's batchify function, and samples that fail.
    custom_collate = {"batchify_fn": total, "on_error": "replace"}
    with (
        DataLoader(Numbers(30, fail=(4, 17)), 6, num_workers=0, **custom_collate) as one,
        DataLoader(Numbers(30, fail=(4, 17)), 6, executor=RayExecutor(2), **custom_collate) as other,
    ):
        assert content(other) == content(one)
        assert [error.index for error in other.errors] == [4, 17]

    # Leaving early keeps the actors, and the next iteration is the next epoch.
    with DataLoader(Numbers(100), 5, shuffle=True, executor=RayExecutor(2)) as loader:
        for _ in loader:
            break
        assert len(list(loader)) == 20
        assert loader.stats().restarts == 0


def test_a_node_that_dies_in_the_middle_changes_nothing(cluster):
    plain = DataLoader(SLOW, 10, shuffle=True, num_workers=0)
    expected = content([*plain, *plain])
    executor = RayExecutor(2)
    with DataLoader(SLOW, 10, shuffle=True, executor=executor) as loader:
        batches = iter(loader)
        got = [next(batches)]
        # Both nodes work.
        wait_until(lambda: [handle.ready for handle in executor._table.handles] == [True, True])
        got += [next(batches) for _ in range(5)]
        cluster.kill_second_node()
        got += list(batches)
        got += list(loader)
        assert content(got) == expected
        assert loader.errors == []  # no sample was blamed by mistake
        assert loader.stats().restarts >= 1


def test_a_sample_that_kills_its_worker_is_named_and_the_others_are_made(cluster):
    with DataLoader(deadly(killed=(13,)), 8, executor=RayExecutor(2), on_error="skip") as loader:
        indices = [index for _, index_table in loader for index in index_table.tolist()]
        assert indices == [index for index in range(40) if index != 13]
        (error,) = loader.errors
        assert error.index == 13
        assert isinstance(error.__cause__, WorkerError)
        assert "lost 3 times" in str(error.__cause__)


def test_a_sample_that_never_ends_is_named_and_the_others_are_made(cluster, monkeypatch):
    def patience_at(chunk, place, timeout):
        """Give the samples without the endless one any time, which they may need on a busy machine."""
        return timeout if 5 in chunk.index_table[INDEX] else math.inf

    monkeypatch.setattr(Chunk, "patience_at", patience_at)
    executor = RayExecutor(1, timeout=3)
    with DataLoader(deadly(endless=(5,)), 8, executor=executor, on_error="skip") as loader:
        indices = [index for _, index_table in loader for index in index_table.tolist()]
        assert indices == [index for index in range(40) if index != 5]
        assert [error.index for error in loader.errors] == [5]
        assert isinstance(loader.errors[0].__cause__, TimeoutError)


def test_what_cannot_come_back_is_that_samples_failure(cluster):
    with DataLoader(souvenirs(12, {5}), 4, executor=RayExecutor(1), on_error="skip") as loader:
        found = [number for _, index_table in loader for number in index_table]
        (error,) = loader.errors
    assert found == [number for number in range(12) if number != 5]
    assert error.index == 5
    assert "can be pickled but not unpickled" in str(error.__cause__)
