"""Tests of what is known of an image from its header."""

from __future__ import annotations

from typing import Any

import anyio
import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader
from aioloader.errors import DecodeError, ImageTooLargeError
from aioloader.service.probe import HeaderReader, ImageInfo
from aioloader.service.references import HEAD_NBYTES
from aioloader.transforms import decode_image, encode_raw
from tests.aioloader.service.images import jpeg, saved, service_of
from tests.cases import on_both_loops, with_cases
from tests.conftest import with_orientation
from tests.servers.raw_http import RawServer, answer

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")


def skip_if_unread(kind: str, frames: int = 1) -> None:
    """Skip a test of images that older versions of OpenCV do not decode: GIF, and WebP with several frames."""
    version = tuple(map(int, cv2.__version__.split(".")[:2]))
    if version < (4, 11) and (kind == "GIF" or (kind == "WEBP" and frames > 1)):
        pytest.skip(f"OpenCV {cv2.__version__} does not decode such a {kind}")


def info(payload: Any, **options: Any) -> ImageInfo:
    settings = {"processor": None, "exif": "apply", "max_pixels": None}
    settings |= {name: options.pop(name) for name in settings.keys() & options.keys()}
    return HeaderReader(**settings).info(payload, **{"name": "it", **options})


def written(kind: str, height: int = 30, width: int = 50, orientation: int = 1, **options: Any) -> bytes:
    """Return noise in a format."""
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return saved(pixels, kind, orientation, **options)


def of_frames(kind: str, count: int, **options: Any) -> bytes:
    """Return an image of several frames of one shade each, from 7 on."""
    pillow = pytest.importorskip("PIL.Image")
    first, *rest = [pillow.fromarray(np.full((40, 50, 3), 7 + number, np.uint8)) for number in range(count)]
    return saved(first, kind, save_all=True, append_images=rest, **options)


@with_cases("kind", FORMATS)
def test_the_size_is_that_of_the_pixels(kind: str) -> None:
    skip_if_unread(kind)
    data = written(kind)
    found = info(data)
    assert found.size == (30, 50)
    assert found.shape == decode_image(data).shape
    assert found.nbytes == 30 * 50 * 3


@with_cases("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@with_cases("orientation", range(1, 9))
def test_the_size_is_upright_if_the_image_will_be(kind: str, orientation: int) -> None:
    data = written(kind, orientation=orientation)
    for exif in ("apply", "ignore"):
        assert (*info(data, exif=exif).size, 3) == decode_image(data, exif=exif).shape


@with_cases("kind", FORMATS)
@with_cases("orientation", [1, 6])
@with_cases("exif", ["apply", "ignore"])
def test_a_beginning_has_the_same_size_or_is_not_enough(kind: str, orientation: int, exif: str) -> None:
    """Of an image of more than 64 KiB, whose EXIF block may be behind its pixels."""
    options = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True}}.get(kind, {})
    turned = orientation if kind in ("JPEG", "PNG", "WEBP", "TIFF") else 1
    data = written(kind, 200, 300, turned, **options)
    assert len(data) > HEAD_NBYTES or kind == "GIF"
    for nbytes in (100, 1000, 50_000, HEAD_NBYTES):
        try:
            found = info(data[:nbytes], exif=exif, complete=False)
        except DecodeError:
            continue
        assert found == info(data, exif=exif)
    if exif == "ignore" and kind != "TIFF":
        assert info(data[:HEAD_NBYTES], exif=exif, complete=False) == info(data, exif=exif)


def test_a_long_header_of_a_jpeg_needs_more_than_the_beginning() -> None:
    data = with_orientation(jpeg(40, 60), 6)
    profile = b"\xff\xe2" + (65_535).to_bytes(2, "big") + bytes(65_533)
    data = data[:2] + profile * 3 + data[2:]
    with pytest.raises(DecodeError, match="ends within the header"):
        info(data[:HEAD_NBYTES], complete=False)
    assert info(data).size == (60, 40)


