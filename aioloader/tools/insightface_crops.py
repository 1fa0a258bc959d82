"""Face crops to be packed into a set, which the loader reads and encodes in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.errors import DecodeError
from aioloader.loader.sync_loader import DataLoader
from aioloader.tools.pack import PackError
from aioloader.transforms import decode_image, image_size

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from aioloader.foundation.types import Array

# The datasets have the same limit.
_MOST_FILE_NBYTES = 1 << 30
_AT_ONCE = 32
# A file may be on a sleeping disk.
_TIMEOUT_S = 3600.0


class Crop(NamedTuple):
    """Encoded image: its index among the files, its bytes, its (height, width), and whether it was resized."""

    number: int
    data: bytes
    size: tuple[int, int]
    resized: bool


class Crops:
    """Dataset of face crops, read and encoded by the loader's workers.

    Args:
        paths: the files.
        size, quality, max_pixels: see `pack_faces`.
    """

    def __init__(
        self, paths: Sequence[Path], size: tuple[int, int] | None, quality: int, max_pixels: int | None
    ) -> None:
        self.paths = paths
        self._size = size
        self._quality = quality
        self._max_pixels = max_pixels

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Crop:
        path = self.paths[number]
        if path.stat().st_size > _MOST_FILE_NBYTES:
            raise OSError(f"the file has more than {_MOST_FILE_NBYTES} bytes, too many for an image")
        data = path.read_bytes()
        name, height, width = image_size(data)
        if self._max_pixels is not None and height * width > self._max_pixels:
            raise DecodeError(
                f"{height * width} pixels are more than max_pixels={self._max_pixels}",
                format=name,
                nbytes=len(data),
            )
        if self._size is None or (height, width) == self._size:
            return Crop(number, data, (height, width), False)
        import cv2

        image = _covering(decode_image(data, max_pixels=self._max_pixels), self._size)
        options = [cv2.IMWRITE_JPEG_QUALITY, self._quality]
        encoded: Any = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)[1]
        return Crop(number, encoded.tobytes(), self._size, True)


def in_order(crops: Crops, workers: int | None) -> Generator[Crop | PackError]:
    """Yield each image, or its error, in the order of the files."""
    loader: DataLoader[list[Crop]] = DataLoader(
        crops,
        _AT_ONCE,
        batchify_fn=list,
        num_workers=workers,
        executor="thread",
        timeout=_TIMEOUT_S,
        on_error="skip",
    )
    failed: dict[int, PackError] = {}
    place = taken = 0

    def failure(number: int) -> PackError:
        nonlocal taken
        errors = loader.errors
        for error in errors[taken:]:
            cause = error.__cause__
            failed[error.index] = PackError(str(crops.paths[error.index]), str(cause or error.reason))
            failed[error.index].__cause__ = cause
        taken = len(errors)
        return failed.pop(number)

    with loader:
        for batch in loader:
            for crop in batch:
                for number in range(place, crop.number):
                    yield failure(number)
                yield crop
                place = crop.number + 1
        for number in range(place, len(crops)):
            yield failure(number)


def _covering(image: Array, size: tuple[int, int]) -> Array:
    """Scale an image until it covers a size, and crop it to the centre."""
    import cv2

    height, width = image.shape[:2]
    scale = max(size[0] / height, size[1] / width)
    tall, wide = max(size[0], round(height * scale)), max(size[1], round(width * scale))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    scaled: Any = cv2.resize(image, (wide, tall), interpolation=how)
    top, left = (tall - size[0]) // 2, (wide - size[1]) // 2
    cut: Array = np.ascontiguousarray(scaled[top : top + size[0], left : left + size[1]])
    return cut
