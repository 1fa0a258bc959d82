"""Tests of record files by URL: the same batches as from local files, for every loader and executor."""

from __future__ import annotations

import pickle
from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
import recordio
from aioloader.storage.remote import client
from tests.aioloader.remote.conftest import Served, assert_same, dataset, epoch
from tests.executors import pool

pytestmark = pytest.mark.remote


def test_a_blocking_loader_gives_the_same_batches(served: Served, leftovers: Any) -> None:
    expected = epoch(served.path)
    assert_same(epoch(served.url, **pool("process", 2)), expected)


@pytest.mark.parametrize(
    ("executor", "backend"), [("inline", "asyncio"), ("thread", "trio"), ("process", "asyncio")]
)
def test_an_async_loader_gives_the_same_batches(
    served: Served, executor: str, backend: str, no_blocking: None
) -> None:
    expected = epoch(served.path)
    images = dataset(served.url)

    async def main() -> list[Any]:
        async with aioloader.AsyncDataLoader(images, 4, shuffle=True, **pool(executor, 2)) as loader:
            return [(batch[0].copy(), batch[1].copy()) async for batch in loader]

    assert_same(anyio.run(main, backend=backend), expected)


def test_single_samples_and_labels_are_the_same(served: Served) -> None:
    here, there = aioloader.ImageRecordDataset(served.path), aioloader.ImageRecordDataset(served.url)
    assert len(there) == len(here)
    np.testing.assert_array_equal(there[-1][0], here[-1][0])
    np.testing.assert_array_equal(there.labels(), here.labels())
    assert there.labels().dtype == here.labels().dtype
    copy = pickle.loads(pickle.dumps(there))
    np.testing.assert_array_equal(copy[3][0], here[3][0])


def test_without_an_index_the_object_is_scanned(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    expected = epoch(served.path)
    served.path.with_suffix(".idx").unlink()
    assert_same(epoch(served.url), expected)
    assert "index of photos.rec" in capsys.readouterr().err


def test_the_readers_of_recordio_read_urls(served: Served, run_on: Any) -> None:
    with recordio.RecordReader(served.path) as reader:
        expected = list(reader)
    with recordio.RecordReader(served.url) as reader:
        assert list(reader) == expected
        assert reader.read_many([5, 2, 5]) == [expected[5], expected[2], expected[5]]

    async def main() -> list[bytes]:
        async with recordio.aio.AsyncRecordReader(served.url) as reader:
            assert await reader.read(3) == expected[3]
            return [payload async for payload in reader]

    assert run_on(main) == expected


def test_an_empty_object_has_no_samples(served: Served) -> None:
    empty = served.path.with_name("empty.rec")
    empty.write_bytes(b"")
    assert len(aioloader.RecordFileDataset(served.url.replace("photos.rec", "empty.rec"))) == 0


def test_a_missing_object_is_a_file_not_found_error(served: Served) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.rec") as caught:
        aioloader.ImageRecordDataset(served.url.replace("photos.rec", "nothing.rec"))
    assert isinstance(caught.value, aioloader.LoaderError)
    assert caught.value.attempts == 1


def test_a_checkpoint_of_a_local_file_fits_the_same_remote_file(served: Served) -> None:
    expected = epoch(served.path)
    with aioloader.DataLoader(dataset(served.path), 4, shuffle=True, executor="inline") as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        state = loader.state_dict()
    with aioloader.DataLoader(dataset(served.url), 4, shuffle=True, executor="inline") as loader:
        loader.load_state_dict(state)
        rest = [(images.copy(), labels.copy()) for images, labels in loader]
    assert_same(rest, expected[2:])


def test_stats_equal_the_counts_of_the_server(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    # No request is sent a second time because it is late, which it is on a busy machine.
    monkeypatch.setattr(client.Latencies, "late_for", lambda latencies, nbytes: 1000.0)
    images = dataset(served.proxied)
    _ = images[0]  # the index and the form of the labels are known now
    served.proxy.restart()
    with aioloader.DataLoader(images, 4, shuffle=True, executor="thread", num_workers=2) as loader:
        for _ in loader:
            pass
        stats = loader.stats()
    counts = served.proxy.counts()
    assert (stats.requests, stats.request_bytes) == (counts.requests, counts.nbytes)
    assert (stats.retries, stats.hedges) == (0, 0)
    assert stats.merged is not None
    assert stats.merged >= 1
    assert stats.latency_p50_s is not None
    assert stats.latency_p99_s is not None
    assert 0 < stats.latency_p50_s <= stats.latency_p99_s
    assert stats.hit_rate is None


def test_the_stats_of_a_local_loader_have_no_requests(served: Served) -> None:
    with aioloader.DataLoader(dataset(served.path), 4, executor="inline") as loader:
        for _ in loader:
            pass
        stats = loader.stats()
    assert (stats.requests, stats.retries, stats.hedges, stats.latency_p99_s) == (0, 0, 0, None)


def _offsets(served: Served, way: str, run_on: Any) -> list[int]:
    """Return the offsets that a reader, or a dataset, takes from the index; the log has its requests."""

    async def load() -> list[int]:
        async with recordio.aio.AsyncRecordReader(served.proxied) as reader:
            await reader.load()
            return list(reader.offsets)

    served.proxy.restart()
    if way == "async":
        found: list[int] = run_on(load)
        return found
    if way == "dataset":
        return list(aioloader.RecordFileDataset(served.proxied).table.index.offsets)
    with recordio.RecordReader(served.proxied) as reader:
        return list(reader.offsets)


@pytest.mark.parametrize("with_idx", [True, False], ids=["idx", "scan"])
@pytest.mark.parametrize("way", ["async", "blocking", "dataset"])
def test_readers_fetch_an_index_once(served: Served, with_idx: bool, way: str, run_on: Any) -> None:
    if not with_idx:
        served.path.with_suffix(".idx").unlink()
    first = _offsets(served, way, run_on)
    assert _offsets(served, way, run_on) == first
    # One byte of the record file and of its index shows whether they are unchanged.
    assert {span for _, _, span in served.proxy.log()} <= {"bytes=0-0", ""}
    assert served.proxy.counts().nbytes < 1_000  # including an error page for the missing index


@pytest.mark.parametrize("way", ["async", "dataset"])
def test_a_reader_sees_that_an_index_has_changed(served: Served, way: str, run_on: Any) -> None:
    index = served.path.with_suffix(".idx")
    before = _offsets(served, way, run_on)
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:-1]))
    assert _offsets(served, way, run_on) == before[:-1]
