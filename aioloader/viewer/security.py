"""Check of requests: only a browser on this computer may read the pages.

A web page elsewhere can make a browser send a request to this server under a host name that resolves to 127.0.0.1. The
Host header of such a request contains the other host name. Other pages may not embed images either: the existence of an
image and its loading time would leak information about the data. A link to this server may be on any page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
