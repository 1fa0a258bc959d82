"""Serve a site to the browsers of this computer until Ctrl-C."""

from __future__ import annotations

import errno
import secrets
import socket
from typing import TYPE_CHECKING

from aioloader.viewer.app import make_app
from aioloader.viewer.links import ServerLinks
from aioloader.viewer.security import Guard
from aioloader.viewer.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.viewer.collection import Collection
    from aioloader.viewer.site import Options

__all__ = ("bound", "serve")

HOST = "127.0.0.1"


def bound(port: int) -> socket.socket:
    """A socket that listens on this computer only.

    Args:
        port: 0 for a free one.

    Raises:
        OSError: the port is taken, or not allowed; the message says what to do.
    """
    try:
        return socket.create_server((HOST, port), backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} is in use; give another one by --port, or --port 0 for any free one"
        elif error.errno == errno.EACCES:
            text = f"port {port} may not be used by this user; give one above 1023 by --port"
        else:
            raise
        raise OSError(text) from error


def serve(
    collection: Collection, options: Options, listening: socket.socket, ready: Callable[[str], object]
) -> None:
    """Answer requests until the process is interrupted.

    Args:
        collection: what is shown; closed at the end.
        options: how.
        listening: from `bound`; closed at the end.
        ready: called with the address of the first page when it can be asked for.
    """
    import uvicorn

    port = listening.getsockname()[1]
    token = secrets.token_hex(4)
    site = Site(collection, options)

    # Who asks from then on waits a moment at most: the socket listens already.
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
        pass  # the way to end it
    finally:
        listening.close()
        site.close()
