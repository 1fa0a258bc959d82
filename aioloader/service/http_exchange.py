"""One request of HTTP/1.1 and its response over a connection, within limits; the server may be hostile.

The parser is that of the package h11, which waits for nothing. Limits hold for all that the server decides: bytes of
the head, the number of interim responses, bytes of the body, the size of its chunks, and the time between two
packets.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from aioloader.errors import ImageFetchError, ImageTooLargeError, MissingPackageError
from aioloader.foundation.version import __version__
from aioloader.service.schedule import Schedule
from aioloader.storage.remote.failures import RETRIED_STATUSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import ByteStream

    from aioloader.service.web_urls import WebAddress

REDIRECTS = frozenset((301, 302, 303, 307, 308))
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


class _Turn:
    """A body that waits for room; `event` is set when it has it."""

    __slots__ = ("event", "nbytes", "server")

    def __init__(self, server: str, nbytes: int) -> None:
        self.server = server
        self.nbytes = nbytes
        self.event = anyio.Event()


class BodyRoom:
    """Room for the bodies that are being received. Those of at most a MiB need none.

    A body takes room for all its bytes at once, so that those which have it can always be received whole. Who waits
    reads nothing; the server waits too. A server has five eighths at most, so that a slow one does not hold others.

    Args:
        nbytes: of all bodies together; five eighths are at least as many as one body may have.

    Attributes:
        taken: bytes that are taken.
    """

    def __init__(self, nbytes: int) -> None:
        self._most = nbytes
        self._of_server = nbytes - nbytes // 4 - nbytes // 8
        self._servers: Counter[str] = Counter()
        self._turns: Schedule[_Turn] = Schedule()
        self.taken = 0

    @contextlib.asynccontextmanager
    async def take(self, server: str, nbytes: int) -> AsyncIterator[None]:
        """Wait for room, and give it back at the end.

        Args:
            server: of the body.
            nbytes: most bytes of the body.
        """
        turn = _Turn(server, nbytes)
        self._turns.push(turn, priority=0, first_round=0, request=0, place=0, lane=server)
        self._let_in()
        try:
            await turn.event.wait()
            yield
        finally:
            self._turns.discard(turn)
            if turn.event.is_set():
                self._count(turn, -1)
            self._let_in()

    def _let_in(self) -> None:
        while self._turns and (turn := self._turns.pop(self._fits)) is not None:
            self._count(turn, 1)
            turn.event.set()

    def _fits(self, turn: _Turn) -> bool:
        return (
            self.taken + turn.nbytes <= self._most
            and self._servers[turn.server] + turn.nbytes <= self._of_server
        )

    def _count(self, turn: _Turn, sign: int) -> None:
        self.taken += sign * turn.nbytes
        self._servers[turn.server] += sign * turn.nbytes
        if not self._servers[turn.server]:
            del self._servers[turn.server]


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


async def exchange(
    stream: ByteStream,
    address: WebAddress,
    *,
    first: int | None,
    max_bytes: int,
    silence_s: float,
    room: BodyRoom,
    known_tag: str | None = None,
    user_agent: str = DEFAULT_USER_AGENT,
) -> Response:
    """Send a GET request, and return the response.

    Args:
        stream: the connection.
        address: of the object.
        first: ask for that number of bytes from the beginning, and stop there also if the server sends more; None: all.
        max_bytes: most bytes of the object.
        silence_s: most seconds without a byte from the server.
        room: where the body has to fit.
        known_tag: version whose bytes are not needed; None: those of any version are.
        user_agent: value of this header.

    Raises:
        AgainError: no valid response, or a status that may be another one later.
        ImageFetchError: a status, or a body, that no further attempt changes.
        ImageTooLargeError: there are more than `max_bytes` bytes.

    The caller closes the connection, also on cancellation.
    """
    h11 = http_parser()
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_NBYTES)
    headers = [
        ("Host", address.authority),
        ("User-Agent", user_agent),
        ("Accept", "image/*, */*;q=0.5"),
        # A compressed body could become any number of bytes.
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    if first is not None:
        headers.append(("Range", f"bytes=0-{first - 1}"))
    if known_tag is not None:
        headers.append(("If-None-Match", known_tag))
    request = connection.send(h11.Request(method="GET", target=address.target, headers=headers))
    try:
        await stream.send(request + connection.send(h11.EndOfMessage()))
        events = _Events(connection, h11.NEED_DATA, stream, silence_s)
        status, found = await _read_head(h11, events)
        if status in REDIRECTS:
            return Response(status, found, bytearray(), False)
        if status == NOT_MODIFIED and known_tag is not None:
            return Response(status, found, bytearray(), True)
        nbytes = _check_head(status, found, address, ranged=first is not None, max_bytes=max_bytes)
        body, ended = await _read_body(h11, events, address, first, max_bytes, nbytes=nbytes, room=room)
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


class _Events:
    """Events of a response, one after the other."""

    def __init__(self, connection: Any, waits_for_data: Any, stream: ByteStream, silence_s: float) -> None:
        self._connection = connection
        self._waits_for_data = waits_for_data
        self._stream = stream
        self._silence_s = silence_s

    async def next(self) -> Any:
        """Return the next event."""
        while (event := self._connection.next_event()) is self._waits_for_data:
            data = b""
            with anyio.move_on_after(self._silence_s) as scope:
                with contextlib.suppress(anyio.EndOfStream):
                    data = await self._stream.receive(_RECEIVE_NBYTES)
            if scope.cancelled_caught:
                raise AgainError(f"the server sent nothing for {self._silence_s:g} s")
            self._connection.receive_data(data)
        return event


async def _read_head(h11: Any, events: _Events) -> tuple[int, dict[str, str]]:
    for _ in range(_INTERIM_RESPONSES):
        event = await events.next()
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
        raise AgainError(f"the server responded with status {status}", status, pause_of(headers))
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
    events: _Events,
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
        while type(event := await events.next()) is h11.Data:
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


def pause_of(headers: dict[str, str]) -> float:
    """Return the seconds that a server asks to wait in ``Retry-After``; 0 for none, and for a date."""
    asked = headers.get("retry-after", "").strip()
    return float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 9 else 0.0


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
