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
from aioloader.service.http_fetch import BodyRoom, WebBytes, WebClient
from aioloader.service.web_urls import HostRule, parse_web_url
from tests.cases import on_both_loops, with_cases
from tests.conftest import RunOn
from tests.servers.raw_http import RawServer, answer

pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")

IMAGE = bytes(range(256)) * 40
LIMIT = 20_000
OK = b"HTTP/1.1 200 OK\r\n"
WITH_LENGTH = OK + b"Content-Length: %d\r\n\r\n" % len(IMAGE) + IMAGE


@pytest.fixture
def server(leftovers: object) -> Iterator[RawServer]:
    with RawServer() as server:
        server.answers["/image"] = answer(IMAGE, ETag='"v1"')
        yield server


Get = Callable[..., WebBytes]


def getting(server: RawServer, run_on: Callable[..., Any]) -> Get:
    """Return a function that gets a URL, or a path of the server, by a new client in a new event loop.

    With a reply it forgets earlier requests, and the server answers with it at /x.
    """

    def run(
        url: str,
        reply: Any = None,
        *,
        hosts: list[str] | None = None,
        first: int | None = None,
        **options: Any,
    ) -> WebBytes:
        if reply is not None:
            server.heads.clear()
            server.answers["/x"] = raw(reply) if isinstance(reply, bytes) else reply
        if url.startswith("/"):
            url = server.url(url)
        named = [f"127.0.0.1:{server.port}"] if hosts is None else hosts

        async def main() -> WebBytes:
            client = WebClient(HostRule(named), **{"max_bytes": LIMIT, "timeout": 20.0, **options})
            try:
                return await client.fetch(parse_web_url(url), first=first)
            finally:
                await client.aclose()

        found: WebBytes = run_on(main)
        return found

    return run


@pytest.fixture
def get(server: RawServer, no_blocking: None) -> Get:
    """Return such a function for what does not depend on the event loop: what is sent, and what of it is refused."""
    return getting(server, anyio.run)


@pytest.fixture
def get_on_both(server: RawServer, run_on: RunOn, no_blocking: None) -> Get:
    """Return such a function for either event loop: for time, names, connections and their ends."""
    return getting(server, run_on)


def raw(data: bytes) -> Any:
    def write(sock: socket.socket, ended: threading.Event) -> None:
        sock.sendall(data)

    return write


def test_what_a_server_of_something_else_says_is_not_told(get: Get) -> None:
    banner = b"SSH-2.0-secret_9.6\r\n\r\n"
    with pytest.raises(ImageFetchError, match="not HTTP") as caught:
        get("/x", banner)  # the traceback has this line
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_an_image_is_read(server: RawServer, get_on_both: Get) -> None:
    found = get_on_both("/image")
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
    agent = "bot/1 (+https://example.com/bot)"
    get("/x", answer(status=302, Location="/image"), user_agent=agent)
    assert [f"User-Agent: {agent}\r\n" in head for head in server.heads] == [True, True]


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


def encoded(coding: bytes, more: bytes = b"") -> bytes:
    return WITH_LENGTH.replace(b"\r\n", b"\r\nContent-Encoding: %b\r\n" % coding + more, 1)


PIECES = b"".join(b"%x;note\r\n%s\r\n" % (1024, IMAGE[at : at + 1024]) for at in range(0, len(IMAGE), 1024))
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
FRAMED = {
    "chunked": CHUNKED + PIECES + b"0\r\nTrailer: x\r\n\r\n",
    "until the end": OK + b"\r\n" + IMAGE,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n" + IMAGE,
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + WITH_LENGTH,
    "aws-chunked": encoded(b"aws-chunked"),
    "utf-8": encoded(b"utf-8"),
    "binary": encoded(b"binary"),
    "identity and UTF-8": encoded(b"identity, UTF-8"),
    "more than announced": encoded(b"identity", b'ETag: W/"1"\r\n') + b"more than announced",
}


