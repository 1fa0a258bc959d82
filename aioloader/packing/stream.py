"""Encoding of a source's images with the loader, in any of its executors, in order.

A sample of the dataset is an encoded image; the loader keeps the order, prefetches a few batches and supervises the
workers. A file is read by the worker that encodes it: a separate reading thread costs more time than it saves. Samples
of shards are read by the loader, as for training.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.base import IndexedView
from aioloader.errors import SampleError, TooManyErrorsError
from aioloader.formats.arrays.dataset import ArrayDataset
from aioloader.loader.sync_loader import DataLoader
from aioloader.packing.encoding import Encoded
from aioloader.packing.samples import EncodedSample
from aioloader.storage.local.descriptors import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aioloader.abc import Executor, MapDataset
    from aioloader.foundation.types import Array, IntArray
    from aioloader.packing.sources import Source

MOST_NBYTES = 1 << 30
"""Size limit of an image file in bytes; the datasets have the same one."""

# Bytes of files in a batch: transferring a smaller batch costs more than the work in it.
_BATCH_NBYTES = 1 << 20
_MOST_IN_BATCH = 32
_MEMORY_NBYTES = 1 << 16
# One image may take a worker long: rewriting a progressive JPEG of a gigapixel, or reading from a sleeping disk.
_TIMEOUT_S = 3600.0


class _Files:
    """Dataset of files that the loader's workers read and encode."""

    def __init__(self, paths: Sequence[str], encode: Callable[[bytes], Encoded | bytes]) -> None:
        self._paths = paths
        self._encode = encode

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> EncodedSample:
        data = _read(self._paths[index])
        made = self._encode(data)
        return EncodedSample(index, made if isinstance(made, Encoded) else Encoded(made, len(data)))


def _read(path: str) -> bytes:
    """Read a regular file.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger than `MOST_NBYTES`.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > MOST_NBYTES:
            raise OSError(errno.EFBIG, f"{size} bytes are too large for an image", path)
        data = os.read(fd, size)
        while len(data) < size:
            more = os.read(fd, size - len(data))
            if not more:
                raise OSError(
                    errno.EIO, f"the file shrank from {size} to {len(data)} bytes while it was read", path
                )
            data += more
        return data
    finally:
        os.close(fd)


@dataclass(frozen=True)
class _EncodePixels:
    """Transform from the pixels and the number of an image to its encoded form."""

    encode: Callable[[Array, int], Encoded]

    def __call__(self, image: Array, number: Any) -> EncodedSample:
        # A copy, because encoding may overwrite it.
        return EncodedSample(int(number), self.encode(image.copy(), image.nbytes))


def encoded_in_order(
    source: Source,
    order: IntArray,
    encode: Any,
    *,
    workers: int,
    executor: str | Executor,
    mean_nbytes: int,
    on_error: str,
    most_errors: int | None = None,
) -> Generator[tuple[int, Encoded | SampleError]]:
    """Encode the images of a source.

    Args:
        source: the images.
        order: int64 (n,), number of the image at each place, without repetitions.
        encode: encodes the bytes of a file; for images in memory its method ``of_pixels`` is called.
        workers: number of workers.
        executor: "thread", "process", "inline" or an executor.
        mean_nbytes: approximate mean size of an image.
        on_error: "raise": the first failed image is the last one yielded, and some before it may be missing.
        most_errors: stop once more than this number of images have failed; None: no limit.

    Yields:
        place in `order`, and the encoded image or its error.
    """
    dataset: MapDataset[Any]
    if source.samples is not None:
        dataset = source.samples.encoded(encode)
    elif source.images is None:
        dataset = _Files(source.paths, encode)
    else:
        numbers = np.arange(len(source.images), dtype=np.int64)
        dataset = ArrayDataset(source.images, numbers).transform(_EncodePixels(encode.of_pixels))
    # Executors in this process pass images by reference, so batches need no slab memory, unless the loader reads files.
    few = source.samples is None and executor in ("thread", "inline")
    batch = int(min(_MOST_IN_BATCH, max(1, _BATCH_NBYTES // max(1, mean_nbytes))))
    loader: DataLoader[list[EncodedSample]] = DataLoader(
        IndexedView(dataset, order),
        batch,
        batchify_fn=list,
        num_workers=None if executor == "inline" else workers,
        executor=executor,
        timeout=_TIMEOUT_S,
        on_error="raise" if on_error == "raise" else "skip",
        max_errors=None if on_error == "raise" else most_errors,
        memory_limit=_MEMORY_NBYTES if few else None,
    )
    with loader:
        place = taken = 0
        failed: dict[int, SampleError] = {}
        try:
            for images in loader:
                for sample in images:
                    while order[place] != sample.number:  # it has failed
                        if place not in failed:
                            errors = loader.errors
                            failed |= {_position(each): each for each in errors[taken:]}
                            taken = len(errors)
                        yield place, failed.pop(place)
                        place += 1
                    yield place, sample.image
                    place += 1
        except SampleError as error:
            yield _position(error), error
            return
        except TooManyErrorsError:
            pass  # the errors follow
        failed |= {_position(each): each for each in loader.errors[taken:]}
        for place in sorted(failed):
            yield place, failed[place]


def _position(error: SampleError) -> int:
    assert error.position is not None
    return error.position
