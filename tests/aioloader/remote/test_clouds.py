"""Tests of Google's and Azure's object storage, with the environment variables of their tools."""

from __future__ import annotations

import os
import tempfile
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import aioloader
from aioloader import transforms
from aioloader.storage.remote import configure
from aioloader.tools.pack import pack
from tests.aioloader.remote.conftest import assert_same, epoch
from tests.cases import on_both_loops
from tests.executors import pool

pytestmark = pytest.mark.remote

_PREFIXES = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "STORAGE_")


@pytest.fixture
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all cloud settings from the environment."""
    for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
        monkeypatch.delenv(name)


@pytest.fixture(params=["gs", "az"])
def cloud(
    request: pytest.FixtureRequest, photo_rec: Path, nothing_said: None, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Any]:
    """Return the URL of a bucket with photos.rec and its index in the folder "set 1", and the server."""
    server = request.getfixturevalue("gcs_server" if request.param == "gs" else "azurite")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"b{uuid.uuid4().hex}"
    server.make_bucket(bucket)
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        server.put_file(bucket, f"set%201/{path.name}", path)
    return f"{request.param}://{bucket}", server


@pytest.fixture(params=["gs", "az"])
def writable(request: pytest.FixtureRequest, nothing_said: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty bucket that can be written to.

    fake-gcs-server does not support Google's XML interface. That interface is S3's, which moto serves.
    """
    server = request.getfixturevalue("s3_server" if request.param == "gs" else "azurite")
    environment = server.environment()
    if request.param == "gs":
        environment = {"GOOGLE_BASE_URL": f"http://{server.address}", "GOOGLE_BEARER_TOKEN": "any"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"b{uuid.uuid4().hex}"
    server.make_bucket(bucket)
    return f"{request.param}://{bucket}"


def test_a_record_file_gives_the_same_batches(cloud: tuple[str, Any], photo_rec: Path) -> None:
    url = f"{cloud[0]}/set 1/photos.rec"
    assert_same(epoch(url, **pool("process", 2)), epoch(photo_rec))
    with pytest.raises(FileNotFoundError, match=r"nothing\.rec"):
        aioloader.ImageRecordDataset(f"{cloud[0]}/nothing.rec")


def test_many_requests_for_an_object_are_answered(cloud: tuple[str, Any], photo_rec: Path) -> None:
    dataset = aioloader.RecordFileDataset(f"{cloud[0]}/set 1/photos.rec")
    expected = list(map(bytes, aioloader.RecordFileDataset(photo_rec)))
    with aioloader.DataLoader(dataset, 1, batchify_fn=list, executor="inline") as loader:
        for _ in range(4):
            assert [payload for batch in loader for payload in batch] == expected
        assert loader.stats().requests > 40


def test_a_folder_of_images_is_listed(cloud: tuple[str, Any], photo_folder: Path) -> None:
    url, server = cloud
    for path in sorted(photo_folder.rglob("*.*")):
        name = path.relative_to(photo_folder).as_posix()
        server.put_file(url[5:], f"some%20photos/{quote(name)}", path)
    here, there = (
        aioloader.ImageFolderDataset(photo_folder),
        aioloader.ImageFolderDataset(f"{url}/some photos"),
    )
    assert there.synsets == here.synsets
    assert [Path(path).name for path, _ in there.items] == [Path(path).name for path, _ in here.items]
    np.testing.assert_array_equal(there[3][0], here[3][0])
    small = there.transform_first(transforms.RandomResizedCrop(16))
    with aioloader.DataLoader(small, 5, executor="inline") as loader:
        assert sum(len(labels) for _, labels in loader) == len(here)
    with pytest.raises(FileNotFoundError):
        aioloader.ImageFolderDataset(f"{url}/nothing/there")


@on_both_loops
async def test_a_service_makes_images_of_a_bucket(
    cloud: tuple[str, Any], photo_folder: Path, leftovers: Any
) -> None:
    url, server = cloud
    if url.startswith("gs:"):
        # After a store's end obstore keeps connections to this emulator now and then, until they are idle for long.
        configure(url, client_options={"pool_idle_timeout": timedelta(seconds=2)})
    photos = sorted(photo_folder.rglob("*.*"))[:3]
    for number, path in enumerate(photos):
        server.put_file(url[5:], f"some%20photos/{number}.jpg", path)
    refs = [f"{url}/some photos/{number}.jpg" for number in range(3)]

    options: dict[str, Any] = {"allow": (url[:2],), "num_workers": 1, "executor": "thread"}
    async with aioloader.AsyncImageService(hosts=[url], url_cache="memory", **options) as service:
        for _ in range(2):  # from the bucket, and from the cache
            for image, path in zip(await service.gather(refs), photos, strict=True):
                np.testing.assert_array_equal(image, transforms.decode_image(path.read_bytes()))
        info = await service.probe(refs[1])
        assert info.size == transforms.decode_image(photos[1].read_bytes()).shape[:2]
        assert info.key is not None
        with pytest.raises(aioloader.errors.ImageFetchError, match="missing"):
            await service.get(f"{url}/nothing.jpg")
        with pytest.raises(aioloader.errors.ImageNotAllowedError):
            await service.get(f"{url[:5]}other/0.jpg")


def test_packed_files_are_uploaded(
    writable: str,
    photo_folder: Path,
    photo_rec: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = pack(photo_folder, f"{writable}/new/set", shards=2)
    records = [url for url in report.urls if url.endswith(".rec")]
    assert len(records) == 2
    assert_same(epoch(f"{writable}/new/set-*.rec"), epoch(photo_rec))


def test_large_objects_are_uploaded_in_parts(writable: str, tmp_path: Path) -> None:
    from aioloader.storage.remote.opening import read_text
    from aioloader.storage.remote.stores import delete, upload

    path = tmp_path / "large"
    path.write_bytes(np.random.RandomState(0).bytes(12 << 20))
    upload(path, f"{writable}/some/large.bin")
    assert read_text(f"{writable}/some/large.bin") == path.read_bytes()
    delete(f"{writable}/some/large.bin")
    delete(f"{writable}/some/large.bin")
    with pytest.raises(FileNotFoundError):
        read_text(f"{writable}/some/large.bin")


def test_an_object_that_was_replaced_is_noticed(
    cloud: tuple[str, Any], photo_rec: Path, tmp_path: Path
) -> None:
    url, server = cloud
    dataset = aioloader.RecordFileDataset(f"{url}/set 1/photos.rec")
    first = dataset[0]
    changed = tmp_path / "photos.rec"
    data = bytearray(photo_rec.read_bytes())
    data[40] ^= 1
    changed.write_bytes(data)
    server.put_file(url[5:], "set%201/photos.rec", changed)
    with pytest.raises(aioloader.errors.ObjectChangedError):
        dataset[1]
    assert aioloader.RecordFileDataset(f"{url}/set 1/photos.rec")[0] != first


@pytest.mark.parametrize("how", ["connection string", "emulator", "program"])
def test_an_account_is_found_as_azures_tools_find_it(
    azurite: Any, photo_rec: Path, how: str, nothing_said: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"b{uuid.uuid4().hex}"
    azurite.make_bucket(bucket)
    azurite.put_file(bucket, "photos.rec", photo_rec)
    prefix = f"az://{bucket}/"
    if how == "connection string":
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string())
    elif how == "emulator":
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://{azurite.address}")
    else:
        named = azurite.environment()
        configure(
            prefix,
            account_name=named["AZURE_STORAGE_ACCOUNT_NAME"],
            account_key=named["AZURE_STORAGE_ACCOUNT_KEY"],
            endpoint=named["AZURE_STORAGE_ENDPOINT"],
        )
    try:
        assert_same(epoch(f"{prefix}photos.rec"), epoch(photo_rec))
    finally:
        configure(prefix)


def test_an_endpoint_of_google_is_given_in_the_program(
    gcs_server: Any, photo_rec: Path, nothing_said: None
) -> None:
    bucket = f"b{uuid.uuid4().hex}"
    gcs_server.make_bucket(bucket)
    gcs_server.put_file(bucket, "photos.rec", photo_rec)
    configure("gs://", base_url=f"http://{gcs_server.address}", skip_signature=True)
    try:
        assert_same(epoch(f"gs://{bucket}/photos.rec"), epoch(photo_rec))
    finally:
        configure("gs://")


# --- the environment, without a server ---


def test_an_account_that_is_not_named_is_reported_at_once(nothing_said: None) -> None:
    for ask in (aioloader.ImageRecordDataset, aioloader.ImageFolderDataset):
        with pytest.raises(aioloader.errors.RemoteReadError, match="Account must be specified") as caught:
            ask("az://photos/train.rec")
        assert (caught.value.kind, caught.value.attempts) == ("refused", 1)