@with_cases("name", FRAMED)
def test_an_image_is_framed_in_any_way(get: Get, name: str) -> None:
    found = get("/x", FRAMED[name])
    assert (bytes(found.data), found.complete, found.tag) == (IMAGE, True, None)


# -- the beginning of an image ---------------------------------------------------------------------------------------


def test_the_beginning_is_asked_for(server: RawServer, get: Get) -> None:
    part = answer(IMAGE[:100], status=206, Content_Range=f"bytes 0-99/{len(IMAGE)}")
    found = get("/x", part, first=100)
    assert (bytes(found.data), found.complete) == (IMAGE[:100], False)
    assert "range: bytes=0-99\r\n" in server.heads[0].lower()
    assert get("/x", answer(b"small", status=206, Content_Range="bytes 0-4/5"), first=1000).complete
    for first in (100, len(IMAGE), len(IMAGE) + 1):  # a server that ignores what is asked for
        found = get("/image", first=first)
        assert (bytes(found.data), found.complete) == (IMAGE[:first], first >= len(IMAGE))


def test_an_endless_body_is_left_after_its_beginning(get_on_both: Get) -> None:
    def endless(sock: socket.socket, ended: threading.Event) -> None:
        sock.sendall(OK + b"\r\n")
        while not ended.is_set():
            sock.sendall(bytes(1 << 16))

    assert len(get_on_both("/x", endless, first=1000).data) == 1000
    with pytest.raises(ImageTooLargeError):
        get_on_both("/x")


SPANS = [None, "bytes 5-9/100", "bytes */100", "items 0-4/5", "bytes 0-4", "nonsense"]


@with_cases(
    ("span", "first", "says"), [*((span, 5, "another part") for span in SPANS), ("bytes 0-4/5", None, "206")]
)
def test_a_part_that_nobody_asked_for_is_refused(
    get: Get, span: str | None, first: int | None, says: str
) -> None:
    with pytest.raises(ImageFetchError, match=says):
        get("/x", answer(b"12345", status=206, Content_Range=span), first=first)


# -- limits ----------------------------------------------------------------------------------------------------------


def test_an_announced_size_is_refused_before_the_body(get: Get) -> None:
    whole = answer(b"", Content_Length=LIMIT + 1)
    part = answer(b"1", status=206, Content_Length=1, Content_Range=f"bytes 0-0/{LIMIT + 1}")
    for reply, first in ((whole, None), (part, 1)):
        with pytest.raises(ImageTooLargeError) as found:
            get("/x", reply, first=first)
        assert (found.value.what, found.value.limit, found.value.found) == ("bytes", LIMIT, LIMIT + 1)


def test_a_large_body_without_a_size_is_refused(get: Get) -> None:
    with pytest.raises(ImageTooLargeError) as found:
        get("/x", answer(bytes(LIMIT + 1), Content_Length=None))
    assert found.value.found is None
    assert len(get("/x", answer(bytes(LIMIT), Content_Length=None)).data) == LIMIT


@with_cases("coding", ["gzip", "br", "GZIP, identity", "x"])
def test_a_compressed_body_is_refused(server: RawServer, get: Get, coding: str) -> None:
    with pytest.raises(ImageFetchError, match="encoded the image"):
        get("/x", answer(gzip.compress(bytes(1 << 20)), Content_Encoding=coding))
    assert len(server.heads) == 1


def test_chunks_of_a_byte_are_refused(get: Get) -> None:
    with pytest.raises(ImageFetchError, match="chunks"):
        get("/x", CHUNKED + b"1\r\nx\r\n" * 10_000)


MALFORMED = {
    "nothing": b"",
    "no HTTP": b"\0\1\2\3" * 100,
    "a long header": OK + b"X: " + b"x" * 100_000,
    "many headers": OK + b"X: x\r\n" * 20_000 + b"\r\n",
    "many interim responses": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100,
    "ends early": OK + b"Content-Length: 100\r\n\r\nshort",
    "negative length": OK + b"Content-Length: -5\r\n\r\n",
    "strange digits": OK + b"Content-Length: \xb2\r\n\r\n",
    "huge length": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "transfer coding": OK + b"Transfer-Encoding: gzip\r\n\r\n",
    "wrong chunk": CHUNKED + b"zz\r\n",
    "huge chunk": CHUNKED + b"f" * 30 + b"\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
}


