"""Tests of wrong servers and names: the errors, their delay, and answers that are not trusted."""

from __future__ import annotations

import logging
import shutil
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aioloader
from aioloader.errors import ObjectMissingError, RemoteReadError
from tests.servers.faults import Rule

pytestmark = pytest.mark.remote


def test_a_listing_of_a_folder_is_refused_at_once(nginx: Any) -> None:
    with pytest.raises(RemoteReadError, match="does not support range requests") as caught:
        aioloader.RecordFileDataset(f"http://{nginx.address}/")
    assert caught.value.kind == "unranged"
    assert caught.value.attempts == 1


def test_a_missing_bucket_is_distinguished_from_an_object(bucket: str) -> None:
    for path in ("set.rec", "*.rec", "416.rec"):  # a name is no status
        with pytest.raises(ObjectMissingError, match="bucket does not exist"):
            aioloader.RecordFileDataset(f"s3://{bucket}x/{path}")
    with pytest.raises(ObjectMissingError, match="key does not exist"):
        aioloader.RecordFileDataset(f"s3://{bucket}/set.rec")


def test_the_bucket_of_a_pattern_is_spelled_out() -> None:
    with pytest.raises(ValueError, match="bucket cannot be a pattern"):
        aioloader.RecordFileDataset("s3://train*/set.rec")


@pytest.fixture
def stateless(photo_rec: Path, served_folder: Path, nginx: Any) -> Iterator[tuple[str, Path]]:
    """Return URL and path of a record file that the server sends without ETag and date."""
    folder = served_folder / "stateless" / uuid.uuid4().hex
    folder.mkdir(parents=True)
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        shutil.copy(path, folder / path.name)
    yield f"http://{nginx.address}/stateless/{folder.name}/{photo_rec.name}", folder / photo_rec.name
    shutil.rmtree(folder)


@pytest.mark.parametrize("kept", ["directory", "memory"])
def test_bytes_of_an_unknown_state_are_not_kept(
    stateless: tuple[str, Path], kept: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, path = stateless
    dataset = aioloader.RecordFileDataset(url, cache=tmp_path / "cache" if kept == "directory" else "memory")

    def sums() -> list[int]:
        with aioloader.DataLoader(dataset.transform(zlib.crc32), 4, num_workers=0) as loader:
            return [int(one) for batch in loader for one in batch]

    caplog.set_level(logging.WARNING)
    before = sums()
    assert caplog.text.count("neither an ETag nor a date") == 1
    data = bytearray(path.read_bytes())
    data[100] ^= 255  # in the first record, with the same number of bytes
    path.write_bytes(data)
    after = sums()
    assert after == [zlib.crc32(payload) for payload in aioloader.RecordFileDataset(path)]
    assert after[0] != before[0]


def test_the_indexes_of_shards_are_fetched_side_by_side(served: Any, tmp_path: Path) -> None:
    urls = []
    for number in range(6):
        path = served.path.with_name(f"shard-{number}.rec")
        shutil.copy(served.path, path)
        shutil.copy(served.path.with_suffix(".idx"), path.with_suffix(".idx"))
        urls.append(served.proxied.replace(served.path.name, path.name))
    dataset = aioloader.RecordFileDataset(urls)
    # Every answer waits until the other requests have been sent.
    served.proxy.behave(Rule("stall", match=".idx", seconds=1.0, attempts=1))
    assert len(dataset) == 6 * len(aioloader.RecordFileDataset(served.path))
    assert served.proxy.counts().peak_in_flight >= 3
