"""Target: responses of the servers of URLs to an image service."""

from __future__ import annotations

import anyio
from anyio.abc import ByteStream

from aioloader.errors import ImageReferenceError
from aioloader.service.http_fetch import AgainError, BodyRoom, Connection, Response, exchange
from aioloader.service.web_urls import parse_web_url, redirected
from aioloader.storage.remote.failures import REDIRECTS
from tests.fuzz.references import check_shown
from tests.fuzz.target import Draw, Finding, change, dictionary, pick

_LIMIT = 3000
_IMAGE = bytes(range(256)) * 4
_RESPONSES = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 1024\r\nETag: "a"\r\n\r\n' + _IMAGE,
    b"HTTP/1.1 206 Partial\r\nContent-Length: 1024\r\nContent-Range: bytes 0-1023/2048\r\n\r\n" + _IMAGE,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + _IMAGE + b"\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" + _IMAGE,
    b"HTTP/1.1 302 Found\r\nLocation: https://example.com/a\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: ../a?b\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 2\r\n\r\n",
    b"HTTP/1.0 404 Missing\r\n\r\n",
)
_PARTS = (*dictionary("http"), b"x" * 3000)
_ADDRESS = parse_web_url("https://example.com/a/b?SECRET")


class _Recorded(ByteStream):
    """Connection with a response that is there at once, in packets of `size` bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = data
        self._size = size

    async def receive(self, max_bytes: int = 65536) -> bytes:
        piece, self._data = self._data[: self._size], self._data[self._size :]
        if not piece:
            raise anyio.EndOfStream
        return piece

    async def send(self, item: bytes) -> None: ...

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None: ...


class Responses:
    """Responses of servers. Checked for properties of every result."""

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, _RESPONSES))
        for _ in range(int(draw() * 3) + 1):
            change(data, 9 if draw() < 0.9 else 0, draw, _PARTS)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        first = 500 if len(data) % 3 == 0 else None
        stream = _Recorded(data, len(data) % 97 * 16 + 1)

        async def run() -> Response:
            connection = Connection(stream, 60.0)
            return await exchange(
                connection, _ADDRESS, first=first, max_bytes=_LIMIT, room=BodyRoom(2 * _LIMIT)
            )

        try:
            response = anyio.run(run)
        except AgainError as error:
            if not 0 <= error.pause_s <= 1e9:
                raise Finding(f"a pause of {error.pause_s} s") from None
            return True
        except ImageReferenceError as error:
            check_shown(str(error), _ADDRESS.url)
            return True
        nbytes = len(response.body)
        if response.status in REDIRECTS:
            try:
                redirected(_ADDRESS, response.headers.get("location", ""))
            except ImageReferenceError as error:
                check_shown(str(error), _ADDRESS.url)
            return True
        asked = response.status == 200 or (response.status == 206 and first is not None)
        if not asked or nbytes > min(_LIMIT, first or _LIMIT):
            raise Finding(f"an image of status {response.status} and {nbytes} bytes")
        return True