@with_cases("name", MALFORMED)
def test_a_response_that_is_none_is_a_named_error(server: RawServer, get_on_both: Get, name: str) -> None:
    with pytest.raises(ImageFetchError) as found:
        get_on_both("/x?secret=1", MALFORMED[name], max_bytes=1 << 70, attempts=1)
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


def test_a_silent_server_is_left(get_on_both: Get) -> None:
    with pytest.raises(ImageFetchError, match=r"nothing for 0.02 s"):
        get_on_both("/x", silent, silence_s=0.02, attempts=2)


@with_cases(
    ("start", "byte"),
    [(OK + b"X: ", b"x"), (OK + b"Content-Length: 20000\r\n\r\n", b"x"), (CHUNKED, b"1\r\nx\r\n")],
)
def test_a_slow_server_is_left_at_the_deadline(get_on_both: Get, start: bytes, byte: bytes) -> None:
    with pytest.raises(ImageFetchError, match=r"within 0.2 s"):
        get_on_both("/x", dripping(start, byte), timeout=0.2)


def test_a_name_that_is_never_found_ends_at_the_deadline(get_on_both: Get) -> None:
    stop = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        stop.wait()
        return []

    try:
        with pytest.raises(ImageFetchError, match=r"within 0.1 s"):
            get_on_both("http://images.test/x", hosts=["images.test"], resolve=resolve, timeout=0.1)
    finally:
        stop.set()


def client_of(server: RawServer, *hosts: str, **options: Any) -> WebClient:
    """Return a client to which each of the hosts is this server."""
    rule = HostRule([f"{host}:{server.port}" for host in hosts or ("127.0.0.1",)])
    options = {"max_bytes": LIMIT, "timeout": 20.0, "resolve": lambda *_: ["127.0.0.1"], **options}
    return WebClient(rule, **options)


@on_both_loops
async def test_cancelling_closes_the_connection(server: RawServer) -> None:
    begun, closed = threading.Event(), threading.Event()

    def write(sock: socket.socket, ended: threading.Event) -> None:
        sock.sendall(OK + b"Content-Length: 9\r\n\r\n1")
        begun.set()
        sock.settimeout(20)
        try:
            if not sock.recv(1):
                closed.set()
        except ConnectionError:
            closed.set()

    server.answers["/x"] = write
    client = client_of(server)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.fetch, parse_web_url(server.url("/x")))
            await anyio.to_thread.run_sync(begun.wait)
            tasks.cancel_scope.cancel()
    finally:
        await client.aclose()
    assert await anyio.to_thread.run_sync(closed.wait, 20)


# -- connections that are used again ---------------------------------------------------------------------------------


def serving(*endings: bytes, connections: list[int]) -> Any:
    """Return an answer that sends an image for each request of a connection, with an ending behind each."""

    def write(sock: socket.socket, ended: threading.Event) -> None:
        place = len(connections)
        connections.append(0)
        for ending in endings:
            connections[place] += 1
            sock.sendall(WITH_LENGTH + ending)
            if not sock.recv(1 << 16):
                break

    return write


UNASKED = OK + b"Content-Length: 1\r\n\r\nx"


@with_cases(
    ("endings", "urls", "wanted"),
    [
        pytest.param([b""] * 9, ["a.test"] * 5, [5], id="one"),
        pytest.param([b""] * 9, ["a.test", "b.test", "a.test", "b.test"], [2, 2], id="each host its own"),
        pytest.param([b""], ["a.test"] * 3, [1, 1, 1], id="the server closes it without a response"),
        pytest.param([UNASKED] * 9, ["a.test"] * 3, [1, 1, 1], id="a response that nobody asked for"),
    ],
)
@on_both_loops
async def test_images_of_a_server_come_over_one_connection(
    server: RawServer, endings: list[bytes], urls: list[str], wanted: list[int]
) -> None:
    connections: list[int] = []
    server.answers["/x"] = serving(*endings, connections=connections)
    client = client_of(server, *set(urls), attempts=1)
    for host in urls:
        assert (await client.fetch(parse_web_url(server.url("/x", host)))).data == IMAGE
    await client.aclose()
    assert connections == wanted


