"""Tests of cached objects: bytes that were read once are not requested again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
import recordio
from aioloader import ImageRecordDataset, transforms
from tests.aioloader.remote.conftest import Served, assert_same, epoch
from tests.executors import pool
from tests.servers.faults import Rule

pytestmark = pytest.mark.remote


@pytest.fixture(params=["directory", "memory"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path / "cache" if request.param == "directory" else "memory"


def _ready(url: str, cache: Any, **options: Any) -> Any:
    return ImageRecordDataset(url, cache=cache, **options).transform_first(transforms.RandomResizedCrop(32))


def _nbytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_the_second_epoch_makes_no_request(served: Served, cache: Any, executor: str, leftovers: Any) -> None:
    loader = aioloader.DataLoader(_ready(served.proxied, cache), 4, shuffle=True, **pool(executor, 1))
    with loader:
        first = [(images.copy(), labels.copy()) for images, labels in loader]
        assert served.proxy.counts().requests > 0
        assert loader.stats().hit_rate == 0
        served.proxy.restart()
        loader.set_epoch(0)
        second = [(images.copy(), labels.copy()) for images, labels in loader]
        assert served.proxy.counts().requests == 0
        assert loader.stats().hit_rate == 0.5
    assert_same(second, first)
    assert_same(first, epoch(served.path))


def test_without_a_server_the_cache_goes_on(served: Served, cache: Any, backend: str) -> None:
    async def main() -> int:
        ready = _ready(served.proxied, cache)
        count = 0
        async with aioloader.AsyncDataLoader(ready, 4, executor="thread", num_workers=1) as loader:
            for _ in range(2):
                async for images, _ in loader:
                    count += len(images)
                served.proxy.go_away()
        return count

    try:
        assert anyio.run(main, backend=backend) == 2 * len(ImageRecordDataset(served.path))
    finally:
        served.proxy.come_back()


@pytest.mark.parametrize("kept", ["label dtype given", "labels in the index", "labels in the cache"])
def test_the_next_run_asks_only_whether_the_object_is_the_same(
    served: Served, tmp_path: Path, kept: str
) -> None:
    dtype = "int64" if kept == "label dtype given" else None
    dataset = ImageRecordDataset(served.proxied, cache=tmp_path / "cache", label_dtype=dtype)
    first = [dataset[index] for index in range(len(dataset))]
    if kept == "labels in the cache":
        shutil.rmtree(tmp_path / "user-cache" / "sample-index")
    served.proxy.restart()
    again = ImageRecordDataset(served.proxied, cache=tmp_path / "cache", label_dtype=dtype)
    for index, (image, label) in enumerate(first):
        assert np.array_equal(again[index][0], image)
        assert again[index][1] == label
        assert again[index][1].dtype == label.dtype
    assert again.labels().tolist() == [label for _, label in first]
    assert served.proxy.counts().requests == 2  # the versions of the .rec and the .idx


def test_an_object_that_was_replaced_is_read_again(served: Served, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = ImageRecordDataset(served.proxied, cache=cache)[0]
    records = served.path.read_bytes()
    damaged = bytearray(records)
    damaged[12:16] = np.float32(7).tobytes()  # the label of the first record
    served.path.write_bytes(damaged)
    os.utime(served.path, (1, 1))
    image, label = ImageRecordDataset(served.proxied, cache=cache)[0]
    assert np.array_equal(image, first[0])
    assert label != first[1]


def test_only_spans_that_do_not_fit_are_requested_again(served: Served, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    limit = served.path.stat().st_size // 2
    expected = epoch(served.path)
    with aioloader.DataLoader(
        _ready(served.proxied, cache, cache_limit=limit), 4, shuffle=True, executor="inline"
    ) as loader:
        for _ in range(3):
            loader.set_epoch(0)
            assert_same([(images.copy(), labels.copy()) for images, labels in loader], expected)
            assert _nbytes(cache) <= limit
        # Half of the spans in the second and third epoch, or some more where they are small.
        assert 0.2 < loader.stats().hit_rate < 0.5


def test_faults_leave_nothing_wrong_in_the_cache(served: Served, cache: Any) -> None:
    served.proxy.behave(
        Rule("status", share=0.1, attempts=1),
        Rule("reset", share=0.1, attempts=1),
        Rule("truncate", share=0.1, attempts=1),
        Rule("shorten", share=0.1, attempts=1),
    )
    with aioloader.DataLoader(_ready(served.proxied, cache), 4, shuffle=True, executor="inline") as loader:
        first = [(images.copy(), labels.copy()) for images, labels in loader]
        served.proxy.restart()
        loader.set_epoch(0)
        second = [(images.copy(), labels.copy()) for images, labels in loader]
    assert served.proxy.counts().requests == 0
    assert_same(first, epoch(served.path))
    assert_same(second, first)


def test_records_of_more_than_8_mib_are_found_again_too(served: Served, cache: Any) -> None:
    path = served.path.with_name("large.rec")
    payloads = [np.random.RandomState(n).bytes(size) for n, size in enumerate((9 << 20, 1000, 10 << 20))]
    with recordio.RecordWriter(path, path.with_suffix(".idx")) as writer:
        for number, payload in enumerate(payloads):
            writer.write(payload, number)
    dataset = aioloader.RecordFileDataset(served.proxied.replace("photos.rec", "large.rec"), cache=cache)
    with aioloader.DataLoader(dataset, 2, batchify_fn=list, executor="thread", num_workers=1) as loader:
        first = [item for batch in loader for item in batch]
        served.proxy.restart()
        second = [item for batch in loader for item in batch]
    assert served.proxy.counts().requests == 0
    assert first == second == payloads
