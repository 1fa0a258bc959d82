"""Decoders of encoded bytes to pixels, `imdecode` and `imread`, and conversion at the entry and exit of `mx.image`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import DecodeError
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.ndarray.ndarray import NDArray, from_numpy
from aioloader.transforms.decode import decode_image

if TYPE_CHECKING:
    import os

    from aioloader.foundation.types import Array


def as_image(src: Any, name: str) -> Array:
    """Return `src` as a plain array (height, width, channels).

    Raises:
        ValueError: it has another number of axes.
    """
    image = np.asarray(src)
    if image.ndim != 3:
        raise ValueError(f"{name} takes an image (height, width, channels), got shape {image.shape}")
    return image


def as_float(src: Any) -> Array:
    """Return `src` as a plain array of floats; integers become float32, which can hold the results."""
    array = np.asarray(src)
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def own(image: Array, src: Any) -> NDArray:
    """Return a result as an NDArray that shares no memory with its source."""
    array = np.asarray(src)
    return from_numpy(image.copy() if np.may_share_memory(image, array) else image)


def given(image: Array, out: NDArray | None) -> NDArray:
    """Return a result as a new NDArray, or written into `out`.

    Raises:
        ValueError: `out` has another shape.
    """
    if out is None:
        return from_numpy(image)
    if out.shape != image.shape:
        raise ValueError(f"out has the shape {out.shape}, but the result has {image.shape}")
    out[...] = image
    return out


class ImageDecodeError(DecodeError, MXNetError):
    """Error raised when an image cannot be decoded; see `aioloader.DecodeError`. An MXNetError too."""


def imdecode(
    buf: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None, *, exif: str = "apply"
) -> NDArray:
    """Decode an image and turn it upright by its EXIF orientation. Alpha is dropped.

    Args:
        buf: the encoded image, bytes-like or a uint8 array.
        flag: 1 for colour, (height, width, 3); 0 for grey, (height, width, 1).
        to_rgb: False returns BGR.
        out: an array of the result's shape to write it to.
        exif: "apply" turns the image upright, "ignore" leaves it as stored.

    Returns:
        uint8.

    Raises:
        ValueError: `buf` is text, or `out` has another shape.
        TypeError: `buf` is not bytes-like.
        MXNetError: the image is empty, damaged, truncated or too large.
    """
    if isinstance(buf, str):
        raise ValueError(
            "buf must be of type bytes, bytearray or numpy.ndarray, if you would like to input type str, please "
            "convert to bytes: open files with mode 'rb'"
        )
    try:
        data = np.ascontiguousarray(buf).data if isinstance(buf, np.ndarray) else memoryview(buf)
    except TypeError:
        raise TypeError(
            f"imdecode takes an encoded image, bytes-like or a uint8 array, got {type(buf).__name__}"
        ) from None
    if not data.nbytes:
        raise MXNetError("Input cannot be an empty buffer")
    try:
        image = decode_image(buf if isinstance(buf, bytes) else data, flag=flag, exif=exif)
    except DecodeError as error:
        # The same object under its MXNet class: attributes, notes and traceback stay.
        error.__class__ = ImageDecodeError
        raise
    if flag and not to_rgb:
        image = np.ascontiguousarray(image[..., ::-1])
    return given(image, out)


def imread(
    filename: str | os.PathLike[str],
    flag: int = 1,
    to_rgb: bool = True,
    out: NDArray | None = None,
    *,
    exif: str = "apply",
) -> NDArray:
    """Read and decode an image file; see `imdecode`.

    Args:
        filename: path of the file.
        flag, to_rgb, out, exif: as for `imdecode`.

    Raises:
        MXNetError: the file cannot be read or decoded.
    """
    try:
        with open(filename, "rb") as file:
            data = file.read()
    except OSError as error:
        raise MXNetError(f"Imread: '{filename}' couldn't open file: {error.strerror}") from error
    try:
        return imdecode(data, flag, to_rgb, out, exif=exif)
    except MXNetError as error:
        error.add_note(f"file: {filename}")
        raise
