"""Client for images on servers that nobody knows: one GET for each, to a checked address, within limits.

The name of a host is resolved here, every address that it has is checked, and the connection goes to one of them. So a name
that resolves to another address the next time gains nothing. The same is done for each redirect.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from aioloader.errors import (
    ImageFetchError,
    ImageNotAllowedError,
    ImageTooLargeError,
    MissingPackageError,
)
from aioloader.service.allowed import HostRule, WebAddress, is_public, parse_web_url, redirected, short_name

if TYPE_CHECKING:
    from anyio.abc import ByteStream

_REDIRECTS = 5
_TRIES = 3
_BACKOFF_S = 0.2
_LONGEST_WAIT_S = 5.0
# A server that sends nothing for so long is not waited for, however much time is left.
_SILENCE_S = 15.0
_CONNECT_S = 10.0
_RECEIVE_BYTES = 1 << 16
_REDIRECT = frozenset((301, 302, 303, 307, 308))
_BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))

Resolve = Callable[[str, int], Awaitable[list[str]]]


class _Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class _Again(Exception):
    """A request that may succeed at another try."""

    def __init__(self, reason: str, status: int | None = None, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.wait_s = wait_s


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system resolves it."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class WebClient:
    """Client for URLs of HTTP.

    Args:
        rule: which hosts are allowed.
        max_bytes: most bytes of a body.
        timeout: seconds for an image: redirects, further tries and all.
        resolve: returns the addresses of a host.
    """

    def __init__(self, rule: HostRule, *, max_bytes: int, timeout: float, resolve: Resolve = resolve) -> None:
        self._rule = rule
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None

    async def fetch(self, url: str, *, head: int | None = None) -> tuple[bytes, str | None]:
        """Return the bytes that a URL refers to, and the tag of their version if the server names one.

        Args:
            url: the URL.
            head: return as soon as there are so many bytes.

        Raises:
            ImageNotAllowedError: a host, a port or an address is not allowed, here or after a redirect.
            ImageTooLargeError: there are more than `max_bytes` bytes.
            ImageFetchError: there was no right answer.
            ImageReferenceError: the URL, or that of a redirect, is malformed.

        On cancellation the connection is closed.
        """
        name = short_name(url)
        with anyio.move_on_after(self._timeout):
            return await self._fetch(url, name, head)
        raise ImageFetchError(name, f"the server did not answer within {self._timeout:g} s")

    async def _fetch(self, url: str, name: str, head: int | None) -> tuple[bytes, str | None]:
        for left in reversed(range(_TRIES)):
            try:
                response = await self._follow(url, head)
                break
            except _Again as problem:
                if not left:
                    raise ImageFetchError(name, problem.reason, status=problem.status) from problem.__cause__
                wait_s = _BACKOFF_S * 2 ** (_TRIES - left) * random.uniform(0.5, 1.0)
                await anyio.sleep(wait_s if problem.wait_s is None else problem.wait_s)
        tag = response.headers.get("etag")
        return response.body, None if tag is None or tag.startswith("W/") else tag

    async def _follow(self, url: str, head: int | None) -> _Response:
        for _ in range(_REDIRECTS + 1):
            address = parse_web_url(url)
            response = await self._request(address, head)
            if response.status not in _REDIRECT:
                return response
            if "location" not in response.headers:
                raise ImageFetchError(
                    address.name, "a redirect has no address", status=response.status, kind=address.scheme
                )
            url = redirected(address, response.headers["location"])
        raise ImageFetchError(
            short_name(url), f"there are more than {_REDIRECTS} redirects", kind=address.scheme
        )

    async def _request(self, address: WebAddress, head: int | None) -> _Response:
        stream = await self._connect(address)
        try:
            return await _exchange(stream, address, head, self._max_bytes)
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError) as error:
            raise _Again(f"the connection failed: {type(error).__name__}: {error}") from error
        finally:
            await anyio.aclose_forcefully(stream)

    async def _connect(self, address: WebAddress) -> ByteStream:
        private = self._rule.check(address)
        try:
            found = await self._resolve(address.host, address.port)
        except (OSError, UnicodeError) as error:
            raise _Again(f"the host {address.host!r} is not known: {error}") from error
        if not private:
            for text in found:
                if not is_public(text):
                    reason = f"the host {address.host!r} has the address {text}, which is not public"
                    raise ImageNotAllowedError(address.name, reason, kind=address.scheme)
        problem: BaseException | None = None
        for text in found:
            try:
                with anyio.fail_after(_CONNECT_S):
                    return await self._open(text, address)
            except (OSError, ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
                problem = error
        raise _Again(f"no connection to {address.host}:{address.port}: {problem}") from problem

    async def _open(self, text: str, address: WebAddress) -> ByteStream:
        if address.scheme == "http":
            return await anyio.connect_tcp(text, address.port)
        if self._tls is None:
            self._tls = await anyio.to_thread.run_sync(ssl.create_default_context)
        return await anyio.connect_tcp(
            text,
            address.port,
            ssl_context=self._tls,
            tls_hostname=address.host,
            tls_standard_compatible=False,
        )


async def _exchange(stream: ByteStream, address: WebAddress, head: int | None, most: int) -> _Response:
    """Send a request and return the response; `_Again` for one that may differ the next time."""
    h11 = _h11()
    connection = h11.Connection(h11.CLIENT)
    usual = address.port == {"http": 80, "https": 443}[address.scheme]
    host = f"[{address.host}]" if ":" in address.host else address.host
    headers = [
        ("Host", host if usual else f"{host}:{address.port}"),
        ("User-Agent", "aioloader"),
        ("Accept", "image/*,*/*;q=0.5"),
        # A compressed body could be any number of bytes.
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    if head is not None:
        headers.append(("Range", f"bytes=0-{head - 1}"))
    await stream.send(connection.send(h11.Request(method="GET", target=address.target, headers=headers)))
    await stream.send(connection.send(h11.EndOfMessage()))
    try:
        status, found = await _read_head(h11, connection, stream)
        if status in _REDIRECT:
            return _Response(status, found, b"")
        _check_answer(status, found, address, most)
        body = bytearray()
        async for data in _body(h11, connection, stream):
            body += data
            if head is not None and len(body) >= head:
                break
            if len(body) > most:
                raise ImageTooLargeError(address.name, "bytes", most, kind=address.scheme)
        return _Response(status, found, bytes(body))
    except h11.RemoteProtocolError as error:
        raise _Again(f"the answer is not HTTP, or incomplete: {error}") from error


def _check_answer(status: int, headers: dict[str, str], address: WebAddress, most: int) -> None:
    kind, name = address.scheme, address.name
    if status in _BUSY:
        asked = headers.get("retry-after", "")
        wait_s = min(float(asked), _LONGEST_WAIT_S) if asked.isdigit() else None
        raise _Again(f"the server answered with status {status}", status, wait_s)
    if status not in (200, 206):
        raise ImageFetchError(name, f"the server answered with status {status}", status=status, kind=kind)
    coding = headers.get("content-encoding", "identity").lower()
    if coding not in ("", "identity"):
        reason = f"the server compressed the image by {coding!r}, although it was asked not to"
        raise ImageFetchError(name, reason, status=status, kind=kind)
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise ImageTooLargeError(name, "bytes", most, int(length), kind=kind)


async def _read_head(h11: Any, connection: Any, stream: ByteStream) -> tuple[int, dict[str, str]]:
    while True:
        event = await _next_event(h11, connection, stream)
        if type(event) is h11.Response:
            names = (
                (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in event.headers
            )
            return event.status_code, dict(names)
        if type(event) is not h11.InformationalResponse:
            raise _Again("the server closed the connection without an answer")


async def _body(h11: Any, connection: Any, stream: ByteStream) -> Any:
    while True:
        event = await _next_event(h11, connection, stream)
        if type(event) is h11.Data:
            yield event.data
        else:
            return


async def _next_event(h11: Any, connection: Any, stream: ByteStream) -> Any:
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event
        data = b""
        with anyio.move_on_after(_SILENCE_S) as scope:
            try:
                data = await stream.receive(_RECEIVE_BYTES)
            except anyio.EndOfStream:
                pass
        if scope.cancelled_caught:
            raise _Again(f"the server sent nothing for {_SILENCE_S:g} s")
        connection.receive_data(data)


def _h11() -> Any:
    try:
        import h11
    except ModuleNotFoundError:
        raise MissingPackageError("h11", extra="service") from None
    return h11
