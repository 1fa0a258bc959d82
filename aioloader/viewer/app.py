"""Routes of the server, from addresses to pages and images, and the server for browsers on this computer, until Ctrl-C.

No route accepts a path of a file system. Numbers are validated before they are used; an unknown address is answered
with a page with status 404.

Requests are checked, so that only a browser on this computer may read the pages. A web page elsewhere can make a
browser send a request to this server under a host name that resolves to 127.0.0.1. The Host header of such a request
contains the other host name. Other pages may not embed images either: the existence of an image and its loading time
would leak information about the data. A link to this server may be on any page.
"""

from __future__ import annotations

import errno
import hashlib
import re
import secrets
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from aioloader.formats.collection import IMAGE, NoSuchRecordError
from aioloader.viewer.pages import LABELS_PER_PAGE, STATIC_FILES, Pages, static_file
from aioloader.viewer.site import PATIENCE_S, NoLabelsError, Options, ServerLinks, Site, StillReadingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from aioloader.formats.collection import Collection
    from aioloader.viewer.rendering import RenderedImage


_NUMBER = re.compile(r"[0-9]{1,15}")
# Formats with a media type of the same name.
_IMAGE_FORMATS = ("jpeg", "png", "gif", "webp", "bmp", "avif", "tiff")


def make_app(
    site: Site, links: ServerLinks, token: str, *, started: Callable[[], object] | None = None
) -> Starlette:
    """Return the application.

    Args:
        site: the site to serve; the caller closes it afterwards.
        links: the server's addresses.
        token: the token in these addresses.
        started: called when the application has started.
    """
    app = _App(site, links, token)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            site.start(tasks)
            if started is not None:
                started()
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    made = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/", app.start),
            Route("/labels", app.labels),
            *(Route(f"/{name}", app.static) for name in STATIC_FILES),
            Route("/thumb/{position}", app.thumb),
            Route("/image/{position}", app.image),
            Route("/original/{position}", app.original),
            Route("/draw/{position}", app.draw),
        ],
        exception_handlers={
            404: app.not_found,
            NoSuchRecordError: app.not_found,
            NoLabelsError: app.no_labels,
            StillReadingError: app.still_reading,
        },
    )
    made.router.redirect_slashes = False
    return made


def _natural(text: str) -> int:
    """Parse a number of an address.

    Raises:
        NoSuchRecordError: it is not a number.
    """
    if not _NUMBER.fullmatch(text):
        raise NoSuchRecordError(f"{text[:40]!r} is not a valid number")
    return int(text)


