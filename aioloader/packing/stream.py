"""Images read and encoded by the loader, in any of its executors, and given in order.

The dataset's sample is the encoded image; the loader keeps the order, holds a few batches ahead and supervises the
workers. A file is read where it is encoded: another thread that reads takes more time than it saves.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.arrays import ArrayDataset
from aioloader.datasets.base import IndexedView
from aioloader.errors import SampleError, TooManyErrorsError
from aioloader.loader.sync_loader import DataLoader
from aioloader.packing.encoding import Encoded
from aioloader.storage.local.descriptors import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aioloader.foundation.types import Array, IntArray
    from aioloader.packing.sources import Source

__all__ = ("MOST_NBYTES", "encoded_in_order")

MOST_NBYTES = 1 << 30
"""Larger files are no images; the datasets read none either."""

# So many bytes of files make a batch: less, and handing it over costs more than the work in it.
_BATCH_NBYTES = 1 << 20
_MOST_IN_BATCH = 32
# In this process images are handed over as they are, and batches need no memory of their own.
_MEMORY_NBYTES = 1 << 16
# A worker may be at one image for long: a rewritten progressive JPEG of a gigapixel, a file on a sleeping disk.
_TIMEOUT_S = 3600.0


class _Sample:
    """An encoded image and its number in the source; the loader does not look into it."""

    __slots__ = ("image", "number")

    def __init__(self, number: int, image: Encoded) -> None:
        self.number = number
        self.image = image


class _Files:
    """Files, each read and encoded where the loader's workers are."""

    def __init__(self, paths: Sequence[str], encode: Callable[[bytes], Encoded | bytes]) -> None:
        self._paths = paths
        self._encode = encode

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> _Sample:
        data = _read(self._paths[index])
        made = self._encode(data)
        return _Sample(index, made if isinstance(made, Encoded) else Encoded(made, len(data)))


def _read(path: str) -> bytes:
    """A whole regular file.

    Raises:
        OSError: it cannot be read, or is no regular file, or too large.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > MOST_NBYTES:
            raise OSError(errno.EFBIG, f"{size} bytes are too many for one image", path)
        data = os.read(fd, size)
        while len(data) < size:
            more = os.read(fd, size - len(data))
            if not more:
                raise OSError(
                    errno.EIO, f"it shrank from {size} to {len(data)} bytes while it was read", path
                )
            data += more
        return data
    finally:
        os.close(fd)


@dataclass(frozen=True)
class _EncodePixels:
    """Pixels and the number of the image to the encoded image."""

    encode: Callable[[Array, int], Encoded]

    def __call__(self, image: Array, number: Any) -> _Sample:
        # A copy: encoding may alter it.
        return _Sample(int(number), self.encode(image.copy(), image.nbytes))


def encoded_in_order(
    source: Source,
    order: IntArray,
    encode: Any,
    *,
    workers: int,
    executor: Any,
    mean_nbytes: int,
    on_error: str,
    most_errors: int | None = None,
) -> Generator[tuple[int, Encoded | SampleError]]:
    """The images of a source, encoded.

    Args:
        source: the images.
        order: int64 (n,), the number of the image at each place; none stands twice.
        encode: what is done to the bytes of a file; of images in memory its method ``of_pixels`` is used.
        workers: how many encode at a time.
        executor: "thread", "process", "inline" or an executor.
        mean_nbytes: bytes of an image, about.
        on_error: "raise": the first image that fails is the last thing given, and some before it may be missing.
        most_errors: nothing is given any more once more than so many have failed; None: any number may.

    Yields:
        place in `order`, and the image or why there is none.
    """
    dataset: Any
    if source.images is None:
        dataset = _Files(source.paths, encode)
    else:
        numbers = np.arange(len(source.images), dtype=np.int64)
        dataset = ArrayDataset(source.images, numbers).transform(_EncodePixels(encode.of_pixels))
    batch = int(min(_MOST_IN_BATCH, max(1, _BATCH_NBYTES // max(1, mean_nbytes))))
    loader: DataLoader[list[_Sample]] = DataLoader(
        IndexedView(dataset, order),
        batch,
        batchify_fn=list,
        num_workers=workers,
        executor=executor,
        timeout=_TIMEOUT_S,
        on_error="raise" if on_error == "raise" else "skip",
        max_errors=None if on_error == "raise" else most_errors,
        memory_limit=_MEMORY_NBYTES if executor in ("thread", "inline") else None,
    )
    with loader:
        place = taken = 0
        failed: dict[int, SampleError] = {}
        batches = iter(loader)
        while True:
            try:
                images = next(batches, None)
            except SampleError as error:
                yield _position(error), error
                return
            except TooManyErrorsError:
                images = None
            for sample in images or ():
                while order[place] != sample.number:  # it has failed
                    if place not in failed:
                        errors = loader.errors
                        failed |= {_position(each): each for each in errors[taken:]}
                        taken = len(errors)
                    yield place, failed.pop(place)
                    place += 1
                yield place, sample.image
                place += 1
            if images is None:
                break
        failed |= {_position(each): each for each in loader.errors[taken:]}
        for place in sorted(failed):
            yield place, failed[place]


def _position(error: SampleError) -> int:
    assert error.position is not None
    return error.position
