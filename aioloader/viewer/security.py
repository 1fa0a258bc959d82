"""Whether a request may come in: from a browser on this computer, to read.

A page elsewhere on the web can make a browser ask this server under a name that it has turned to 127.0.0.1. Such a
request names the foreign host. Pictures are not to be embedded by other pages either: whether one is there, and how
long it takes, would tell them of the data. A link that is followed may come from anywhere.
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

__all__ = ("HEADERS", "Guard", "refusal")

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
    """Why a request is refused; None if it is not.

    Args:
        method: "GET", ...
        hosts: values of its Host headers.
        port: that the server listens on.
        site, dest: values of Sec-Fetch-Site and Sec-Fetch-Dest, by which a browser says whose page asks, and for what;
            empty where it does not.

    Returns:
        status and text.
    """
    if len(hosts) != 1:
        return 400, "a request names one host"
    allowed = {name + b":%d" % port for name in _NAMES}
    if port == 80:
        allowed |= set(_NAMES)
    if hosts[0].lower() not in allowed:
        return 403, (
            f"this server answers to 127.0.0.1:{port} and localhost:{port} only; "
            "forward that same port if you come from another machine"
        )
    if site not in (b"", b"none", b"same-origin") and dest != b"document":
        return 403, "pages elsewhere may link to this one, and embed nothing of it"
    if method not in _METHODS:
        return 405, "this server only shows: GET and HEAD"
    return None


class Guard:
    """An application that lets in what may come in, and puts its headers on every answer.

    Args:
        app: the application behind it.
        port: that the server listens on.
    """

    def __init__(self, app: App, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; others than HTTP's are refused."""
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