class _App:
    def __init__(self, site: Site, links: ServerLinks, token: str) -> None:
        self._site = site
        self._links = links
        self._token = token
        self._pages = Pages(site, links)
        self._static = {name: static_file(name) for name in STATIC_FILES}

    # -- pages

    async def start(self, request: Request) -> Response:
        """Return a page of records, or the page of one record."""
        query = request.query_params
        if "key" in query and query["key"] != "":
            file = _natural(query["file"]) if query.get("file") else None
            return await self._record(await self._site.find(query["key"], file), request)
        if "at" in query:
            return await self._record(_natural(query["at"]), request)
        number = _natural(query.get("page") or "1")
        return await self._grid(number, query.get("label", "").strip())

    async def _grid(self, number: int, label_text: str) -> Response:
        per_page = self._site.options.per_page
        label = None
        if label_text:
            try:
                label = self._site.label_of(label_text)
            except ValueError as error:
                raise NoSuchRecordError(str(error)) from None
            listing = await self._site.labelled(label)
        else:
            # The record after this page shows whether there is a next page. While records are still being found, a
            # part of a page is better than none.
            stop = number * per_page
            listing = await self._site.everything(stop + 1, least=max(1, stop - per_page + 1))
        self._check_page(number, len(listing.positions), per_page, listing.complete)
        positions = [int(place) for place in listing.positions[(number - 1) * per_page : number * per_page]]
        shown = await self._site.page(positions)
        return HTMLResponse(self._pages.grid(listing, shown, number, label))

    @staticmethod
    def _check_page(number: int, total: int, per_page: int, complete: bool) -> None:
        last = max(1, -(-total // per_page))
        if number > last and not complete:
            raise StillReadingError
        if not 1 <= number <= last:
            raise NoSuchRecordError(f"there is no page {number:,}: the last page is {last:,}")

    async def _record(self, position: int, request: Request) -> Response:
        site = self._site
        shown = await site.record(position)
        name = request.query_params.get("view", "")
        # While browsing, a record that the chosen chain does not fit is displayed as stored.
        view = site.draws.pipeline(name, shown.record)
        if name and name not in site.draws.names:
            raise NoSuchRecordError(f"there is no chain named {name[:40]!r}")
        epoch = _natural(request.query_params.get("epoch") or "0")
        draws = []
        if view is not None:
            count = site.options.draws if view.random else 1
            with anyio.move_on_after(PATIENCE_S) as patience:
                draws = await site.drawn(position, view.name, range(epoch, epoch + count))
            if patience.cancelled_caught:
                raise StillReadingError("the augmented images are still being made")
        listing = await site.everything(position + 2, least=position + 1)
        return HTMLResponse(self._pages.record(shown, listing, view=view, draws=draws, epoch=epoch))

    async def labels(self, request: Request) -> Response:
        """Return a page of all labels with their numbers of records."""
        number = _natural(request.query_params.get("page") or "1")
        counts, looked_at = await self._site.label_counts()
        self._check_page(number, len(counts), LABELS_PER_PAGE, looked_at[0] >= looked_at[1])
        return HTMLResponse(self._pages.labels(counts, number, looked_at))

    async def not_found(self, request: Request, error: Exception) -> Response:
        """Return the page for an unknown address or record."""
        text = str(error) if isinstance(error, NoSuchRecordError) else "there is no such page"
        text = text[:1].upper() + text[1:]
        return HTMLResponse(self._pages.message("Not found", f"{text}."), status_code=404)

    async def no_labels(self, request: Request, error: Exception) -> Response:
        """Return the page that says why there is no list of labels."""
        return HTMLResponse(self._pages.message("No list of labels", f"{error}."))

    async def still_reading(self, request: Request, error: Exception) -> Response:
        """Return a page that reloads itself."""
        text = f"{str(error).capitalize() or 'The records are still being read'}. This page reloads itself."
        return HTMLResponse(
            self._pages.message("One moment", text, refresh=True),
            status_code=503,
            headers={"retry-after": "2", "refresh": "2", "cache-control": "no-store"},
        )

    # -- files

    async def static(self, request: Request) -> Response:
        """Return the style sheet or the icon."""
        name = request.url.path[1:]
        return Response(self._static[name], media_type=STATIC_FILES[name], headers=self._keeping(request))

    async def thumb(self, request: Request) -> Response:
        """Return the small image of a record."""
        (shown,) = await self._site.thumbs([_natural(request.path_params["position"])])
        return self._image_response(request, shown.image, shown.record.problem)

    async def image(self, request: Request) -> Response:
        """Return the large image of a record, or with `number` an image in the fields of a sample."""
        shown = await self._site.image(_natural(request.path_params["position"]))
        wanted = request.query_params.get("number")
        if wanted is None:
            return self._image_response(request, shown.image, shown.record.problem)
        number = _natural(wanted)
        if number >= len(shown.further):
            raise NoSuchRecordError(f"there is no image {number}: the sample has {len(shown.further)}")
        image = shown.further[number]
        if isinstance(image, str):
            return self._image_response(request, None, image)
        return self._image_response(request, image, None)

    async def draw(self, request: Request) -> Response:
        """Return the augmented image of a record."""
        query = request.query_params
        epoch = _natural(query.get("epoch") or "0")
        position = _natural(request.path_params["position"])
        (draw,) = await self._site.drawn(position, query.get("view", ""), [epoch])
        return self._image_response(request, draw.image, draw.problem)

    def _image_response(self, request: Request, image: RenderedImage | None, problem: str | None) -> Response:
        if image is None:
            raise NoSuchRecordError(f"there is no image: {problem}")
        name = f'"{hashlib.sha256(image.content).hexdigest()[:24]}"'
        headers = {"etag": name, **self._keeping(request)}
        known = [
            each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")
        ]
        if name in known:
            return Response(status_code=304, headers=headers)
        return Response(image.content, media_type=image.media_type, headers=headers)

    def _keeping(self, request: Request) -> dict[str, str]:
        """Return cache headers: only addresses of this session may be cached without revalidation."""
        mine = request.query_params.get("v") == self._token
        return {"cache-control": "private, max-age=86400" if mine else "private, no-cache"}

    async def original(self, request: Request) -> Response:
        """Return the stored bytes as a download; a browser does not display them, because they may have any content."""
        field = request.query_params.get("field")
        if field is not None:
            return await self._field(_natural(request.path_params["position"]), _natural(field))
        contents = await self._site.contents(_natural(request.path_params["position"]))
        if contents.body is None:
            raise NoSuchRecordError(f"this record cannot be read: {contents.record.problem}")
        image = contents.record.image
        kind = image.format if image is not None and contents.record.kind == IMAGE else None
        media_type = f"image/{kind}" if kind in _IMAGE_FORMATS else "application/octet-stream"
        suffix = {"jpeg": ".jpg", None: ".bin"}.get(kind, f".{kind}")
        name = f"{self._site.collection.noun}-{contents.record.position}{suffix}"
        return _download(contents.body, name, media_type)

    async def _field(self, position: int, number: int) -> Response:
        body = await self._site.field_bytes(position, number)
        return _download(body, f"sample-{position}-field-{number}.bin", "application/octet-stream")


def _download(body: Any, name: str, media_type: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return Response(bytes(body), media_type=media_type, headers=headers)


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
