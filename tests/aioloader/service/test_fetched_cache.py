"""Tests of the cache of the bytes of URLs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aioloader.errors import ImageServiceError
from aioloader.service import http_fetch as fetched_cache
from aioloader.service.http_fetch import FetchedCache, KnownVersion
from aioloader.service.references import ReferenceReader
from aioloader.storage.cache.disk import CacheOptions
from tests.cases import on_both_loops
from tests.conftest import RunOn
from tests.servers.raw_http import RawServer, answer

IMAGE = bytes(range(256)) * 40


@pytest.fixture(params=["memory", "directory"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a value of the option ``cache``."""
    return "memory" if request.param == "memory" else str(tmp_path / "cache")


def opened(cache: str, limit: int | None = None) -> FetchedCache:
    found = FetchedCache(CacheOptions(cache, limit))
    found.open()
    found.open()
    return found


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_version_come_back(cache: str, leftovers: object) -> None:
    held = opened(cache)
    assert held.load("http://a/", '"1"', 3) is None
    for url, tag, data in (
        ("http://a/", '"1"', b"abc"),
        ("http://a/", '"2"', b"def"),
        ("http://a/?b", '"1"', b""),
    ):
        held.store(url, tag, data)
        assert bytes(held.load(url, tag, len(data)) or b"") == data
    assert bytes(held.load("http://a/", '"1"', 3) or b"") == b"abc"
    assert held.load("http://b/", '"1"', 3) is None
    held.close()
    held.close()
    assert held.load("http://a/", '"1"', 3) is None
    held.store("http://a/", '"1"', b"abc")


def test_a_directory_keeps_the_bytes(tmp_path: Path) -> None:
    first = opened(str(tmp_path))
    first.store("http://a/?secret", '"1"', IMAGE)
    first.close()
    second = opened(str(tmp_path))
    assert bytes(second.load("http://a/?secret", '"1"', len(IMAGE)) or b"") == IMAGE
    second.close()
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_two_urls_with_the_same_number_are_not_mixed_up(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_cache, "file_key", lambda url, tag: 7)
    held = opened(cache)
    held.store("http://evil.example/", '"1"', b"evil")
    assert held.load("http://good.example/", '"1"', 4) is None
    held.store("http://good.example/", '"1"', b"good")
    assert bytes(held.load("http://evil.example/", '"1"', 4) or b"") == b"evil"
    held.close()


def test_a_full_cache_adds_nothing(cache: str) -> None:
    held = opened(cache, 100)
    held.store("http://a/", '"1"', bytes(1000))
    assert held.load("http://a/", '"1"', 1000) is None
    held.close()


def test_only_so_many_versions_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_cache, "_MOST_KNOWN", 3)
    held = FetchedCache(CacheOptions("memory"))
    for number in (0, 1, 2, 0, 3):
        held.remember(f"http://{number}/", KnownVersion("", "", number))
    assert [held.known(f"http://{number}/") is not None for number in range(4)] == [True, False, True, True]


# -- URLs --------------------------------------------------------------------------------------------------------------


class Versions:
    """Answer with an image of a version, or that it is the known one."""

    def __init__(self, server: RawServer, body: bytes = IMAGE, tag: str = '"1"') -> None:
        self.server = server
        self.body = body
        self.tag = tag

    def __call__(self, sock: socket.socket, ended: threading.Event) -> None:
        head = self.server.heads[-1]
        known = f"if-none-match: {self.tag}\r\n".lower() in head.lower()
        answer(*([] if known else [self.body]), status=304 if known else 200, ETag=self.tag)(sock, ended)


@pytest.fixture
def server(leftovers: object) -> Iterator[RawServer]:
    pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")
    with RawServer() as server:
        server.answers["/a"] = Versions(server)
        server.answers["/b"] = Versions(server, b"another image")
        yield server


Read = Callable[..., list[tuple[bytes, Any]]]


@pytest.fixture
def read(server: RawServer, cache: str, run_on: RunOn, no_blocking: None) -> Read:
    """Return a function that reads paths in turn, with one reader: all bytes, or the first ones of (path, number), and
    whether they are all. A function among them is called.
    """

    def run(*steps: str | tuple[str, int] | Callable[[], object]) -> list[tuple[bytes, Any]]:
        async def main() -> list[tuple[bytes, Any]]:
            reader = ReferenceReader(
                allow=["http"], hosts=[f"127.0.0.1:{server.port}"], cache=cache, timeout=20.0
            )
            found = []
            try:
                for step in steps:
                    if isinstance(step, tuple):
                        path, nbytes = step
                        head = await reader.read_header(reader.accept(server.url(path)), nbytes)
                        found.append((bytes(head.payload), head.complete))
                    elif isinstance(step, str):
                        image = await reader.read(reader.accept(server.url(step)))
                        assert image.complete
                        found.append((bytes(image.payload), image.key))
                    else:
                        step()
            finally:
                await reader.aclose()
            return found

        return run_on(main)

    return run


