"""Serve a model that takes images: an HTTP endpoint whose event loop never decodes one.

    pip install "aioloader[service]" starlette uvicorn
    python examples/image_endpoint.py --port 8000 --hosts images.example.com

Clients post ``{"images": [...]}`` with URLs and ``data:`` URIs. The service reads them (only public addresses, only the
hosts that were named), and its workers decode and process them. The sizes come from the headers first: a request that
has more tokens than the model takes is refused before anything is decoded. A damaged image is the error of its
request alone. A body of more than 32 MiB is refused before it is read whole. The work for a client that goes away ends,
also in the middle of its upload. While images are made the loop answers other requests, as ``/health`` shows. Ctrl-C
ends the server, its workers and its memory.

Clients learn which image is at fault, but not why a URL could not be read: whether a name exists inside your network is
nobody's business. The server's log says it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route

import aioloader
from aioloader.transforms import Qwen2VLImageProcessor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from starlette.requests import Request

    from aioloader.service.probe import ImageInfo

MAX_TOKENS = 4096
MAX_IMAGES = 64
MAX_BODY = 32 << 20  # bytes; the loop parses a body, and does nothing else meanwhile
log = logging.getLogger("image_endpoint")


class Model:
    """Toy in place of a vision model: it answers with the brightness of each image."""

    async def __call__(self, images: list[dict[str, np.ndarray]]) -> list[float]:
        """Return one number for each image, 0 to 1."""
        await asyncio.sleep(0)  # a real model would be awaited here
        return [float(1 / (1 + np.exp(-image["pixel_values"].mean()))) for image in images]


async def read_body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        HTTPException: it is longer than `MAX_BODY`, by its header or by what has arrived.
        ClientDisconnect: the client went away.
    """
    announced = request.headers.get("content-length", "")
    body = bytearray()
    too_long = announced.isdecimal() and int(announced) > MAX_BODY
    if not too_long:
        async for part in request.stream():
            body += part
            too_long = len(body) > MAX_BODY
            if too_long:
                break
    if too_long:
        raise HTTPException(413, f"more than {MAX_BODY} bytes")
    return bytes(body)


def references(body: bytes) -> list[str]:
    """Return the references of a request.

    Raises:
        ValueError: it has another form.
    """
    try:
        refs = json.loads(body)["images"]
    except (ValueError, TypeError, KeyError, RecursionError):
        refs = None
    if not isinstance(refs, list) or not refs or not all(isinstance(ref, str) for ref in refs):
        raise ValueError('send JSON: {"images": [a URL or data: URI, ...]}')
    if len(refs) > MAX_IMAGES:
        raise ValueError(f"{len(refs)} images; {MAX_IMAGES} are allowed")
    return refs


def fault(ref: str, error: aioloader.ImageServiceError) -> str:
    """Return what a client may know of an error: everything of the bytes it sent, of a URL only that it failed."""
    if ref.startswith("data:") and not isinstance(error, aioloader.ImageNotAllowedError):
        return str(error)
    return "it is not allowed, or cannot be read"


async def while_connected(request: Request, work: Coroutine[Any, Any, JSONResponse]) -> JSONResponse:
    """Return the result of `work`, which is cancelled if the client goes away. Starlette does not do so by itself."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async with asyncio.TaskGroup() as tasks:
        answer, leaving = tasks.create_task(work), tasks.create_task(gone())
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
        answer.cancel()  # nothing, if it is done
        leaving.cancel()
    return JSONResponse(None) if answer.cancelled() else answer.result()


def make_app(hosts: list[str] | None) -> Starlette:
    """Return the application.

    Args:
        hosts: hosts that URLs may name; None: all public ones.
    """
    service = aioloader.AsyncImageService(
        Qwen2VLImageProcessor(),
        allow=("data", "http", "https"),
        hosts=hosts,
        max_bytes=20 << 20,
        max_pending=256,
        overflow="raise",
        timeout=20,
    )
    model = Model()

    async def classify(request: Request) -> JSONResponse:
        try:
            refs = references(await read_body(request))
        except ClientDisconnect:
            return JSONResponse(None)  # nobody receives it
        except HTTPException as error:
            # The connection is closed, because the rest of the body has not been read.
            headers = {"Connection": "close"}
            return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=headers)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        return await while_connected(request, answer(refs))

    async def answer(refs: list[str]) -> JSONResponse:
        infos: list[ImageInfo] = []
        place = 0  # of the image at fault
        try:
            for ref in refs:
                place = len(infos)
                infos.append(await service.probe(ref))
            tokens = sum(info.num_tokens or 0 for info in infos)
            if tokens > MAX_TOKENS:
                return JSONResponse({"error": f"{tokens} tokens; {MAX_TOKENS} are allowed"}, status_code=413)
            images = await service.gather(refs, on_error="return")
            failed = [n for n, image in enumerate(images) if isinstance(image, Exception)]
            if failed:
                place = failed[0]
                raise images[place]
        except (aioloader.ServiceOverloadedError, aioloader.ServiceMemoryError, aioloader.ServiceClosedError):
            return JSONResponse({"error": "try again later"}, status_code=503)
        except aioloader.ImageTimeoutError as error:
            log.warning("image %d: %s", place, error)
            return JSONResponse({"error": f"image {place}: it was not ready in time"}, status_code=504)
        except aioloader.ImageServiceError as error:
            log.warning("image %d: %s", place, error)
            return JSONResponse({"error": f"image {place}: {fault(refs[place], error)}"}, status_code=422)
        return JSONResponse({"tokens": tokens, "brightness": await model(images)})

    async def health(request: Request) -> JSONResponse:
        stats = service.stats()
        return JSONResponse({"pending": stats.pending, "made": stats.made, "workers": stats.ready})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service:
            await service.ready()
            yield

    routes: list[Any] = [Route("/classify", classify, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--hosts", nargs="*", help="hosts that URLs may name; default: all public ones")
    options = parser.parse_args()
    uvicorn.run(make_app(options.hosts), port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