@on_both_loops
async def test_an_idle_connection_that_the_server_closed_is_not_used(server: RawServer) -> None:
    connections: list[int] = []
    closed = threading.Event()

    def write(sock: socket.socket, ended: threading.Event) -> None:
        sock.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            serving(b"", b"", connections=connections)(sock, ended)
        sock.shutdown(socket.SHUT_RDWR)
        closed.set()

    server.answers["/x"] = write
    client = client_of(server, attempts=1)
    for _ in range(3):
        assert (await client.fetch(parse_web_url(server.url("/x")))).data == IMAGE
        await anyio.to_thread.run_sync(closed.wait, 20)
        closed.clear()
    await client.aclose()
    assert connections == [1, 1, 1]


# -- further attempts ------------------------------------------------------------------------------------------------


def in_turn(*replies: Any) -> Any:
    """Return an answer that is the next of these each time."""
    left = list(replies)

    def write(sock: socket.socket, ended: threading.Event) -> None:
        left.pop(0)(sock, ended)

    return write


def reset(sock: socket.socket, ended: threading.Event) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_a_busy_server_is_asked_again(server: RawServer, get_on_both: Get) -> None:
    for status in (429, 500, 503):
        early = answer(b"", Content_Length=5)
        replies = in_turn(answer(status=status, Retry_After="0"), early, answer(IMAGE))
        assert bytes(get_on_both("/x", replies).data) == IMAGE
        assert server.paths == ["/x"] * 3
    assert bytes(get_on_both("/x", in_turn(reset, answer(IMAGE))).data) == IMAGE


def test_attempts_end(server: RawServer, get: Get) -> None:
    with pytest.raises(ImageFetchError, match="503") as found:
        get("/x", answer(status=503))
    assert found.value.status == 503
    assert len(server.heads) == 4


@with_cases(
    ("asked", "requests"),
    [
        ("3600", 1),
        ("99999999", 1),
        ("Fri, 31 Dec 9999 00:00:00 GMT", 1),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 2),
        ("\xb2", 2),
        ("1e9", 2),
        ("-1", 2),
        ("", 2),
    ],
)
def test_a_pause_longer_than_the_deadline_is_not_waited_for(
    server: RawServer, get: Get, asked: str, requests: int
) -> None:
    with pytest.raises(ImageFetchError, match="503"):
        get("/x", answer(status=503, Retry_After=asked), attempts=2)
    assert len(server.heads) == requests


@with_cases("status", [204, 304, 400, 401, 403, 404, 410, 451, 999])
def test_another_status_is_final(server: RawServer, get: Get, status: int) -> None:
    with pytest.raises(ImageFetchError, match=str(status)) as found:
        get("/x?secret=1", answer(status=status))
    assert found.value.status == status
    assert "secret" not in str(found.value)
    assert len(server.heads) == 1


def test_no_server_is_a_named_error(get_on_both: Get) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ImageFetchError, match=f"no connection to 127.0.0.1, port {port}"):
        get_on_both(f"http://127.0.0.1:{port}/", hosts=[f"127.0.0.1:{port}"], attempts=1)


def test_an_unknown_host_is_a_named_error(get_on_both: Get) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(ImageFetchError, match=r"images.test cannot be found"):
        get_on_both("http://images.test/x", resolve=resolve, hosts=["*"], attempts=1)
    with pytest.raises(ImageFetchError, match="no address"):
        get_on_both("http://images.test/x", resolve=lambda host, port: [], hosts=["*"], attempts=1)


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


INSIDE = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "nonsense"]