def statuses(server: RawServer) -> list[bool]:
    return ["if-none-match" in head.lower() for head in server.heads]


def test_an_image_is_sent_once(server: RawServer, read: Read) -> None:
    found = read("/a", "/a", "/b", "/a", "/b")
    key = ("url", server.url("/a"), '"1"')
    assert found[0] == found[1] == found[3] == (IMAGE, key)
    assert found[2][0] == found[4][0] == b"another image"
    assert statuses(server) == [False, True, False, True, True]


def test_a_new_version_is_read(server: RawServer, read: Read) -> None:
    def change() -> None:
        server.answers["/a"] = Versions(server, b"new", '"2"')

    assert [data for data, _ in read("/a", change, "/a", "/a")] == [IMAGE, b"new", b"new"]
    assert statuses(server) == [False, True, True]


@pytest.mark.parametrize("tag", [None, 'W/"1"', "1", '"' + "a" * 300 + '"'])
def test_without_a_version_every_image_is_sent(server: RawServer, read: Read, tag: str | None) -> None:
    server.answers["/a"] = answer(IMAGE, ETag=tag)
    assert read("/a", "/a") == [(IMAGE, None)] * 2
    assert statuses(server) == [False, False]


def test_the_version_is_that_of_the_url_behind_a_redirect(server: RawServer, read: Read) -> None:
    """Another URL may use the same name of a version for another image."""
    server.answers["/x"] = answer(status=302, Location="/a")
    another = IMAGE[::-1]
    server.answers["/b"] = Versions(server, another)

    def change() -> None:
        server.answers["/x"] = answer(status=302, Location="/b")

    found = read("/x", "/x", change, "/x", "/x")
    assert [data for data, _ in found] == [IMAGE, IMAGE, another, another]
    assert statuses(server) == [False, False, False, True, False, False, False, True]
    keys = [key for _, key in found]
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_a_server_that_says_so_without_being_asked_is_a_named_error(server: RawServer, read: Read) -> None:
    server.answers["/a"] = answer(status=304, ETag='"1"')
    with pytest.raises(OSError, match="304"):
        read("/a")


def test_a_header_comes_from_the_cache(server: RawServer, read: Read) -> None:
    key = ("url", server.url("/a"), '"1"')
    assert read("/a", ("/a", 100), "/a") == [(IMAGE, key), (IMAGE, True), (IMAGE, key)]
    assert statuses(server) == [False, True, True]


def test_a_header_that_was_all_is_kept(server: RawServer, read: Read) -> None:
    found = read(("/b", 1000), "/b", ("/b", 5))
    assert found == [
        (b"another image", True),
        (b"another image", ("url", server.url("/b"), '"1"')),
        (b"another image", True),
    ]
    assert statuses(server) == [False, True, True]


def test_the_beginning_of_an_image_is_not_kept_as_the_image(server: RawServer, read: Read) -> None:
    found = read(("/a", 100), "/a", ("/a", 100))
    assert found[0] == (IMAGE[:100], False)
    assert found[1][0] == IMAGE
    assert found[2] == (IMAGE, True)
    assert statuses(server) == [False, False, True]


def test_the_header_of_a_new_version_is_read(server: RawServer, read: Read) -> None:
    def change() -> None:
        server.answers["/a"] = Versions(server, b"new" * 1000, '"2"')

    assert read("/a", change, ("/a", 6), "/a")[1:] == [
        (b"newnew", False),
        (b"new" * 1000, ("url", server.url("/a"), '"2"')),
    ]
    assert statuses(server) == [False, True, True]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="cache"):
        ReferenceReader(cache_limit=5)
    with pytest.raises(ValueError, match="cache"):
        ReferenceReader(cache="s3://bucket")


@on_both_loops
async def test_a_directory_that_cannot_be_used_is_a_named_error(server: RawServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    reader = ReferenceReader(allow=["http"], hosts=[f"127.0.0.1:{server.port}"], cache=tmp_path / "file")
    try:
        with pytest.raises(ImageServiceError, match="cache"):
            await reader.read(reader.accept(server.url("/a")))
    finally:
        await reader.aclose()
