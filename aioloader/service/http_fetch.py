"""Client for images on servers that nobody knows: one GET for each, to a checked address, within limits.

The name of a host is resolved here, all addresses that it has are checked, and the connection goes to one of these. So
a name that resolves to another address the next time gains nothing. The same is done for each redirect. No proxy of the
environment is used, because the proxy would resolve the name.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import anyio

from aioloader.errors import ImageFetchError
from aioloader.foundation.threads import Threads
from aioloader.service.allowed import HostRule, check_addresses
from aioloader.service.http_exchange import (
    DEFAULT_USER_AGENT,
    NOT_MODIFIED,
    REDIRECTS,
    AgainError,
    Response,
    exchange,
    location_of,
    room_for,
)
from aioloader.service.web_urls import WebAddress, redirected
from aioloader.storage.remote.failures import backoff_s

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from aioloader.service.fetched_cache import KnownVersion

MOST_REDIRECTS = 5
"""Redirects that are followed for one image."""

_ATTEMPTS = 4
_SILENCE_S = 15.0
_CONNECT_S = 5.0
_MOST_ADDRESSES = 4
# As many as an image service reads at a time, so that a name that takes long to resolve delays no other.
_THREADS = 256

Resolve = Callable[[str, int], list[str]]
"""Function that returns the IP addresses of a host; called in a thread."""


class WebBytes(NamedTuple):
    """Bytes of an image.

    Attributes:
        data: its first bytes, or all; empty if they are the known ones.
        tag: the server's name for their version; None if it does not identify versions.
        final: URL after redirects.
        complete: `data` are all bytes.
        is_known: the version is the known one.
    """

    data: bytearray
    tag: str | None
    final: str
    complete: bool
    is_known: bool = False


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host as the system resolves it; blocks.

    Raises:
        OSError: there is no such host, or no answer.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class WebClient:
    """Client for URLs of HTTP, for asyncio and trio. Needs the extra ``service``.

    Args:
        rule: decides which hosts are allowed.
        max_bytes: most bytes of an image.
        timeout: seconds for an image, with redirects and further attempts.
        user_agent: value of this header.
        resolve: returns the addresses of a host.
        silence_s: most seconds without a byte from the server.
        attempts: most requests for an image, redirects not counted.

    Raises:
        TypeError, ValueError: no header can have this `user_agent`.
    """

    def __init__(
        self,
        rule: HostRule,
        *,
        max_bytes: int,
        timeout: float,
        user_agent: str = DEFAULT_USER_AGENT,
        resolve: Resolve = resolve_host,
        silence_s: float = _SILENCE_S,
        attempts: int = _ATTEMPTS,
    ) -> None:
        self._rule = rule
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._user_agent = _checked_agent(user_agent)
        self._resolve = resolve
        self._silence_s = silence_s
        self._attempts = attempts
        self._room = room_for(max_bytes)
        self._tls: ssl.SSLContext | None = None
        # Names may take long to resolve, and nothing can end that: not in threads that others wait for.
        self._threads = Threads(_THREADS, "aioloader-resolve")

    async def fetch(
        self, address: WebAddress, *, first: int | None = None, known: KnownVersion | None = None
    ) -> WebBytes:
        """Return the bytes of an image.

        Args:
            address: of the image, see `parse_web_url`.
            first: read only that number of bytes; None: all.
            known: version whose bytes are not needed.

        Raises:
            ImageNotAllowedError: a host, a port or an address is not allowed, here or after a redirect.
            ImageTooLargeError: there are more than `max_bytes` bytes.
            ImageFetchError: there was no valid response in time.
            ImageReferenceError: a redirect leads to a malformed URL.

        On cancellation the connection is closed.
        """
        last: list[AgainError] = []
        with anyio.move_on_after(self._timeout) as scope:
            return await self._fetch(address, first, known, scope.deadline, last)
        reason = f"there was no whole response within {self._timeout:g} s"
        if last:
            reason += f"; the attempt before: {last[-1].reason}"
        raise ImageFetchError(address.name, reason, kind=address.scheme) from None

    async def _fetch(
        self,
        address: WebAddress,
        first: int | None,
        known: KnownVersion | None,
        deadline: float,
        last: list[AgainError],
    ) -> WebBytes:
        for attempt in range(1, self._attempts + 1):
            try:
                final, response = await self._follow(address, first, known)
            except AgainError as problem:
                last.append(problem)
                pause = max(problem.pause_s, backoff_s(attempt, random.random()))
                if attempt == self._attempts or anyio.current_time() + pause >= deadline:
                    reason = f"{problem.reason} ({attempt} attempt{'s' * (attempt > 1)})"
                    error = ImageFetchError(address.name, reason, status=problem.status, kind=address.scheme)
                    raise error from problem.__cause__
            else:
                tag = response.headers.get("etag", "")
                strong = tag.startswith('"') and len(tag) <= 256
                is_known = response.status == NOT_MODIFIED
                return WebBytes(
                    response.body, tag if strong else None, final.url, response.complete, is_known
                )
            await anyio.sleep(pause)
        raise AssertionError("unreachable")

    async def _follow(
        self, begin: WebAddress, first: int | None, known: KnownVersion | None
    ) -> tuple[WebAddress, Response]:
        address = begin
        for _ in range(MOST_REDIRECTS + 1):
            # A name of a version is that of one URL: another one may use the same.
            known_tag = known.tag if known is not None and known.final == address.url else None
            response = await self._request(address, first, known_tag)
            if response.status not in REDIRECTS:
                return address, response
            location = location_of(response.headers)
            if location is None:
                raise ImageFetchError(
                    address.name, "a redirect leads nowhere", status=response.status, kind=address.scheme
                )
            address = redirected(address, location)
        raise ImageFetchError(
            begin.name, f"there are more than {MOST_REDIRECTS} redirects", kind=begin.scheme
        )

    async def _request(self, address: WebAddress, first: int | None, known_tag: str | None) -> Response:
        stream = await self._connect(address)
        try:
            return await exchange(
                stream,
                address,
                first=first,
                max_bytes=self._max_bytes,
                silence_s=self._silence_s,
                known_tag=known_tag,
                room=self._room,
                user_agent=self._user_agent,
            )
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            if isinstance(error, ImageFetchError):
                raise
            raise AgainError(f"the connection was lost: {_described(error)}") from error
        finally:
            await anyio.aclose_forcefully(stream)

    async def _connect(self, address: WebAddress) -> ByteStream:
        kinds = self._rule.check(address)
        try:
            found = await self._threads.run_abandonable(
                self._resolve, address.host, address.port, abandoned=_nothing
            )
        except (OSError, UnicodeError) as error:
            raise AgainError(f"the host {address.host} cannot be found: {_described(error)}") from error
        check_addresses(found, kinds, address)
        problem: Exception | None = None
        for text in found[:_MOST_ADDRESSES]:
            try:
                with anyio.fail_after(_CONNECT_S):
                    return await self._open(text, address)
            except ssl.SSLCertVerificationError as error:
                reason = f"the server's certificate is not valid: {error.verify_message}"
                raise ImageFetchError(address.name, reason, kind=address.scheme) from error
            except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
                problem = error
        reason = "it has no address" if problem is None else _described(problem)
        raise AgainError(f"no connection to {address.host}, port {address.port}: {reason}") from problem

    async def _open(self, text: str, address: WebAddress) -> ByteStream:
        if address.scheme == "http":
            return await anyio.connect_tcp(text, address.port)
        if self._tls is None:
            self._tls = await self._threads.run_abandonable(ssl.create_default_context, abandoned=_nothing)
        # The certificate must be that of the host in the URL; many servers send no end of the encryption.
        return await anyio.connect_tcp(
            text,
            address.port,
            ssl_context=self._tls,
            tls_hostname=address.host,
            tls_standard_compatible=False,
        )

    def close(self) -> None:
        """End the threads. Connections are closed by the calls that opened them."""
        self._threads.close(0)


def _checked_agent(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"user_agent must be a text, got a {type(text).__name__}")
    # A line end would begin another header.
    if not text or text != text.strip() or not (text.isascii() and text.isprintable()):
        raise ValueError(
            f"user_agent must be printable ASCII without a space at either end, such as "
            f"'mybot/1.0 (+https://example.com/bot)', got {text!r:.80}"
        )
    return text


def _described(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {_CONNECT_S:g} s"
    return str(error) or type(error).__name__


def _nothing() -> None:
    pass
