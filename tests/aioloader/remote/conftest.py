"""Fixtures: record files on real servers, and the batches of a local loader over the same file."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import numpy as np
import pytest
import simplejpeg

import aioloader
from aioloader import transforms


class Served(NamedTuple):
    """Record file on a server.

    Attributes:
        url: its address, without faults.
        proxied: the same through `proxy`.
        path: the file itself.
        proxy: a `tests.servers.fault_proxy.FaultProxy`.
    """

    url: str
    proxied: str
    path: Path
    proxy: Any


class ServedFolder(NamedTuple):
    """Folder on a server.

    Attributes:
        folder: that is served.
        url: its address through `proxy`.
        direct: its address, without faults.
        proxy: a `tests.servers.fault_proxy.FaultProxy`.
    """

    folder: Path
    url: str
    direct: str
    proxy: Any


@pytest.fixture(scope="session")
def _runtime() -> None:
    """Start the client library's threads and descriptors, which stay for the life of the process."""
    obstore = pytest.importorskip("obstore", reason="needs obstore")
    store = obstore.store.MemoryStore()
    obstore.put(store, "a", b"bytes")

    async def get() -> None:
        await obstore.get_range_async(store, "a", start=0, end=1)

    anyio.run(get)


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep indexes in a directory of the test; skip tests with servers without obstore."""
    if request.node.get_closest_marker("remote"):
        request.getfixturevalue("_runtime")
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "user-cache"))


@pytest.fixture
def there(served_folder: Path, nginx: Any, nginx_proxy: Any) -> Iterator[ServedFolder]:
    """Serve an empty folder by nginx."""
    folder = served_folder / uuid.uuid4().hex
    folder.mkdir()
    proxied, direct = (f"http://{server.address}/{folder.name}" for server in (nginx_proxy, nginx))
    yield ServedFolder(folder, proxied, direct, nginx_proxy)
    shutil.rmtree(folder)


@pytest.fixture
def served(photo_rec: Path, there: ServedFolder) -> Served:
    """Serve `photo_rec` and its index by nginx."""
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        shutil.copy(path, there.folder / path.name)
    urls = (f"{where}/{photo_rec.name}" for where in (there.direct, there.url))
    return Served(*urls, there.folder / photo_rec.name, there.proxy)


@pytest.fixture
def bucket(s3_server: Any, photo_rec: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a bucket with photos.rec and its index in the folder "set 1"."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    name = f"b{uuid.uuid4().hex}"
    s3_server.make_bucket(name)
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        s3_server.put_file(name, f"set%201/{path.name}", path)
    return name


def dataset(path: Any, size: int = 32) -> Any:
    """Return a dataset of small crops of a record file's images; it looks for no crop index, which is a request."""
    images = aioloader.ImageRecordDataset(path, crop_index=None)
    return images.transform_first(transforms.RandomResizedCrop(size))


def epoch(path: Any, batch_size: int = 4, **options: Any) -> list[tuple[Any, Any]]:
    """Return the batches of one epoch of a blocking loader, shuffled."""
    options.setdefault("executor", "inline")
    with aioloader.DataLoader(dataset(path), batch_size, shuffle=True, **options) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


def jpeg(number: int) -> bytes:
    """Return a JPEG of noise, 24 rows of 32 pixels."""
    noise = np.random.default_rng(number).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    encoded: bytes = simplejpeg.encode_jpeg(noise, 90)
    return encoded


def assert_same(found: list[tuple[Any, Any]], expected: list[tuple[Any, Any]]) -> None:
    """Fail unless the batches are the same, bit for bit."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
