"""Conversion of images at the entry and exit of the functions of `mx.image`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.ndarray.ndarray import NDArray, from_numpy

if TYPE_CHECKING:
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
