"""Tests of shards on a server: spans of a known length are read exactly, and an index is kept for each version."""

from __future__ import annotations

import os

import numpy as np
import pytest
import simplejpeg

from aioloader.foundation.types import SpanKind
from aioloader.storage.remote.source import RemoteByteSource
from tests.aioloader.datasets.toy_shards import ToyDataset, toy_sample, write_shard
from tests.aioloader.remote.conftest import Served
from tests.aioloader.storage.reading import spans

pytestmark = pytest.mark.remote

MAGIC = bytes.fromhex("0a23d7ce")


@pytest.fixture
def shard(served: Served) -> Served:
    """Serve a shard of 40 samples."""
    samples = [
        toy_sample(simplejpeg.encode_jpeg(np.full((16, 16, 3), 5 * n, np.uint8)), label=n) for n in range(40)
    ]
    path = write_shard(served.path.with_name("set.toy"), samples)
    url, proxied = (each.replace(served.path.name, path.name) for each in (served.url, served.proxied))
    return served._replace(url=url, proxied=proxied, path=path)


def test_an_index_is_kept_for_each_version(shard: Served) -> None:
    first, second = ToyDataset(shard.url), ToyDataset(shard.url + "?signature=2")
    assert (len(first), len(second)) == (40, 40)
    assert first.scans == 1
    again = ToyDataset(shard.url)
    assert (len(again), again.scans) == (40, 0)
    write_shard(shard.path, [toy_sample(label=1)])
    os.utime(shard.path, (1, 1))
    replaced = ToyDataset(shard.url)
    assert (len(replaced), replaced.scans) == (1, 1)


def test_bytes_like_the_header_of_a_record_are_only_bytes(shard: Served) -> None:
    data = (MAGIC + bytes(4)) * 100 + os.urandom(1000)
    shard.path.write_bytes(data)
    source = RemoteByteSource([shard.url], kind=SpanKind.EXACT)
    wanted = [(0, 0, 800), (0, 8, 4), (0, 800, 1000), (0, 3, 1), (0, 1800, 0), (0, 0, 1800), (0, 8, 4)]
    plan, out = source.fetch(spans(*wanted))
    got = [bytes(out[s : s + n]) for s, n in zip(plan.start.tolist(), plan.length.tolist(), strict=True)]
    assert got == [data[offset : offset + length] for _, offset, length in wanted]
    source.close()
