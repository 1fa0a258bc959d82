"""Tests of references to object storage, with moto's S3 server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from aioloader.errors import (
    ImageFetchError,
    ImageNotAllowedError,
    ImageTooLargeError,
    ObjectMissingError,
    RemoteReadError,
)
from aioloader.service import http_fetch as http_exchange
from aioloader.service.object_fetch import ObjectClient
from aioloader.service.references import HEAD_NBYTES, ReadImage, ReferenceReader
from tests.aioloader.service.images import jpeg
from tests.conftest import RunOn

pytestmark = pytest.mark.remote

SMALL = jpeg()
LONG = SMALL + bytes(HEAD_NBYTES)


@pytest.fixture
def s3(s3_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    s3_server.make_bucket("service-photos")
    for key, data in (("a.jpg", SMALL), ("folder/b c.jpg", LONG), ("empty", b"")):
        s3_server.put("service-photos", key.replace(" ", "%20"), data)
    return s3_server


def read(run_on: RunOn, url: str, *, head: bool = False, **options: Any) -> ReadImage:
    async def main() -> ReadImage:
        reader = ReferenceReader(**{"allow": ["s3"], "timeout": 20.0, **options})
        try:
            reference = reader.accept(url)
            return await (reader.read_header(reference) if head else reader.read(reference))
        finally:
            await reader.aclose()

    return run_on(main)


def test_an_object_is_read(s3: Any, run_on: RunOn) -> None:
    found = read(run_on, "s3://service-photos/a.jpg")
    assert (bytes(found.payload), found.complete) == (SMALL, True)
    assert found.key is not None
    found = read(run_on, "S3://service-photos/folder/b c.jpg", hosts=["s3://service-photos"])
    assert (bytes(found.payload), found.complete) == (LONG, True)
    assert read(run_on, "s3://service-photos/empty").nbytes == 0


def test_of_an_object_the_beginning_is_read(s3: Any, run_on: RunOn) -> None:
    found = read(run_on, "s3://service-photos/folder/b c.jpg", head=True)
    assert (bytes(found.payload), found.complete) == (LONG[:HEAD_NBYTES], False)
    assert read(run_on, "s3://service-photos/a.jpg", head=True).complete


def test_an_object_that_cannot_be_read_is_a_named_error(s3: Any, run_on: RunOn) -> None:
    with pytest.raises(ImageFetchError, match="missing") as found:
        read(run_on, "s3://service-photos/nothing")
    assert isinstance(found.value.__cause__, (ObjectMissingError, RemoteReadError))
    with pytest.raises(ImageTooLargeError):
        read(run_on, "s3://service-photos/a.jpg", max_bytes=10)


def test_another_bucket_is_refused(s3: Any, run_on: RunOn) -> None:
    with pytest.raises(ImageNotAllowedError, match="bucket"):
        read(run_on, "s3://service-photos/a.jpg", hosts=["s3://other", "service-photos"])


def test_an_object_is_read_once_with_a_cache(
    s3: Any, s3_proxy: Any, run_on: RunOn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in s3.environment(s3_proxy.address).items():
        monkeypatch.setenv(name, value)
    whole = 0
    for number in range(3):
        s3_proxy.behave()
        found = read(run_on, "s3://service-photos/folder/b c.jpg", cache=str(tmp_path))
        assert (bytes(found.payload), found.complete) == (LONG, True)
        whole += sum(span != "bytes=0-0" for _, _, span in s3_proxy.log())
        assert whole == 1, number


def test_a_header_is_read_from_the_cache(
    s3: Any, s3_proxy: Any, run_on: RunOn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in s3.environment(s3_proxy.address).items():
        monkeypatch.setenv(name, value)
    urls = ("s3://service-photos/folder/b c.jpg", "s3://service-photos/a.jpg")
    # The first object is longer than a header, so its beginning is not kept as the object.
    for url, heads, requests in ((urls[0], (True, False, True), (1, 1, 0)), (urls[1], (True, False), (1, 0))):
        for head, wanted in zip(heads, requests, strict=True):
            s3_proxy.behave()
            found = read(run_on, url, head=head, cache=str(tmp_path))
            assert LONG.startswith(bytes(found.payload))
            assert sum(span != "bytes=0-0" for _, _, span in s3_proxy.log()) == wanted, (url, head)
    assert found.complete


def test_the_bytes_of_objects_that_are_received_are_bounded(
    s3: Any, run_on: RunOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbytes, count, most = 3 << 20, 12, 16 << 20
    monkeypatch.setattr(http_exchange, "_BODIES_NBYTES", most)
    s3.make_bucket("service-large")
    for bucket in ("service-photos", "service-large"):
        s3.put(bucket, "large", bytes(nbytes))
    receiving, peak = 0, 0
    received: list[int] = []
    get = ObjectClient._get

    async def counted(client: ObjectClient, *args: Any) -> bytes:
        nonlocal receiving, peak
        receiving += args[-1]
        peak = max(peak, receiving)
        try:
            return await get(client, *args)
        finally:
            receiving -= args[-1]

    monkeypatch.setattr(ObjectClient, "_get", counted)

    async def main() -> None:
        reader = ReferenceReader(allow=["s3"], timeout=60.0, max_bytes=nbytes)

        async def fetch(bucket: str) -> None:
            received.append((await reader.read(reader.accept(f"s3://{bucket}/large"))).nbytes)

        try:
            async with anyio.create_task_group() as tasks:
                for number in range(count):
                    tasks.start_soon(fetch, ("service-photos", "service-large")[number % 2])
        finally:
            await reader.aclose()

    run_on(main)
    assert received == [nbytes] * count
    assert nbytes < peak <= most
