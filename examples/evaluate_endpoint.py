"""Evaluate a model behind an HTTP endpoint, with several requests at a time.

    python examples/evaluate_endpoint.py FOLDER http://localhost:8000/classify

The endpoint takes POST requests with one JPEG each and answers with {"label": n}. The loader reads and resizes images
in its workers. The requests are a stage of its chain of transforms, so one event loop waits for all of them, and the
loader keeps the order. Ctrl-C ends the program at once. The program skips and reports requests that fail; if too many
fail, the evaluation ends.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import simplejpeg

import aioloader
from aioloader.transforms import CenterCrop, Compose, Resize


def encoded(image: np.ndarray) -> bytes:
    """Encode the image as JPEG, the format of the endpoint. Runs in the workers."""
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=90)
    return data


class Endpoint:
    """Client that requests the label of an image from the endpoint.

    Args:
        url: address of the endpoint.
        connections: maximum number of concurrent requests.
        tries: maximum number of attempts if the endpoint is busy or unavailable.
    """

    def __init__(self, url: str, connections: int, tries: int = 3) -> None:
        self.url = url
        self.tries = tries
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self.client = httpx.AsyncClient(limits=limits, timeout=10.0)

    async def __call__(self, image: bytes, label: Any) -> tuple[int, Any, float]:
        """Return the endpoint's label, the true label, and the latency in seconds."""
        begin = time.perf_counter()
        for left in reversed(range(self.tries)):
            try:
                answer = await self.client.post(self.url, content=image)
                if answer.status_code == 503 and left:
                    raise httpx.ConnectError("busy")
            except httpx.TransportError:
                if not left:
                    raise
                await asyncio.sleep(0.05 * (self.tries - left))
            else:
                break
        answer.raise_for_status()
        return int(answer.json()["label"]), label, time.perf_counter() - begin


async def evaluate(
    folder: Path, url: str, connections: int = 16, batch_size: int = 32, workers: int | None = None
) -> dict[str, Any]:
    """Evaluate an endpoint on a folder with one sub-folder per class.

    Returns:
        ``images``; ``accuracy``, 0 to 1; ``latency_p50_s`` and ``latency_p99_s``, seconds; ``failed``: texts.
    """
    prepare = Compose([Resize(72), CenterCrop(64), encoded])
    endpoint = Endpoint(url, connections)
    dataset = (
        aioloader.ImageFolderDataset(folder)
        .transform_first(prepare)
        .transform(endpoint, concurrency=connections)
    )
    right = total = 0
    seconds: list[float] = []
    async with (
        endpoint.client,
        aioloader.AsyncDataLoader(
            dataset, batch_size, num_workers=workers, on_error="skip", max_errors=100, timeout=60
        ) as loader,
    ):
        async for found, labels, took in loader:
            right += int((found == labels).sum())
            total += len(labels)
            seconds += took.tolist()
        return {
            "images": total,
            "accuracy": right / max(1, total),
            "latency_p50_s": float(np.quantile(seconds, 0.5)) if seconds else None,
            "latency_p99_s": float(np.quantile(seconds, 0.99)) if seconds else None,
            "failed": [str(error) for error in loader.errors],
        }


def main() -> None:
    """Parse the command line and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=16, help="concurrent requests (default: 16)")
    parser.add_argument("--workers", type=int, help="number of worker processes (default: one per core)")
    options = parser.parse_args()
    found = asyncio.run(evaluate(options.folder, options.url, options.connections, workers=options.workers))
    for failure in found.pop("failed"):
        print(f"failed: {failure}")
    print(" ".join(f"{name}={value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
