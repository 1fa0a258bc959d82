"""Tests of the client for images on servers that nobody knows, with a hostile server."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader
from aioloader.errors import ImageFetchError, ImageNotAllowedError, ImageReferenceError, ImageTooLargeError
from aioloader.service import http_fetch as http_exchange
from aioloader.service.allowed import HostRule
from aioloader.service.http_fetch import BodyRoom, WebBytes, WebClient
from aioloader.service.web_urls import parse_web_url
from tests.cases import on_both_loops, with_cases
from tests.conftest import RunOn
from tests.servers.raw_http import RawServer, answer

pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")

IMAGE = bytes(range(256)) * 40
LIMIT = 20_000


@pytest.fixture
def server(leftovers: object) -> Iterator[RawServer]:
    with RawServer() as server:
        server.answers["/image"] = answer(IMAGE, ETag='"v1"')
        yield server


Get = Callable[..., WebBytes]


@pytest.fixture
def get(server: RawServer, run_on: RunOn, no_blocking: None) -> Get:
    """Return a function that gets a URL, or a path of the server, by a new client in a new event loop."""

    def run(
        url: str, *, hosts: list[str] | None = None, first: int | None = None, **options: Any
    ) -> WebBytes:
        if url.startswith("/"):
            url = server.url(url)
        named = [f"127.0.0.1:{server.port}"] if hosts is None else hosts
        settings: dict[str, Any] = {"max_bytes": LIMIT, "timeout": 20.0, **options}

        async def main() -> WebBytes:
            client = WebClient(HostRule(named), **settings)
            try:
                return await client.fetch(parse_web_url(url), first=first)
            finally:
                await client.aclose()

        return run_on(main)

    return run


def raw(data: bytes) -> Any:
    def write(sock: socket.socket, ended: threading.Event) -> None:
        sock.sendall(data)

    return write


def test_what_a_server_of_something_else_says_is_not_told(server: RawServer, get: Get) -> None:
    server.answers["/banner"] = raw(b"SSH-2.0-secret_9.6\r\n\r\n")
    with pytest.raises(ImageFetchError, match="not HTTP") as caught:
        get("/banner")
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_an_image_is_read(server: RawServer, get: Get) -> None:
    found = get("/image")
    assert bytes(found.data) == IMAGE
    assert found.complete
    assert (found.tag, found.final) == ('"v1"', server.url("/image"))
    (head,) = server.heads
    assert f"host: 127.0.0.1:{server.port}\r\n" in head.lower()
    assert "accept-encoding: identity\r\n" in head.lower()
    assert "range:" not in head.lower()
    assert "cookie" not in head.lower()
    assert f"user-agent: aioloader/{aioloader.__version__}\r\n" in head.lower()


def test_a_user_agent_is_sent_also_after_a_redirect(server: RawServer, get: Get) -> None:
    server.answers["/moved"] = answer(b"", status=302, Location="/image")
    get("/moved", user_agent="bot/1 (+https://example.com/bot)")
    assert ["User-Agent: bot/1 (+https://example.com/bot)\r\n" in head for head in server.heads] == [
        True,
        True,
    ]


@with_cases("agent", ["", " bot", "bot ", "bot\r\nX: 1", "bot\0", "bot\x7f", "b\xf6t", b"bot"])
def test_a_user_agent_that_no_header_can_have_is_refused(agent: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="user_agent must"):
        aioloader.AsyncImageService(allow=("http",), user_agent=agent)


def test_a_user_agent_needs_the_own_client() -> None:
    async def fetch(url: str) -> bytes:
        raise AssertionError(url)

    for options in ({"allow": ("bytes",)}, {"allow": ("http",), "fetch": fetch}):
        with pytest.raises(ValueError, match="user_agent"):
            aioloader.ImageService(user_agent="bot", **options)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"".join(
                b"%x;note\r\n%s\r\n" % (1024, IMAGE[at : at + 1024]) for at in range(0, len(IMAGE), 1024)
            )
            + b"0\r\nTrailer: x\r\n\r\n",
            id="chunked",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + IMAGE, id="until the end"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n" + IMAGE, id="HTTP/1.0"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" * 3
            + b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(IMAGE)
            + IMAGE,
            id="interim",
        ),
        *(
            pytest.param(
                b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
                % (coding, len(IMAGE))
                + IMAGE,
                id=f"encoded as {coding.decode()}",
            )
            for coding in (b"aws-chunked", b"utf-8", b"binary", b"identity, UTF-8")
        ),
        pytest.param(
            b'HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nETag: W/"1"\r\nContent-Length: %d\r\n\r\n'
            % len(IMAGE)
            + IMAGE
            + b"more than announced",
            id="more than announced",
        ),
    ],
)
def test_an_image_is_framed_in_any_way(server: RawServer, get: Get, response: bytes) -> None:
    server.answers["/x"] = raw(response)
    found = get("/x")
    assert (bytes(found.data), found.complete, found.tag) == (IMAGE, True, None)


# -- the beginning of an image ---------------------------------------------------------------------------------------


def test_the_beginning_is_asked_for(server: RawServer, get: Get) -> None:
    server.answers["/x"] = answer(IMAGE[:100], status=206, Content_Range=f"bytes 0-99/{len(IMAGE)}")
    found = get("/x", first=100)
    assert (bytes(found.data), found.complete) == (IMAGE[:100], False)
    assert "range: bytes=0-99\r\n" in server.heads[0].lower()


@pytest.mark.parametrize(("first", "complete"), [(100, False), (len(IMAGE), True), (len(IMAGE) + 1, True)])
def test_reading_stops_where_a_server_ignores_that(
    server: RawServer, get: Get, first: int, complete: bool
) -> None:
    found = get("/image", first=first)
    assert (bytes(found.data), found.complete) == (IMAGE[:first], complete)


def test_an_endless_body_is_left_after_its_beginning(server: RawServer, get: Get) -> None:
    def endless(sock: socket.socket, ended: threading.Event) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not ended.is_set():
            sock.sendall(bytes(1 << 16))

    server.answers["/x"] = endless
    assert len(get("/x", first=1000).data) == 1000
    with pytest.raises(ImageTooLargeError):
        get("/x")


def test_a_small_image_is_whole_at_once(server: RawServer, get: Get) -> None:
    server.answers["/x"] = answer(b"small", status=206, Content_Range="bytes 0-4/5")
    assert get("/x", first=1000).complete


@pytest.mark.parametrize(
    "span", [None, "bytes 5-9/100", "bytes */100", "items 0-4/5", "bytes 0-4", "nonsense"]
)
def test_another_part_is_refused(server: RawServer, get: Get, span: str | None) -> None:
    server.answers["/x"] = answer(b"12345", status=206, Content_Range=span)
    with pytest.raises(ImageFetchError, match="another part"):
        get("/x", first=5)


def test_a_part_that_nobody_asked_for_is_refused(server: RawServer, get: Get) -> None:
    server.answers["/x"] = answer(b"12345", status=206, Content_Range="bytes 0-4/5")
    with pytest.raises(ImageFetchError, match="206"):
        get("/x")


# -- limits ----------------------------------------------------------------------------------------------------------


def test_an_announced_size_is_refused_before_the_body(server: RawServer, get: Get) -> None:
    server.answers["/x"] = answer(b"", Content_Length=LIMIT + 1)
    server.answers["/y"] = answer(b"1", status=206, Content_Length=1, Content_Range=f"bytes 0-0/{LIMIT + 1}")
    for path, first in (("/x", None), ("/y", 1)):
        with pytest.raises(ImageTooLargeError) as found:
            get(path, first=first)
        assert (found.value.what, found.value.limit, found.value.found) == ("bytes", LIMIT, LIMIT + 1)


def test_a_large_body_without_a_size_is_refused(server: RawServer, get: Get) -> None:
    server.answers["/x"] = answer(bytes(LIMIT + 1), Content_Length=None)
    with pytest.raises(ImageTooLargeError) as found:
        get("/x")
    assert found.value.found is None
    server.answers["/x"] = answer(bytes(LIMIT), Content_Length=None)
    assert len(get("/x").data) == LIMIT


@pytest.mark.parametrize("coding", ["gzip", "br", "GZIP, identity", "x"])
def test_a_compressed_body_is_refused(server: RawServer, get: Get, coding: str) -> None:
    server.answers["/x"] = answer(gzip.compress(bytes(1 << 20)), Content_Encoding=coding)
    with pytest.raises(ImageFetchError, match="encoded the image"):
        get("/x")
    assert len(server.heads) == 1


def test_chunks_of_a_byte_are_refused(server: RawServer, get: Get) -> None:
    server.answers["/x"] = raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 10_000
    )
    with pytest.raises(ImageFetchError, match="chunks"):
        get("/x")


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0\1\2\3" * 100, id="no HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 100_000, id="a long header"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 20_000 + b"\r\n", id="many headers"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100, id="many interim responses"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", id="ends early"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", id="negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n", id="strange digits"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", id="huge length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", id="two lengths"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", id="transfer coding"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="wrong chunk"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n", id="huge chunk"
        ),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", id="another protocol"),
    ],
)
def test_a_response_that_is_none_is_a_named_error(server: RawServer, get: Get, response: bytes) -> None:
    server.answers["/x"] = raw(response)
    with pytest.raises(ImageFetchError) as found:
        get("/x?secret=1", max_bytes=1 << 70, attempts=1)
    assert len(server.heads) == 1
    assert "secret" not in str(found.value)
    assert str(found.value).isprintable()


# -- time ------------------------------------------------------------------------------------------------------------


def silent(sock: socket.socket, ended: threading.Event) -> None:
    ended.wait()


def dripping(start: bytes, byte: bytes) -> Any:
    def write(sock: socket.socket, ended: threading.Event) -> None:
        sock.sendall(start)
        while not ended.wait(0.01):
            sock.sendall(byte)

    return write


def test_a_silent_server_is_left(server: RawServer, get: Get) -> None:
    server.answers["/x"] = silent
    with pytest.raises(ImageFetchError, match=r"nothing for 0.02 s"):
        get("/x", silence_s=0.02, attempts=2)


@pytest.mark.parametrize(
    ("start", "byte"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
def test_a_slow_server_is_left_at_the_deadline(
    server: RawServer, get: Get, start: bytes, byte: bytes
) -> None:
    server.answers["/x"] = dripping(start, byte)
    with pytest.raises(ImageFetchError, match=r"within 0.2 s"):
        get("/x", timeout=0.2)


def test_a_name_that_is_never_found_ends_at_the_deadline(get: Get) -> None:
    stop = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        stop.wait()
        return []

    try:
        with pytest.raises(ImageFetchError, match=r"within 0.1 s"):
            get("http://images.test/x", hosts=["images.test"], resolve=resolve, timeout=0.1)
    finally:
        stop.set()


def test_cancelling_closes_the_connection(server: RawServer, run_on: RunOn) -> None:
    begun, closed = threading.Event(), threading.Event()

    def write(sock: socket.socket, ended: threading.Event) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1")
        begun.set()
        sock.settimeout(20)
        try:
            if not sock.recv(1):
                closed.set()
        except ConnectionError:
            closed.set()

    server.answers["/x"] = write

    async def main() -> None:
        client = WebClient(HostRule([f"127.0.0.1:{server.port}"]), max_bytes=LIMIT, timeout=20.0)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.fetch, parse_web_url(server.url("/x")))
                await anyio.to_thread.run_sync(begun.wait)
                tasks.cancel_scope.cancel()
        finally:
            await client.aclose()

    run_on(main)
    assert closed.wait(20)


# -- connections that are used again ---------------------------------------------------------------------------------


def serving(*endings: bytes, connections: list[int]) -> Any:
    """Return an answer that sends an image for each request of a connection, with an ending behind each."""

    def write(sock: socket.socket, ended: threading.Event) -> None:
        place = len(connections)
        connections.append(0)
        for ending in endings:
            connections[place] += 1
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(IMAGE) + IMAGE + ending)
            if not sock.recv(1 << 16):
                break

    return write


@pytest.mark.parametrize(
    ("endings", "urls", "wanted"),
    [
        pytest.param([b""] * 9, ["a.test"] * 5, [5], id="one"),
        pytest.param([b""] * 9, ["a.test", "b.test", "a.test", "b.test"], [2, 2], id="each host its own"),
        pytest.param([b""], ["a.test"] * 3, [1, 1, 1], id="the server closes it without a response"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"] * 9,
            ["a.test"] * 3,
            [1, 1, 1],
            id="a response that nobody asked for",
        ),
    ],
)
def test_images_of_a_server_come_over_one_connection(
    server: RawServer, run_on: RunOn, endings: list[bytes], urls: list[str], wanted: list[int]
) -> None:
    connections: list[int] = []
    server.answers["/x"] = serving(*endings, connections=connections)

    async def main() -> None:
        hosts = [f"{host}:{server.port}" for host in set(urls)]
        client = WebClient(
            HostRule(hosts), max_bytes=LIMIT, timeout=20.0, resolve=lambda *_: ["127.0.0.1"], attempts=1
        )
        for host in urls:
            assert (await client.fetch(parse_web_url(server.url("/x", host)))).data == IMAGE
        await client.aclose()

    run_on(main)
    assert connections == wanted


def test_an_idle_connection_that_the_server_closed_is_not_used(server: RawServer, run_on: RunOn) -> None:
    connections: list[int] = []
    closed = threading.Event()

    def write(sock: socket.socket, ended: threading.Event) -> None:
        sock.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            serving(b"", b"", connections=connections)(sock, ended)
        sock.shutdown(socket.SHUT_RDWR)
        closed.set()

    server.answers["/x"] = write

    async def main() -> None:
        rule = HostRule([f"127.0.0.1:{server.port}"])
        client = WebClient(rule, max_bytes=LIMIT, timeout=20.0, attempts=1)
        for _ in range(3):
            assert (await client.fetch(parse_web_url(server.url("/x")))).data == IMAGE
            await anyio.to_thread.run_sync(closed.wait, 20)
            closed.clear()
        await client.aclose()

    run_on(main)
    assert connections == [1, 1, 1]


# -- further attempts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server: RawServer, get: Get, status: int) -> None:
    replies = [answer(status=status, Retry_After="0"), answer(b"", Content_Length=5), answer(IMAGE)]

    def write(sock: socket.socket, ended: threading.Event) -> None:
        replies.pop(0)(sock, ended)

    server.answers["/x"] = write
    assert bytes(get("/x").data) == IMAGE
    assert server.paths == ["/x"] * 3


def test_a_reset_connection_is_opened_again(server: RawServer, get: Get) -> None:
    replies = ["reset", "image"]

    def write(sock: socket.socket, ended: threading.Event) -> None:
        if replies.pop(0) == "image":
            answer(IMAGE)(sock, ended)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()

    server.answers["/x"] = write
    assert bytes(get("/x").data) == IMAGE


def test_attempts_end(server: RawServer, get: Get) -> None:
    server.answers["/x"] = answer(status=503)
    with pytest.raises(ImageFetchError, match="503") as found:
        get("/x")
    assert found.value.status == 503
    assert len(server.heads) == 4


@pytest.mark.parametrize(
    "asked", ["3600", "99999999", "\xb2", "1e9", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", ""]
)
def test_a_pause_longer_than_the_deadline_is_not_waited_for(server: RawServer, get: Get, asked: str) -> None:
    server.answers["/x"] = answer(status=503, Retry_After=asked)
    with pytest.raises(ImageFetchError, match="503"):
        get("/x", attempts=2)
    assert len(server.heads) == (1 if asked.isascii() and asked.isdigit() else 2)


@pytest.mark.parametrize("status", [204, 304, 400, 401, 403, 404, 410, 451, 999])
def test_another_status_is_final(server: RawServer, get: Get, status: int) -> None:
    server.answers["/x"] = answer(status=status)
    with pytest.raises(ImageFetchError, match=str(status)) as found:
        get("/x?secret=1")
    assert found.value.status == status
    assert "secret" not in str(found.value)
    assert len(server.heads) == 1


def test_no_server_is_a_named_error(get: Get) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ImageFetchError, match=f"no connection to 127.0.0.1, port {port}"):
        get(f"http://127.0.0.1:{port}/", hosts=[f"127.0.0.1:{port}"], attempts=1)


def test_an_unknown_host_is_a_named_error(get: Get) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(ImageFetchError, match=r"images.test cannot be found"):
        get("http://images.test/x", resolve=resolve, hosts=["*"], attempts=1)
    with pytest.raises(ImageFetchError, match="no address"):
        get("http://images.test/x", resolve=lambda host, port: [], hosts=["*"], attempts=1)


# -- addresses -------------------------------------------------------------------------------------------------------


def test_the_connection_goes_to_the_address_that_was_checked(server: RawServer, get: Get) -> None:
    asked = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    url = server.url("/image", "images.test")
    found = get(url, hosts=[f"images.test:{server.port}"], resolve=resolve)
    assert bytes(found.data) == IMAGE
    assert asked == [("images.test", server.port)]
    assert f"host: images.test:{server.port}\r\n" in server.heads[0].lower()


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["nonsense"],
    ],
)
@pytest.mark.parametrize("hosts", [["*:{port}"], ["*.test:{port}"]])
def test_a_name_with_an_address_inside_is_refused(
    server: RawServer, get: Get, addresses: list[str], hosts: list[str]
) -> None:
    named = [host.format(port=server.port) for host in hosts]
    with pytest.raises(ImageNotAllowedError):
        get(server.url("/image", "evil.test"), hosts=named, resolve=lambda host, port: addresses)
    assert server.heads == []


def test_localhost_is_refused(server: RawServer, get: Get) -> None:
    with pytest.raises(ImageNotAllowedError):
        get(server.url("/image", "localhost"), hosts=[f"*:{server.port}"])
    assert server.heads == []


def test_a_name_that_resolves_to_another_address_the_next_time_is_checked_again(
    server: RawServer, get: Get
) -> None:
    server.answers["/x"] = answer(status=503)
    found = [["127.0.0.1"], ["169.254.169.254"]]
    with pytest.raises(ImageNotAllowedError, match="link-local"):
        get(
            server.url("/x", "images.test"),
            hosts=[f"images.test:{server.port}"],
            resolve=lambda host, port: found.pop(0),
        )
    assert len(server.heads) == 1
    assert found == []


# -- redirects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(server: RawServer, get: Get, status: int) -> None:
    server.answers["/x"] = answer(status=status, Location="/y?token=1")
    server.answers["/y"] = answer(status=status, Location=server.url("/image"))
    found = get("/x")
    assert bytes(found.data) == IMAGE
    assert found.final == server.url("/image")
    assert server.paths == ["/x", "/y?token=1", "/image"]


@pytest.mark.parametrize(
    ("location", "path"), [("/üß".encode(), "/%C3%BC%C3%9F"), ("/ü".encode("latin-1"), "/%FC")]
)
def test_a_redirect_may_have_other_characters_than_ascii(
    server: RawServer, get: Get, location: bytes, path: str
) -> None:
    server.answers["/x"] = answer(status=302, Location=location.decode("latin-1"))
    server.answers[path] = answer(IMAGE)
    assert bytes(get("/x").data) == IMAGE


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://169.254.169.254/latest/meta-data/", ImageNotAllowedError),
        ("http://localhost:{port}/image", ImageNotAllowedError),
        ("//0.0.0.0:{port}/image", ImageNotAllowedError),
        ("file:///etc/passwd", ImageNotAllowedError),
        ("http://user@127.0.0.1:{port}/image", ImageReferenceError),
        ("/a b", ImageReferenceError),
        (None, ImageFetchError),
    ],
)
def test_a_redirect_to_elsewhere_is_refused(
    server: RawServer, get: Get, location: str | None, error: type[Exception]
) -> None:
    server.answers["/x"] = answer(status=302, Location=location and location.format(port=server.port))
    with pytest.raises(error):
        get("/x")
    assert server.paths == ["/x"]


def test_redirects_end(server: RawServer, get: Get) -> None:
    server.answers["/x"] = answer(status=302, Location="/x")
    with pytest.raises(ImageFetchError, match="more than 5 redirects"):
        get("/x")
    assert len(server.heads) == 6


# -- encryption ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate of images.test, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *(
                "-keyout",
                str(folder / "key"),
                "-out",
                str(folder / "cert"),
                "-days",
                "2",
                "-subj",
                "/CN=images.test",
            ),
            *("-addext", "subjectAltName=DNS:images.test"),
        ],
        check=True,
        capture_output=True,
    )
    both = folder / "both"
    both.write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return both


@pytest.fixture
def tls_server(certificate: Path, leftovers: object) -> Iterator[RawServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with RawServer(context) as server:
        server.answers["/image"] = answer(IMAGE)
        yield server


def test_a_certificate_is_that_of_the_name(
    tls_server: RawServer, get: Get, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    hosts = [
        f"images.test:{tls_server.port}",
        f"other.test:{tls_server.port}",
        f"127.0.0.1:{tls_server.port}",
    ]
    url = tls_server.url("/image", "images.test")
    assert bytes(get(url, hosts=hosts, resolve=resolve).data) == IMAGE
    for host in ("other.test", "127.0.0.1"):
        with pytest.raises(ImageFetchError, match="certificate"):
            get(tls_server.url("/image", host), hosts=hosts, resolve=resolve)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ImageFetchError, match="certificate"):
        get(url, hosts=hosts, resolve=resolve)
    assert len(tls_server.heads) == 1


def test_encryption_is_not_left_by_a_redirect(
    tls_server: RawServer, server: RawServer, get: Get, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls_server.answers["/x"] = answer(status=302, Location=server.url("/image"))
    hosts = [f"images.test:{tls_server.port}", f"127.0.0.1:{server.port}"]
    with pytest.raises(ImageNotAllowedError, match="without encryption"):
        get(tls_server.url("/x", "images.test"), hosts=hosts, resolve=lambda host, port: ["127.0.0.1"])
    assert server.heads == []


def test_a_server_without_encryption_is_a_named_error(server: RawServer, get: Get) -> None:
    with pytest.raises(ImageFetchError, match="no connection"):
        get(f"https://127.0.0.1:{server.port}/image", attempts=1)


def test_the_bytes_of_bodies_that_are_received_are_bounded(
    server: RawServer, run_on: RunOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_exchange, "SMALL_NBYTES", 1 << 16)
    monkeypatch.setattr(http_exchange, "_BODIES_NBYTES", 8 << 20)
    body, count = bytes(2 << 20), 40
    server.answers["/large"] = answer(body)
    server.answers["/unannounced"] = raw(b"HTTP/1.1 200 OK\r\n\r\n" + body)
    received: list[int] = []

    async def main() -> None:
        client = WebClient(HostRule([f"127.0.0.1:{server.port}"]), max_bytes=len(body), timeout=60.0)

        async def fetch(path: str) -> None:
            received.append(len((await client.fetch(parse_web_url(server.url(path)))).data))

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(fetch, ("/large", "/unannounced")[number % 2])
        await client.aclose()

    tracemalloc.start()
    try:
        run_on(main)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert received == [len(body)] * count
    assert peak < 24 << 20  # of 80 MiB: 8 MiB, and what each has received before it waits


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 10), st.integers(0, 30)), max_size=30)


@given(STEPS)
def test_room_is_never_exceeded_and_everybody_gets_it(steps: list[tuple[str, int, int]]) -> None:
    """Let bodies begin one by one; each leaves, or is cancelled where it waits, after some others began."""
    most, held, done = 16, dict.fromkeys("abc", 0), []

    async def main() -> None:
        room = BodyRoom(most)

        async def receive(server: str, nbytes: int, leave: anyio.Event) -> None:
            async with room.take(server, nbytes):
                held[server] += nbytes
                try:
                    assert sum(held.values()) <= room.taken <= most
                    assert held[server] <= 10
                    await leave.wait()
                finally:
                    held[server] -= nbytes
            done.append(nbytes)

        async with anyio.create_task_group() as tasks:
            leaving: list[tuple[int, anyio.Event]] = []
            for at, (server, nbytes, stays) in enumerate(steps):
                leaving.append((at + stays, anyio.Event()))
                if stays % 7 == 6:
                    with anyio.move_on_after(0):
                        await receive(server, nbytes, leaving[-1][1])
                else:
                    tasks.start_soon(receive, server, nbytes, leaving[-1][1])
                await anyio.lowlevel.checkpoint()
                for when, event in leaving:
                    if when <= at:
                        event.set()
            for _, event in leaving:
                event.set()
        assert room.taken == 0

    anyio.run(main)
    assert len(done) == sum(stays % 7 != 6 for _, _, stays in steps)


@on_both_loops
async def test_a_slow_server_holds_no_room_of_others() -> None:
    room = BodyRoom(16)
    async with room.take("slow", 10), anyio.create_task_group() as tasks:
        tasks.start_soon(_take, room, "slow", 1)
        async with room.take("fast", 6):
            assert room.taken == 16
        tasks.cancel_scope.cancel()
    assert room.taken == 0


async def _take(room: BodyRoom, server: str, nbytes: int) -> None:
    async with room.take(server, nbytes):
        raise AssertionError("a server has more than its share")
