"""Packing of a list's images as by im2rec: the ids become keys, the index is optional, and no report is written.

An image's bytes are kept, or it is decoded, cropped, resized and encoded again.

Rule: this project's decoder, OpenCV's encoders, and MXNet's order of steps and its rounding, so that the files are
identical for the formats that MXNet reads right.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import recordio
from aioloader.errors import DecodeError
from aioloader.packing.encoding import library_versions, middle, to_bgr
from aioloader.packing.plan import Plan
from aioloader.packing.report import Packed, PackReport
from aioloader.packing.run import Job, run
from aioloader.packing.sources import Source
from aioloader.transforms.base import drop_grey_axis
from aioloader.transforms.decode import decode_image
from aioloader.transforms.interpolation import resize_image

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array
    from aioloader.packing.lists import Listed

_COLORS = (-1, 0, 1)
_ENCODINGS = (".jpg", ".png")
_HEADER = recordio.IRHeader(0, 0.0, 0, 0)
_HEADER_BYTES = 24


@dataclass(frozen=True, slots=True)
class Recode:
    """Function from the bytes of an image to the bytes to store, with im2rec's options.

    Attributes:
        color: 1: colour; 0: grey; -1: unchanged, with alpha. With 1 and 0 the EXIF orientation is applied.
        resize: length of the shorter side in pixels, smaller images are enlarged too; 0: unchanged.
        center_crop: crop to the middle square first.
        quality: of JPEGs 1 to 100; of PNGs the compression level, where values above 9 mean 9.
        encoding: ".jpg" or ".png".
        interpolation: OpenCV's code, 0 to 4, or 9: cubic to enlarge, area to shrink.
        pass_through: store the bytes unchanged and unchecked; the other options are ignored.

    Raises:
        ValueError: an option is not allowed.
    """

    color: int = 1
    resize: int = 0
    center_crop: bool = False
    quality: int = 95
    encoding: str = ".jpg"
    interpolation: int = 1
    pass_through: bool = False

    def __post_init__(self) -> None:
        if self.color not in _COLORS:
            raise ValueError(f"color must be 1 (colour), 0 (grey) or -1 (as it is), got {self.color}")
        if self.encoding not in _ENCODINGS:
            raise ValueError(f"encoding must be {' or '.join(_ENCODINGS)}, got {self.encoding!r}")
        if self.resize < 0:
            raise ValueError(f"resize must not be negative, got {self.resize}")
        if self.quality < 0 or (self.encoding == ".jpg" and not 1 <= self.quality <= 100):
            raise ValueError(f"quality must lie between 1 and 100, got {self.quality}")

    def __call__(self, data: bytes) -> bytes:
        """Encode one image.

        Raises:
            DecodeError: it is not an image, is damaged, has more pixels than `DEFAULT_MAX_PIXELS` of
                `aioloader.transforms`, or cannot be encoded.
        """
        if self.pass_through:
            return data
        image = decode_image(data, flag=self.color, exif="ignore" if self.color == -1 else "apply")
        image = drop_grey_axis(to_bgr(image))
        if self.center_crop:
            image = middle(image)
        if self.resize:
            image = _resized(image, self.resize, self.interpolation)
        try:
            record = recordio.pack_img(_HEADER, image, self.quality, self.encoding)
        except recordio.errors.ImageEncodeError as error:
            raise DecodeError(str(error), nbytes=len(data)) from error
        return record[_HEADER_BYTES:]


def _resized(image: Array, shorter: int, interpolation: int) -> Array:
    """Resize an image to a shorter side of `shorter` pixels; the longer one is rounded down."""
    height, width = image.shape[:2]
    size = (height * shorter // width, shorter) if height > width else (shorter, width * shorter // height)
    planes = image[:, :, None] if image.ndim == 2 else image
    small = resize_image(planes, size, interpolation)
    return small[:, :, 0] if image.ndim == 2 else small


def pack_list(
    images: Sequence[Listed],
    paths: Sequence[str],
    rec: str | os.PathLike[str],
    encode: Recode,
    *,
    index: bool = True,
    all_labels: bool = False,
    workers: int = 1,
    on_error: str = "skip",
    begin: Callable[[int, int, str], object] | None = None,
    tick: Callable[[int], object] | None = None,
) -> PackReport:
    """Write a record for each image, in the order of the list: header (flag, labels, id, 0), then the image's bytes.

    Args:
        images: the list.
        paths: the file of each image.
        rec: the record file; an existing one is replaced when the new one is complete.
        encode: encodes the bytes of a file.
        index: write an .idx next to it, with the ids as keys. An existing .idx is rewritten in any case, because it
            would not match the new records.
        all_labels: store all labels of an image that has several, with their number as the flag; else only the first.
        workers: number of encoding threads.
        on_error: "skip": leave out images that cannot be read or are damaged; "raise": stop at the first.
        begin, tick: see `aioloader.tools.pack.pack`, which also describes the files left by an interrupt.

    Returns:
        the report; the errors' keys are the ids of the images that were left out.

    Raises:
        PackBusyError: another process is packing into the same files.
        PackError, OSError: with "raise", an image is damaged or cannot be read.
        PackError: with "skip", all images failed.
        OSError: a file cannot be written.

    After an error, existing files are unchanged.
    """
    place = Path(rec)
    idx = place.with_suffix(".idx")
    indexed = index or idx.exists()
    file = Packed(place, idx if indexed else None, None, stop=len(images))
    options = {**asdict(encode), "all_labels": all_labels, "on_error": on_error, "index": indexed}
    options["libraries"] = {} if encode.pass_through else library_versions()
    job = Job(
        source=Source("list", str(rec), images, paths),
        plan=Plan(np.arange(len(images), dtype=np.int64), (file,)),
        encode=encode,
        out=place,
        arguments=options,
        workers=workers,
        on_error=on_error,
        all_labels=all_labels,
    )
    return run(job, PackReport((file,), ()), begin=begin, tick=tick)