@with_cases("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_many_frames_the_first_is_the_image(kind: str) -> None:
    skip_if_unread(kind, frames=193)
    data = of_frames(kind, 193, **({"lossless": True} if kind == "WEBP" else {}))
    assert info(data).shape == (40, 50, 3)
    assert (decode_image(data) == 7).all()


def test_raw_pixels_have_a_size() -> None:
    assert info(encode_raw(np.zeros((3, 4, 1), np.uint8))).size == (3, 4)


def test_too_many_pixels_are_refused() -> None:
    data = written("PNG")
    assert info(data, max_pixels=1500).size == (30, 50)
    with pytest.raises(ImageTooLargeError) as found:
        info(data, max_pixels=1499)
    assert (found.value.what, found.value.limit, found.value.found) == ("pixels", 1499, 1500)


class Sized:
    """Processor with a spec."""

    shape, grid_thw, num_tokens, nbytes = (12, 5), (1, 3, 4), 3, 240

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def spec(self, height: int, width: int) -> Sized:
        self.asked.append((height, width))
        return self


def test_a_processor_says_what_it_will_return() -> None:
    processor = Sized()
    data = written("JPEG", orientation=6)
    found = info(data, processor=processor, key="k")
    assert processor.asked == [(50, 30)]
    assert (found.shape, found.grid_thw, found.num_tokens, found.nbytes) == ((12, 5), (1, 3, 4), 3, 240)
    assert found.key == "k"


@given(st.binary(max_size=200), st.booleans())
def test_other_bytes_are_a_named_error(data: bytes, complete: bool) -> None:
    for start in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP", b"II*\0", b"GIF89a"):
        try:
            found = info(start + data, complete=complete)
        except DecodeError:
            continue
        assert min(found.size) >= 1


# -- of a service ----------------------------------------------------------------------------------------------------


def with_segments(count: int) -> bytes:
    """Return a JPEG of 30 x 50 pixels with segments of 65,533 bytes before its frame header."""
    data = jpeg(30, 50)
    return data[:2] + count * (b"\xff\xe5\xff\xff" + bytes(65_533)) + data[2:]


@on_both_loops
async def test_a_longer_header_is_read_step_by_step_and_what_is_no_image_no_further(leftovers: Any) -> None:
    pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")
    with RawServer() as server:
        async with service_of(allow=("http",), hosts=[f"127.0.0.1:{server.port}"]) as service:
            for segments, requests in ((0, 1), (5, 2), (40, 3)):
                server.heads.clear()
                server.answers["/x"] = answer(with_segments(segments))
                assert (await service.probe(server.url("/x"))).size == (30, 50)
                assert len(server.heads) == requests
            for data in (b"no image " * 1_000_000, b"\xff\xd8\xff\xe5\0\0" + bytes(3_000_000)):
                server.heads.clear()
                server.answers["/x"] = answer(data)
                with pytest.raises(aioloader.ImageError):
                    await service.probe(server.url("/x"))
                assert len(server.heads) == 1
            assert service.stats().made == 0


@on_both_loops
async def test_images_of_many_frames_or_pixels_are_refused() -> None:
    data = of_frames("PNG", 4)
    async with service_of(max_pixels=1999) as service:
        for method in (service.get, service.probe):
            with pytest.raises(ImageTooLargeError, match="pixels"):
                await method(data)
    for most in (None, 4):
        async with service_of(max_frames=most) as service:
            assert (await service.get(data)).shape == (40, 50, 3)
    async with service_of(max_frames=3) as service:
        with pytest.raises(ImageTooLargeError, match="it has 4 frames, and max_frames is 3") as caught:
            await service.get(data)
        assert (caught.value.what, caught.value.limit, caught.value.found) == ("frames", 3, 4)


@on_both_loops
async def test_a_header_may_have_less_time_than_the_service_allows() -> None:
    async def never(url: str) -> bytes:
        await anyio.sleep_forever()

    async with service_of(allow=("http",), fetch=never, timeout=100) as service:
        with anyio.fail_after(30):
            with pytest.raises(aioloader.ImageTimeoutError) as caught:
                await service.probe("http://example.com/1", timeout=0.05)
            assert caught.value.timeout == 0.05
        with pytest.raises(ValueError, match="timeout"):
            await service.probe("http://example.com/1", timeout=0)
