"""Tests of `configure`: settings in the program, for URLs that begin with a prefix."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aioloader
from aioloader.errors import RemoteReadError
from aioloader.storage.remote import configure
from tests.aioloader.remote.conftest import assert_same, epoch
from tests.executors import pool

pytestmark = pytest.mark.remote


@pytest.fixture
def configured() -> Iterator[Callable[..., None]]:
    """Return `configure`; undo its settings at the end."""
    prefixes: list[str] = []

    def set_options(prefix: str, **options: Any) -> None:
        prefixes.append(prefix)
        configure(prefix, **options)

    yield set_options
    for prefix in prefixes:
        configure(prefix)


@pytest.fixture
def nothing_said(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the bucket, without keys and endpoint in the environment."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    return bucket


def test_a_public_bucket_is_read_without_credentials(
    nothing_said: str, s3_server: Any, photo_rec: Path, configured: Any
) -> None:
    s3_server.make_public(nothing_said, "set%201/photos.rec", "set%201/photos.idx")
    configured(
        f"s3://{nothing_said}/",
        skip_signature=True,
        region="us-east-1",
        endpoint=f"http://{s3_server.address}",
    )
    assert_same(epoch(f"s3://{nothing_said}/set 1/photos.rec"), epoch(photo_rec))


def test_an_endpoint_and_keys_are_given_in_the_program(
    nothing_said: str, s3_server: Any, photo_rec: Path, configured: Any
) -> None:
    keys = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}
    configured("s3://", endpoint="http://127.0.0.1:1", **keys)
    configured(f"s3://{nothing_said}/", endpoint=f"http://{s3_server.address}", **keys)
    assert_same(epoch(f"s3://{nothing_said}/set 1/photos.rec"), epoch(photo_rec))


@pytest.fixture
def private_url(served_folder: Path, nginx: Any, photo_rec: Path) -> Iterator[str]:
    """Serve photos.rec at a URL that requires a token."""
    where = served_folder / "private" / uuid.uuid4().hex
    where.mkdir(parents=True)
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        shutil.copy(path, where / path.name)
    yield f"http://{nginx.address}/private/{where.name}/{photo_rec.name}"
    shutil.rmtree(where)


def test_headers_reach_the_server(private_url: str, photo_rec: Path, configured: Any) -> None:
    with pytest.raises(RemoteReadError, match="401") as caught:
        aioloader.ImageRecordDataset(private_url)
    assert caught.value.kind == "denied"
    configured("http://", client_options={"default_headers": {"Authorization": "Bearer open sesame"}})
    assert_same(epoch(private_url, **pool("process", 2)), epoch(photo_rec))


def test_an_option_that_does_not_exist_is_refused(nothing_said: str, configured: Any) -> None:
    configured("s3://", no_such_option=1)
    with pytest.raises((RemoteReadError, ValueError, TypeError), match="no_such_option"):
        aioloader.ImageRecordDataset(f"s3://{nothing_said}/set 1/photos.rec")
