"""Tests of the cache of the bytes of URLs."""

from __future__ import annotations

import itertools
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
from tests.cases import on_both_loops, with_cases
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
        held.known.put(f"http://{number}/", KnownVersion("", "", number))
    assert [held.known.get(f"http://{number}/") is not None for number in range(4)] == [
        True,
        False,
        True,
        True,
    ]


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


def changed(path: str, body: bytes) -> Callable[[RawServer], None]:
    return lambda server: server.answers.update({path: Versions(server, body, '"2"')})


NEW, OTHER = b"new" * 1000, b"another image"


@pytest.fixture
def server(leftovers: object) -> Iterator[RawServer]:
    pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")
    with RawServer() as server:
        yield server


in_pairs = pytest.mark.parametrize(
    ("cache", "backend"), [("memory", "asyncio"), ("directory", "trio")], indirect=True
)
Step = str | tuple[str, int] | Callable[[RawServer], object]
Read = Callable[..., list[tuple[bytes, Any]]]


@pytest.fixture
def read(server: RawServer, cache: str, run_on: RunOn, no_blocking: None) -> Read:
    """Return a function that reads paths in turn, with one reader and a new cache: all bytes, or first ones.

    The results are the bytes with path and version, or the first bytes and whether they are all. A function among the
    steps is called.
    """
    numbers = itertools.count()

    async def taken(reader: ReferenceReader, step: str | tuple[str, int]) -> tuple[bytes, Any]:
        if isinstance(step, tuple):
            head = await reader.read_header(reader.accept(server.url(step[0])), step[1])
            return bytes(head.payload), head.complete
        image = await reader.read(reader.accept(server.url(step)))
        assert image.complete
        key: Any = image.key
        return bytes(image.payload), key and (key[0], key[1].removeprefix(server.url("")), key[2])

    def run(*steps: Step) -> list[tuple[bytes, Any]]:
        server.heads.clear()
        server.answers = {"/a": Versions(server), "/b": Versions(server, OTHER), **server.answers}
        place = cache if cache == "memory" else f"{cache}-{next(numbers)}"

        async def main() -> list[tuple[bytes, Any]]:
            host = f"127.0.0.1:{server.port}"
            reader = ReferenceReader(allow=["http"], hosts=[host], cache=place, timeout=20.0)
            found = []
            try:
                for step in steps:
                    if callable(step):
                        step(server)
                    else:
                        found.append(await taken(reader, step))
            finally:
                await reader.aclose()
            return found

        return run_on(main)

    return run


def asked(server: RawServer) -> str:
    """Return which requests ask whether the version is still the known one."""
    return "".join("-?"["if-none-match" in head.lower()] for head in server.heads)


A, B, C = (IMAGE, ("url", "/a", '"1"')), (OTHER, ("url", "/b", '"1"')), (NEW, ("url", "/a", '"2"'))


@in_pairs
@with_cases(
    ("steps", "results", "conditional"),
    [
        pytest.param(["/a", "/a", "/b", "/a", "/b"], [A, A, B, A, B], "-?-??", id="an image is sent once"),
        pytest.param(["/a", changed("/a", NEW), "/a", "/a"], [A, C, C], "-??", id="a new version"),
        pytest.param(["/a", ("/a", 100), "/a"], [A, (IMAGE, True), A], "-??", id="a header from the cache"),
        pytest.param(
            [("/b", 1000), "/b", ("/b", 5)],
            [(OTHER, True), B, (OTHER, True)],
            "-??",
            id="a header that was all",
        ),
        pytest.param(
            [("/a", 100), "/a", ("/a", 100)],
            [(IMAGE[:100], False), A, (IMAGE, True)],
            "--?",
            id="the beginning of an image is not the image",
        ),
        pytest.param(
            ["/a", changed("/a", NEW), ("/a", 6), "/a"],
            [A, (b"newnew", False), C],
            "-??",
            id="the header of a new version",
        ),
    ],
)
def test_what_is_known_is_not_sent_again(
    server: RawServer, read: Read, steps: list[Step], results: Any, conditional: str
) -> None:
    server.answers.clear()
    assert read(*steps) == results
    assert asked(server) == conditional


@in_pairs
@with_cases("tag", [None, 'W/"1"', "1", '"' + "a" * 300 + '"'])
def test_without_a_version_every_image_is_sent(server: RawServer, read: Read, tag: str | None) -> None:
    server.answers["/a"] = answer(IMAGE, ETag=tag)
    assert read("/a", "/a") == [(IMAGE, None)] * 2
    assert asked(server) == "--"


@in_pairs
def test_the_version_is_that_of_the_url_behind_a_redirect(server: RawServer, read: Read) -> None:
    """Another URL may use the same name of a version for another image."""

    def lead(path: str) -> Callable[[RawServer], None]:
        return lambda server: server.answers.update({"/x": answer(status=302, Location=path)})

    assert read(lead("/a"), "/x", "/x", lead("/b"), "/x", "/x") == [A, A, B, B]
    assert asked(server) == "---?---?"


@in_pairs
def test_a_server_that_says_so_without_being_asked_is_a_named_error(server: RawServer, read: Read) -> None:
    server.answers["/a"] = answer(status=304, ETag='"1"')
    with pytest.raises(OSError, match="304"):
        read("/a")


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="cache"):
        ReferenceReader(cache_limit=5)
    with pytest.raises(ValueError, match="cache"):
        ReferenceReader(cache="s3://bucket")


@on_both_loops
async def test_a_directory_that_cannot_be_used_is_a_named_error(server: RawServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    server.answers["/a"] = answer(IMAGE)
    reader = ReferenceReader(allow=["http"], hosts=[f"127.0.0.1:{server.port}"], cache=tmp_path / "file")
    try:
        with pytest.raises(ImageServiceError, match="cache"):
            await reader.read(reader.accept(server.url("/a")))
    finally:
        await reader.aclose()
