"""The CPU part of the file datasets: bytes to samples. Small values that are sent to the workers once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, decode_image
from aioloader.transforms.scratch import Scratch
from recordio import extract, unpack

if TYPE_CHECKING:
    from aioloader._types import Array, Facts

__all__ = (
    "DEFAULT_MAX_PIXELS",
    "ImageFileDecoder",
    "ImageRecordDecoder",
    "RecordDecoder",
    "check_image_options",
    "label_value",
)

_local = threading.local()


def _scratch() -> Scratch:
    """This thread's pool of pixel buffers: fresh memory for every image costs page faults."""
    scratch: Scratch | None = getattr(_local, "scratch", None)
    if scratch is None:
        scratch = _local.scratch = Scratch()
    return scratch


def check_image_options(
    flag: int, exif: str, max_pixels: int | None, label_dtype: Any
) -> np.dtype[Any] | None:
    """Refuse bad options of image datasets where they are given, not at the first sample.

    Returns:
        `label_dtype` as a dtype, or None.

    Raises:
        ValueError: an option is not allowed.
    """
    if flag not in (0, 1):
        raise ValueError(f"flag must be 1 (colour) or 0 (grey), got {flag!r}")
    if exif not in ("apply", "ignore"):
        raise ValueError(f"exif must be 'apply' or 'ignore', got {exif!r}")
    if max_pixels is not None and max_pixels < 1:
        raise ValueError(f"max_pixels must be at least 1, or None for no limit, got {max_pixels!r}")
    if label_dtype is None:
        return None
    dtype: np.dtype[Any] = np.dtype(label_dtype)
    if dtype.kind not in "iuf":
        raise ValueError(f"label_dtype must be an integer or floating-point dtype, got {dtype}")
    return dtype


def label_value(value: float, dtype: np.dtype[Any]) -> Any:
    """A scalar label as a numpy scalar of `dtype`.

    Raises:
        ValueError: an integer dtype cannot hold it.
    """
    if dtype.kind == "f":
        return dtype.type(value)
    bounds = np.iinfo(dtype)
    if float(value).is_integer() and bounds.min <= int(value) <= bounds.max:
        return dtype.type(int(value))
    raise _misfit(value, dtype)


def _misfit(value: object, dtype: np.dtype[Any]) -> ValueError:
    return ValueError(
        f"the label {value} does not fit label_dtype {dtype}, which was given or follows from the first labels; "
        "make the dataset with label_dtype='float32'"
    )


def _label_vector(values: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind != "f":
        bounds = np.iinfo(dtype)
        exact = values.astype(np.float64)
        fits = (exact == np.trunc(exact)) & (exact >= bounds.min) & (exact < float(bounds.max) + 1.0)
        if not fits.all():
            raise _misfit(values[~fits][0], dtype)
    # A copy in any case: the values lie in memory that is used again.
    return np.array(values, dtype=dtype)


@dataclass(frozen=True)
class RecordDecoder:
    """Framed bytes to a record's payload."""

    def __call__(self, data: memoryview, extra: Any, facts: Facts) -> bytes:
        """The payload; see `Decoder`."""
        return bytes(extract(data, path=facts.path, offset=facts.offset or 0))


@dataclass(frozen=True)
class ImageRecordDecoder:
    """A record to (image, label).

    Attributes:
        flag, exif, max_pixels: see `aioloader.transforms.decode_image`.
        scalar_dtype: numpy name of the dtype of scalar labels.
        vector_dtype: that of label arrays.
    """

    flag: int = 1
    exif: str = "apply"
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    scalar_dtype: str = "int64"
    vector_dtype: str = "float32"

    def __call__(self, data: memoryview, extra: Any, facts: Facts) -> tuple[Array, Any]:
        """Image uint8 (height, width, 3) RGB or (height, width, 1), and label; see `Decoder`."""
        payload: Any = extract(data, path=facts.path, offset=facts.offset or 0)
        header, body = unpack(payload)
        label: Any
        if header.flag:
            label = _label_vector(header.label, np.dtype(self.vector_dtype))
        else:
            label = label_value(header.label, np.dtype(self.scalar_dtype))
        image = decode_image(
            body,
            flag=self.flag,
            exif=self.exif,
            max_pixels=self.max_pixels,
            scratch=_scratch(),
            path=facts.path,
        )
        return image, label


@dataclass(frozen=True)
class ImageFileDecoder:
    """An image file to (image, label); the label is the extra that travels along.

    Attributes:
        flag, exif, max_pixels: see `aioloader.transforms.decode_image`.
    """

    flag: int = 1
    exif: str = "apply"
    max_pixels: int | None = DEFAULT_MAX_PIXELS

    def __call__(self, data: memoryview, extra: Any, facts: Facts) -> tuple[Array, Any]:
        """Image uint8 (height, width, 3) RGB or (height, width, 1), and label; see `Decoder`."""
        image = decode_image(
            data,
            flag=self.flag,
            exif=self.exif,
            max_pixels=self.max_pixels,
            scratch=_scratch(),
            path=facts.path,
        )
        # A row of labels may be a view of memory that is used again.
        return image, extra.copy() if isinstance(extra, np.ndarray) else extra
