"""Tests of JPEGs whose headers were read before: the pixels are those of a reader that knows nothing."""

from __future__ import annotations

import cv2
import numpy as np

from aioloader.transforms import decode_image, lazy_image
from aioloader.transforms.lazy_image import LazyImageReader
from tests.aioloader.jpeg.samples import oriented


def jpeg(number: int, quality: int, height: int, width: int) -> bytes:
    image = np.random.default_rng(number).integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    image = cv2.resize(image, (width, height), interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def images() -> list[bytes]:
    """Return images of all combinations of three qualities, two sizes and three orientations, one after the other."""
    plain = [
        jpeg(number, quality, height, width)
        for number in range(3)
        for quality in (50, 80, 95)
        for height, width in ((48, 64), (64, 48))
    ]
    return [file for data in plain for file in (data, oriented(data, 6), oriented(data, 3))]


def test_images_with_different_headers_in_turn():
    reader = LazyImageReader()
    for data in images():
        assert (reader.open(data).pixels() == decode_image(data)).all()


def test_headers_of_a_few_qualities_are_read_once(monkeypatch):
    read = []
    monkeypatch.setattr(
        lazy_image, "read_frame", lambda data, inner=lazy_image.read_frame: read.append(data) or inner(data)
    )
    reader = LazyImageReader()
    for number in range(4):
        for quality in (50, 80, 95):
            reader.open(jpeg(number, quality, 48, 64))
    assert len(read) == 3


def test_more_headers_than_are_kept(monkeypatch):
    monkeypatch.setattr(lazy_image, "_MOST_KNOWN", 2)
    reader = LazyImageReader()
    for _ in range(2):
        for quality in (50, 60, 70, 80):
            data = jpeg(quality, quality, 48, 64)
            assert (reader.open(data).pixels() == decode_image(data)).all()


def test_data_that_ends_inside_known_headers():
    data = jpeg(0, 80, 48, 64)
    reader = LazyImageReader()
    reader.open(data)
    for stop in (0, 2, 100):
        try:
            expected = decode_image(data[:stop])
        except ValueError as error:
            expected = str(error)
        try:
            found = reader.open(data[:stop]).pixels()
        except ValueError as error:
            found = str(error)
        assert isinstance(found, str)
        assert found == expected
