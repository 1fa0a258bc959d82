"""`mx.image`: images (height, width, channels), RGB; sizes are (width, height)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import DecodeError
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.ndarray import NDArray, from_numpy
from aioloader.transforms.crop import scale_down as _scale_down
from aioloader.transforms.decode import decode_image
from aioloader.transforms.interpolation import interpolation_code, resize_image

if TYPE_CHECKING:
    import os

    from aioloader._types import Array

__all__ = ("ImageDecodeError", "imdecode", "imread", "imresize", "random_crop", "scale_down")


class ImageDecodeError(DecodeError, MXNetError):
    """An image cannot be decoded; see `aioloader.DecodeError`. An MXNetError too."""


def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """Decode an image and turn it upright by its EXIF orientation. Alpha is dropped.

    Args:
        buf: the encoded image, bytes-like or a uint8 array.
        flag: 1 for colour, (height, width, 3); 0 for grey, (height, width, 1).
        to_rgb: False gives BGR.
        out: an array of the result's shape to put it in.

    Returns:
        uint8.

    Raises:
        ValueError: `buf` is text.
        MXNetError: the image is empty, damaged, truncated or too large.
    """
    if isinstance(buf, str):
        raise ValueError(
            "buf must be of type bytes, bytearray or numpy.ndarray, if you would like to input type str, please "
            "convert to bytes: open files with mode 'rb'"
        )
    data = np.ascontiguousarray(buf).view(np.uint8).reshape(-1) if isinstance(buf, np.ndarray) else buf
    if not len(data):
        raise MXNetError("Input cannot be an empty buffer")
    try:
        image = decode_image(data, flag=flag)
    except DecodeError as error:
        # The same object under its MXNet class: attributes, notes and traceback stay.
        error.__class__ = ImageDecodeError
        raise
    if flag and not to_rgb:
        image = np.ascontiguousarray(image[..., ::-1])
    return _given(image, out)


def imread(
    filename: str | os.PathLike[str], flag: int = 1, to_rgb: bool = True, out: NDArray | None = None
) -> NDArray:
    """Read and decode an image file; see `imdecode`.

    Raises:
        MXNetError: the file cannot be read, or not be decoded.
    """
    try:
        with open(filename, "rb") as file:
            data = file.read()
    except OSError as error:
        raise MXNetError(f"Imread: '{filename}' couldn't open file: {error.strerror}") from error
    try:
        return imdecode(data, flag, to_rgb, out)
    except ImageDecodeError as error:
        error.add_note(f"file: {filename}")
        raise


def imresize(src: Any, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """Resize to exactly w x h pixels.

    Args:
        src: (height, width, channels).
        w, h: new extents in pixels.
        interp: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos, 9 auto.
        out: an array of the result's shape to put it in.

    Returns:
        A new array of the same dtype.
    """
    image = np.asarray(src)
    resized = resize_image(image, (w, h), interpolation_code(interp, "imresize"))
    return _given(resized.copy() if resized is image else resized, out)


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """The largest (width, height) of the shape of `size`, and no larger than it, that fits into `src_size`."""
    return _scale_down(*src_size, size)


def random_crop(
    src: Any, size: tuple[int, int], interp: int = 2
) -> tuple[NDArray, tuple[int, int, int, int]]:
    """A random rectangle, resized to `size` if the image is too small for it. Draws from Python's `random`.

    Args:
        src: (height, width, channels).
        size: (width, height).
        interp: as for `imresize`.

    Returns:
        The crop, a new array, and its place in `src` as (x, y, width, height).
    """
    image = np.asarray(src)
    rows, columns = image.shape[:2]
    width, height = scale_down((columns, rows), size)
    x, y = random.randint(0, columns - width), random.randint(0, rows - height)
    crop = image[y : y + height, x : x + width]
    result = resize_image(crop, (size[0], size[1]), interpolation_code(interp, "random_crop"))
    return from_numpy(result.copy() if result is crop else result), (x, y, width, height)


def _given(image: Array, out: NDArray | None) -> NDArray:
    if out is None:
        return from_numpy(image)
    out[...] = image
    return out
