"""Check of requests: only a browser on this computer may read the pages.

A web page elsewhere can make a browser send a request to this server under a host name that resolves to 127.0.0.1. The
Host header of such a request contains the other host name. Other pages may not embed images either: the existence of an
image and its loading time would leak information about the data. A link to this server may be on any page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
_METHODS = ("GET", "HEAD")
_NAMES = (b"127.0.0.1", b"localhost", b"[::1]")


def refusal(
    method: str, hosts: list[bytes], port: int, site: bytes = b"", dest: bytes = b""
) -> tuple[int, str] | None:
    """Return the status and the reason for refusing a request; None if it is accepted.

    Args:
        method: "GET", ...
        hosts: values of its Host headers.
        port: port of the server.
        site, dest: values of Sec-Fetch-Site and Sec-Fetch-Dest, with which a browser states the requesting page's site
            and the kind of resource; empty if the headers are missing.

    Returns:
        status and text.
    """
    if len(hosts) != 1:
        return 400, "a request must have one Host header"
    allowed = {name + b":%d" % port for name in _NAMES}
    if port == 80:
        allowed |= set(_NAMES)
    if hosts[0].lower() not in allowed:
        return 403, (
            f"this server accepts requests for 127.0.0.1:{port} and localhost:{port} only; "
            "to connect from another machine, forward the same port number"
        )
    if site not in (b"", b"none", b"same-origin") and dest != b"document":
        return 403, "other pages may link to this one, but not embed its content"
    if method not in _METHODS:
        return 405, "this server only accepts GET and HEAD"
    return None


class Guard:
    """Application that refuses forbidden requests, and adds `HEADERS` to every response.

    Args:
        app: the wrapped application.
        port: port of the server.
    """

    def __init__(self, app: App, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; all but HTTP requests are refused."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in HEADERS}
                message["headers"] = [
                    *(pair for pair in message.get("headers", ()) if pair[0].lower() not in own),
                    *HEADERS,
                ]
            await send(message)

        hosts = [value for name, value in scope["headers"] if name == b"host"]
        named = dict(scope["headers"])
        site, dest = (named.get(name, b"").lower() for name in (b"sec-fetch-site", b"sec-fetch-dest"))
        refused = refusal(scope["method"], hosts, self._port, site, dest)
        if refused is None:
            await self._app(scope, receive, send_guarded)
            return
        status, text = refused
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send_guarded({"type": "http.response.start", "status": status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else f"{text}\n".encode()
        await send_guarded({"type": "http.response.body", "body": body})