@with_cases("addresses", [*([each] for each in INSIDE), ["8.8.8.8", "127.0.0.1"]])
@with_cases("host", ["*", "*.test"])
def test_a_name_with_an_address_inside_is_refused(
    server: RawServer, get: Get, addresses: list[str], host: str
) -> None:
    with pytest.raises(ImageNotAllowedError):
        get(
            server.url("/image", "evil.test"),
            hosts=[f"{host}:{server.port}"],
            resolve=lambda host, port: addresses,
        )
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


@with_cases("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(server: RawServer, get: Get, status: int) -> None:
    server.answers["/y"] = answer(status=status, Location=server.url("/image"))
    found = get("/x", answer(status=status, Location="/y?token=1"))
    assert bytes(found.data) == IMAGE
    assert found.final == server.url("/image")
    assert server.paths == ["/x", "/y?token=1", "/image"]


@with_cases(("location", "path"), [("/üß".encode(), "/%C3%BC%C3%9F"), ("/ü".encode("latin-1"), "/%FC")])
def test_a_redirect_may_have_other_characters_than_ascii(
    server: RawServer, get: Get, location: bytes, path: str
) -> None:
    server.answers[path] = answer(IMAGE)
    assert bytes(get("/x", answer(status=302, Location=location.decode("latin-1"))).data) == IMAGE


@with_cases(
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
    with pytest.raises(error):
        get("/x", answer(status=302, Location=location and location.format(port=server.port)))
    assert server.paths == ["/x"]


def test_redirects_end(server: RawServer, get: Get) -> None:
    with pytest.raises(ImageFetchError, match="more than 5 redirects"):
        get("/x", answer(status=302, Location="/x"))
    assert len(server.heads) == 6


# -- encryption ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate of images.test, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    folder = tmp_path_factory.mktemp("tls")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out cert -days 2"
    names = ["-subj", "/CN=images.test", "-addext", "subjectAltName=DNS:images.test"]
    subprocess.run(["openssl", *made.split(), *names], check=True, capture_output=True, cwd=folder)
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


def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def test_a_certificate_is_that_of_the_name(
    tls_server: RawServer, get_on_both: Get, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    hosts = [f"{host}:{tls_server.port}" for host in ("images.test", "other.test", "127.0.0.1")]
    url = tls_server.url("/image", "images.test")
    assert bytes(get_on_both(url, hosts=hosts, resolve=loopback).data) == IMAGE
    for host in ("other.test", "127.0.0.1"):
        with pytest.raises(ImageFetchError, match="certificate"):
            get_on_both(tls_server.url("/image", host), hosts=hosts, resolve=loopback)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ImageFetchError, match="certificate"):
        get_on_both(url, hosts=hosts, resolve=loopback)
    assert len(tls_server.heads) == 1


def test_encryption_is_not_left_by_a_redirect(
    tls_server: RawServer, server: RawServer, get: Get, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls_server.answers["/x"] = answer(status=302, Location=server.url("/image"))
    hosts = [f"images.test:{tls_server.port}", f"127.0.0.1:{server.port}"]
    with pytest.raises(ImageNotAllowedError, match="without encryption"):
        get(tls_server.url("/x", "images.test"), hosts=hosts, resolve=loopback)
    assert server.heads == []


def test_a_server_without_encryption_is_a_named_error(server: RawServer, get_on_both: Get) -> None:
    with pytest.raises(ImageFetchError, match="no connection"):
        get_on_both(f"https://127.0.0.1:{server.port}/image", attempts=1)


@on_both_loops
async def test_the_bytes_of_bodies_that_are_received_are_bounded(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_exchange, "SMALL_NBYTES", 1 << 16)
    monkeypatch.setattr(http_exchange, "_BODIES_NBYTES", 8 << 20)
    body, count = bytes(2 << 20), 40
    server.answers["/large"] = answer(body)
    server.answers["/unannounced"] = raw(OK + b"\r\n" + body)
    received: list[int] = []
    client = client_of(server, max_bytes=len(body), timeout=60.0)

    async def fetch(path: str) -> None:
        received.append(len((await client.fetch(parse_web_url(server.url(path)))).data))

    tracemalloc.start()
    try:
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(fetch, ("/large", "/unannounced")[number % 2])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        await client.aclose()
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
