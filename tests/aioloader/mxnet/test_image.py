"""Tests of `mx.image`: decoding, resizing and cropping, compared with OpenCV."""

from __future__ import annotations

import random
from pathlib import Path

import cv2
import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.tools.draw import draw_image


@pytest.fixture(scope="module")
def png() -> bytes:
    done, data = cv2.imencode(".png", draw_image(1, height=60, width=90)[..., ::-1])
    assert done
    return data.tobytes()


@pytest.mark.parametrize(
    "kind",
    [
        bytes,
        bytearray,
        memoryview,
        lambda b: np.frombuffer(b, np.uint8),
        lambda b: mx.nd.array(list(b), dtype="uint8"),
    ],
)
def test_imdecode_takes_bytes_and_arrays(png: bytes, kind: object) -> None:
    image = mx.image.imdecode(kind(png))  # type: ignore[operator]
    assert isinstance(image, mx.nd.NDArray)
    assert np.array_equal(image, draw_image(1, height=60, width=90))


def test_imdecode_flags(png: bytes) -> None:
    colour = cv2.imdecode(np.frombuffer(png, np.uint8), 1)
    assert np.array_equal(mx.image.imdecode(png, to_rgb=False), colour)
    grey = mx.image.imdecode(png, flag=0)
    assert grey.shape == (60, 90, 1)
    assert np.abs(grey[..., 0].astype(int) - cv2.imdecode(np.frombuffer(png, np.uint8), 0)).max() <= 1
    out = mx.nd.zeros((60, 90, 3), dtype="uint8")
    assert mx.image.imdecode(png, out=out) is out
    assert np.array_equal(out[..., ::-1], colour)


def test_imread_is_imdecode_of_the_file(png: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png)
    assert np.array_equal(mx.img.imread(str(path)), mx.image.imdecode(png))
    path.write_bytes(png[:100])
    with pytest.raises(mx.MXNetError) as caught:
        mx.image.imread(path)
    assert caught.value.__notes__ == [f"file: {path}"]


def test_what_is_no_image(png: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mode 'rb'"):
        mx.image.imdecode("text")
    with pytest.raises(mx.MXNetError, match="Input cannot be an empty buffer"):
        mx.image.imdecode(b"")
    with pytest.raises(mx.MXNetError) as caught:
        mx.image.imdecode(b"clearly not image content")
    assert isinstance(caught.value, mx.image.ImageDecodeError)
    with pytest.raises(mx.MXNetError, match="couldn't open file"):
        mx.image.imread(str(tmp_path / "none.png"))


@pytest.mark.parametrize("interp", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("size", [(45, 30), (100, 70), (90, 60)])
def test_imresize_is_opencv_s(png: bytes, interp: int, size: tuple[int, int]) -> None:
    image = mx.image.imdecode(png)
    resized = mx.image.imresize(image, *size, interp=interp)
    assert np.array_equal(resized, cv2.resize(image.asnumpy(), size, interpolation=interp))
    assert not np.shares_memory(resized, image)


def test_random_crop_returns_its_place(png: bytes) -> None:
    image = mx.image.imdecode(png)
    random.seed(1)
    crops = [mx.image.random_crop(image, (40, 20)) for _ in range(5)]
    for crop, (x, y, width, height) in crops:
        assert (width, height) == (40, 20)
        assert np.array_equal(crop, image[y : y + 20, x : x + 40])
    assert len({place for _, place in crops}) > 1
    random.seed(1)
    assert mx.image.random_crop(image, (40, 20))[1] == crops[0][1]
    large, place = mx.image.random_crop(image, (200, 100))
    assert large.shape == (100, 200, 3)
    assert place[2:] == (90, 45)
