"""Client for images on servers that nobody knows: one GET for each, to a checked address, within limits.

The name of a host is resolved here, all addresses that it has are checked, and the connection goes to one of these. So
a name that resolves to another address the next time gains nothing. The same is done for each redirect. No proxy of the
environment is used, because the proxy would resolve the name.

Bytes of URLs that were read before, in the cache of remote data. Blocking, but for `known`.

The bytes of an image are found by its URL and its version. Object storage says the version before the bytes are read.
A server of HTTP is asked for the bytes unless the version is the known one (If-None-Match, RFC 9110, section 13.1.2).
So an image is never older than the server's. Which version is known, and of which URL after redirects, is remembered
in this process.

The cache finds spans by numbers of 63 bits. A stranger could look for two URLs with the same number, so each span
begins with a digest of URL and version, which is compared.

One request of HTTP/1.1 and its response over a connection, within limits; the server may be hostile.

The parser is that of the package h11, which waits for nothing. Limits hold for all that the server decides: bytes of
the head, the number of interim responses, bytes of the body, the size of its chunks, and the time between two
packets.
"""

from __future__ import annotations

import contextlib
import random
import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import numpy as np
from anyio.abc import SocketAttribute

from aioloader.errors import ImageFetchError, ImageTooLargeError, MissingPackageError
from aioloader.foundation.lru_cache import LRUCache
from aioloader.foundation.threads import Threads
from aioloader.foundation.version import __version__
from aioloader.service.schedule import Room, Turn
from aioloader.service.web_urls import HostRule, WebAddress, check_addresses, redirected
from aioloader.storage.cache.base import Cache, MemoryCache, PlacedSpans
from aioloader.storage.cache.source import file_key
from aioloader.storage.remote.failures import REDIRECTS, RETRIED_STATUSES, pause_of, retry_pause_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import ByteStream

    from aioloader.storage.cache.disk import CacheOptions


_NAME = "images of URLs"
_DIGEST_NBYTES = 32
_MOST_KNOWN = 1 << 16


class KnownVersion(NamedTuple):
    """Version of an image that was read.

    Attributes:
        final: its URL after redirects.
        tag: the server's name for the version.
        nbytes: size of the image.
    """

    final: str
    tag: str
    nbytes: int


