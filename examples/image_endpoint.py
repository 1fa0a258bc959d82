"""Serve a model that takes images: an HTTP endpoint whose event loop never decodes one.

    pip install "aioloader[service]" starlette uvicorn
    python examples/image_endpoint.py --port 8000 --hosts images.example.com

Clients post ``{"images": [...]}`` with URLs and ``data:`` URIs. The service reads them (only public addresses, only the
hosts that were named), and its workers decode and process them. The sizes come from the headers first: a request that
has more tokens than the model takes is refused before anything is decoded. A damaged image is the error of its
request alone. While images are made the loop answers other requests, as ``/health`` shows.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import aioloader
from aioloader.transforms import Qwen2VLImageProcessor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

MAX_TOKENS = 4096


class Model:
    """Toy in place of a vision model: it answers with the brightness of each image."""

    async def __call__(self, images: list[dict[str, np.ndarray]]) -> list[float]:
        """Return one number for each image, 0 to 1."""
        await asyncio.sleep(0)  # a real model would be awaited here
        return [float(1 / (1 + np.exp(-image["pixel_values"].mean()))) for image in images]


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
        refs = (await request.json())["images"]
        try:
            infos = [await service.probe(ref) for ref in refs]
            tokens = sum(info.num_tokens or 0 for info in infos)
            if tokens > MAX_TOKENS:
                return JSONResponse({"error": f"{tokens} tokens; {MAX_TOKENS} are allowed"}, status_code=413)
            images = await service.gather(refs)
        except aioloader.ServiceOverloadedError:
            return JSONResponse({"error": "try again later"}, status_code=503)
        except (aioloader.ImageServiceError, TypeError) as error:
            return JSONResponse({"error": str(error)}, status_code=422)
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
