"""Tests of remote folders and lists of images."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import aioloader
from aioloader import transforms
from aioloader.errors import OfflineWarning, RemoteReadError
from aioloader.storage.remote import client
from tests.aioloader.remote.conftest import ServedFolder, assert_same
from tests.executors import pool

pytestmark = pytest.mark.remote


def _epoch(dataset: Any, **options: Any) -> list[tuple[Any, Any]]:
    small = dataset.transform_first(transforms.RandomResizedCrop(32))
    options.setdefault("executor", "inline")
    with aioloader.DataLoader(small, 5, shuffle=True, **options) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


@pytest.fixture
def folder_in_s3(bucket: str, s3_server: Any, photo_folder: Path) -> str:
    for path in sorted(photo_folder.rglob("*.*")):
        s3_server.put_file(bucket, f"some%20photos/{quote(path.relative_to(photo_folder).as_posix())}", path)
    return f"s3://{bucket}/some photos"


def test_a_folder_in_s3_gives_the_same_batches(folder_in_s3: str, photo_folder: Path) -> None:
    here, there = aioloader.ImageFolderDataset(photo_folder), aioloader.ImageFolderDataset(folder_in_s3)
    assert there.synsets == here.synsets
    assert_same(_epoch(there, **pool("process", 2)), _epoch(here))
    np.testing.assert_array_equal(there[3][0], here[3][0])
    there.items = there.items[:7]
    assert len(_epoch(there)) == 2


def test_the_one_line_loader_takes_urls(folder_in_s3: str, bucket: str, photo_folder: Path) -> None:
    for path in (folder_in_s3, f"s3://{bucket}/set 1/photos.rec"):
        with aioloader.images(
            path, size=32, batch_size=4, train=False, blocking=True, num_workers=0
        ) as loader:
            images, _ = next(iter(loader))
            assert images.shape == (4, 32, 32, 3)
    with pytest.raises(FileNotFoundError):
        aioloader.images(f"s3://{bucket}/nothing/there", blocking=True)


def test_an_object_that_has_gone_is_its_own_sample_error(
    folder_in_s3: str, bucket: str, s3_server: Any
) -> None:
    dataset = aioloader.ImageFolderDataset(folder_in_s3)
    url, label = dataset.items[2]
    dataset.items = [*dataset.items[:2], (url.replace(".jpg", "-gone.jpg"), label), *dataset.items[3:]]
    small = dataset.transform_first(transforms.RandomResizedCrop(32))
    with aioloader.DataLoader(small, 5, executor="inline", on_error="skip") as loader:
        for _ in loader:
            pass
        (error,) = loader.errors
    assert error.index == 2
    assert isinstance(error.__cause__, FileNotFoundError)


def test_over_http_a_folder_cannot_be_listed(nginx: Any) -> None:
    with pytest.raises(RemoteReadError, match="ImageListDataset"):
        aioloader.ImageFolderDataset(f"http://{nginx.address}/photos")


@pytest.fixture
def folder_on_http(there: ServedFolder, photo_folder: Path) -> tuple[str, Path]:
    shutil.copytree(photo_folder, there.folder, dirs_exist_ok=True)
    first = next(there.folder.rglob("*.jpg"))
    first.rename(first.with_name("ä b%20c+d.jpg"))
    return there.direct, there.folder


@pytest.mark.parametrize("as_file", [True, False], ids=["lst", "entries"])
def test_a_list_of_images_over_http(folder_on_http: tuple[str, Path], as_file: bool) -> None:
    url, where = folder_on_http
    names = sorted(path.relative_to(where).as_posix() for path in where.rglob("*.jpg"))
    entries: Any = [[number % 3, name] for number, name in enumerate(names)]
    if as_file:
        text = "".join(f"{key}\t{label}\t{name}\n" for key, (label, name) in enumerate(entries))
        (where / "train.lst").write_text(text)
        entries = "train.lst"
    here = aioloader.ImageListDataset(where, entries)
    there = aioloader.ImageListDataset(url, entries)
    assert_same(_epoch(there, executor="thread", num_workers=2), _epoch(here))


@pytest.mark.parametrize("path", ["some photos", "set 1/*.rec"])
def test_a_full_cache_opens_and_runs_without_its_store(
    folder_in_s3: str,
    bucket: str,
    s3_server: Any,
    s3_proxy: Any,
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_UNREACHED_S", 0.2)
    for name, value in s3_server.environment(s3_proxy.address).items():
        monkeypatch.setenv(name, value)

    def run() -> list[tuple[Any, Any]]:
        with aioloader.images(
            f"s3://{bucket}/{path}", 32, 5, blocking=True, cache=tmp_path / "cache", executor="inline", seed=3
        ) as loader:
            return [(images.copy(), labels.copy()) for images, labels in loader]

    first = run()
    with s3_proxy.away():
        with pytest.warns(OfflineWarning, match=f"s3://{bucket}/") as caught:
            assert_same(run(), first)
        assert len(caught) == 1
