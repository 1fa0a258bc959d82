"""Tests of Parquet files by URL: the same batches as from local files, and requests for the columns only."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import anyio
import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader, ParquetDataset
from aioloader.errors import ObjectChangedError
from tests.aioloader.datasets.parquet_files import images, write
from tests.aioloader.remote.conftest import ServedFolder, assert_same
from tests.servers.faults import Rule

pytestmark = pytest.mark.remote

pq: Any = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

COUNT = 60


class Files(NamedTuple):
    """Two Parquet files of 30 images, in row groups of 5, with a large column that nobody asks for.

    Attributes:
        paths: the files.
        urls: their addresses.
        proxied: the same through `proxy`.
        proxy: a `tests.servers.fault_proxy.FaultProxy`.
    """

    paths: list[Path]
    urls: list[str]
    proxied: list[str]
    proxy: Any


@pytest.fixture
def files(there: ServedFolder) -> Files:
    paths = []
    noise = np.random.default_rng(0)
    for number in range(2):
        rows = range(30 * number, 30 * number + 30)
        columns = {
            "label": list(rows),
            "other": [noise.bytes(40_000) for _ in rows],
            "image": images(rows),
        }
        paths.append(write(there.folder / f"{number}.parquet", columns))
    direct, proxied = ([f"{where}/{path.name}" for path in paths] for where in (there.direct, there.url))
    return Files(paths, direct, proxied, there.proxy)


def epoch(paths: Any, **options: Any) -> list[Any]:
    dataset = ParquetDataset(paths, shuffle_blocks=3, crop_index=None)
    options = {"executor": "inline", **options}
    with DataLoader(dataset, 7, shuffle=True, **options) as loader:
        return [(batch.copy(), labels.copy()) for batch, labels in loader]


def test_an_async_loader_makes_the_same_batches(files: Files, backend: str, no_blocking: None) -> None:
    expected = epoch(files.paths)
    dataset = ParquetDataset(files.urls, shuffle_blocks=3, crop_index=None)

    async def main() -> list[Any]:
        async with AsyncDataLoader(dataset, 7, shuffle=True, executor="inline") as loader:
            return [(batch.copy(), labels.copy()) async for batch, labels in loader]

    assert_same(anyio.run(main, backend=backend), expected)


def test_only_footers_and_the_columns_are_requested(files: Files) -> None:
    dataset = ParquetDataset(files.proxied, shuffle_blocks=3, crop_index=None)
    assert dataset[7][1] == 7
    files.proxy.restart()
    with DataLoader(dataset, 7, shuffle=True, num_workers=0) as loader:
        assert sum(len(labels) for _, labels in loader) == COUNT
        stats = loader.stats()
    counts = files.proxy.counts()
    assert stats.requests == counts.requests
    # Of a request that was sent twice because it was late, only the first response is counted.
    spans = [span.removeprefix("bytes=").split("-") for _, _, span in files.proxy.log()]
    repeated = [spans[place] for place in range(len(spans)) if spans[place] in spans[:place]]
    twice = sum(int(last) - int(first) + 1 for first, last in repeated)
    assert counts.nbytes - twice <= stats.request_bytes <= counts.nbytes
    columns = 0
    for path in files.paths:
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            chunks = [metadata.row_group(group).column(leaf) for leaf in range(metadata.num_columns)]
            columns += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema != "other")
    # Row groups at the end of the ring of an epoch may be read twice.
    assert columns <= counts.nbytes <= columns * 1.5
    assert counts.nbytes < sum(path.stat().st_size for path in files.paths) / 4


def test_footers_are_fetched_once_and_labels_alone(files: Files) -> None:
    files.proxy.behave(Rule("truncate", attempts=1, limit=1, after=0.5))
    assert len(ParquetDataset(files.proxied)) == COUNT
    assert {span for _, _, span in files.proxy.log()} == {"bytes=-65536"}  # the versions, too
    files.proxy.restart()
    again = ParquetDataset(files.proxied, crop_index=None)
    assert len(again) == COUNT
    assert {span for _, _, span in files.proxy.log()} == {"bytes=0-0"}  # the versions
    files.proxy.restart()
    assert again.labels().tolist() == list(range(COUNT))
    assert files.proxy.counts().nbytes < 10_000


def test_a_file_that_changes_after_its_footer_was_read_is_an_error(files: Files) -> None:
    dataset = ParquetDataset(files.urls[0], crop_index=None)
    write(files.paths[0], {"label": list(range(30)), "image": images(range(30))})
    assert len(dataset) == 30
    with pytest.raises(ObjectChangedError):
        dataset[0]
