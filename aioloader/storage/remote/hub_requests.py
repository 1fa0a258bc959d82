"""Blocking requests to the host of the Hugging Face Hub, by the standard library.

The client library follows redirects, and reports neither where they lead nor the headers of an answer. These requests
follow redirects within the Hub's own origin (scheme, host and port) only: the token is sent to no other. They are few:
bytes are read by the client library.
"""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from aioloader.foundation.version import __version__
from aioloader.storage.hub_names import origin_of
from aioloader.storage.remote.failures import Kind, RequestFailedError, RequestFailure, classify
from aioloader.storage.remote.hub_answers import REDIRECTS, Answer

if TYPE_CHECKING:
    from typing import IO

# For each wait: to connect, and for the next bytes.
_WAIT_S = 10.0
_WHOLE_S = 60.0
_MOST_REDIRECTS = 5
_MOST_NBYTES = 32 << 20
_BLOCK_NBYTES = 1 << 16


class Answered(NamedTuple):
    """Answer, and where it is from.

    Attributes:
        answer: of the Hub. A redirect only if it leads to another origin.
        url: that was answered.
        location: of a redirect, absolute.
    """

    answer: Answer
    url: str
    location: str | None


class _KeepRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


class HubRequests:
    """Sender of requests to one endpoint. Used from any thread.

    Args:
        endpoint: URL of the Hub, without a slash at its end.

    Attributes:
        endpoint: as given.
        count: number of requests sent.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.count = 0
        self._origin = origin_of(endpoint)
        # The proxies are those of the environment, as for the client library.
        self._opener = urllib.request.build_opener(_KeepRedirects)
        self._lock = threading.Lock()

    def get(self, target: str, token: str | None, *, first_byte: bool = False) -> Answered:
        """Send a GET request.

        Args:
            target: path and query, relative to the endpoint.
            token: of the user.
            first_byte: only the first byte is requested, and no body is returned.

        Raises:
            RequestFailedError: there is no answer, or it cannot be used. Its text has neither the token nor a query.
        """
        url = self.endpoint + target
        headers = {"User-Agent": f"aioloader/{__version__}", "Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if first_byte:
            headers["Range"] = "bytes=0-0"
        for _ in range(_MOST_REDIRECTS):
            try:
                answer = self._send(url, headers, wants_body=not first_byte)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = error.reason if isinstance(error, urllib.error.URLError) else error
                failure = classify(reason if isinstance(reason, Exception) else OSError(str(reason)))
                raise RequestFailedError(failure) from None
            if answer.status not in REDIRECTS:
                return Answered(answer, url, None)
            url = _location_of(answer, url)
            if origin_of(url) != self._origin:
                return Answered(answer, self.endpoint + target, url)
        raise RequestFailedError(RequestFailure(Kind.REFUSED, False, "too many redirects"))

    def _send(self, url: str, headers: dict[str, str], *, wants_body: bool) -> Answer:
        with self._lock:
            self.count += 1
        try:
            response = self._opener.open(urllib.request.Request(url, headers=headers), timeout=_WAIT_S)
        except urllib.error.HTTPError as error:
            # Every status but 2xx.
            with closing(error):
                return Answer(error.code, {name.lower(): value for name, value in error.headers.items()})
        with closing(response):
            body = _read(response) if wants_body else b""
            fields = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, fields, body)


def _location_of(answer: Answer, url: str) -> str:
    """Return where a redirect leads.

    Raises:
        RequestFailedError: nowhere, or away from an encrypted connection.
    """
    location = answer.headers.get("location", "")
    try:
        target = urljoin(url, location)
        scheme, host, _ = origin_of(target)
    except ValueError:
        scheme = host = target = ""
    plain = target.isascii() and target.isprintable() and " " not in target
    if not location or not host or not plain or scheme not in ("http", "https"):
        raise RequestFailedError(RequestFailure(Kind.REFUSED, False, "a redirect leads nowhere"))
    if scheme == "http" and origin_of(url)[0] == "https":
        text = f"a redirect leads to {host} without encryption"
        raise RequestFailedError(RequestFailure(Kind.REFUSED, False, text))
    return target


def _read(response: IO[bytes]) -> bytes:
    """Read a body.

    Raises:
        TimeoutError: it arrives too slowly.
        ValueError: it is too long.
        http.client.IncompleteRead: it ended early.
    """
    deadline = monotonic() + _WHOLE_S
    blocks: list[bytes] = []
    nbytes = 0
    while block := response.read(_BLOCK_NBYTES):
        nbytes += len(block)
        if nbytes > _MOST_NBYTES:
            raise ValueError(f"the answer has more than {_MOST_NBYTES:,} bytes")
        if monotonic() > deadline:
            raise TimeoutError("the answer arrives too slowly")
        blocks.append(block)
    return b"".join(blocks)
