"""Tests of limits: what `probe` reads of images behind URLs, and images of many frames."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.errors import ImageTooLargeError
from tests.aioloader.service.images import jpeg
from tests.cases import on_both_loops
from tests.servers.raw_http import RawServer, answer

pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")


def with_segments(count: int) -> bytes:
    """Return a JPEG of 30 x 50 pixels with segments of 65,533 bytes before its frame header."""
    data = jpeg(30, 50)
    return data[:2] + count * (b"\xff\xe5\xff\xff" + bytes(65_533)) + data[2:]


@pytest.fixture
def server(leftovers: object) -> Iterator[RawServer]:
    with RawServer() as server:
        server.answers |= {
            "/short": answer(jpeg(30, 50)),
            "/long": answer(with_segments(5)),
            "/longer": answer(with_segments(40)),
            "/other": answer(b"no image " * 1_000_000),
            "/damaged": answer(b"\xff\xd8\xff\xe5\0\0" + bytes(3_000_000)),
        }
        yield server


@pytest.mark.parametrize(("path", "requests"), [("/short", 1), ("/long", 2), ("/longer", 3)])
def test_a_longer_header_is_read_step_by_step(
    server: RawServer, run_on: Any, path: str, requests: int
) -> None:
    async def main() -> None:
        async with AsyncImageService(
            num_workers=1, executor="thread", allow=("http",), hosts=[f"127.0.0.1:{server.port}"]
        ) as service:
            assert (await service.probe(server.url(path))).size == (30, 50)

    run_on(main)
    assert server.paths == [path] * requests


@pytest.mark.parametrize("path", ["/other", "/damaged"])
def test_what_is_no_image_is_not_read_further(server: RawServer, run_on: Any, path: str) -> None:
    async def main() -> None:
        async with AsyncImageService(
            num_workers=1, executor="thread", allow=("http",), hosts=[f"127.0.0.1:{server.port}"]
        ) as service:
            with pytest.raises(aioloader.ImageError):
                await service.probe(server.url(path))

    run_on(main)
    assert server.paths == [path]


@on_both_loops
async def test_images_of_many_frames_are_refused() -> None:
    pillow = pytest.importorskip("PIL.Image", reason="needs Pillow")
    frames = [pillow.fromarray(np.full((20, 30, 3), 9 * number, np.uint8)) for number in range(4)]
    file = io.BytesIO()
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:])

    for most in (None, 4, 3):
        async with AsyncImageService(num_workers=1, executor="thread", max_frames=most) as service:
            if most != 3:
                assert (await service.get(file.getvalue())).shape == (20, 30, 3)
                continue
            with pytest.raises(ImageTooLargeError, match="it has 4 frames, and max_frames is 3") as caught:
                await service.get(file.getvalue())
            assert (caught.value.what, caught.value.limit, caught.value.found) == ("frames", 3, 4)


@on_both_loops
async def test_a_header_may_have_less_time_than_the_service_allows() -> None:
    async def never(url: str) -> bytes:
        await anyio.sleep_forever()

    async with AsyncImageService(
        num_workers=1, executor="thread", allow=("http",), fetch=never, timeout=100
    ) as service:
        with anyio.fail_after(30):
            with pytest.raises(aioloader.ImageTimeoutError) as caught:
                await service.probe("http://example.com/1", timeout=0.05)
            assert caught.value.timeout == 0.05
        with pytest.raises(ValueError, match="timeout"):
            await service.probe("http://example.com/1", timeout=0)
