"""Tests of pack_img and unpack_img."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from recordio import IRHeader, pack, pack_img, unpack_img
from recordio.errors import ImageEncodeError, MissingDependencyError
from tests.cases import with_cases

HEADER = IRHeader(0, 3.0, 7, 0)
IMAGE = np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)


@with_cases("shape", [(20, 30), (20, 30, 1), (20, 30, 3), (20, 30, 4)], ids=str)
@with_cases("quality", [3, 95])
def test_png_is_lossless_at_any_level(shape: tuple[int, ...], quality: int) -> None:
    image = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    header, back = unpack_img(pack_img(HEADER, image, quality, ".png"))
    assert header == HEADER
    assert back is not None
    assert np.array_equal(back, image.squeeze())


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG"])
def test_jpeg_quality_counts_and_colours_keep_their_order(suffix: str) -> None:
    image = np.zeros((32, 32, 3), np.uint8)
    image[..., 0] = 200  # blue
    _, back = unpack_img(pack_img(HEADER, image, 95, suffix), 1)
    assert back is not None
    assert np.abs(back.astype(int) - image).max() <= 3
    assert len(pack_img(HEADER, IMAGE, 10)) < len(pack_img(HEADER, IMAGE, 95))


@with_cases("iscolor", [-1, 0, 1])
@with_cases("body", [b"", b"no image", b"\xff\xd8\xff\xe0"], ids=["empty", "text", "cut"])
def test_an_image_that_cannot_be_decoded_is_none(body: bytes, iscolor: int) -> None:
    assert unpack_img(pack(HEADER, body), iscolor) == (HEADER, None)


@pytest.mark.parametrize("suffix", [".nothing", "png"])
def test_what_cannot_be_encoded_is_an_assertion_error(suffix: str) -> None:
    with pytest.raises(AssertionError, match="failed to encode image") as caught:
        pack_img(HEADER, IMAGE, img_fmt=suffix)
    assert isinstance(caught.value, ImageEncodeError)


def test_a_missing_opencv_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        pack_img(HEADER, IMAGE)
