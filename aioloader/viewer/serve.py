"""Server of a site for browsers on this computer, until Ctrl-C."""

from __future__ import annotations

import errno
import secrets
import socket
from typing import TYPE_CHECKING

from aioloader.viewer.app import make_app
from aioloader.viewer.links import ServerLinks
from aioloader.viewer.security import Guard
from aioloader.viewer.site import Options, Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.viewer.collection import Collection

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