class FetchedCache:
    """Cache of the bytes of URLs. Used from any thread, but for `known`: from one.

    All are spans of one object: one for each URL would have a folder and an open lock each.

    Args:
        options: directory or memory, and how much. A full cache adds nothing more, until it is opened again.

    Attributes:
        known: the latest version of a URL whose bytes were added.
    """

    def __init__(self, options: CacheOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._opened = False
        self._cache: Cache | None = None
        self.known: LRUCache[str, KnownVersion] = LRUCache(_MOST_KNOWN)

    def open(self) -> None:
        """Open the cache, unless it is open. If its disk is full, there is none, and a warning is logged.

        Raises:
            OSError: the directory cannot be made or written to.
        """
        with self._lock:
            if self._opened:
                return
            if self._options.in_memory:
                self._cache = MemoryCache(self._options.limit_nbytes)
            else:
                self._cache = self._options.open_directory()
            self._opened = True

    @property
    def is_open(self) -> bool:
        """Return whether `open` has returned."""
        return self._opened

    def load(self, url: str, tag: str, nbytes: int) -> memoryview | None:
        """Return the bytes of a version of a URL; None if they are not there."""
        if self._cache is None:
            return None
        data = memoryview(np.empty(_DIGEST_NBYTES + nbytes, np.uint8).data)
        here = self._cache.read(_NAME, "", _span(url, tag, len(data)), data)
        if not here[0] or data[:_DIGEST_NBYTES] != _digest(url, tag):
            return None
        return data[_DIGEST_NBYTES:]

    def store(self, url: str, tag: str, image: bytes | bytearray | memoryview) -> None:
        """Add the bytes of a version of a URL, if there is space."""
        if self._cache is None:
            return
        data = np.empty(_DIGEST_NBYTES + len(image), np.uint8)
        data[:_DIGEST_NBYTES] = np.frombuffer(_digest(url, tag), np.uint8)
        data[_DIGEST_NBYTES:] = np.frombuffer(image, np.uint8)
        self._cache.write(_NAME, "", _span(url, tag, len(data)), memoryview(data.data))

    def close(self) -> None:
        """Close all files; may be called twice."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.close()


def _digest(url: str, tag: str) -> bytes:
    return blake2b(f"{url}\n{tag}".encode("utf-8", "surrogateescape"), digest_size=_DIGEST_NBYTES).digest()


def _span(url: str, tag: str, nbytes: int) -> PlacedSpans:
    key, length, place = ([file_key(url, tag)], [nbytes], [0])
    return PlacedSpans(np.array(key, np.int64), np.array(length, np.int64), np.array(place, np.int64))


# Not `select`, which takes no descriptor above 1023; Windows has no other one.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)

NOT_MODIFIED = 304
DEFAULT_USER_AGENT = f"aioloader/{__version__}"

SMALL_NBYTES = 1 << 20
"""Bodies of more bytes wait for room."""

# Of large bodies that are received at a time, all together.
_BODIES_NBYTES = 256 << 20
_RECEIVE_NBYTES = 1 << 16
_HEAD_NBYTES = 32 << 10
_INTERIM_RESPONSES = 8
# A chunk of one byte costs as much work as one of many: hostile servers send as many as they can.
_FREE_CHUNKS = 256
_BYTES_OF_CHUNK = 256
# Values of Content-Encoding that objects are stored with by mistake, and that change no byte.
_NO_CODINGS = frozenset(("", "identity", "aws-chunked", "binary", "utf-8", "utf8", "none", "8bit"))
_CONTENT_RANGE = re.compile(r"bytes\s+0-([0-9]{1,18})/(?:([0-9]{1,18})|\*)", re.ASCII)


class AgainError(Exception):
    """Error of a request that may succeed at another attempt.

    Attributes:
        reason: the fault, in words.
        status: of the response, or None.
        pause_s: seconds that the server asks to wait.
    """

    def __init__(self, reason: str, status: int | None = None, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.pause_s = pause_s


class BodyRoom:
    """Room for the bodies that are being received. Those of at most a MiB need none.

    A body takes room for all its bytes at once, so that those which have it can always be received whole. Who waits
    reads nothing; the server waits too. A server has five eighths at most, so that a slow one does not hold others.

    Args:
        nbytes: of all bodies together; five eighths are at least as many as one body may have.
    """

    def __init__(self, nbytes: int) -> None:
        self._room = Room(nbytes, {"": (nbytes, nbytes - nbytes // 4 - nbytes // 8)})

    @property
    def taken(self) -> int:
        """Return the bytes that are taken."""
        return self._room.taken

    @contextlib.asynccontextmanager
    async def take(self, server: str, nbytes: int) -> AsyncIterator[None]:
        """Wait for room, and give it back at the end.

        Args:
            server: of the body.
            nbytes: most bytes of the body.
        """
        turn = Turn("", server, nbytes)
        self._room.wait(turn)
        try:
            await turn.event.wait()
            yield
        finally:
            self._room.give_up(turn)


class Response(NamedTuple):
    """Response to a request.

    Attributes:
        status: of a redirect, or 200 or 206, or 304 for the known version.
        headers: by their names in lower case.
        body: bytes; empty for a redirect and for the known version.
        complete: `body` is all of the object.
    """

    status: int
    headers: dict[str, str]
    body: bytearray
    complete: bool


def room_for(max_bytes: int) -> BodyRoom:
    """Return the room for bodies of at most `max_bytes` bytes each, of one kind of source."""
    return BodyRoom(max(_BODIES_NBYTES, 2 * max_bytes))


class Connection:
    """Connection to a server, for one request after the other.

    Args:
        stream: the connection.
        silence_s: most seconds without a byte from the server.

    Attributes:
        answered: the server sent something since the latest request.
        idle_since: when the latest response ended; seconds of `anyio.current_time`.
    """

    def __init__(self, stream: ByteStream, silence_s: float) -> None:
        self._h11 = h11 = http_parser()
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_NBYTES)
        self._stream = stream
        self._silence_s = silence_s
        self.answered = False
        self.idle_since = 0.0

    async def send(self, target: str, headers: list[tuple[str, str]]) -> None:
        """Send a GET request."""
        self.answered = False
        request = self._protocol.send(self._h11.Request(method="GET", target=target, headers=headers))
        await self._stream.send(request + self._protocol.send(self._h11.EndOfMessage()))

    async def next(self) -> Any:
        """Return the next event of the response, an object of h11."""
        while (event := self._protocol.next_event()) is self._h11.NEED_DATA:
            data = b""
            with anyio.move_on_after(self._silence_s) as scope:
                with contextlib.suppress(anyio.EndOfStream):
                    data = await self._stream.receive(_RECEIVE_NBYTES)
            if scope.cancelled_caught:
                raise AgainError(f"the server sent nothing for {self._silence_s:g} s")
            self.answered = self.answered or bool(data)
            self._protocol.receive_data(data)
        return event

    def end_response(self) -> bool:
        """Return whether another request may follow, because the response ended and nothing is behind it."""
        h11, protocol = self._h11, self._protocol
        try:
            for _ in range(2):  # a short body that was not needed, and its end
                if protocol.their_state is h11.SEND_BODY:
                    protocol.next_event()
        except h11.RemoteProtocolError:
            return False
        if (protocol.our_state, protocol.their_state) != (h11.DONE, h11.DONE) or protocol.trailing_data[0]:
            return False
        protocol.start_next_cycle()
        self.idle_since = anyio.current_time()
        return True

    @property
    def is_quiet(self) -> bool:
        """Return whether the server sent nothing, and did not close it, since the response."""
        with _Selector() as selector:
            selector.register(self._stream.extra(SocketAttribute.raw_socket), selectors.EVENT_READ)
            return not selector.select(0)

    async def aclose(self) -> None:
        """Close it at once."""
        await anyio.aclose_forcefully(self._stream)


async def exchange(
    connection: Connection,
    address: WebAddress,
    *,
    first: int | None,
    max_bytes: int,
    room: BodyRoom,
    known_tag: str | None = None,
    user_agent: str = DEFAULT_USER_AGENT,
) -> Response:
    """Send a GET request, and return the response.

    Args:
        connection: the connection.
        address: of the object.
        first: ask for that number of bytes from the beginning, and stop there also if the server sends more; None: all.
        max_bytes: most bytes of the object.
        room: where the body has to fit.
        known_tag: version whose bytes are not needed; None: those of any version are.
        user_agent: value of this header.

    Raises:
        AgainError: no valid response, or a status that may be another one later.
        ImageFetchError: a status, or a body, that no further attempt changes.
        ImageTooLargeError: there are more than `max_bytes` bytes.

    The caller closes the connection if it cannot be used again, also on cancellation.
    """
    h11 = http_parser()
    headers = [
        ("Host", address.authority),
        ("User-Agent", user_agent),
        ("Accept", "image/*, */*;q=0.5"),
        # A compressed body could become any number of bytes.
        ("Accept-Encoding", "identity"),
    ]
    if first is not None:
        headers.append(("Range", f"bytes=0-{first - 1}"))
    if known_tag is not None:
        headers.append(("If-None-Match", known_tag))
    try:
        await connection.send(address.target, headers)
        status, found = await _read_head(h11, connection)
        if status in REDIRECTS:
            return Response(status, found, bytearray(), False)
        if status == NOT_MODIFIED and known_tag is not None:
            return Response(status, found, bytearray(), True)
        nbytes = _check_head(status, found, address, ranged=first is not None, max_bytes=max_bytes)
        body, ended = await _read_body(h11, connection, address, first, max_bytes, nbytes=nbytes, room=room)
    except h11.RemoteProtocolError as error:
        # What h11 says may quote the server: a stranger could read the banners of other servers.
        said = str(error).partition(":")[0]
        raise AgainError(f"the response is not HTTP/1.1, or ends early: {said}") from None
    return Response(status, found, body, _is_complete(status, found, len(body), ended))


def http_parser() -> Any:
    """Return the package h11.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        import h11
    except ImportError:
        raise MissingPackageError("h11", extra="service") from None
    return h11


async def _read_head(h11: Any, connection: Connection) -> tuple[int, dict[str, str]]:
    for _ in range(_INTERIM_RESPONSES):
        event = await connection.next()
        if type(event) is h11.Response:
            names: dict[str, str] = {}
            for name, value in event.headers:
                names.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
            return event.status_code, names
        if type(event) is not h11.InformationalResponse:
            break
    raise AgainError("the server closed the connection without a response")


def _check_head(
    status: int, headers: dict[str, str], address: WebAddress, *, ranged: bool, max_bytes: int
) -> int:
    """Return the bytes that are announced, 0 for none."""
    if status in RETRIED_STATUSES:
        pause_s = pause_of(headers, time.time())
        raise AgainError(f"the server responded with status {status}", status, pause_s)
    name, kind = address.name, address.scheme
    # A part that was not asked for is not the object.
    if status != 200 and not (status == 206 and ranged):
        raise ImageFetchError(name, f"the server responded with status {status}", status=status, kind=kind)
    given = headers.get("content-encoding", "").lower().split(",")
    codings = ", ".join(coding for coding in map(str.strip, given) if coding not in _NO_CODINGS)
    if codings:
        reason = f"the server encoded the image ({codings!r:.40}), although it was asked not to"
        raise ImageFetchError(name, reason, status=status, kind=kind)
    if status == 206:
        span = _CONTENT_RANGE.match(headers.get("content-range", ""))
        if span is None:
            reason = "the server sent another part of the image than it was asked for"
            raise ImageFetchError(name, reason, status=status, kind=kind)
        nbytes = int(span[2] or 0)
    else:
        nbytes = int(headers.get("content-length", 0))  # h11 accepts digits only, at most 20
    if nbytes > max_bytes:
        raise ImageTooLargeError(name, "bytes", max_bytes, nbytes, kind=kind)
    return nbytes


async def _read_body(
    h11: Any,
    connection: Connection,
    address: WebAddress,
    first: int | None,
    max_bytes: int,
    *,
    nbytes: int,
    room: BodyRoom,
) -> tuple[bytearray, bool]:
    """Return the body, and whether it is whole."""
    # It grows with what arrives: a server may announce more than it sends.
    body = bytearray()
    chunks = 0
    async with contextlib.AsyncExitStack() as taken:
        while type(event := await connection.next()) is h11.Data:
            small = len(body) <= SMALL_NBYTES
            body += event.data
            chunks += 1
            if first is not None and len(body) >= first:
                del body[first:]
                return body, False
            if len(body) > max_bytes:
                raise ImageTooLargeError(address.name, "bytes", max_bytes, kind=address.scheme)
            if chunks > _FREE_CHUNKS + len(body) // _BYTES_OF_CHUNK:
                reason = "the server sends the image in chunks of a few bytes"
                raise ImageFetchError(address.name, reason, kind=address.scheme)
            if small and len(body) > SMALL_NBYTES:
                most = min(nbytes or max_bytes, first or max_bytes)
                await taken.enter_async_context(room.take(address.authority, most))
    return body, True


def _is_complete(status: int, headers: dict[str, str], nbytes: int, ended: bool) -> bool:
    if status == 206:
        span = _CONTENT_RANGE.match(headers.get("content-range", ""))
        return span is not None and span[2] is not None and int(span[2]) == nbytes
    return ended or headers.get("content-length") == str(nbytes)


def location_of(headers: dict[str, str]) -> str | None:
    """Return where a redirect leads, None if nowhere. As browsers do, take UTF-8, and escape what is not."""
    location = headers.get("location")
    if location is None:
        return None
    stored = location.encode("latin-1")
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in stored)


