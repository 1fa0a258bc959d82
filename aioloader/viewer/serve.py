"""Server of a site for browsers on this computer, until Ctrl-C.

Check of requests: only a browser on this computer may read the pages.

A web page elsewhere can make a browser send a request to this server under a host name that resolves to 127.0.0.1. The
Host header of such a request contains the other host name. Other pages may not embed images either: the existence of an
image and its loading time would leak information about the data. A link to this server may be on any page.
"""

from __future__ import annotations

import errno
import secrets
import socket
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from aioloader.viewer.app import make_app
from aioloader.viewer.site import Options, ServerLinks, Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from aioloader.formats.collection import Collection


HEADERS = {
    "content-security-policy": (
        "default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}
_NAMES = ("127.0.0.1", "localhost", "[::1]")


def _refusal(method: str, headers: Headers, port: int) -> tuple[int, str] | None:
    """Return the status and the reason for refusing a request; None if it is accepted."""
    hosts = headers.getlist("host")
    if len(hosts) != 1:
        return 400, "a request must have one Host header"
    allowed = {f"{name}:{port}" for name in _NAMES}
    if port == 80:
        allowed |= set(_NAMES)
    if hosts[0].lower() not in allowed:
        return 403, (
            f"this server accepts requests for 127.0.0.1:{port} and localhost:{port} only; "
            "to connect from another machine, forward the same port number"
        )
    # A browser states the requesting page's site and the kind of resource in these headers.
    site = headers.get("sec-fetch-site", "").lower()
    embedded = headers.get("sec-fetch-dest", "").lower() != "document"
    if site not in ("", "none", "same-origin") and embedded:
        return 403, "other pages may link to this one, but not embed its content"
    if method not in ("GET", "HEAD"):
        return 405, "this server only accepts GET and HEAD"
    return None


class Guard:
    """Application that refuses forbidden requests, and adds `HEADERS` to every response.

    Args:
        app: the wrapped application.
        port: port of the server.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app = self._app
        refused = _refusal(scope["method"], Headers(scope=scope), self._port)
        if refused is not None:
            status, text = refused
            headers = {"connection": "close"}
            if status == 405:
                headers["allow"] = "GET, HEAD"
            app = PlainTextResponse(f"{text}\n", status, headers)
        await app(scope, receive, send_guarded)


HOST = "127.0.0.1"


def bound(port: int) -> socket.socket:
    """Open a socket that listens on this computer only.

    Args:
        port: 0 for a free port.

    Raises:
        OSError: the port is in use or not allowed; the message says what to do.
    """
    try:
        return socket.create_server((HOST, port), backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} is in use; choose another one with --port, or --port 0 for any free one"
        elif error.errno == errno.EACCES:
            text = f"port {port} may not be used by this user; choose one above 1023 with --port"
        else:
            raise
        raise OSError(text) from error


def serve(
    collection: Collection, options: Options, listening: socket.socket, ready: Callable[[str], object]
) -> None:
    """Answer requests until the process is interrupted.

    Args:
        collection: the dataset; closed at the end.
        options: options of the display.
        listening: socket from `bound`; closed at the end.
        ready: called with the address of the first page as soon as the server accepts requests.
    """
    import uvicorn

    port = listening.getsockname()[1]
    token = secrets.token_hex(4)
    site = Site(collection, options)

    # The socket is already listening, so requests that arrive before the server has started only wait for a moment.
    app = make_app(site, ServerLinks(token), token, started=lambda: ready(f"http://{HOST}:{port}/"))
    config = uvicorn.Config(
        Guard(app, port),
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=1,
        limit_concurrency=256,
    )
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # the normal way to stop the server
    finally:
        listening.close()
        site.close()
