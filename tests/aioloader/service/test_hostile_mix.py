"""Tests of a service whose references come from strangers: every answer is right, or a named error of its image."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from aioloader import AsyncImageService
from aioloader.errors import (
    ImageError,
    ImageFetchError,
    ImageNotAllowedError,
    ImageReferenceError,
    ImageServiceError,
    ImageTimeoutError,
    ImageTooLargeError,
)
from aioloader.transforms import decode_image, encode_raw
from tests.aioloader.service.images import data_uri, jpeg
from tests.cases import on_both_loops
from tests.servers.raw_http import RawServer, answer

pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")

GOOD = [jpeg(30, 40, seed) for seed in range(8)]
LIMIT = 200_000


def endless(sock: Any, ended: threading.Event) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not ended.is_set():
        sock.sendall(bytes(1 << 16))


def slow(sock: Any, ended: threading.Event) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while not ended.wait(0.05):
        sock.sendall(b"x")


@pytest.fixture
def server(leftovers: object) -> Iterator[RawServer]:
    with RawServer() as server:
        for number, image in enumerate(GOOD):
            server.answers[f"/{number}.jpg"] = answer(image, ETag=f'"{number}"')
        server.answers |= {
            "/damaged": answer(GOOD[0][: len(GOOD[0]) // 2]),
            "/text": answer(b"<html>not an image</html>"),
            "/empty": answer(b""),
            "/large": answer(bytes(LIMIT + 1)),
            "/endless": endless,
            "/slow": slow,
            "/metadata": answer(status=302, Location="http://169.254.169.254/latest/meta-data/"),
            "/file": answer(status=302, Location="file:///etc/passwd"),
            "/compressed": answer(GOOD[0], Content_Encoding="gzip"),
        }
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "good.jpg").write_bytes(GOOD[0])
    (root / "out").symlink_to("/etc/passwd")
    return root


# What needs no server: references, with the image that each is or the class of its error.
LOCAL: list[tuple[Any, bytes | type[Exception]]] = [
    *((image, image) for image in GOOD),
    *((data_uri(image), image) for image in GOOD),
    ("good.jpg", GOOD[0]),
    ("http://10.0.0.1/", ImageNotAllowedError),
    ("http://2130706433/", ImageNotAllowedError),
    ("http://169.254.169.254/latest/meta-data", ImageNotAllowedError),
    ("http://good@127.0.0.1/", ImageReferenceError),
    ("https://localhost/a.jpg", ImageNotAllowedError),
    ("out", ImageNotAllowedError),
    ("../../etc/passwd", ImageNotAllowedError),
    ("file:///etc/passwd", ImageNotAllowedError),
    ("nothing.jpg", ImageFetchError),
    ("data:image/png;base64,%%%", ImageReferenceError),
    ("data:text/html,<img>", ImageReferenceError),
    (b"", ImageError),
    (b"GIF89a nothing", ImageTooLargeError),  # its header says 28,192 x 29,807 pixels
    (GOOD[0][:100], ImageError),
    (GOOD[1][:-200], ImageError),
    (encode_raw(np.zeros((300, 300, 3), np.uint8))[:500], ImageServiceError),
    (bytes(LIMIT + 1), ImageTooLargeError),
    (np.zeros((4, 4), np.float32), ImageServiceError),
]


def references(server: RawServer) -> list[tuple[Any, bytes | type[Exception]]]:
    """Return all references, with the image that each is or the class of its error."""
    return [
        *LOCAL,
        *((server.url(f"/{number}.jpg"), image) for number, image in enumerate(GOOD)),
        (server.url("/damaged"), ImageError),
        (server.url("/text"), ImageError),
        (server.url("/empty"), ImageError),
        (server.url("/missing"), ImageFetchError),
        (server.url("/compressed"), ImageFetchError),
        (server.url("/large"), ImageTooLargeError),
        (server.url("/endless"), ImageTooLargeError),
        (server.url("/slow"), ImageServiceError),
        (server.url("/metadata"), ImageNotAllowedError),
        (server.url("/file"), ImageNotAllowedError),
        (server.url("/0.jpg", "localhost"), ImageNotAllowedError),
    ]


@pytest.mark.parametrize("executor", [pytest.param("process", marks=pytest.mark.slow), "thread"])
@on_both_loops
async def test_every_answer_is_right_or_a_named_error_of_its_image(
    server: RawServer, root: Path, executor: str
) -> None:
    mix = references(server) * 6
    random.Random(1).shuffle(mix)

    async with AsyncImageService(
        num_workers=2,
        executor=executor,
        allow=("bytes", "data", "path", "http", "https", "array"),
        hosts=[f"127.0.0.1:{server.port}"],
        root=root,
        max_bytes=LIMIT,
        max_pixels=50_000,
        timeout=3.0,
    ) as service:
        await service.ready()
        found = await service.gather([ref for ref, _ in mix], on_error="return")
        files = psutil.Process().num_fds()
        for (ref, expected), got in zip(mix, found, strict=True):
            # Good images have more than the time that they need, slow ones all of it.
            if isinstance(expected, bytes):
                assert np.array_equal(got, decode_image(expected)), ref
            else:
                assert isinstance(got, (expected, ImageTimeoutError)), (ref, got)
                assert isinstance(got, ImageServiceError)
        again = [ref for ref, _ in mix if not isinstance(ref, str) or not ref.endswith("/slow")]
        await service.gather(again, on_error="return")
        assert psutil.Process().num_fds() <= files + 4
        assert service.stats().pending == 0