MOST_REDIRECTS = 5
"""Redirects that are followed for one image."""

_ATTEMPTS = 4
_SILENCE_S = 15.0
# Connections that wait for another request to their server, of all servers. Many servers close them after 5 s.
_MOST_IDLE = 64
_IDLE_S = 4.0
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
        self._idle: list[tuple[tuple[str, str, int], Connection]] = []  # the one used last is the last
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

        On cancellation the connection is closed. Otherwise a later image of the same server may come over it.
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
                left_s = deadline - anyio.current_time()
                pause = retry_pause_s(attempt, random.random(), asked_s=problem.pause_s, left_s=left_s)
                if attempt == self._attempts or pause is None:
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
        kinds = self._rule.check(address)
        connection = await self._take_idle(address)
        if connection is not None:
            try:
                return await self._exchange(connection, address, first, known_tag)
            except AgainError:
                if connection.answered:
                    raise
        connection = Connection(await self._connect(address, kinds), self._silence_s)
        return await self._exchange(connection, address, first, known_tag)

    async def _exchange(
        self, connection: Connection, address: WebAddress, first: int | None, known_tag: str | None
    ) -> Response:
        reusable = False
        try:
            response = await exchange(
                connection,
                address,
                first=first,
                max_bytes=self._max_bytes,
                known_tag=known_tag,
                room=self._room,
                user_agent=self._user_agent,
            )
            reusable = connection.end_response()
            return response
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            if isinstance(error, ImageFetchError):
                raise
            raise AgainError(f"the connection was lost: {_described(error)}") from error
        finally:
            if reusable:
                self._idle.append((address[:3], connection))
            else:
                await connection.aclose()

    async def _take_idle(self, address: WebAddress) -> Connection | None:
        """Return a connection to the server of a URL, whose address was checked when it was opened; None: open one."""
        oldest = anyio.current_time() - _IDLE_S
        while self._idle and (len(self._idle) > _MOST_IDLE or self._idle[0][1].idle_since < oldest):
            await self._idle.pop(0)[1].aclose()
        for place in reversed(range(len(self._idle))):
            server, connection = self._idle[place]
            if server == address[:3]:
                del self._idle[place]
                if connection.is_quiet:
                    return connection
                await connection.aclose()
                break
        return None

    async def _connect(self, address: WebAddress, kinds: frozenset[str]) -> ByteStream:
        try:
            found = await self._threads.run_abandonable(self._resolve, address.host, address.port)
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
            self._tls = await self._threads.run_abandonable(ssl.create_default_context)
        # The certificate must be that of the host in the URL; many servers send no end of the encryption.
        return await anyio.connect_tcp(
            text,
            address.port,
            ssl_context=self._tls,
            tls_hostname=address.host,
            tls_standard_compatible=False,
        )

    async def aclose(self) -> None:
        """End the threads, and close idle connections. No call may be running."""
        self._threads.close(0)
        while self._idle:
            await self._idle.pop()[1].aclose()


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
